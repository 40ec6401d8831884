//! Restarts that keep the kernel's flows, and the watchdog that ends them: with real daemons and without an agent.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::node::{CONTROLLER, Container, Node, OVSDB, Pod, VSWITCHD, kill_process, stays, until};

/// Long enough to see that something is held.
const A_WHILE: &str = "--flow-restore-wait-at-most-ms=4000";

pub fn flag(node: &Node) -> String {
    node.vsctl(&["--no-wait", "--if-exists", "get", "open_vswitch", ".", "other_config:flow-restore-wait"])
}

pub fn hand_over(node: &Node, daemon: &str) -> String {
    std::fs::read_to_string(node.path("run").join(format!("{daemon}.hand-over"))).unwrap_or_default()
}

/// The bridge with one flow, as `ovn-controller` leaves it.
fn fill_bridge(node: &Node) {
    node.vsctl(&["--may-exist", "add-br", "br-int", "--", "set", "bridge", "br-int", "fail-mode=secure"]);
    let added = Command::new("ovs-ofctl")
        .env("OVS_RUNDIR", node.path("ovs"))
        .args(["add-flow", "br-int", "priority=1,actions=drop"])
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(added.success());
}

fn start_ovs(pod: &Pod<'_>, node: &Node, more: &[&str]) -> Vec<Container> {
    let database = pod.start(OVSDB);
    let datapath = pod.start_with(VSWITCHD, more);
    node.configure("unix:/nonexistent");
    pod.until_ready(OVSDB);
    pod.until_ready(VSWITCHD);
    vec![database, datapath]
}

#[test]
fn case_5_the_watchdog_takes_the_flag_away_without_an_agent() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    // The first start of a node: nothing to keep, nothing set.
    let mut containers = start_ovs(&pod, &node, &[]);
    assert_eq!(flag(&node), "");
    assert_eq!(hand_over(&node, VSWITCHD), "");
    fill_bridge(&node);
    node.vsctl(&["--no-wait", "set", "open_vswitch", ".", "other_config:theirs=kept"]);

    // Killed alone, as by the kernel: no hook ran, and the next start still keeps the flows.
    kill_process(node.pid(VSWITCHD));
    assert_eq!(containers[1].exit_code(), 137);
    let again = pod.start_with(VSWITCHD, &[A_WHILE]);
    until("the daemon is back", || node.pid(VSWITCHD).is_some());
    assert_eq!(flag(&node), "\"true\"");
    assert!(hand_over(&node, VSWITCHD).starts_with("held "), "{}", hand_over(&node, VSWITCHD));
    until("the watchdog takes the flag away", || flag(&node).is_empty());
    until("and says so", || again.log().contains("the watchdog took it away"));
    assert!(hand_over(&node, VSWITCHD).starts_with("overdue "));
    assert_eq!(node.vsctl(&["--no-wait", "get", "open_vswitch", ".", "other_config"]), "{theirs=kept}");
    // Once is enough.
    let database = node.database();
    let line = hand_over(&node, VSWITCHD);
    stays("nothing more happens", Duration::from_millis(1500), || hand_over(&node, VSWITCHD) == line);
    assert_eq!(node.database(), database);
    pod.until_ready(VSWITCHD);
}

#[test]
fn the_datapath_does_not_stop_while_ovn_controller_fills_the_tables_and_not_for_ever_either() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let mut containers = start_ovs(&pod, &node, &[]);
    fill_bridge(&node);
    let _controller = pod.start(CONTROLLER);
    until("its start is noted", || hand_over(&node, CONTROLLER).starts_with("held "));
    // No agent says that the flows are in: the hook waits for half of its time and goes on.
    let hook = pod.pre_stop_within(VSWITCHD, 6);
    assert_eq!(hook.code, 0, "{}", hook.text);
    assert!(hook.text.contains("waits for the hand-over of ovn-controller"), "{}", hook.text);
    assert!(hook.took >= Duration::from_secs(3) && hook.took < Duration::from_secs(6), "{:?}", hook.took);
    assert_eq!(node.pid(VSWITCHD), None);
    assert!(hand_over(&node, VSWITCHD).starts_with("stopping "));
    assert_eq!(containers[1].terminate(), 0);
    // A stop keeps the flag off: only a start sets it.
    assert_eq!(flag(&node), "");
}
