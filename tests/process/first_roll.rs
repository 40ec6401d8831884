//! Daemons that were there before ours hold no locks: their roll stops them first, and a DaemonSet that is not ours is left alone and named.
use serde_json::{Value, json};

use crate::harness::central::Shape;
use crate::harness::kube_api::{self, DAEMON_SET, POD};
use crate::harness::until;
use crate::harness::world::{SOON, World};

fn rolling(world: &World, suffix: &str) -> Value {
    let name = format!("{}-{suffix}", world.chassis);
    let set = world.kube.get(DAEMON_SET, &world.namespace, &name).unwrap_or(Value::Null);
    set["spec"]["updateStrategy"]["rollingUpdate"].clone()
}

fn wait_rolling(world: &World, wanted: &Value) {
    for suffix in ["ovs", "ovn-controller"] {
        until(&format!("DaemonSet {suffix} to roll with {wanted}"), SOON, || {
            let found = rolling(world, suffix);
            if found == *wanted { Ok(()) } else { Err(found.to_string()) }
        });
    }
}

fn maintenance(world: &World) -> Value {
    kube_api::condition(&world.chassis_object(), "MaintenanceReady").cloned().unwrap_or_default()
}

#[test]
fn the_first_roll_stops_pods_that_hold_no_locks_and_the_next_one_is_a_hand_over() {
    let world = World::ready("first-roll", Shape::default().without_northd(), &["first-roll-a"], &[]);
    let hand_over = json!({"maxSurge": 1, "maxUnavailable": 0});
    wait_rolling(&world, &hand_over);
    // As an earlier version's DaemonSet would have left it.
    let pods = ["ovs", "ovn-controller"].map(|s| world.add_daemon_pod("first-roll-a", s));
    for pod in &pods {
        let gone = json!({"metadata": {"annotations": {"ovn.openstack.c5c3.io/hand-over": null}}});
        world.kube.merge(POD, &world.namespace, pod, gone);
    }
    wait_rolling(&world, &json!({"maxSurge": 0, "maxUnavailable": 1}));
    world.wait_condition("MaintenanceReady", "True", "MaintenanceRunning");
    until("the condition to name both pods", SOON, || {
        let message = maintenance(&world)["message"].to_string();
        if pods.iter().all(|pod| message.contains(pod)) { Ok(()) } else { Err(message) }
    });
    until("the event", SOON, || if world.events("FirstRollStopsFirst").is_empty() { Err("none") } else { Ok(()) });

    // One of the two is replaced: the other one still cannot be handed over from.
    world.end_pod(&pods[0]);
    let successor = world.add_daemon_pod("first-roll-a", "ovs");
    until("the condition to name the last one alone", SOON, || {
        let message = maintenance(&world)["message"].to_string();
        if message.contains(&pods[1]) && !message.contains(&pods[0]) && !message.contains(&successor) {
            Ok(())
        } else {
            Err(message)
        }
    });
    assert_eq!(rolling(&world, "ovs")["maxSurge"], json!(0));
    world.end_pod(&pods[1]);
    world.add_daemon_pod("first-roll-a", "ovn-controller");
    wait_rolling(&world, &hand_over);
    world.wait_condition("MaintenanceReady", "True", "MaintenanceIdle");
}

#[test]
fn a_daemon_set_of_another_operator_is_left_alone_and_named_until_it_is_gone() {
    let mut world = World::new("name-taken", Shape::default().without_northd());
    let chassis = world.create_chassis(json!({}));
    // The same OVNChassis may own it: users come from an operator with the same kind.
    let name = format!("{}-ovs", world.chassis);
    let owner = json!({"apiVersion": "ovn.openstack.c5c3.io/v1alpha1", "kind": "OVNChassis", "name": world.chassis, "uid": chassis["metadata"]["uid"], "controller": true});
    let labels = json!({"app": "somebody-elses-ovs"});
    let containers = json!([{"name": "ovsdb-server", "image": "none.example/ovs"}]);
    let theirs = world.kube.create(
        DAEMON_SET,
        &world.namespace,
        json!({
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}},
        }),
    );
    world.add_node("name-taken-a", true, false);
    world.start_controller(&[], &[]);
    let condition = world.wait_condition("MaintenanceReady", "False", "MaintenanceError");
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains(&name) && message.contains("--cascade=orphan"), "{message}");
    // The rest of the work goes on.
    world.start_agent("name-taken-a");
    world.wait_applied("name-taken-a");
    until("the other DaemonSet", SOON, || {
        if rolling(&world, "ovn-controller").is_null() { Err("not there") } else { Ok(()) }
    });
    let now = world.kube.get(DAEMON_SET, &world.namespace, &name).unwrap();
    assert_eq!(now["metadata"]["resourceVersion"], theirs["metadata"]["resourceVersion"], "left alone");

    world.kube.delete(DAEMON_SET, &world.namespace, &name);
    world.wait_condition("MaintenanceReady", "True", "MaintenanceIdle");
    until("our own DaemonSet", SOON, || {
        let set = world.kube.get(DAEMON_SET, &world.namespace, &name).ok_or_else(|| "none".to_owned())?;
        if set["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"] == "ovn-chassis" {
            Ok(())
        } else {
            Err(set["spec"]["selector"].to_string())
        }
    });
}
