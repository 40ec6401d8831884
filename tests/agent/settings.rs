//! From the OVNChassisNode into the database, and back into the status.
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::monitor::RowMonitor;
use crate::harness::until;
use crate::harness::world::SOON;
use crate::stage::{NODE, Stage};

#[test]
fn the_first_report_names_the_id_of_the_node_and_nothing_is_written_before_it_is_decided() {
    let mut stage = Stage::new("agent-brown");
    stage.set(&["system-id=brownfield", "ovn-cms-options=\"enable-chassis-as-gw,az=1\""]);
    let before = stage.external_ids();
    stage.specify(json!({}));
    stage.world.start_agent(NODE);
    stage.wait_condition("Applied", "False/WaitingForSystemID");
    let observed = stage.object()["status"]["observed"].clone();
    assert_eq!(observed, json!({"systemID": "brownfield", "gateway": true, "cmsOptions": "enable-chassis-as-gw,az=1"}));
    assert_eq!(stage.external_ids(), before);
    stage.specify(json!({"systemID": "brownfield"}));
    stage.wait_applied();
    assert_eq!(stage.external_ids()["ovn-cms-options"], "az=1");
}

#[test]
fn row_14_an_apply_writes_our_keys_once_and_no_other() {
    let mut stage = Stage::new("agent-keys");
    let foreign = ["ovn-bridge=br-int", "note=\"two words, and a \\\"quote\\\"\"", "ovn-cms-options=\"b=2, a=1\""];
    stage.set(&foreign);
    let before = stage.external_ids();
    let socket = stage.world.node(NODE).ovs_rundir.join("db.sock");
    let monitor = RowMonitor::start(&socket, "Open_vSwitch", "Open_vSwitch", "external_ids");
    let writes = || monitor.changes().iter().filter(|change| change.action == "new").count();
    let mapping = json!([{"physicalNetwork": "physnet1", "bridge": "br-ex"}]);
    stage.specify(json!({"systemID": "id-a", "gateway": true, "bridgeMappings": mapping}));
    stage.world.start_agent(NODE);
    stage.wait_applied();
    let after = stage.external_ids();
    let ours: Vec<&String> = after.keys().filter(|key| !before.contains_key(*key)).collect();
    let expected = [
        "hostname",
        "ovn-bridge-mappings",
        "ovn-encap-ip",
        "ovn-encap-type",
        "ovn-remote",
        "ovn-remote-probe-interval",
        "system-id",
    ];
    assert_eq!(ours, expected);
    assert_eq!(after["ovn-cms-options"], "b=2, a=1,enable-chassis-as-gw");
    assert_eq!((&after["note"], &after["ovn-bridge"]), (&before["note"], &before["ovn-bridge"]));
    assert_eq!(stage.world.node(NODE).vsctl(&["list-br"]).trim(), "br-ex");
    until("the write to be seen", SOON, || if writes() == 1 { Ok(()) } else { Err(writes()) });

    // Grants are no setting; a restart of the agent is none either.
    stage.specify(json!({"handover": {"grants": ["0b1c"]}}));
    stage.wait_applied();
    let agent = stage.world.node_mut(NODE).agent.as_mut().unwrap();
    agent.kill();
    agent.start_again();
    stage.specify(json!({"gateway": false}));
    stage.wait_applied();
    assert_eq!(stage.external_ids()["ovn-cms-options"], "b=2, a=1");
    assert_eq!(writes(), 2);
    let grants = std::fs::read_to_string(stage.world.node(NODE).run_dir.join("grants")).unwrap();
    assert_eq!(grants, "0b1c\n");
}

#[test]
fn a_change_is_applied_and_reported_within_a_second_and_then_all_is_quiet() {
    let stage = Stage::applied("agent-quick");
    let mut slowest = Duration::ZERO;
    for gateway in [true, false, true] {
        let begun = Instant::now();
        stage.specify(json!({"gateway": gateway}));
        stage.wait_applied();
        slowest = slowest.max(begun.elapsed());
        assert_eq!(stage.object()["status"]["observed"]["gateway"].as_bool().unwrap_or_default(), gateway);
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    eprintln!("slowest change to report: {slowest:?}");
    stage.assert_quiet(Duration::from_secs(2));
}

#[test]
fn drift_is_repaired_and_said_and_a_fight_is_not_a_storm() {
    let stage = Stage::applied("agent-drift");
    let since = |kind: &str| {
        let conditions = stage.object()["status"]["conditions"].as_array().cloned().unwrap();
        conditions.iter().find(|condition| condition["type"] == kind).unwrap()["lastTransitionTime"].clone()
    };
    let applied_since = since("Applied");
    stage.set(&["ovn-remote=tcp:198.51.100.1:6642", "theirs=kept"]);
    let shown = stage.wait_condition("Applied", "True/DriftRepaired");
    assert!(shown.contains("ovn-remote"), "{shown}");
    assert_eq!(stage.external_ids()["ovn-remote"], stage.world.central.southbound.addresses().as_str());
    assert_eq!(stage.external_ids()["theirs"], "kept");
    assert_eq!(since("Applied"), applied_since);

    // Somebody who writes against the agent as fast as it repairs.
    let own = stage.world.node(NODE).encap_ip.clone();
    let socket = stage.world.node(NODE).ovs_rundir.join("db.sock");
    let monitor = RowMonitor::start(&socket, "Open_vSwitch", "Open_vSwitch", "external_ids");
    let begun = Instant::now();
    let mut against = 0;
    // Four seconds at least, and on a busy machine until there was enough to fight about.
    while begun.elapsed() < Duration::from_secs(4) || (against <= 20 && begun.elapsed() < Duration::from_secs(60)) {
        stage.set(&[&format!("ovn-encap-ip=198.51.100.{against}")]);
        against = (against + 1) % 200;
    }
    let quoted = format!("\"{own}\"");
    let repairs =
        monitor.changes().iter().filter(|c| c.action == "new" && c.value.to_string().contains(&quoted)).count();
    assert!(against > 20, "{against} changes by hand");
    let seconds = begun.elapsed().as_secs_f64();
    assert!((repairs as f64) < 3.0 * seconds, "{repairs} repairs within {seconds:.1} s");
    until("peace", Duration::from_secs(60), || {
        let found = stage.external_ids()["ovn-encap-ip"].clone();
        if found == own.as_str() { Ok(()) } else { Err(found.to_string()) }
    });
}

#[test]
fn an_override_for_this_chassis_is_named_and_never_claimed() {
    let stage = Stage::applied("agent-override");
    stage.set(&["ovn-encap-type-id-a=vxlan"]);
    let shown = stage.wait_condition("Applied", "False/Overridden");
    assert!(shown.contains("ovn-encap-type-id-a=vxlan"), "{shown}");
    assert_eq!(stage.object()["status"]["appliedHash"], Value::Null);
    assert_eq!(stage.external_ids()["ovn-encap-type-id-a"], "vxlan");
    stage.world.node(NODE).vsctl(&["remove", "open_vswitch", ".", "external_ids", "ovn-encap-type-id-a"]);
    stage.wait_applied();
}

#[test]
fn settings_that_cannot_work_are_refused_with_the_reason_and_the_old_ones_stay() {
    let stage = Stage::applied("agent-invalid");
    let before = stage.external_ids();
    stage.specify(json!({"ovnRemote": "pssl:6642", "gateway": true}));
    let shown = stage.wait_condition("Applied", "False/InvalidSettings");
    assert!(shown.contains("spec.ovnRemote: found \"pssl:6642\", expected ssl:IP:PORT"), "{shown}");
    assert_eq!(stage.external_ids(), before);
    stage.specify(json!({"ovnRemote": "ssl:192.0.2.1:6642"}));
    stage.wait_applied();
}
