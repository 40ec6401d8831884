//! One node's pods at a time: whose turn it is stands in the nodes' objects, so no change of leaders gives it to another.
use serde_json::{Value, json};

use crate::harness::central::Shape;
use crate::harness::kube_api::{OVN_CHASSIS_NODE, POD};
use crate::harness::until_true;
use crate::harness::world::{SOON, World};

fn set_ready(world: &World, pod: &str, ready: bool) {
    let conditions = json!([{"type": "Ready", "status": if ready { "True" } else { "False" }}]);
    world.kube.merge_status(POD, &world.namespace, pod, json!({"phase": "Running", "conditions": conditions}));
}

fn grants(object: &Value) -> Value {
    object["spec"]["handover"]["grants"].clone()
}

/// A pod that waits behind an older one of the same node; the older one's name and its own.
fn standby(world: &World, node: &str) -> (String, String) {
    let age = |name: &String| {
        let pod = world.kube.get(POD, &world.namespace, name).unwrap();
        // Times have whole seconds; the uid decides among those of one second.
        ["creationTimestamp", "uid"].map(|field| pod["metadata"][field].as_str().unwrap().to_owned())
    };
    let mut pods = [world.add_daemon_pod(node, "ovs"), world.add_daemon_pod(node, "ovs")];
    pods.sort_by_key(age);
    let [old, new] = pods;
    set_ready(world, &new, false);
    (old, new)
}

#[test]
fn a_roll_that_stands_at_a_sick_node_stands_there_under_the_next_leader_too() {
    let mut world = World::ready("turns", Shape::default().without_northd(), &["turns-a", "turns-b"], &[]);
    let (old, new) = standby(&world, "turns-a");
    until_true("the grant", SOON, || grants(&world.chassis_node("turns-a").unwrap()).is_array());
    // Its agent never reports from the new pod: the node is not well.
    set_ready(&world, &new, true);
    world.end_pod(&old);
    standby(&world, "turns-b");

    world.controllers[0].kill();
    world.start_controller(&[], &[]);
    // The new leader has looked at everything once it has taken a node in that is new.
    world.add_node("turns-c", true, false);
    world.start_agent("turns-c");
    world.wait_applied("turns-c");
    assert!(grants(&world.chassis_node("turns-a").unwrap()).is_array(), "its turn is not over");
    let given = world.recorder.of(OVN_CHASSIS_NODE, "turns-b");
    assert!(given.iter().all(|version| grants(&version.object).is_null()), "one node at a time");
    let taken = world.recorder.of(OVN_CHASSIS_NODE, "turns-a");
    let first = taken.iter().position(|version| grants(&version.object).is_array()).unwrap();
    assert!(taken[first..].iter().all(|version| grants(&version.object).is_array()), "never taken away in between");
}
