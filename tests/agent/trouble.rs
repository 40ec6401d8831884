//! Databases, daemons and API servers that come and go under the agent.
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::daemon::run;
use crate::harness::until;
use crate::harness::world::SOON;
use crate::stage::{NODE, Stage};

#[test]
fn case_7_the_agent_reconnects_to_a_restarted_ovsdb_server_and_a_short_absence_is_no_news() {
    let mut stage = Stage::applied("agent-case7");
    stage.wait_condition("OVSReady", "False/NotAnswering");
    let quiet = stage.object()["metadata"]["resourceVersion"].clone();
    let database = &mut stage.world.node_mut(NODE).database;
    database.kill();
    database.start_again();
    until("the database is back", SOON, || stage.world.node(NODE).try_vsctl(&["show"]));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(stage.object()["metadata"]["resourceVersion"], quiet, "{}", stage.object()["status"]);

    stage.world.node_mut(NODE).database.kill();
    let shown = stage.wait_condition("OVSReady", "False/DatabaseAway");
    assert!(shown.contains("db.sock"), "{shown}");
    assert_eq!(stage.object()["status"]["observed"]["systemID"], "id-a");
    stage.specify(json!({"gateway": true}));
    stage.world.node_mut(NODE).database.start_again();
    stage.wait_applied();
    assert_eq!(stage.external_ids()["ovn-cms-options"], "enable-chassis-as-gw");
}

#[test]
fn case_12_a_lost_database_gets_the_recorded_id_back() {
    let mut stage = Stage::applied("agent-lost");
    let before = stage.external_ids();
    stage.world.node_mut(NODE).lose_database();
    until("all keys are back", SOON, || if stage.external_ids() == before { Ok(()) } else { Err("not yet") });
}

#[test]
fn without_the_api_server_drift_is_still_repaired_and_with_it_all_goes_on() {
    let mut stage = Stage::applied("agent-no-api");
    stage.world.lane.api_server.pause();
    stage.set(&["ovn-encap-type=vxlan"]);
    until("the repair", SOON, || {
        let found = stage.external_ids()["ovn-encap-type"].clone();
        if found == "geneve" { Ok(()) } else { Err(found.to_string()) }
    });
    stage.world.lane.api_server.resume();
    stage.wait_condition("Applied", "True/DriftRepaired");
    stage.specify(json!({"gateway": true}));
    stage.wait_applied();
    assert!(stage.world.node_mut(NODE).agent.as_mut().unwrap().is_running());
}

#[test]
fn case_8_a_southbound_that_is_away_shows_in_one_condition() {
    let mut stage = Stage::applied("agent-case8");
    stage.wait_condition("ControllerReady", "False/NotAnswering");
    let world = &mut stage.world;
    world.nodes.get_mut(NODE).unwrap().start_ovn_controller(&world.central);
    stage.wait_condition("ControllerReady", "True/Connected");
    until("its version", SOON, || {
        let versions = stage.object()["status"]["versions"].clone();
        if versions["ovn"].is_string() { Ok(()) } else { Err(versions.to_string()) }
    });
    stage.world.central.southbound.set_lines(crate::harness::proxy::Line::Cut);
    stage.wait_condition("ControllerReady", "False/NotConnected");
    assert!(stage.condition("Applied").starts_with("Applied=True"), "{}", stage.condition("Applied"));
    stage.world.central.southbound.set_lines(crate::harness::proxy::Line::Open);
    stage.wait_condition("ControllerReady", "True/Connected");
}

#[test]
fn field31_a_database_of_another_schema_than_the_image_is_named_with_both_versions() {
    let mut stage = Stage::applied("agent-field31");
    let _vswitchd = stage.world.node(NODE).start_vswitchd();
    // Nobody writes ovs_version here, as in a pod: the daemon itself says what it is.
    let version = stage.world.node(NODE).vsctl(&["--version"]);
    let version = version.lines().next().and_then(|line| line.split_whitespace().next_back()).unwrap();
    let shown = stage.wait_condition("OVSReady", "True/Running");
    assert!(shown.contains(&format!("Open vSwitch {version} runs")), "{shown}");
    until("the version in the status", SOON, || {
        let versions = stage.object()["status"]["versions"].clone();
        if versions["ovs"] == version { Ok(()) } else { Err(versions.to_string()) }
    });

    let node = stage.world.node_mut(NODE);
    node.agent = None;
    node.give_schema_version("7.99.1");
    stage.world.start_agent(NODE);
    let shown = stage.wait_condition("OVSReady", "True/SchemaDiffers");
    let image = run(Command::new("ovsdb-tool").arg("schema-version"), SOON).unwrap();
    assert!(shown.contains("7.99.1") && shown.contains(image.trim()), "{shown}");
}

#[test]
fn sigterm_ends_the_agent_at_once_and_without_a_fault() {
    let mut stage = Stage::applied("agent-term");
    let begun = Instant::now();
    let agent = stage.world.node_mut(NODE).agent.as_mut().unwrap();
    let status = agent.terminate(Duration::from_secs(10));
    assert!(status.success(), "{status}");
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[test]
fn the_agent_is_small() {
    let stage = Stage::applied("agent-small");
    let pid = stage.world.node(NODE).agent.as_ref().unwrap().pid().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let kilobytes = |key: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    // Pages of the program itself are shared with the hooks and dropped under pressure; what counts is the rest.
    eprintln!("resident {} kB, of it anonymous {} kB", kilobytes("VmRSS:"), kilobytes("RssAnon:"));
    assert!(kilobytes("RssAnon:") < 15 * 1024, "{status}");
    assert_eq!(stage.object()["status"]["versions"]["agent"], Value::from(env!("CARGO_PKG_VERSION")));
}
