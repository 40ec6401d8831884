//! Row 12 and field cases 12 to 15: the system-id of a node outlives whatever is lost.
use serde_json::{Value, json};

use crate::harness::central::Shape;
use crate::harness::kube_api::{self, CONFIG_MAP, NODE};
use crate::harness::until;
use crate::harness::world::{CHASSIS_LABEL, GATEWAY_LABEL, SOON, World};
use crate::history;

fn one_node(test: &str, node: &str) -> (World, String) {
    let world = World::ready(test, Shape::default().without_northd(), &[node], &[node]);
    let id = world.recorded_system_id(node);
    assert_eq!(world.node(node).system_id(), id);
    (world, id)
}

#[track_caller]
fn wait_id_on_node(world: &World, node: &str, id: &str) {
    until("the node's database to hold the recorded id", SOON, || {
        let found = world.node(node).system_id();
        if found == id { Ok(()) } else { Err(format!("{found:?} instead of {id:?}")) }
    });
}

#[test]
fn field12_a_node_that_lost_its_database_gets_its_recorded_id_back() {
    let (mut world, id) = one_node("field12", "field12-a");
    world.node_mut("field12-a").lose_database();
    wait_id_on_node(&world, "field12-a", &id);
    until("all of its settings", SOON, || {
        let node = world.node("field12-a");
        let options = node.external_id("ovn-cms-options");
        if options.contains("enable-chassis-as-gw") && !node.external_id("ovn-remote").is_empty() {
            Ok(())
        } else {
            Err(options)
        }
    });
    assert_eq!(world.recorded_system_id("field12-a"), id);
}

#[test]
fn row12_the_id_survives_a_lost_database_while_the_agent_is_down() {
    let (mut world, id) = one_node("row12-down", "row12-d");
    let node = world.node_mut("row12-d");
    node.agent.as_mut().unwrap().kill();
    node.lose_database();
    node.agent.as_mut().unwrap().start_again();
    wait_id_on_node(&world, "row12-d", &id);
    assert_eq!(world.recorded_system_id("row12-d"), id);
}

#[test]
fn row12_the_id_survives_a_deleted_config_map_and_a_cleared_status() {
    let (world, id) = one_node("row12-status", "row12-s");
    let view = format!("{}-nodes", world.chassis);
    world.kube.delete(CONFIG_MAP, &world.namespace, &view);
    until("the ConfigMap to be rendered again", SOON, || {
        let text =
            world.kube.get(CONFIG_MAP, &world.namespace, &view).unwrap_or(Value::Null)["data"]["row12-s"].to_string();
        if text.contains(&format!("SYSTEM_ID={id}")) { Ok(()) } else { Err(text) }
    });
    world.kube.merge_status(kube_api::OVN_CHASSIS, &world.namespace, &world.chassis, json!({"nodes": null}));
    until("the record to come back", SOON, || match world.record("row12-s") {
        Some(record) if record["systemID"] == json!(id) && record["gateway"] == json!(true) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(world.node("row12-s").system_id(), id);
}

#[test]
fn row12_the_id_survives_the_loss_of_every_record_of_ours_at_once() {
    // The status, the ConfigMap and the OVNChassisNode are lost with the controller down: the Node's annotation and the node itself still know.
    let (mut world, id) = one_node("row12-all", "row12-l");
    world.controllers[0].kill();
    world.kube.delete(CONFIG_MAP, &world.namespace, &format!("{}-nodes", world.chassis));
    world.kube.delete(kube_api::OVN_CHASSIS_NODE, &world.namespace, "row12-l");
    world.kube.merge_status(kube_api::OVN_CHASSIS, &world.namespace, &world.chassis, json!({"nodes": null}));
    world.start_controller(&[], &[]);
    world.wait_applied("row12-l");
    assert_eq!(world.recorded_system_id("row12-l"), id);
    assert_eq!(world.node("row12-l").system_id(), id);
}

#[test]
fn field15_a_node_that_is_created_again_has_one_identity_and_no_stale_row() {
    let (world, id) = one_node("field15", "field15-a");
    world.central.seed_chassis(&[&id]);
    world.seed_gateway_ports("lr0", 2, &[(&id, 2)]);
    world.kube.delete(NODE, "", "field15-a");
    world.wait_forgotten("field15-a");
    assert!(world.central.chassis_names().is_empty());
    assert!(world.central.gateway_rows().is_empty());

    world.create_node_object("field15-a", true, true);
    world.wait_applied("field15-a");
    let again = world.recorded_system_id("field15-a");
    assert_eq!(world.node("field15-a").system_id(), again);
    let nodes = world.chassis_object()["status"]["nodes"].clone();
    assert_eq!(nodes.as_array().map(Vec::len), Some(1), "{nodes}");
    history::assert_holds(&world);
}

#[test]
fn row12_a_node_that_is_created_again_before_it_was_forgotten_keeps_its_id() {
    let (world, id) = one_node("row12-again", "row12-g");
    world.kube.delete(NODE, "", "row12-g");
    world.create_node_object("row12-g", true, true);
    until("the node to be applied, whole", SOON, || {
        let record = world.record("row12-g").unwrap_or(Value::Null);
        let settled = record["gateway"] == json!(true) && record["leaving"].is_null() && record["phase"] == "Active";
        if settled { Ok(()) } else { Err(record.to_string()) }
    });
    assert_eq!(world.recorded_system_id("row12-g"), id);
    assert_eq!(world.node("row12-g").system_id(), id);
}

#[test]
fn row12_a_brownfield_id_is_adopted_and_kept() {
    let mut world = World::new("row12-brown", Shape::default().without_northd());
    world.create_chassis(json!({}));
    world.add_node("row12-b", true, false);
    world.node("row12-b").vsctl(&["set", "open_vswitch", ".", "external_ids:system-id=rack7.host-3"]);
    world.start_controller(&[], &[]);
    world.start_agent("row12-b");
    world.wait_applied("row12-b");
    assert_eq!(world.recorded_system_id("row12-b"), "rack7.host-3");
    assert_eq!(world.node("row12-b").system_id(), "rack7.host-3");
    let node = world.kube.get(NODE, "", "row12-b").unwrap();
    assert_eq!(node["metadata"]["annotations"]["ovn.openstack.c5c3.io/system-id"], "rack7.host-3");

    // Once recorded it wins over what somebody writes on the node.
    world.node("row12-b").vsctl(&["set", "open_vswitch", ".", "external_ids:system-id=other"]);
    wait_id_on_node(&world, "row12-b", "rack7.host-3");
}

#[test]
fn row12_an_id_that_cannot_be_one_is_not_adopted() {
    let mut world = World::new("row12-bad", Shape::default().without_northd());
    world.create_chassis(json!({}));
    world.add_node("row12-x", true, false);
    world.node("row12-x").vsctl(&["set", "open_vswitch", ".", r#"external_ids:system-id="a,b c""#]);
    world.start_controller(&[], &[]);
    world.start_agent("row12-x");
    until("the node's message to show what was found", SOON, || {
        let text = format!(
            "{} {}",
            world.record("row12-x").unwrap_or(Value::Null),
            world.chassis_object()["status"]["conditions"]
        );
        let applied = world.chassis_node("row12-x").unwrap_or(Value::Null);
        // Refused with what was found, or replaced by a good one: never used as it is.
        if applied["spec"]["systemID"] == "a,b c" {
            panic!("the id was adopted: {applied}");
        }
        if text.contains("a,b c") || applied["spec"]["systemID"].is_string() { Ok(()) } else { Err(text) }
    });
}

#[test]
fn row12_the_same_id_on_two_nodes_is_refused_and_both_are_named() {
    let mut world = World::new("row12-twin", Shape::default().without_northd());
    world.create_chassis(json!({}));
    for node in ["twin-a", "twin-b"] {
        world.add_node(node, true, false);
        world.node(node).vsctl(&["set", "open_vswitch", ".", "external_ids:system-id=twin"]);
    }
    world.start_controller(&[], &[]);
    world.start_agent("twin-a");
    world.wait_applied("twin-a");
    world.start_agent("twin-b");
    until("a message that names both nodes and the id", SOON, || {
        let object = world.chassis_object();
        let texts =
            [object["status"]["conditions"].to_string(), world.record("twin-b").unwrap_or(Value::Null).to_string()];
        if texts.iter().any(|t| t.contains("twin-a") && t.contains("twin-b")) { Ok(()) } else { Err(texts.join(" ")) }
    });
    let node = world.chassis_node("twin-b").unwrap();
    assert_ne!(node["spec"]["systemID"], "twin", "{node}");
    assert_eq!(world.recorded_system_id("twin-a"), "twin");

    // Mended by hand on the second node: it goes on by itself.
    world.node("twin-b").vsctl(&["set", "open_vswitch", ".", "external_ids:system-id=twin-two"]);
    world.wait_applied("twin-b");
    assert_eq!(world.recorded_system_id("twin-b"), "twin-two");
}

#[test]
fn field13_chassis_that_are_no_nodes_of_ours_are_never_touched_even_with_a_nodes_host_name() {
    let (world, id) = one_node("field13", "field13-a");
    world.central.seed_chassis(&[&id]);
    world.central.sbctl(&["set", "chassis", &id, "hostname=field13-a.rack.example"]);
    for (name, host) in [("bare-metal", "field13-a"), ("field13-a", "field13-a.rack.example")] {
        world.central.seed_chassis(&[name]);
        world.central.sbctl(&["set", "chassis", name, &format!("hostname={host}")]);
    }
    world.seed_gateway_ports("lr0", 2, &[("bare-metal", 3), ("field13-a", 2), (&id, 1)]);
    world.label("field13-a", &[(GATEWAY_LABEL, None), (CHASSIS_LABEL, None)]);
    world.wait_forgotten("field13-a");
    assert_eq!(world.central.chassis_names(), ["bare-metal", "field13-a"]);
    assert_eq!(world.central.gateway_rows(), ["bare-metal", "bare-metal", "field13-a", "field13-a"]);
}

#[test]
fn field14_node_names_with_dots_and_of_253_characters_drain_like_any_other() {
    let long = format!("{}.{}.{}.{}", "a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(61));
    assert_eq!(long.len(), 253);
    let names = ["node.with.dots", long.as_str()];
    let world = World::ready("field14", Shape::default().without_northd(), &names, &names);
    for name in names {
        let id = world.recorded_system_id(name);
        world.central.seed_chassis(&[&id]);
        world.seed_gateway_ports(&format!("lr-{}", id.get(..8).unwrap()), 1, &[(&id, 2)]);
        world.label(name, &[(GATEWAY_LABEL, None)]);
        world.wait_job("apply", name, "Complete");
        world.wait_job("evacuate", name, "Complete");
        world.label(name, &[(CHASSIS_LABEL, None)]);
        world.wait_job("chassis-del", name, "Complete");
        world.wait_forgotten(name);
    }
    assert!(world.central.chassis_names().is_empty());
    history::assert_holds(&world);
}
