//! Field cases 6, 16 to 19: a node leaves, in whatever order and however badly.
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::central::Shape;
use crate::harness::kube_api::NODE;
use crate::harness::monitor::RowMonitor;
use crate::harness::until;
use crate::harness::until_true;
use crate::harness::world::{CHASSIS_LABEL, GATEWAY_LABEL, SOON, World};
use crate::history;

fn gateway_world(test: &str, node: &str) -> (World, String) {
    let world = World::ready(test, Shape::default().without_northd(), &[node], &[node]);
    let id = world.recorded_system_id(node);
    world.central.seed_chassis(&[&id, "foreign"]);
    world.seed_gateway_ports("lr0", 4, &[(&id, 2), ("foreign", 1)]);
    world.seed_ha_group("lr0", "group0", &[(&id, 2), ("foreign", 1)]);
    (world, id)
}

fn assert_left(world: &World, node: &str) {
    world.wait_forgotten(node);
    world.wait_condition("MaintenanceReady", "True", "MaintenanceIdle");
    assert_eq!(world.central.gateway_rows(), ["foreign"; 5]);
    for table in ["chassis", "chassis_private", "encap"] {
        assert_eq!(world.central.southbound_names(table), ["foreign"], "{table}");
    }
    let status = world.chassis_object()["status"].clone();
    assert!(status["nodes"].is_null(), "{status}");
    assert_eq!(status["desiredNumberScheduled"], json!(0));
    history::assert_holds(world);
}

#[test]
fn field19_both_labels_removed_in_one_command() {
    let (world, _) = gateway_world("field19-both", "field19-b");
    world.label("field19-b", &[(CHASSIS_LABEL, None), (GATEWAY_LABEL, None)]);
    assert_left(&world, "field19-b");
}

#[test]
fn field19_the_chassis_label_first() {
    let (world, _) = gateway_world("field19-first", "field19-c");
    world.label("field19-c", &[(CHASSIS_LABEL, None)]);
    world.wait_job("evacuate", "field19-c", "Complete");
    assert_left(&world, "field19-c");
}

#[test]
fn field19_the_node_object_deleted() {
    let (world, _) = gateway_world("field19-node", "field19-n");
    world.kube.delete(NODE, "", "field19-n");
    assert_left(&world, "field19-n");
}

#[test]
fn field19_the_node_object_deleted_in_the_middle_of_its_drain() {
    let (world, _) = gateway_world("field19-middle", "field19-m");
    world.label("field19-m", &[(GATEWAY_LABEL, None)]);
    world.kube.delete(NODE, "", "field19-m");
    assert_left(&world, "field19-m");
}

#[test]
fn field16_rows_are_deleted_only_after_the_nodes_pods_are_gone() {
    let (world, id) = gateway_world("field16", "field16-a");
    let pods = ["ovs", "ovn-controller"].map(|s| world.add_daemon_pod("field16-a", s));
    let registrations =
        RowMonitor::start(&world.central.southbound.members[0].socket, "OVN_Southbound", "Chassis", "name");
    world.label("field16-a", &[(CHASSIS_LABEL, None), (GATEWAY_LABEL, None)]);
    until("our label to leave the node, so that the pods end", SOON, || {
        world.owner_label("field16-a").map_or(Ok(()), Err)
    });
    for pod in &pods {
        std::thread::sleep(Duration::from_millis(700));
        assert_eq!(registrations.deletions(&id), 0, "a pod is still there");
        assert!(world.record("field16-a").is_some_and(|r| r["leaving"] == json!(true)));
        world.end_pod(pod);
    }
    assert_left(&world, "field16-a");
    assert_eq!(registrations.deletions(&id), 1);
}

#[test]
fn field16_a_registration_that_comes_back_is_seen_said_and_removed() {
    let (world, id) = gateway_world("field16-back", "field16-b");
    world.kube.delete(NODE, "", "field16-b");
    assert_left(&world, "field16-b");
    // The dead node's ovn-controller was alive after all.
    world.central.seed_chassis(&[&id]);
    until("the row to be removed again", SOON, || {
        let names =
            [world.central.southbound_names("chassis"), world.central.southbound_names("chassis_private")].concat();
        if names == ["foreign", "foreign"] { Ok(()) } else { Err(format!("{names:?}")) }
    });
    until("the status or an event to say that it came back", SOON, || {
        let status = world.chassis_object()["status"].to_string();
        let events = world.kube.list(crate::harness::kube_api::EVENT, &world.namespace, "");
        let said = events.iter().any(|e| e["message"].as_str().unwrap_or_default().contains(&id))
            || status.contains("\"returned\"");
        if said { Ok(()) } else { Err(status) }
    });
}

#[test]
fn field17_half_deleted_pairs_left_by_others_are_healed() {
    for left in ["chassis", "chassis_private"] {
        let (world, id) = gateway_world("field17", "field17-a");
        if left == "chassis_private" {
            world.central.sbctl(&["--", "destroy", "chassis", &id]);
        } else {
            let row = world.central.sbctl(&[
                "--bare",
                "--no-headings",
                "--columns=_uuid",
                "find",
                "chassis_private",
                &format!("name={id}"),
            ]);
            world.central.sbctl(&["destroy", "chassis_private", row.trim()]);
        }
        world.label("field17-a", &[(CHASSIS_LABEL, None), (GATEWAY_LABEL, None)]);
        assert_left(&world, "field17-a");
    }
}

#[test]
fn field17_the_pair_and_its_encap_go_in_one_transaction() {
    let (world, id) = gateway_world("field17-one", "field17-o");
    let socket = &world.central.southbound.members[0].socket;
    let monitors = [("Chassis", "name"), ("Chassis_Private", "name"), ("Encap", "chassis_name")]
        .map(|(t, c)| RowMonitor::start(socket, "OVN_Southbound", t, c));
    world.label("field17-o", &[(CHASSIS_LABEL, None), (GATEWAY_LABEL, None)]);
    assert_left(&world, "field17-o");
    until_true("the monitors to see the rows go", SOON, || monitors.iter().all(|m| m.deletions(&id) == 1));
    let moments: Vec<_> =
        monitors.iter().flat_map(|m| m.changes()).filter(|c| c.action == "delete").map(|c| c.at).collect();
    let (first, last) = (moments.iter().min().unwrap(), moments.iter().max().unwrap());
    assert!(*last - *first < Duration::from_millis(50), "{:?} apart", *last - *first);
}

#[test]
fn field18_a_node_that_died_without_a_drain_leaves_a_hundred_groups_and_ports_without_gateway_are_named() {
    let mut world = World::ready("field18", Shape::default().without_northd(), &["field18-a"], &["field18-a"]);
    let id = world.recorded_system_id("field18-a");
    world.central.seed_chassis(&[&id]);
    for group in 0..100 {
        let other: &[(&str, u32)] = if group % 10 == 0 { &[] } else { &[("foreign", 1)] };
        world.seed_ha_group("lr0", &format!("group{group}"), &[&[(id.as_str(), 2)], other].concat());
    }
    let node = world.node_mut("field18-a");
    node.agent.as_mut().unwrap().kill();
    node.database.kill();
    world.kube.delete(NODE, "", "field18-a");
    world.wait_forgotten("field18-a");
    assert_eq!(world.central.gateway_rows(), ["foreign"; 90]);
    assert!(world.central.chassis_names().is_empty());
    let named = until("an event that names ports without a gateway", SOON, || {
        let events = world.kube.list(crate::harness::kube_api::EVENT, &world.namespace, "");
        let found =
            events.iter().filter_map(|e| e["message"].as_str()).find(|m| m.contains("group0-port")).map(str::to_owned);
        found.ok_or_else(|| format!("{:?}", events.iter().map(|e| e["message"].clone()).collect::<Vec<Value>>()))
    });
    assert!(named.contains("10"), "the count is said: {named}");
    history::assert_holds(&world);
}

#[test]
fn a_dead_agent_does_not_keep_a_node_from_leaving() {
    let (mut world, _) = gateway_world("leaving-dead", "leaving-d");
    world.node_mut("leaving-d").agent.as_mut().unwrap().kill();
    world.label("leaving-d", &[(CHASSIS_LABEL, None), (GATEWAY_LABEL, None)]);
    assert_left(&world, "leaving-d");
}

#[test]
fn a_node_that_comes_back_while_it_leaves_stays() {
    let (world, id) = gateway_world("leaving-back", "leaving-b");
    let pods = ["ovs", "ovn-controller"].map(|s| world.add_daemon_pod("leaving-b", s));
    world.label("leaving-b", &[(CHASSIS_LABEL, None), (GATEWAY_LABEL, None)]);
    until("the node to be leaving", SOON, || {
        let record = world.record("leaving-b").unwrap_or(Value::Null);
        if record["leaving"] == json!(true) { Ok(()) } else { Err(record.to_string()) }
    });
    world.label("leaving-b", &[(CHASSIS_LABEL, Some("true")), (GATEWAY_LABEL, Some("true"))]);
    until("the node to be a chassis again", SOON, || {
        let record = world.record("leaving-b").unwrap_or(Value::Null);
        let settled = record["leaving"].is_null() && record["gateway"] == json!(true) && record["phase"] == "Active";
        if settled { Ok(()) } else { Err(record.to_string()) }
    });
    world.wait_applied("leaving-b");
    assert_eq!(world.recorded_system_id("leaving-b"), id);
    assert!(world.owner_label("leaving-b").is_some());
    for pod in &pods {
        world.end_pod(pod);
    }
    history::assert_holds(&world);
}
