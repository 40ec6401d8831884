//! A standby beside a pod that works: row 13 of what the project has to show.

use std::time::{Duration, Instant};

use super::node::{CONTROLLER, GRACE, Node, OVSDB, VSWITCHD, kill_process, stays, until};

#[test]
fn a_standby_takes_nothing_and_its_end_leaves_no_trace() {
    let node = Node::new();
    let active = node.pod("pod-a");
    let _containers = active.start_ovs();
    let before = node.pids();
    let standby = node.pod("pod-b");
    let mut waiting = [standby.start(OVSDB), standby.start(VSWITCHD)];
    until("both stand by", || waiting.iter().all(|container| container.log().contains("standing by; pod pod-a")));
    let folder = node.run_folder();
    stays("the standby waits", GRACE * 2, || waiting.iter_mut().all(|container| container.is_running()));

    for daemon in [OVSDB, VSWITCHD] {
        let hook = standby.pre_stop(daemon);
        assert_eq!(hook.code, 0, "{}", hook.text);
        assert!(hook.took < Duration::from_secs(2), "{:?}", hook.took);
    }
    for container in &mut waiting {
        let begun = Instant::now();
        assert_eq!(container.terminate(), 0);
        assert!(begun.elapsed() < Duration::from_secs(2));
    }
    assert_eq!(node.pids(), before);
    assert_eq!(node.run_folder(), folder);
    active.until_ready(VSWITCHD);
}

#[test]
fn a_standby_is_ready_only_once_it_is_granted() {
    let node = Node::new();
    let _containers = node.pod("pod-a").start_ovs();
    let standby = node.pod("pod-b");
    let mut waiting = standby.start(VSWITCHD);
    until("it stands by", || waiting.log().contains("standing by"));
    let folder = node.run_folder();
    let refused = standby.ready(VSWITCHD);
    assert_eq!(refused.code, 1);
    assert!(refused.text.contains("pod pod-a works, and this pod is not granted yet"), "{}", refused.text);
    assert_eq!(node.run_folder(), folder);
    node.grant(&["pod-c", "pod-b"]);
    let granted = standby.ready(VSWITCHD);
    assert_eq!(granted.code, 0, "{}", granted.text);
    assert!(granted.took < Duration::from_secs(2), "{:?}", granted.took);
    // Ready or not, the claim stays where it is.
    assert_eq!(node.holder("ovs"), "pod-a");
    assert!(waiting.is_running());
}

#[test]
fn one_killed_daemon_is_not_the_standbys_chance() {
    let node = Node::new();
    let active = node.pod("pod-a");
    let mut containers = active.start_ovs();
    let database = node.pid(OVSDB);
    let standby = node.pod("pod-b");
    let mut waiting = [standby.start(OVSDB), standby.start(VSWITCHD)];
    until("both stand by", || waiting.iter().all(|container| container.log().contains("standing by")));
    kill_process(node.pid(VSWITCHD));
    assert_eq!(containers[1].exit_code(), 137);
    // Much longer than the grace of an orphan: the other container of the pod is alive.
    stays("nobody takes over", GRACE * 3, || node.pid(VSWITCHD).is_none() && node.holder("ovs") == "pod-a");
    let _again = active.start(VSWITCHD);
    active.until_ready(VSWITCHD);
    assert_eq!(node.pid(OVSDB), database);
    assert!(waiting.iter_mut().all(|container| container.is_running()));
}

#[test]
fn case_11_a_hand_over_starts_the_successor_at_once_and_touches_no_bridge_nor_do_old_hooks_touch_it() {
    let node = Node::new();
    let old = node.pod("pod-a");
    let mut containers = old.start_ovs();
    node.vsctl(&[
        "add-br",
        "br-x",
        "--",
        "add-port",
        "br-x",
        "patch-a",
        "--",
        "set",
        "interface",
        "patch-a",
        "type=patch",
        "options:peer=patch-b",
    ]);
    let (before, database) = (node.pids(), node.database());
    let new = node.pod("pod-b");
    let _successors = [new.start(OVSDB), new.start(VSWITCHD)];
    let mut hooks = [old.begin_pre_stop(VSWITCHD), old.begin_pre_stop(OVSDB)];
    for hook in &mut hooks {
        assert_eq!(hook.exit_code(), 0, "{}", hook.log());
    }
    let begun = Instant::now();
    until("the successor's daemons run", || {
        node.pid(OVSDB).is_some_and(|pid| Some(pid) != before[0])
            && node.pid(VSWITCHD).is_some_and(|pid| Some(pid) != before[1])
    });
    let gap = begun.elapsed();
    eprintln!("from the end of the hooks to both new daemons: {gap:?}");
    assert!(gap < Duration::from_secs(3), "{gap:?}");
    new.until_ready(VSWITCHD);
    assert_eq!(node.holder("ovs"), "pod-b");
    // Case 11: a restart touches no bridge and no patch port.
    assert_eq!(node.database(), database);
    let working = node.pids();
    for daemon in [VSWITCHD, OVSDB] {
        assert_eq!(old.pre_stop(daemon).code, 0);
    }
    for container in &mut containers {
        assert_eq!(container.terminate(), 0);
    }
    assert_eq!(node.pids(), working);
    assert_eq!(node.holder("ovs"), "pod-b");
}

#[test]
fn a_pod_that_was_killed_as_a_whole_is_succeeded_by_the_standby() {
    let node = Node::new();
    let mut containers = node.pod("pod-a").start_ovs();
    let before = node.pids();
    let standby = node.pod("pod-b");
    let waiting = [standby.start(OVSDB), standby.start(VSWITCHD)];
    until("both stand by", || waiting.iter().all(|container| container.log().contains("standing by")));
    // Entrypoints first: their daemons still live, and hold their locks.
    for container in &containers {
        container.signal(nix::sys::signal::Signal::SIGKILL);
    }
    for container in &mut containers {
        assert_eq!(container.exit_code(), -9);
    }
    until("the claim passes", || node.holder("ovs") == "pod-b");
    stays("no second daemon beside a living one", GRACE, || node.pids() == before);
    kill_process(before[1]);
    kill_process(before[0]);
    standby.until_ready(OVSDB);
    standby.until_ready(VSWITCHD);
    assert!(node.pid(OVSDB).is_some() && node.pid(OVSDB) != before[0]);
}

#[test]
fn a_pod_that_stays_not_ready_keeps_the_roll_where_it_is() {
    let node = Node::new();
    let active = node.pod("pod-a");
    let _containers = active.start_ovs();
    let before = node.pids();
    let standby = node.pod("pod-b");
    let _waiting = [standby.start(OVSDB), standby.start(VSWITCHD)];
    stays("never ready, never active", Duration::from_secs(1), || {
        standby.ready(OVSDB).code == 1 && node.pids() == before && active.ready(OVSDB).code == 0
    });
    assert_eq!(node.pid(CONTROLLER), None);
}
