//! Tunnels that forwarded before a restart of `ovs-vswitchd` forward after it, before their sessions are up.

use std::time::Duration;

use super::node::{Container, Node, OVSDB, Pod, VSWITCHD, kill_process, stays, until};
use super::revalidators::{process, tool};

/// The bound of the flag, so that nobody has to take it away.
const A_WHILE: &str = "--flow-restore-wait-at-most-ms=3000";

fn start_ovs(pod: &Pod<'_>) -> Vec<Container> {
    vec![pod.start_as_process_1(OVSDB), pod.start_as_process_1_with(VSWITCHD, &[A_WHILE])]
}

/// Two interfaces with sessions that nobody answers, as those of a restarted daemon are at first.
fn add_tunnels(node: &Node) {
    node.vsctl(&["add-br", "br-int", "--", "set", "bridge", "br-int", "fail-mode=secure"]);
    for name in ["alive", "dead"] {
        let bfd = ["bfd:enable=true", "bfd:min_tx=100", "bfd:min_rx=100"];
        let mut arguments = vec!["add-port", "br-int", name, "--", "set", "interface", name, "type=dummy"];
        arguments.extend(bfd);
        node.vsctl(&arguments);
    }
    until("there are sessions", || forwards(node, "alive").is_some() && forwards(node, "dead").is_some());
}

fn forwards(node: &Node, tunnel: &str) -> Option<bool> {
    let text = tool(node, "ovs-appctl", &["bfd/show"]);
    let (_, session) = text.split_once(&format!("---- {tunnel} ----"))?;
    let (_, value) = session.split_once("Forwarding: ")?;
    Some(value.starts_with("true"))
}

/// What a session that is up says.
fn is_up(node: &Node, tunnel: &str) {
    tool(node, "ovs-appctl", &["bfd/set-forwarding", tunnel, "true"]);
    assert_eq!(forwards(node, tunnel), Some(true));
}

#[test]
fn a_tunnel_that_forwarded_goes_on_until_its_session_had_its_time() {
    let node = Node::new();
    let old = node.pod("pod-a");
    let mut containers = start_ovs(&old);
    node.configure("unix:/nonexistent");
    old.until_ready(VSWITCHD);
    add_tunnels(&node);
    is_up(&node, "alive");
    for daemon in [VSWITCHD, OVSDB] {
        let hook = old.pre_stop(daemon);
        assert_eq!(hook.code, 0, "{}", hook.text);
    }
    for container in &mut containers {
        assert_eq!(container.terminate(), 0);
    }

    let new = node.pod("pod-b");
    let mut containers = start_ovs(&new);
    new.until_ready(VSWITCHD);
    until("the tunnel forwards without a session", || forwards(&node, "alive") == Some(true));
    // Nobody said of this one that it forwards: its far end may be dead.
    stays("the other one is left alone", Duration::from_secs(2), || {
        forwards(&node, "alive") == Some(true) && forwards(&node, "dead") == Some(false)
    });
    until("the session decides again", || forwards(&node, "alive") == Some(false));
    until("and says so", || containers[1].log().contains("tunnel alive: no session within 10 s"));

    // A daemon that was killed said nothing: its successor's sessions decide from the start.
    is_up(&node, "alive");
    kill_process(process(&containers[1], VSWITCHD));
    assert_eq!(containers[1].exit_code(), 137);
    let _again = new.start_as_process_1_with(VSWITCHD, &[A_WHILE]);
    new.until_ready(VSWITCHD);
    until("there are sessions", || forwards(&node, "alive").is_some());
    stays("nothing is kept", Duration::from_secs(2), || forwards(&node, "alive") == Some(false));
}
