//! Entrypoints as a container has them: process 1 of a pid namespace of their own, so that pid files hold small
//! numbers.

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::node::{CONTROLLER, Container, Node, OVSDB, Pod, VSWITCHD, until};

/// The number that a daemon wrote into its pid file.
fn number(node: &Node, daemon: &str) -> u32 {
    let folder = if daemon == CONTROLLER { "ovn" } else { "ovs" };
    std::fs::read_to_string(node.path(folder).join(format!("{daemon}.pid"))).unwrap().trim().parse().unwrap()
}

/// The entrypoint itself, as this machine numbers it.
fn process_1(container: &Container) -> i32 {
    living_process_1(container).expect("process 1 lives")
}

fn living_process_1(container: &Container) -> Option<i32> {
    let children = format!("/proc/{0}/task/{0}/children", container.id());
    Some(std::fs::read_to_string(children).ok()?.split_whitespace().next()?.parse().unwrap())
}

fn processes_of(container: &Container) -> Vec<String> {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = namespace(&process_1(container).to_string()).unwrap();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let pid = entry.unwrap().file_name().into_string().unwrap();
        if pid.bytes().all(|byte| byte.is_ascii_digit()) && namespace(&pid).as_ref() == Some(&own) {
            found.push(std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default());
        }
    }
    found
}

fn start_all(node: &Node, pod: &Pod<'_>) -> [Container; 3] {
    let containers = [OVSDB, VSWITCHD, CONTROLLER].map(|daemon| pod.start_as_process_1(daemon));
    node.configure("unix:/nonexistent");
    for daemon in [OVSDB, VSWITCHD, CONTROLLER] {
        pod.until_ready(daemon);
    }
    containers
}

#[test]
fn a_killed_process_1_takes_its_daemon_along_and_small_numbers_are_told_apart() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let mut containers = start_all(&node, &pod);
    let numbers = [OVSDB, VSWITCHD, CONTROLLER].map(|daemon| number(&node, daemon));
    assert!(numbers.iter().all(|number| *number < 200), "{numbers:?}");
    for container in &mut containers {
        container.signal_pid(process_1(container), Signal::SIGKILL);
        container.exit_code();
    }
    // Numbers that are alive again in the next container: the entrypoint itself is 1.
    for (folder, daemon) in [("ovs", OVSDB), ("ovs", VSWITCHD), ("ovn", CONTROLLER)] {
        assert!(node.path(folder).join(format!("{daemon}.pid")).exists(), "killed daemons leave their pid files");
        std::fs::write(node.path(folder).join(format!("{daemon}.pid")), "1\n").unwrap();
    }
    let mut containers = start_all(&node, &pod);
    assert!(containers.iter().all(|container| container.log().contains("removed the stale")));

    for daemon in [CONTROLLER, VSWITCHD, OVSDB] {
        let hook = pod.pre_stop(daemon);
        assert_eq!(hook.code, 0, "{}", hook.text);
    }
    for container in &mut containers {
        // The first ones may have ended by themselves while the other hooks worked.
        if let Some(pid) = living_process_1(container) {
            container.signal_pid(pid, Signal::SIGTERM);
        }
        assert_eq!(container.exit_code(), 0);
    }
    assert_eq!((node.holder("ovs"), node.holder("ovn-controller")), (String::new(), String::new()));
}

#[test]
fn orphans_are_collected_and_the_daemons_own_end_is_not_lost_among_them() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let mut database = pod.start_as_process_1(OVSDB);
    pod.until_ready(OVSDB);
    let inside = process_1(&database).to_string();
    // What a hook that was cut off leaves behind: children without a parent.
    for _ in 0..5 {
        let left =
            Command::new("nsenter").args(["-t", &inside, "-p", "sh", "-c", "(sleep 0.05; exit 3) & exit 0"]).status();
        assert!(left.unwrap().success());
    }
    until("nobody but process 1 and the daemon is left", || {
        let all = processes_of(&database);
        all.len() == 2 && all.iter().all(|stat| !stat.contains(") Z "))
    });
    let hook = pod.pre_stop(OVSDB);
    assert_eq!(hook.code, 0, "{}", hook.text);
    assert!(hook.took < Duration::from_secs(5), "{:?}", hook.took);
    assert_eq!(database.exit_code(), 0);
}
