//! Row 14 and field cases 7 to 9 and 25 to 29: what the agent writes into a node's database, and what it never touches.
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::central::Shape;
use crate::harness::kube_api::{self, OVN_CHASSIS};
use crate::harness::monitor::RowMonitor;
use crate::harness::until;
use crate::harness::world::{GATEWAY_LABEL, SOON, World};

fn external_ids(world: &World, node: &str) -> serde_json::Map<String, Value> {
    let text = world.node(node).vsctl(&["-f", "json", "--columns=external_ids", "list", "open_vswitch"]);
    let table: Value = serde_json::from_str(text.trim()).unwrap();
    let pairs = table["data"][0][0][1].as_array().cloned().unwrap_or_default();
    pairs.into_iter().map(|p| (p[0].as_str().unwrap().to_owned(), p[1].clone())).collect()
}

#[track_caller]
fn wait_external_id(world: &World, node: &str, key: &str, wanted: &str) {
    until(&format!("{key} of {node}"), SOON, || {
        let found = world.node(node).external_id(key);
        if found == wanted { Ok(()) } else { Err(format!("{found:?} instead of {wanted:?}")) }
    });
}

const FOREIGN: [&str; 5] = [
    "external_ids:neutron-bridge-mappings=a:b",
    "external_ids:ovn-installed-ts=17",
    "external_ids:ovn-match-northd-version=true",
    "external_ids:note=\"two words, and a comma\"",
    "external_ids:ovn-cms-options=\"availability-zones=az1:az2,card-serial-number=0012,enable-chassis-as-extport-host\"",
];

#[test]
fn row14_field26_keys_and_tokens_of_others_are_byte_identical_through_every_apply() {
    let mut world = World::new("row14", Shape::default().without_northd());
    world.create_chassis(json!({}));
    world.add_node("row14-a", true, false);
    world.node("row14-a").vsctl(&[&["set", "open_vswitch", "."], &FOREIGN[..]].concat());
    let before = external_ids(&world, "row14-a");
    let options = before["ovn-cms-options"].as_str().unwrap().to_owned();
    world.start_controller(&[], &[]);
    world.start_agent("row14-a");
    world.wait_applied("row14-a");

    let foreign = |now: &serde_json::Map<String, Value>| {
        before.keys().filter(|k| *k != "ovn-cms-options").map(|k| (k.clone(), now[k].clone())).collect::<Vec<_>>()
    };
    for round in 0..4 {
        let (gateway, encap) = (round % 2 == 0, if round < 2 { "vxlan" } else { "geneve" });
        world.label("row14-a", &[(GATEWAY_LABEL, gateway.then_some("true"))]);
        world.kube.merge(
            OVN_CHASSIS,
            &world.namespace,
            &world.chassis,
            json!({"spec": {"encapType": encap, "remoteProbeIntervalMs": 5000 + round * 1000}}),
        );
        wait_external_id(&world, "row14-a", "ovn-remote-probe-interval", &(5000 + round * 1000).to_string());
        let now = {
            until("the gateway's token", SOON, || {
                let now = external_ids(&world, "row14-a");
                let has =
                    now["ovn-cms-options"].as_str().unwrap_or_default().split(',').any(|t| t == "enable-chassis-as-gw");
                if has == gateway { Ok(now) } else { Err(format!("{now:?}")) }
            })
        };
        assert_eq!(foreign(&now), foreign(&before), "round {round}");
        let left: Vec<&str> =
            now["ovn-cms-options"].as_str().unwrap().split(',').filter(|t| *t != "enable-chassis-as-gw").collect();
        assert_eq!(left.join(","), options, "round {round}");
        assert_eq!(now["ovn-encap-type"], encap);
    }
}

#[test]
fn field27_changing_one_mapping_changes_that_key_alone_and_makes_the_missing_bridge() {
    let world = World::ready("field27", Shape::default().without_northd(), &["field27-a"], &[]);
    let mapping = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(n, b)| json!({"physicalNetwork": n, "bridge": b})).collect::<Vec<_>>()
    };
    let set = |pairs: &[(&str, &str)]| {
        world.kube.merge(
            OVN_CHASSIS,
            &world.namespace,
            &world.chassis,
            json!({"spec": {"bridgeMappings": mapping(pairs)}}),
        )
    };
    set(&[("physnet1", "br-one")]);
    wait_external_id(&world, "field27-a", "ovn-bridge-mappings", "physnet1:br-one");
    let before = external_ids(&world, "field27-a");
    set(&[("physnet1", "br-one"), ("physnet2", "br-two")]);
    wait_external_id(&world, "field27-a", "ovn-bridge-mappings", "physnet1:br-one,physnet2:br-two");
    let after = external_ids(&world, "field27-a");
    let changed: Vec<&String> = after.keys().filter(|k| before.get(*k) != after.get(*k)).collect();
    assert_eq!(changed, ["ovn-bridge-mappings"]);
    assert_eq!(before.len(), after.len());
    let bridges = world.node("field27-a").vsctl(&["list-br"]);
    assert!(bridges.contains("br-one") && bridges.contains("br-two"), "{bridges}");
}

#[test]
fn field25_the_gateway_label_is_applied_within_a_second_without_a_restart() {
    let mut world = World::ready("field25", Shape::default().without_northd(), &["field25-a"], &[]);
    let pid = world.node("field25-a").agent.as_ref().unwrap().pid();
    let mut slowest = Duration::ZERO;
    for wanted in [true, false, true, false] {
        let started = Instant::now();
        world.label("field25-a", &[(GATEWAY_LABEL, wanted.then_some("true"))]);
        until("the announcement", SOON, || {
            if world.node("field25-a").external_id("ovn-cms-options").contains("enable-chassis-as-gw") == wanted {
                Ok(())
            } else {
                Err("not yet")
            }
        });
        slowest = slowest.max(started.elapsed());
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    assert!(world.node_mut("field25-a").agent.as_mut().unwrap().is_running());
    assert_eq!(world.node("field25-a").agent.as_ref().unwrap().pid(), pid);
}

#[test]
fn field28_nothing_is_written_when_nothing_differs_and_drift_is_repaired_and_reported() {
    let world = World::ready("field28", Shape::default().without_northd(), &["field28-a"], &[]);
    let socket = world.node("field28-a").ovs_rundir.join("db.sock");
    let monitor = RowMonitor::start(&socket, "Open_vSwitch", "Open_vSwitch", "external_ids");
    let writes = || monitor.changes().iter().filter(|c| c.action == "new").count();
    // A change that is none of the agent's settings, and one that is none at all.
    world.kube.merge(
        OVN_CHASSIS,
        &world.namespace,
        &world.chassis,
        json!({"metadata": {"labels": {"touched": "yes"}}}),
    );
    world.kube.merge(
        kube_api::NODE,
        "",
        "field28-a",
        json!({"metadata": {"labels": {"second-address": "192.0.2.77"}}}),
    );
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(writes(), 0);

    world.node("field28-a").vsctl(&["set", "open_vswitch", ".", "external_ids:ovn-encap-type=vxlan"]);
    wait_external_id(&world, "field28-a", "ovn-encap-type", "geneve");
    until("both writes to be seen", SOON, || if writes() >= 2 { Ok(()) } else { Err(writes()) });
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(writes(), 2, "the hand's and one repair");
    let shown = kube_api::show_condition(&world.chassis_node("field28-a").unwrap(), "Applied");
    assert!(shown.contains("DriftRepaired") && shown.contains("ovn-encap-type"), "{shown}");
}

#[test]
fn field07_an_agent_outlives_the_restart_of_its_ovsdb_server() {
    let mut world = World::ready("field07", Shape::default().without_northd(), &["field07-a"], &[]);
    let database = &mut world.node_mut("field07-a").database;
    database.kill();
    database.start_again();
    world.label("field07-a", &[(GATEWAY_LABEL, Some("true"))]);
    world.wait_gateway("field07-a");
    assert!(world.node("field07-a").external_id("ovn-cms-options").contains("enable-chassis-as-gw"));
    assert!(world.node_mut("field07-a").agent.as_mut().unwrap().is_running());
}

#[test]
fn field08_the_southbound_away_is_said_in_a_condition_and_restarts_nothing() {
    let mut world = World::ready("field08", Shape::default(), &["field08-a"], &["field08-a"]);
    let central = &world.central;
    world.nodes.get_mut("field08-a").unwrap().start_ovn_controller(central);
    let id = world.recorded_system_id("field08-a");
    until("the chassis row", SOON, || if world.central.chassis_names() == [id.clone()] { Ok(()) } else { Err("none") });
    let pids = |world: &World| {
        (
            world.node("field08-a").agent.as_ref().unwrap().pid(),
            world.node("field08-a").ovn_controller.as_ref().unwrap().pid(),
        )
    };
    let before = (pids(&world), world.node("field08-a").vsctl(&["list", "open_vswitch"]));

    world.central.southbound.set_lines(crate::harness::proxy::Line::Cut);
    until("ControllerReady to say why", SOON, || {
        let node = world.chassis_node("field08-a").unwrap_or(Value::Null);
        let shown = kube_api::show_condition(&node, "ControllerReady");
        if shown.starts_with("ControllerReady=False") { Ok(()) } else { Err(shown) }
    });
    world.central.southbound.set_lines(crate::harness::proxy::Line::Open);
    assert_eq!(pids(&world), before.0);
    assert_eq!(world.node("field08-a").vsctl(&["list", "open_vswitch"]), before.1, "settings untouched");
    assert!(world.node_mut("field08-a").agent.as_mut().unwrap().is_running());
    assert!(world.node_mut("field08-a").ovn_controller.as_mut().unwrap().is_running());
}

#[test]
fn field29_a_dns_name_in_ovn_remote_works_for_the_node_and_for_the_controller() {
    let mut world = World::new("field29", Shape::default().without_northd());
    let by_name = |addresses: String| addresses.replace("127.0.0.1", "localhost");
    let (north, south) = (by_name(world.central.northbound.addresses()), by_name(world.central.southbound.addresses()));
    let central = json!({"northbound": north, "southbound": south, "clientSecretName": "central-client"});
    let mut spec = World::chassis_spec(&json!({"central": central}));
    spec.as_object_mut().unwrap().remove("centralRef");
    world.kube.create(OVN_CHASSIS, &world.namespace, json!({"metadata": {"name": world.chassis}, "spec": spec}));
    world.add_node("field29-a", true, true);
    world.start_controller(&[], &[]);
    world.start_agent("field29-a");
    world.wait_gateway("field29-a");
    assert_eq!(world.node("field29-a").external_id("ovn-remote"), south);
    let id = world.recorded_system_id("field29-a");
    let central = &world.central;
    world.nodes.get_mut("field29-a").unwrap().start_ovn_controller(central);
    until("ovn-controller to register through the name", SOON, || {
        let names = world.central.chassis_names();
        if names == [id.as_str()] { Ok(()) } else { Err(format!("{names:?}")) }
    });
    world.seed_gateway_ports("lr0", 1, &[(&id, 1)]);
    world.label("field29-a", &[(GATEWAY_LABEL, None)]);
    world.wait_evacuated("field29-a");
    assert!(world.central.gateway_rows().is_empty(), "the controller dialled the name too");
}

#[test]
fn field09_an_agent_killed_alone_comes_back_and_writes_nothing() {
    let mut world = World::ready("field09", Shape::default().without_northd(), &["field09-a"], &["field09-a"]);
    let socket = world.node("field09-a").ovs_rundir.join("db.sock");
    let monitor = RowMonitor::start(&socket, "Open_vSwitch", "Open_vSwitch", "external_ids");
    let agent = world.node_mut("field09-a").agent.as_mut().unwrap();
    agent.kill();
    agent.start_again();
    // It is at work again once it follows a change.
    world.label("field09-a", &[(GATEWAY_LABEL, None)]);
    world.wait_evacuated("field09-a");
    let writes = monitor.changes().iter().filter(|c| c.action == "new").count();
    assert_eq!(writes, 1, "the change that was asked for and no other");
}

#[test]
fn an_agent_applies_what_its_object_asks_for_and_reports_it_without_a_controller_about() {
    let mut world = World::new("agent-alone", Shape::default().without_northd());
    let chassis: ovn_chassis::api::OVNChassis = serde_json::from_value(world.create_chassis(json!({}))).unwrap();
    let account = ovn_chassis::controller::objects::access::agent_service_account(&chassis);
    let binding = ovn_chassis::controller::objects::access::agent_role_binding(&chassis);
    world.kube.create(kube_api::SERVICE_ACCOUNT, &world.namespace, serde_json::to_value(account).unwrap());
    let bindings = kube_api::Kind {
        api_version: "rbac.authorization.k8s.io/v1",
        kind: "RoleBinding",
        plural: "rolebindings",
        namespaced: true,
    };
    world.kube.create(bindings, &world.namespace, serde_json::to_value(binding).unwrap());
    world.add_node("alone-a", true, false);
    let remote = world.central.southbound.addresses();
    let spec = json!({"chassisName": world.chassis, "nodeName": "alone-a", "systemID": "alone-id", "gateway": true, "ovnRemote": remote, "configHash": "0123456789abcdef", "remoteProbeIntervalMs": 7000});
    world.kube.create(
        kube_api::OVN_CHASSIS_NODE,
        &world.namespace,
        json!({"metadata": {"name": "alone-a"}, "spec": spec}),
    );
    world.start_agent("alone-a");
    until("the agent's report", SOON, || {
        let object = world.chassis_node("alone-a").unwrap();
        let status = &object["status"];
        if status["appliedHash"] == "0123456789abcdef"
            && status["observedGeneration"] == object["metadata"]["generation"]
        {
            Ok(())
        } else {
            Err(status.to_string())
        }
    });
    let ids = external_ids(&world, "alone-a");
    assert_eq!(
        (&ids["system-id"], &ids["ovn-remote"], &ids["ovn-remote-probe-interval"]),
        (&json!("alone-id"), &json!(remote), &json!("7000"))
    );
    assert_eq!(ids["ovn-cms-options"], "enable-chassis-as-gw");
}
