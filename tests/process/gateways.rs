//! Field cases 20, 21, 23 and 24: what a drain says about ports, and what it does when others write too.
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::central::Shape;
use crate::harness::kube_api::{EVENT, OVN_CHASSIS};
use crate::harness::until;
use crate::harness::until_true;
use crate::harness::world::{GATEWAY_LABEL, SOON, World};
use crate::history;

/// Waits for an event or a status of the node that holds all the words.
#[track_caller]
pub fn wait_said(world: &World, node: &str, words: &[&str]) -> String {
    until(&format!("{words:?} to be said"), SOON, || {
        let events = world.kube.list(EVENT, &world.namespace, "");
        let mut texts: Vec<String> = events.iter().filter_map(|e| e["message"].as_str()).map(str::to_owned).collect();
        texts.push(world.record(node).unwrap_or(Value::Null)["message"].to_string());
        texts.push(world.chassis_node(node).unwrap_or(Value::Null)["status"]["drain"].to_string());
        texts.iter().find(|t| words.iter().all(|w| t.contains(w))).cloned().ok_or_else(|| texts.join(" | "))
    })
}

#[test]
fn field23_the_last_gateway_proceeds_and_its_ports_are_named() {
    let world = World::ready("field23-go", Shape::default().without_northd(), &["field23-a"], &["field23-a"]);
    let id = world.recorded_system_id("field23-a");
    world.central.seed_chassis(&[&id, "foreign"]);
    world.seed_gateway_ports("lr0", 3, &[(&id, 2)]);
    world.seed_gateway_ports("lr1", 1, &[(&id, 2), ("foreign", 1)]);
    world.label("field23-a", &[(GATEWAY_LABEL, None)]);
    world.wait_evacuated("field23-a");
    let said = wait_said(&world, "field23-a", &["lr0-p0"]);
    assert!(!said.contains("lr1-p0"), "that one has another gateway: {said}");
    history::assert_holds(&world);
}

#[test]
fn field23_the_last_gateway_is_held_when_asked_to_and_goes_on_when_there_is_another() {
    let world = World::ready("field23-hold", Shape::default().without_northd(), &["field23-h"], &["field23-h"]);
    world.kube.merge(
        OVN_CHASSIS,
        &world.namespace,
        &world.chassis,
        json!({"spec": {"drain": {"lastGateway": "Hold"}}}),
    );
    let id = world.recorded_system_id("field23-h");
    world.central.seed_chassis(&[&id, "foreign"]);
    world.seed_gateway_ports("lr0", 2, &[(&id, 2)]);
    world.label("field23-h", &[(GATEWAY_LABEL, None)]);
    world.wait_condition("MaintenanceReady", "True", "MaintenanceDeferred");
    wait_said(&world, "field23-h", &["lr0-p0"]);
    let record = world.record("field23-h").unwrap();
    assert_eq!((&record["phase"], &record["gateway"]), (&json!("Held"), &json!(true)), "{record}");
    assert_eq!(world.central.gateway_rows().len(), 2, "nothing was taken away");
    assert!(world.node("field23-h").external_id("ovn-cms-options").contains("enable-chassis-as-gw"), "nor the flag");
    let started = world.job("evacuate", "field23-h").is_some_and(|j| j["status"]["startTime"].is_string());
    assert!(!started, "no deadline runs while it is held");

    for port in ["lr0-p0", "lr0-p1"] {
        world.central.nbctl(&["lrp-set-gateway-chassis", port, "foreign", "1"]);
    }
    world.wait_evacuated("field23-h");
    assert_eq!(world.central.gateway_rows(), ["foreign", "foreign"]);
    history::assert_holds(&world);
}

#[test]
fn field23_a_held_gateway_whose_label_comes_back_is_a_gateway_as_before() {
    let world = World::ready("field23-back", Shape::default().without_northd(), &["field23-r"], &["field23-r"]);
    world.kube.merge(
        OVN_CHASSIS,
        &world.namespace,
        &world.chassis,
        json!({"spec": {"drain": {"lastGateway": "Hold"}}}),
    );
    let id = world.recorded_system_id("field23-r");
    world.seed_gateway_ports("lr0", 1, &[(&id, 2)]);
    world.label("field23-r", &[(GATEWAY_LABEL, None)]);
    world.wait_condition("MaintenanceReady", "True", "MaintenanceDeferred");
    world.label("field23-r", &[(GATEWAY_LABEL, Some("true"))]);
    world.wait_condition("MaintenanceReady", "True", "MaintenanceIdle");
    world.wait_gateway("field23-r");
    assert_eq!(world.central.gateway_rows(), [id]);
    history::assert_holds(&world);
}

/// A gateway port with its `chassisredirect` binding in the Southbound, as northd would make it, bound to `chassis`.
pub fn bind(world: &World, port: &str, chassis: &str) {
    let row = |table: &str, condition: &str| {
        world.central.sbctl(&["--bare", "--no-headings", "--columns=_uuid", "find", table, condition]).trim().to_owned()
    };
    let holder = row("chassis", &format!("name={chassis}"));
    let existing = row("port_binding", &format!("logical_port=cr-{port}"));
    if existing.is_empty() {
        let key = format!(
            "tunnel_key={}",
            10 + world.central.sbctl(&["--bare", "--columns=_uuid", "list", "port_binding"]).lines().count()
        );
        world.central.sbctl(&[
            "--id=@dp",
            "create",
            "datapath_binding",
            &key,
            &format!("external_ids:name=dp-{port}"),
            "--",
            "create",
            "port_binding",
            &format!("logical_port=cr-{port}"),
            "type=chassisredirect",
            &key,
            "datapath=@dp",
            &format!("chassis={holder}"),
        ]);
    } else {
        world.central.sbctl(&["set", "port_binding", &existing, &format!("chassis={holder}")]);
    }
}

#[test]
fn field20_the_drain_is_done_only_when_the_southbound_shows_the_binding_elsewhere() {
    let world = World::ready("field20", Shape::default().without_northd(), &["field20-a"], &["field20-a"]);
    let id = world.recorded_system_id("field20-a");
    world.central.seed_chassis(&[&id, "foreign"]);
    world.seed_gateway_ports("lr0", 1, &[(&id, 2), ("foreign", 1)]);
    bind(&world, "lr0-p0", &id);
    world.label("field20-a", &[(GATEWAY_LABEL, None)]);
    until_true("the drain to run", SOON, || world.job("evacuate", "field20-a").is_some());
    std::thread::sleep(Duration::from_secs(2));
    let record = world.record("field20-a").unwrap();
    assert_eq!(
        (&record["gateway"], &record["gatewayEvacuated"]),
        (&json!(true), &json!(null)),
        "the binding is still here: {record}"
    );
    assert_eq!(record["remainingBindings"], json!(1), "{record}");

    bind(&world, "lr0-p0", "foreign");
    world.wait_evacuated("field20-a");
    assert_eq!(world.central.gateway_rows(), ["foreign"]);
    history::assert_holds(&world);
}

#[test]
fn field20_a_binding_that_stays_past_the_deadline_is_named() {
    let mut world = World::new("field20-late", Shape::default().without_northd());
    world.create_chassis(json!({}));
    world.add_node("field20-b", true, true);
    world.start_controller(&["--job-deadline-seconds", "3"], &[]);
    world.start_agent("field20-b");
    world.wait_applied("field20-b");
    let id = world.recorded_system_id("field20-b");
    world.central.seed_chassis(&[&id, "foreign"]);
    world.seed_gateway_ports("lr0", 1, &[(&id, 2), ("foreign", 1)]);
    bind(&world, "lr0-p0", &id);
    world.label("field20-b", &[(GATEWAY_LABEL, None)]);
    let job = world.wait_job("evacuate", "field20-b", "Failed");
    let message = crate::harness::kube_api::condition(&job, "Failed").unwrap()["message"].to_string();
    assert!(message.contains("lr0-p0"), "{message}");
    wait_said(&world, "field20-b", &["lr0-p0"]);
}

#[test]
fn field21_ports_whose_other_gateways_lack_the_physical_network_are_named() {
    let mut world = World::new("field21", Shape::default().without_northd());
    world.create_chassis(json!({"bridgeMappings": [{"physicalNetwork": "physnet1", "bridge": "br-ex"}], "drain": {"lastGateway": "Hold"}}));
    world.add_node("field21-a", true, true);
    world.start_controller(&[], &[]);
    world.start_agent("field21-a");
    world.wait_applied("field21-a");
    let id = world.recorded_system_id("field21-a");
    for (name, mappings) in [(id.as_str(), "physnet1:br-ex"), ("poor", "physnet2:br-ex")] {
        world.central.seed_chassis(&[name]);
        world.central.sbctl(&["set", "chassis", name, &format!("other_config:ovn-bridge-mappings=\"{mappings}\"")]);
    }
    world.seed_gateway_ports("lr0", 1, &[(&id, 2), ("poor", 1)]);
    // The port leads to a switch with a localnet port of physnet1.
    world.central.nbctl(&[
        "ls-add",
        "outside",
        "--",
        "lsp-add",
        "outside",
        "to-lr0",
        "--",
        "lsp-set-type",
        "to-lr0",
        "router",
        "--",
        "lsp-set-options",
        "to-lr0",
        "router-port=lr0-p0",
        "--",
        "lsp-add",
        "outside",
        "wire",
        "--",
        "lsp-set-type",
        "wire",
        "localnet",
        "--",
        "lsp-set-options",
        "wire",
        "network_name=physnet1",
        "--",
        "lsp-set-addresses",
        "wire",
        "unknown",
    ]);
    world.label("field21-a", &[(GATEWAY_LABEL, None)]);
    wait_said(&world, "field21-a", &["lr0-p0"]);
    world.wait_condition("MaintenanceReady", "True", "MaintenanceDeferred");
    assert_eq!(world.central.gateway_rows().len(), 2, "held before anything was taken away");
}

#[test]
fn field20_the_bindings_that_are_left_are_counted_while_it_drains() {
    let world = World::ready("field20-count", Shape::default().without_northd(), &["field20-c"], &["field20-c"]);
    let id = world.recorded_system_id("field20-c");
    world.central.seed_chassis(&[&id, "foreign"]);
    world.seed_gateway_ports("lr0", 2, &[(&id, 2), ("foreign", 1)]);
    bind(&world, "lr0-p0", &id);
    bind(&world, "lr0-p1", &id);
    world.label("field20-c", &[(GATEWAY_LABEL, None)]);
    let bindings = |wanted: i64| {
        until(&format!("{wanted} bindings in the status"), SOON, || {
            let record = world.record("field20-c").unwrap_or(Value::Null);
            if record["remainingBindings"] == json!(wanted) { Ok(()) } else { Err(record.to_string()) }
        });
    };
    bindings(2);
    bind(&world, "lr0-p0", "foreign");
    bindings(1);
    bind(&world, "lr0-p1", "foreign");
    bindings(0);
    world.wait_evacuated("field20-c");
}

#[test]
fn field24_rows_that_another_writer_puts_back_are_found_and_removed() {
    let world = World::ready("field24", Shape::default().without_northd(), &["field24-a"], &["field24-a"]);
    let id = world.recorded_system_id("field24-a");
    world.seed_gateway_ports("lr0", 3, &[(&id, 2), ("foreign", 1)]);
    world.label("field24-a", &[(GATEWAY_LABEL, None)]);
    world.wait_evacuated("field24-a");
    for round in 0..2 {
        world.central.nbctl(&["lrp-set-gateway-chassis", "lr0-p1", &id, "2"]);
        world.central.nbctl(&[
            "--",
            "ha-chassis-group-add",
            &format!("back{round}"),
            "--",
            "ha-chassis-group-add-chassis",
            &format!("back{round}"),
            &id,
            "3",
        ]);
        until("the rows to be removed again", SOON, || {
            let rows = world.central.gateway_rows();
            if rows.contains(&id) { Err(format!("{rows:?}")) } else { Ok(()) }
        });
    }
    assert_eq!(world.central.gateway_rows(), ["foreign"; 3]);
    assert_eq!(world.record("field24-a").unwrap()["gatewayEvacuated"], json!(true));

    // With the label back the same rows are welcome.
    world.label("field24-a", &[(GATEWAY_LABEL, Some("true"))]);
    world.wait_gateway("field24-a");
    world.central.nbctl(&["lrp-set-gateway-chassis", "lr0-p1", &id, "2"]);
    std::thread::sleep(Duration::from_secs(1));
    assert!(world.central.gateway_rows().contains(&id));
    history::assert_holds(&world);
}

#[test]
fn a_drained_gateway_that_gets_its_label_back_and_loses_it_again_is_drained_again() {
    let world = World::ready("again", Shape::default().without_northd(), &["again-a"], &["again-a"]);
    let id = world.recorded_system_id("again-a");
    let mut uids = std::collections::BTreeSet::new();
    for round in 0..4 {
        world.seed_gateway_ports(&format!("lr{round}"), 2, &[(&id, 2), ("foreign", 1)]);
        world.label("again-a", &[(GATEWAY_LABEL, None)]);
        world.wait_evacuated("again-a");
        let job = world.wait_job("evacuate", "again-a", "Complete");
        assert!(uids.insert(job["metadata"]["uid"].to_string()), "round {round}: the Job of an earlier drain");
        assert!(!world.central.gateway_rows().contains(&id));
        world.label("again-a", &[(GATEWAY_LABEL, Some("true"))]);
        until("gatewayEvacuated to be reset and the role to be back", SOON, || {
            let record = world.record("again-a").unwrap_or(Value::Null);
            if record["gateway"] == json!(true) && record["gatewayEvacuated"].is_null() {
                Ok(())
            } else {
                Err(record.to_string())
            }
        });
        world.wait_applied("again-a");
    }
    history::assert_holds(&world);
}
