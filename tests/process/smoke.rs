//! The harness itself: what it starts is real, and what it can break, breaks.
use std::time::{Duration, Instant};

use crate::harness::central::{Central, Shape};
use crate::harness::control_plane::ControlPlane;
use crate::harness::kube_api::NODE;
use crate::harness::node::SimNode;
use crate::harness::proxy::Line;
use crate::harness::scratch::Folder;
use crate::harness::{until, until_true};
use serde_json::json;

#[test]
fn harness_starts_an_api_server_that_serves_kubectl() {
    let started = Instant::now();
    let plane = ControlPlane::start("smoke-cp", &[]);
    eprintln!("control plane ready after {:?}", started.elapsed());
    plane.admin.create(NODE, "", json!({"metadata": {"name": "smoke-a"}}));
    assert_eq!(plane.kubectl(&["get", "nodes", "-o", "name"]).unwrap().trim(), "node/smoke-a");
}

#[test]
fn harness_raft_databases_survive_their_leader_and_a_node_registers_through_the_relay() {
    let started = Instant::now();
    let folder = Folder::new("smoke-raft");
    let mut central = Central::start(Shape::raft().with_relay(), folder.path());
    eprintln!("raft, relay and northd after {:?}", started.elapsed());

    let mut node = SimNode::start("n1", folder.join("n1"));
    let relay = central.relay.as_ref().unwrap().proxy.port;
    let settings = [
        "external_ids:system-id=one",
        "external_ids:hostname=n1",
        "external_ids:ovn-encap-type=geneve",
        "external_ids:ovn-encap-ip=127.0.0.1",
    ];
    node.vsctl(
        &[&["set", "open_vswitch", "."], &settings[..], &[&format!("external_ids:ovn-remote=ssl:127.0.0.1:{relay}")]]
            .concat(),
    );
    node.start_ovn_controller(&central);
    until("the chassis row", Duration::from_secs(15), || {
        let names = central.chassis_names();
        if names == ["one"] { Ok(()) } else { Err(format!("{names:?}")) }
    });

    let leader = central.southbound.leader();
    central.southbound.members[leader].daemon.kill();
    let next = central.southbound.leader();
    assert_ne!(leader, next);
    central.southbound.members[leader].daemon.start_again();
    assert_eq!(central.chassis_names(), ["one"]);
    node.stop_ovn_controller();
    eprintln!("all of it took {:?}", started.elapsed());
}

#[test]
fn harness_proxy_cuts_and_mends() {
    let folder = Folder::new("smoke-proxy");
    let central = Central::start(Shape::default().without_northd(), folder.path());
    let remote = central.northbound.addresses();
    let ask = || {
        let mut command = std::process::Command::new("ovn-nbctl");
        crate::harness::daemon::run(
            command.args(central.client.ovs_arguments()).args([
                &format!("--db={remote}"),
                "--timeout=1",
                "get-connection",
            ]),
            Duration::from_secs(3),
        )
    };
    ask().unwrap();
    for line in [Line::Cut, Line::Stalled] {
        central.northbound.set_lines(line);
        assert!(ask().is_err(), "{line:?}");
        central.northbound.set_lines(Line::Open);
        until_true("an answer after the line is open again", Duration::from_secs(5), || ask().is_ok());
    }
}
