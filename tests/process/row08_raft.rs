//! Row 8: Northbound and Southbound as three-member Raft clusters with TLS that lose leaders, lag, and have a relay beside them.
use std::time::Duration;

use serde_json::json;

use crate::harness::central::Shape;
use crate::harness::monitor::RowMonitor;
use crate::harness::proxy::Line;
use crate::harness::until_true;
use crate::harness::world::{CHASSIS_LABEL, GATEWAY_LABEL, SOON, World, job_has};
use crate::history;

fn raft_world(test: &str, node: &str) -> (World, String) {
    let world = World::ready(test, Shape::raft().with_relay().without_northd(), &[node], &[node]);
    let id = world.recorded_system_id(node);
    world.central.seed_chassis(&[&id]);
    world.seed_gateway_ports("lr0", 200, &[(&id, 2), ("foreign", 1)]);
    (world, id)
}

fn leave(world: &World, node: &str) {
    world.label(node, &[(CHASSIS_LABEL, None)]);
    world.wait_job("chassis-del", node, "Complete");
    world.wait_forgotten(node);
}

fn assert_left(world: &World, id: &str) {
    assert!(world.central.gateway_rows().iter().all(|n| n == "foreign"));
    assert_eq!(world.central.gateway_rows().len(), 200);
    for table in ["chassis", "chassis_private", "encap"] {
        assert!(!world.central.southbound_names(table).contains(&id.to_owned()), "{table}");
    }
    history::assert_holds(world);
}

#[test]
fn row08_leaders_killed_before_each_transaction() {
    let (mut world, id) = raft_world("row08-before", "row08-b");
    let leader = world.central.northbound.leader();
    world.central.northbound.members[leader].daemon.kill();
    world.label("row08-b", &[(GATEWAY_LABEL, None)]);
    world.wait_job("evacuate", "row08-b", "Complete");
    world.central.northbound.members[leader].daemon.start_again();

    let leader = world.central.southbound.leader();
    world.central.southbound.members[leader].daemon.kill();
    leave(&world, "row08-b");
    world.central.southbound.members[leader].daemon.start_again();
    assert_left(&world, &id);
}

#[test]
fn row08_leaders_killed_during_each_transaction() {
    // The transaction's reply is kept back by stalling the leader's line right after the label goes; then the leader dies with the outcome unknown to the client.
    let (mut world, id) = raft_world("row08-during", "row08-d");
    for (label, kind) in [(GATEWAY_LABEL, "evacuate"), (CHASSIS_LABEL, "chassis-del")] {
        let database = if kind == "evacuate" { &world.central.northbound } else { &world.central.southbound };
        let leader = database.leader();
        database.members[leader].proxy.set(Line::Stalled);
        world.label("row08-d", &[(label, None)]);
        until_true("the Job to run", SOON, || {
            world.job(kind, "row08-d").is_some_and(|j| j["status"]["startTime"].is_string() || job_has(&j, "Complete"))
        });
        std::thread::sleep(Duration::from_millis(300));
        let database = if kind == "evacuate" { &mut world.central.northbound } else { &mut world.central.southbound };
        database.members[leader].daemon.kill();
        database.members[leader].proxy.set(Line::Open);
        world.wait_job(kind, "row08-d", "Complete");
        let database = if kind == "evacuate" { &mut world.central.northbound } else { &mut world.central.southbound };
        database.members[leader].daemon.start_again();
    }
    world.wait_forgotten("row08-d");
    assert_left(&world, &id);
}

#[test]
fn row08_leaders_killed_after_each_transaction() {
    let (mut world, id) = raft_world("row08-after", "row08-c");
    let monitor = RowMonitor::start(
        &world.central.northbound.members[world.central.northbound.followers()[0]].socket,
        "OVN_Northbound",
        "Gateway_Chassis",
        "chassis_name",
    );
    world.label("row08-c", &[(GATEWAY_LABEL, None)]);
    until_true("the rows to go", SOON, || monitor.deletions(&id) == 200);
    let leader = world.central.northbound.leader();
    world.central.northbound.members[leader].daemon.kill();
    world.wait_job("evacuate", "row08-c", "Complete");
    leave(&world, "row08-c");
    let leader = world.central.southbound.leader();
    world.central.southbound.members[leader].daemon.kill();
    world.wait_condition("MaintenanceReady", "True", "MaintenanceIdle");
    assert_left(&world, &id);
}

#[test]
fn row08_chassis_del_never_goes_to_the_relay() {
    let (world, id) = raft_world("row08-relay", "row08-r");
    let relay = world.central.relay.as_ref().unwrap();
    assert_eq!(
        world.node("row08-r").external_id("ovn-remote"),
        format!("ssl:127.0.0.1:{}", relay.proxy.port),
        "nodes are sent to the relay"
    );
    world.label("row08-r", &[(GATEWAY_LABEL, None)]);
    world.wait_evacuated("row08-r");
    // No ovn-controller runs in this test, so any connection to the relay would be the controller's.
    leave(&world, "row08-r");
    assert_eq!(relay.proxy.connections(), 0);
    assert_left(&world, &id);
}

#[test]
fn field30_a_lagging_follower_is_never_the_ground_of_a_decision() {
    // All but one follower are out of reach, and that one stands still: what it last saw is stale by what the others commit meanwhile.
    let (world, id) = raft_world("field30", "field30-a");
    let north = &world.central.northbound;
    let (leader, followers) = (north.leader(), north.followers());
    let lagging = followers[0];
    world.label("field30-a", &[(GATEWAY_LABEL, None)]);
    world.wait_evacuated("field30-a");
    world.label("field30-a", &[(GATEWAY_LABEL, Some("true"))]);
    world.wait_gateway("field30-a");

    north.members[lagging].daemon.pause();
    world.seed_gateway_ports("lr1", 5, &[(&id, 2), ("foreign", 1)]);
    for (index, member) in north.members.iter().enumerate() {
        member.proxy.set(if index == lagging { Line::Open } else { Line::Cut });
    }
    // The follower wakes up cut off from what was written: its view shows no row of this chassis, which would pass for an evacuated one.
    for (index, member) in north.members.iter().enumerate() {
        if index != lagging {
            member.daemon.pause();
        }
    }
    north.members[lagging].daemon.resume();
    world.label("field30-a", &[(GATEWAY_LABEL, None)]);
    std::thread::sleep(Duration::from_secs(3));
    let record = world.record("field30-a").unwrap();
    assert_eq!(
        (&record["gateway"], &record["gatewayEvacuated"]),
        (&json!(true), &json!(null)),
        "decided on a stale view: {record}"
    );

    for (index, member) in north.members.iter().enumerate() {
        if index != lagging {
            member.daemon.resume();
        }
        member.proxy.set(Line::Open);
    }
    world.wait_evacuated("field30-a");
    assert!(world.central.gateway_rows().iter().all(|n| n == "foreign"));
    assert!(leader != lagging);
    history::assert_holds(&world);
}
