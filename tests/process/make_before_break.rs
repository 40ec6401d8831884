//! A gateway's traffic goes before its role does: priorities first, the move seen in the Southbound, then flag and rows.
use std::time::Duration;

use serde_json::{Value, json};

use crate::gateways::bind;
use crate::harness::central::Shape;
use crate::harness::kube_api::{OVN_CHASSIS_NODE, POD};
use crate::harness::world::{GATEWAY_LABEL, SOON, World};
use crate::harness::{until, until_true};
use crate::history;

/// Priority and notes of a chassis' rows in one table, sorted.
fn rows(world: &World, table: &str, chassis: &str) -> Vec<(i64, String)> {
    let condition = format!("chassis_name={chassis}");
    let arguments = ["--format=csv", "--data=bare", "--no-headings", "--columns=priority,external_ids", "find", table];
    let text = world.central.nbctl(&[&arguments[..], &[&condition]].concat());
    let parse = |line: &str| {
        let (priority, notes) = line.split_once(',').unwrap();
        (priority.trim().parse().unwrap(), notes.trim_matches('"').to_owned())
    };
    let mut rows: Vec<_> = text.lines().map(parse).collect();
    rows.sort();
    rows
}

fn priorities(world: &World, chassis: &str) -> Vec<i64> {
    ["gateway_chassis", "ha_chassis"].iter().flat_map(|t| rows(world, t, chassis)).map(|(p, _)| p).collect()
}

fn has_notes(world: &World) -> bool {
    let text = |table| world.central.nbctl(&["--columns=external_ids", "list", table]);
    (text("gateway_chassis") + &text("ha_chassis")).contains("ovn-chassis")
}

fn wait_lowered(world: &World, chassis: &str) {
    until("the priority to be lowered", SOON, || {
        let all = priorities(world, chassis);
        if all.iter().all(|p| *p == 0) { Ok(()) } else { Err(format!("{all:?}")) }
    });
}

fn wait_restored(world: &World, chassis: &str, wanted: &[i64]) {
    until("the priorities to be what they were", SOON, || {
        let all = priorities(world, chassis);
        if all == wanted && !has_notes(world) { Ok(()) } else { Err(format!("{all:?}")) }
    });
}

fn flag(world: &World, node: &str) -> bool {
    world.node(node).external_id("ovn-cms-options").contains("enable-chassis-as-gw")
}

/// A gateway with a port of its own rows, one behind a shared group, and one whose other candidate stands at 0.
fn seeded(test: &str, node: &str) -> (World, String) {
    let world = World::ready(test, Shape::default().without_northd(), &[node], &[node]);
    let id = world.recorded_system_id(node);
    world.central.seed_chassis(&[&id, "other"]);
    world.seed_gateway_ports("lr0", 1, &[(&id, 9), ("other", 3)]);
    world.seed_gateway_ports("lr1", 1, &[(&id, 4), ("other", 0)]);
    world.seed_ha_group("lr2", "group", &[(&id, 7), ("other", 2)]);
    for port in ["lr0-p0", "lr1-p0", "group-port"] {
        bind(&world, port, &id);
    }
    (world, id)
}

#[test]
fn field20_traffic_moves_before_the_flag_goes_and_the_rows_last() {
    let (world, id) = seeded("mbb", "mbb-a");
    world.label("mbb-a", &[(GATEWAY_LABEL, None)]);
    wait_lowered(&world, &id);
    assert_eq!(
        rows(&world, "gateway_chassis", &id).iter().map(|(_, n)| n.clone()).collect::<Vec<_>>(),
        ["ovn-chassis-priority=4", "ovn-chassis-priority=9"]
    );
    assert_eq!(priorities(&world, "other"), [1, 3, 2], "the one at 0 was raised, the others were not touched");
    for kind in ["apply", "evacuate"] {
        until_true("the Jobs to be there at once", SOON, || world.job(kind, "mbb-a").is_some());
    }
    let remaining = |wanted: i64| {
        until(&format!("{wanted} bindings in the status"), SOON, || {
            let record = world.record("mbb-a").unwrap_or(Value::Null);
            if record["remainingBindings"] == json!(wanted) { Ok(()) } else { Err(record.to_string()) }
        });
    };
    remaining(3);
    bind(&world, "lr0-p0", "other");
    bind(&world, "lr1-p0", "other");
    remaining(1);
    let record = world.record("mbb-a").unwrap();
    assert_eq!((&record["phase"], &record["reason"]), (&json!("Evacuating"), &json!("MovingTraffic")), "{record}");
    assert!(record["message"].as_str().unwrap().contains("group-port"), "{record}");
    assert!(flag(&world, "mbb-a"), "the flag is still on");

    let moved = std::time::Instant::now();
    bind(&world, "group-port", "other");
    world.wait_evacuated("mbb-a");
    world.wait_job("evacuate", "mbb-a", "Complete");
    let off = world.recorder.of(OVN_CHASSIS_NODE, "mbb-a").into_iter().find(|v| v.object["spec"]["evacuate"] == true);
    assert!(off.unwrap().at >= moved + Duration::from_millis(900), "one sighting is no proof");
    assert!(!flag(&world, "mbb-a"));
    assert_eq!(world.central.gateway_rows(), ["other"; 3]);
    assert_eq!((priorities(&world, "other"), has_notes(&world)), (vec![1, 3, 2], false), "nothing moves twice");
    history::assert_holds(&world);
}

#[test]
fn field20_a_binding_that_flaps_keeps_the_flag_on() {
    let (world, id) = seeded("mbb-flap", "mbb-f");
    world.label("mbb-f", &[(GATEWAY_LABEL, None)]);
    wait_lowered(&world, &id);
    let all = |chassis: &str| ["lr0-p0", "lr1-p0", "group-port"].iter().for_each(|p| bind(&world, p, chassis));
    all("other");
    bind(&world, "lr0-p0", &id);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(flag(&world, "mbb-f") && world.record("mbb-f").unwrap()["gateway"] == json!(true));
    // On nobody is not there either.
    let binding = world.central.sbctl(&["--bare", "--columns=_uuid", "find", "port_binding", "logical_port=cr-lr0-p0"]);
    world.central.sbctl(&["clear", "port_binding", binding.trim(), "chassis"]);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(flag(&world, "mbb-f"), "a port that has left and not arrived");
    all("other");
    world.wait_evacuated("mbb-f");
}

#[test]
fn a_label_that_comes_back_in_the_middle_finds_every_priority_as_it_was() {
    let (world, id) = seeded("mbb-back", "mbb-b");
    let (before, others) = (priorities(&world, &id), priorities(&world, "other"));
    world.label("mbb-b", &[(GATEWAY_LABEL, None)]);
    wait_lowered(&world, &id);
    world.label("mbb-b", &[(GATEWAY_LABEL, Some("true"))]);
    wait_restored(&world, &id, &before);
    assert_eq!(priorities(&world, "other"), others);
    until_true("the Jobs to be gone", SOON, || world.job("evacuate", "mbb-b").is_none());
    assert!(flag(&world, "mbb-b"));
    world.wait_gateway("mbb-b");

    // What somebody else chose meanwhile stands.
    world.label("mbb-b", &[(GATEWAY_LABEL, None)]);
    wait_lowered(&world, &id);
    bind(&world, "lr0-p0", "other");
    let chosen = rows(&world, "ha_chassis", &id).len();
    assert_eq!(chosen, 1);
    world.label("mbb-b", &[(GATEWAY_LABEL, Some("true"))]);
    wait_restored(&world, &id, &before);
    history::assert_holds(&world);
}

#[test]
fn two_gateways_that_are_each_others_successor_both_come_to_their_end() {
    let nodes = ["mbb-two-a", "mbb-two-b"];
    let world = World::ready("mbb-two", Shape::default().without_northd(), &nodes, &nodes);
    let [a, b] = nodes.map(|node| world.recorded_system_id(node));
    world.central.seed_chassis(&[&a, &b]);
    world.seed_gateway_ports("lr0", 1, &[(&a, 9), (&b, 3)]);
    world.seed_gateway_ports("lr1", 1, &[(&a, 4), (&b, 8)]);
    let mut at = [("lr0-p0", a.clone()), ("lr1-p0", b.clone())];
    at.iter().for_each(|(port, chassis)| bind(&world, port, chassis));
    nodes.iter().for_each(|node| world.label(node, &[(GATEWAY_LABEL, None)]));
    until("both to be evacuated", SOON, || {
        // What northd and ovn-controller do: the chassis with the highest priority has the port.
        for (port, chassis) in &mut at {
            let candidates = world.central.nbctl(&["lrp-get-gateway-chassis", port]);
            let best = candidates.lines().next().map(|line| if line.contains(&a) { a.clone() } else { b.clone() });
            if let Some(best) = best.filter(|best| best != chassis) {
                bind(&world, port, &best);
                *chassis = best;
            }
        }
        let done = |node: &str| world.record(node).is_some_and(|r| r["gatewayEvacuated"] == json!(true));
        if nodes.iter().all(|node| done(node)) { Ok(()) } else { Err(nodes.map(|n| world.show_record(n)).join("; ")) }
    });
    assert!(world.central.gateway_rows().is_empty() && !has_notes(&world), "{:?}", world.central.gateway_rows());
    history::assert_holds(&world);
}

#[test]
fn a_leader_that_dies_in_the_middle_leaves_everything_to_the_next_one_in_the_rows() {
    for (number, step) in ["before-lowering", "priority-lowered"].into_iter().enumerate() {
        let node = format!("mbb-die-{number}");
        let mut world = World::new("mbb-die", Shape::default().without_northd());
        world.create_chassis(json!({}));
        world.add_node(&node, true, true);
        world.start_controller(&[], &[("OVN_CHASSIS_STOP_AT", step)]);
        world.start_agent(&node);
        world.wait_applied(&node);
        let id = world.recorded_system_id(&node);
        world.central.seed_chassis(&[&id, "other"]);
        world.seed_gateway_ports("lr0", 2, &[(&id, 9), ("other", 0)]);
        bind(&world, "lr0-p0", &id);
        world.label(&node, &[(GATEWAY_LABEL, None)]);
        until_true("the leader to die", SOON, || !world.controllers[0].is_running());
        let started = world.job("evacuate", &node).unwrap()["status"]["startTime"].clone();
        world.start_controller(&[], &[]);
        wait_lowered(&world, &id);
        assert!(flag(&world, &node));
        bind(&world, "lr0-p0", "other");
        world.wait_evacuated(&node);
        let job = world.wait_job("evacuate", &node, "Complete");
        assert_eq!(job["status"]["startTime"], started, "the count goes on, it does not begin again");
        assert_eq!((world.central.gateway_rows(), has_notes(&world)), (vec!["other".to_owned(); 2], false));
        history::assert_holds(&world);
    }
}

#[test]
fn field20_nobody_waits_for_a_gateway_that_is_not_registered() {
    let world = World::ready("mbb-dead", Shape::default().without_northd(), &["mbb-d"], &["mbb-d"]);
    let id = world.recorded_system_id("mbb-d");
    world.central.seed_chassis(&[&id]);
    world.seed_gateway_ports("lr0", 1, &[(&id, 9), ("dead", 3)]);
    bind(&world, "lr0-p0", &id);
    world.label("mbb-d", &[(GATEWAY_LABEL, None)]);
    world.wait_evacuated("mbb-d");
    crate::gateways::wait_said(&world, "mbb-d", &["lr0-p0", "registered"]);
}

#[test]
fn pins_that_no_evacuation_moves_are_named() {
    let world = World::ready("pins", Shape::default(), &["pins-a"], &["pins-a"]);
    let id = world.recorded_system_id("pins-a");
    world.central.seed_chassis(&[&id, "elsewhere"]);
    world.central.nbctl(&[
        "lr-add",
        "pinned",
        "--",
        "set",
        "logical_router",
        "pinned",
        &format!("options:chassis={id}"),
    ]);
    let list = format!("options:requested-chassis=\"elsewhere,{id}\"");
    world.central.nbctl(&[
        "ls-add",
        "sw",
        "--",
        "lsp-add",
        "sw",
        "vm",
        "--",
        "set",
        "logical_switch_port",
        "vm",
        &list,
    ]);
    until("northd to resolve the list", SOON, || {
        let columns = "--columns=requested_additional_chassis";
        let text = world.central.sbctl(&["--bare", columns, "find", "port_binding", "logical_port=vm"]);
        if text.trim().is_empty() { Err(text) } else { Ok(()) }
    });
    world.label("pins-a", &[(GATEWAY_LABEL, None)]);
    crate::gateways::wait_said(&world, "pins-a", &["pinned", "options:chassis", "vm", "one of several"]);
    world.wait_evacuated("pins-a");
    let record = world.record("pins-a").unwrap();
    assert!(record["message"].as_str().unwrap().contains("vm"), "it stays said: {record}");
}

#[test]
fn a_gateways_pod_is_rolled_between_two_planned_moves_of_its_role() {
    let (mut world, id) = seeded("mbb-roll", "mbb-r");
    let before = priorities(&world, &id);
    let old = world.add_daemon_pod("mbb-r", "ovs");
    // Kubernetes counts a pod's age in seconds, and the younger one is the standby.
    std::thread::sleep(Duration::from_millis(1100));
    let new = world.add_daemon_pod("mbb-r", "ovs");
    let ready = |world: &World, ready: bool| {
        let conditions = json!([{"type": "Ready", "status": if ready { "True" } else { "False" }}]);
        world.kube.merge_status(POD, &world.namespace, &new, json!({"phase": "Running", "conditions": conditions}));
    };
    ready(&world, false);
    wait_lowered(&world, &id);
    let granted = |world: &World| world.chassis_node("mbb-r").unwrap()["spec"]["handover"]["grants"].is_array();
    assert!(!granted(&world), "no grant while the ports are here");
    ["lr0-p0", "lr1-p0", "group-port"].iter().for_each(|p| bind(&world, p, "other"));
    until_true("the grant", SOON, || granted(&world));
    assert!(flag(&world, "mbb-r") && world.record("mbb-r").unwrap()["gateway"] == json!(true), "it stays a gateway");

    // The successor works alone, and its agent says that all is well.
    world.node_mut("mbb-r").agent.as_mut().unwrap().kill();
    let uid = world.kube.get(POD, &world.namespace, &new).unwrap()["metadata"]["uid"].clone();
    ready(&world, true);
    world.end_pod(&old);
    assert!(priorities(&world, &id).iter().all(|p| *p == 0), "not back before it has settled");
    let now = "2026-01-01T00:00:00Z";
    let is_true =
        |t: &str| json!({"type": t, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": now});
    let conditions = json!([is_true("Applied"), is_true("OVSReady"), is_true("ControllerReady")]);
    let status = json!({"conditions": conditions, "reportedBy": uid});
    world.kube.merge_status(OVN_CHASSIS_NODE, &world.namespace, "mbb-r", status);
    wait_restored(&world, &id, &before);
    until_true("the turn to end", SOON, || !granted(&world));
}
