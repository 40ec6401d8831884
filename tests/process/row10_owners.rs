//! Row 10: names that collide and OVNChassis that want the same node.
use std::collections::HashMap;

use serde_json::{Value, json};

use crate::harness::central::Shape;
use crate::harness::kube_api::{self, NODE, OVN_CHASSIS};
use crate::harness::world::{CHASSIS_LABEL, GATEWAY_LABEL, SOON, World, hash8};
use crate::harness::{until, until_true};

/// Two node names whose Job names are the same: found by search, about 80,000 names.
fn colliding_names() -> (String, String) {
    let mut seen: HashMap<String, String> = HashMap::new();
    for number in 0_u32.. {
        let name = format!("row10-{number}");
        if let Some(other) = seen.insert(hash8(&name), name.clone()) {
            return (other, name);
        }
    }
    unreachable!("hashes of 32 bits run out before the numbers do")
}

#[test]
fn row10_two_nodes_whose_names_share_a_hash_never_read_each_others_result() {
    let (first, second) = colliding_names();
    let world = World::ready("row10-hash", Shape::default().without_northd(), &[&first, &second], &[&first, &second]);
    let ids = [&first, &second].map(|n| world.recorded_system_id(n));
    world.seed_gateway_ports("lr0", 2, &[(&ids[0], 2), (&ids[1], 1)]);

    world.label(&first, &[(GATEWAY_LABEL, None)]);
    let job = world.wait_job("evacuate", &first, "Complete");
    let owner = job["metadata"]["annotations"]["ovn.openstack.c5c3.io/node"].as_str().unwrap().to_owned();
    assert_eq!(owner, first);
    world.wait_evacuated(&first);
    let other = world.record(&second).unwrap();
    assert_eq!((&other["gateway"], &other["gatewayEvacuated"]), (&json!(true), &json!(null)), "{other}");
    assert_eq!(world.central.gateway_rows(), [ids[1].clone(), ids[1].clone()]);

    // The second is drained too, while the first one's Job holds the name: its own status says so.
    world.label(&second, &[(GATEWAY_LABEL, None)]);
    world.wait_evacuated(&second);
    assert!(world.central.gateway_rows().is_empty());
    let job = world.job("evacuate", &first).expect("the first one's Job stays");
    assert_eq!(job["metadata"]["annotations"]["ovn.openstack.c5c3.io/node"], json!(first));
    until("the second to say that it has no Jobs", SOON, || {
        let record = world.record(&second).unwrap_or(Value::Null);
        let message = record["message"].as_str().unwrap_or_default();
        if message.contains(&first) || message.contains("Job") { Ok(()) } else { Err(record.to_string()) }
    });
    for node in [&first, &second] {
        world.label(node, &[(CHASSIS_LABEL, None)]);
    }
    for node in [&first, &second] {
        world.wait_forgotten(node);
    }
}

/// Waits until an OVNChassis names `owner` in one of its conditions.
fn wait_names_owner(world: &World, namespace: &str, name: &str, owner: &str) {
    until("the second OVNChassis to name the first", SOON, || {
        let object = world.kube.get(OVN_CHASSIS, namespace, name).unwrap_or(Value::Null);
        let conditions = object["status"]["conditions"].to_string();
        if conditions.contains(owner) { Ok(()) } else { Err(conditions) }
    });
}

fn second_owner(test: &str, other_namespace: bool) {
    let world = World::ready(test, Shape::default().without_northd(), &["row10-o"], &["row10-o"]);
    let id = world.recorded_system_id("row10-o");
    let label = world.owner_label("row10-o").expect("owned");
    world.seed_gateway_ports("lr0", 2, &[(&id, 2)]);

    let namespace = if other_namespace { format!("{}-two", world.namespace) } else { world.namespace.clone() };
    if other_namespace {
        world.kube.create(kube_api::NAMESPACE, "", json!({"metadata": {"name": namespace}}));
        world.write_client_secret(&namespace, "central-client");
        world.kube.create(kube_api::OVN_CENTRAL, &namespace, json!({"metadata": {"name": "central"}, "spec": {}}));
        let central = world.kube.get(kube_api::OVN_CENTRAL, &world.namespace, "central").unwrap();
        world.kube.merge_status(kube_api::OVN_CENTRAL, &namespace, "central", central["status"].clone());
    }
    let spec = World::chassis_spec(&json!({"encapType": "vxlan"}));
    world.kube.create(OVN_CHASSIS, &namespace, json!({"metadata": {"name": "second"}, "spec": spec}));
    wait_names_owner(&world, &namespace, "second", &format!("{}/{}", world.namespace, world.chassis));
    let second = || world.kube.get(OVN_CHASSIS, &namespace, "second").unwrap();
    assert!(second()["status"]["nodes"].is_null(), "{}", second()["status"]);
    assert_eq!(world.owner_label("row10-o"), Some(label.clone()));
    assert_eq!(world.node("row10-o").external_id("ovn-encap-type"), "geneve");
    assert_eq!(world.central.gateway_rows().len(), 2);
    if other_namespace {
        assert!(world.kube.get(kube_api::OVN_CHASSIS_NODE, &namespace, "row10-o").is_none());
    }

    // The first goes; what it registered stays, and the second takes the node with the id it has.
    world.kube.delete(OVN_CHASSIS, &world.namespace, &world.chassis);
    until("the second OVNChassis to own the node", SOON, || {
        let owner = world.owner_label("row10-o");
        if owner.as_ref().is_some_and(|o| o.starts_with("second-")) { Ok(()) } else { Err(format!("{owner:?}")) }
    });
    until("the second's OVNChassisNode", SOON, || {
        let node = world.kube.get(kube_api::OVN_CHASSIS_NODE, &namespace, "row10-o").ok_or("none")?;
        if node["spec"]["chassisName"] == "second" { Ok(()) } else { Err("the first one's") }
    });
    assert_eq!(world.central.gateway_rows().len(), 2, "a take-over evacuates nothing");
}

#[test]
fn row10_a_second_ovnchassis_in_the_same_namespace_names_the_owner_and_takes_over_when_it_goes() {
    second_owner("row10-same", false);
}

#[test]
fn row10_a_second_ovnchassis_in_another_namespace_names_the_owner_and_takes_over_when_it_goes() {
    second_owner("row10-other", true);
}

#[test]
fn deleting_an_ovnchassis_leaves_the_rows_and_takes_our_labels_and_objects() {
    let world = World::ready("orphan", Shape::default().without_northd(), &["orphan-a"], &["orphan-a"]);
    let id = world.recorded_system_id("orphan-a");
    world.central.seed_chassis(&[&id]);
    world.seed_gateway_ports("lr0", 2, &[(&id, 2)]);
    world.kube.delete(OVN_CHASSIS, &world.namespace, &world.chassis);
    until_true("the OVNChassis to go", SOON, || world.chassis_object().is_null());
    assert_eq!(world.owner_label("orphan-a"), None);
    let node = world.kube.get(NODE, "", "orphan-a").unwrap();
    assert_eq!(node["metadata"]["labels"][CHASSIS_LABEL], "true", "the user's label is the user's");
    assert_eq!(world.central.chassis_names(), [id], "as the guide warns");
    assert_eq!(world.central.gateway_rows().len(), 2);
}

#[test]
fn deleting_an_ovnchassis_with_the_drain_policy_lets_each_node_leave_first() {
    let world =
        World::ready("drain-policy", Shape::default().without_northd(), &["policy-a", "policy-b"], &["policy-a"]);
    world.kube.merge(OVN_CHASSIS, &world.namespace, &world.chassis, json!({"spec": {"deletionPolicy": "Drain"}}));
    let ids = ["policy-a", "policy-b"].map(|n| world.recorded_system_id(n));
    for id in &ids {
        world.central.seed_chassis(&[id]);
    }
    world.seed_gateway_ports("lr0", 2, &[(&ids[0], 2), ("foreign", 1)]);
    world.kube.delete(OVN_CHASSIS, &world.namespace, &world.chassis);
    until_true("the OVNChassis to go", SOON, || world.chassis_object().is_null());
    assert!(world.central.chassis_names().is_empty());
    assert_eq!(world.central.gateway_rows(), ["foreign", "foreign"]);
}
