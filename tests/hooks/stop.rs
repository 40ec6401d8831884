//! Pre-stop hooks of a pod that is alone on its node.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::node::{GRACE, Node, OVSDB, VSWITCHD, kill_process, stays, until};

/// A hook with nothing in its way.
const QUICK: Duration = Duration::from_secs(5);

#[test]
fn case_1_and_case_6_hooks_ask_no_api_server_end_the_pod_inside_its_grace_and_a_second_run_changes_nothing() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let mut containers = pod.start_ovs();
    for daemon in [VSWITCHD, OVSDB] {
        let hook = pod.pre_stop(daemon);
        assert_eq!(hook.code, 0, "{}", hook.text);
        assert!(hook.took < QUICK, "{:?}", hook.took);
        assert_eq!(node.pid(daemon), None);
    }
    assert_eq!(node.holder("ovs"), "");
    // The hook is never process 1's death: the container stays until kubelet's SIGTERM.
    assert!(containers.iter_mut().all(|container| container.is_running()));
    let after = node.run_folder();
    for daemon in [VSWITCHD, OVSDB] {
        let again = pod.pre_stop(daemon);
        assert_eq!(again.code, 0, "{}", again.text);
        assert!(again.took < QUICK, "{:?}", again.took);
    }
    assert_eq!(node.run_folder(), after);
    for container in &mut containers {
        assert_eq!(container.terminate(), 0);
        assert!(container.log().contains("on its hook's word"), "{}", container.log());
    }
}

#[test]
fn a_container_ends_by_itself_if_sigterm_never_comes() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let mut database = pod.start(OVSDB);
    pod.until_ready(OVSDB);
    assert_eq!(pod.pre_stop(OVSDB).code, 0);
    assert_eq!(database.exit_code(), 0);
}

#[test]
fn ovsdb_server_goes_last() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let _containers = pod.start_ovs();
    let mut hook = pod.begin_pre_stop(OVSDB);
    stays("ovsdb-server waits for ovs-vswitchd", GRACE * 2, || node.pid(OVSDB).is_some() && hook.is_running());
    assert_eq!(node.holder("ovs"), "pod-a");
    assert_eq!(pod.pre_stop(VSWITCHD).code, 0);
    assert_eq!(hook.exit_code(), 0);
    assert_eq!(node.pid(OVSDB), None);
    assert_eq!(node.holder("ovs"), "");
}

#[test]
fn both_hooks_at_once_give_the_claim_up_once_both_daemons_are_gone() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let _containers = pod.start_ovs();
    let mut hooks = [pod.begin_pre_stop(OVSDB), pod.begin_pre_stop(VSWITCHD)];
    for hook in &mut hooks {
        assert_eq!(hook.exit_code(), 0, "{}", hook.log());
    }
    assert_eq!(node.pids(), [None, None, None]);
    assert_eq!(node.holder("ovs"), "");
}

#[test]
fn a_hook_whose_daemon_is_already_gone_succeeds() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let mut containers = pod.start_ovs();
    kill_process(node.pid(VSWITCHD));
    assert_eq!(containers[1].exit_code(), 137);
    let hook = pod.pre_stop(VSWITCHD);
    assert_eq!(hook.code, 0, "{}", hook.text);
    assert!(hook.took < QUICK, "{:?}", hook.took);
    assert_eq!(pod.pre_stop(OVSDB).code, 0);
    assert_eq!(node.holder("ovs"), "");
}

#[test]
fn a_hook_that_meets_no_run_folder_succeeds() {
    let node = Node::new();
    let hook = node.pod("pod-a").pre_stop(OVSDB);
    assert_eq!(hook.code, 0, "{}", hook.text);
}

#[test]
fn case_3_sigterm_without_a_hook_is_the_same_gentle_stop() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let mut containers = pod.start_ovs();
    containers[1].signal(Signal::SIGTERM);
    assert_eq!(containers[1].exit_code(), 0);
    // ovs-vswitchd says which way it went: by command, never by the signal.
    assert!(!containers[1].log().contains("terminating with signal"), "{}", containers[1].log());
    assert_eq!(node.pid(VSWITCHD), None);
    assert_eq!(node.holder("ovs"), "pod-a");
    assert_eq!(containers[0].terminate(), 0);
    assert_eq!(node.pids(), [None, None, None]);
    assert_eq!(node.holder("ovs"), "");
}

#[test]
fn a_daemon_that_hangs_fails_the_hook_in_time_and_is_killed_after_sigterm() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let mut containers = pod.start_ovs();
    let stuck = node.pid(VSWITCHD).unwrap();
    kill(Pid::from_raw(stuck), Signal::SIGSTOP).unwrap();
    let probe = pod.ready(VSWITCHD);
    assert_eq!(probe.code, 1);
    assert!(probe.took < Duration::from_secs(6), "{:?}", probe.took);
    let hook = pod.pre_stop_within(VSWITCHD, 2);
    assert_eq!(hook.code, 1);
    assert!(hook.text.contains("ovs-vswitchd is still there after"), "{}", hook.text);
    assert!(hook.took < Duration::from_secs(4), "{:?}", hook.took);
    assert_eq!(node.pid(VSWITCHD), Some(stuck));
    assert_eq!(containers[1].terminate(), 0);
    assert_eq!(node.pid(VSWITCHD), None);
    assert_eq!(pod.pre_stop(OVSDB).code, 0);
    assert_eq!(node.holder("ovs"), "");
}

#[test]
fn ovsdb_server_does_not_wait_for_ever_for_a_vswitchd_that_hangs() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let _containers = pod.start_ovs();
    let stuck = Pid::from_raw(node.pid(VSWITCHD).unwrap());
    kill(stuck, Signal::SIGSTOP).unwrap();
    let hook = pod.pre_stop_within(OVSDB, 5);
    assert_eq!(hook.code, 0, "{}", hook.text);
    assert!(hook.took < Duration::from_secs(5), "{:?}", hook.took);
    assert_eq!(node.pid(OVSDB), None);
    // Not the last one: the datapath is still this pod's.
    assert_eq!(node.holder("ovs"), "pod-a");
    kill(stuck, Signal::SIGKILL).unwrap();
    until("it is gone", || node.pid(VSWITCHD).is_none());
    assert_eq!(pod.pre_stop(VSWITCHD).code, 0);
    assert_eq!(node.holder("ovs"), "");
}

#[test]
fn case_10_five_hundred_ports_without_a_device_leave_hooks_and_probes_bounded() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let _containers = pod.start_ovs();
    let mut words: Vec<String> = ["--no-wait", "add-br", "br-x"].map(String::from).to_vec();
    for index in 0..500 {
        // A type that this datapath has no device for.
        words.extend(
            [
                "--",
                "add-port",
                "br-x",
                &format!("tap{index}"),
                "--",
                "set",
                "interface",
                &format!("tap{index}"),
                "type=dpdk",
            ]
            .map(String::from),
        );
    }
    node.vsctl(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let probe = pod.ready(VSWITCHD);
    assert!(probe.took < Duration::from_secs(6), "{:?}", probe.took);
    pod.until_ready(VSWITCHD);
    for daemon in [VSWITCHD, OVSDB] {
        let hook = pod.pre_stop(daemon);
        assert_eq!(hook.code, 0, "{}", hook.text);
        assert!(hook.took < Duration::from_secs(10), "{:?}", hook.took);
    }
}
