//! The revalidators are paused while `ovn-controller` restarts, and whatever happens, not for ever: with real daemons
//! and without an agent.
//!
//! Containers run as process 1 of a pid namespace of their own, because only such an entrypoint pauses anything.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::node::{CONTROLLER, Container, Node, OVSDB, Pod, SOON, VSWITCHD, until};

/// The threads look at the flows twice a second, unless they are paused.
const TWO_ROUNDS: Duration = Duration::from_millis(1300);

/// The process of a container that runs this program, as this machine numbers it.
pub fn process(container: &Container, program: &str) -> Option<i32> {
    let mut todo = vec![container.id().to_string()];
    while let Some(pid) = todo.pop() {
        if std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == program) {
            return pid.parse().ok();
        }
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        todo.extend(children.split_whitespace().map(str::to_owned));
    }
    None
}

fn vswitchd(container: &Container) -> i32 {
    process(container, VSWITCHD).expect("ovs-vswitchd lives")
}

fn process_1(container: &Container) -> i32 {
    process(container, "ovn-chassis").expect("process 1 lives")
}

/// How often the revalidators have gone to sleep so far; none while there are no such threads.
fn rounds(pid: i32) -> Option<u64> {
    let mut sum = None;
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let thread = entry.ok()?.path();
        let read = |name: &str| std::fs::read_to_string(thread.join(name)).unwrap_or_default();
        if read("comm").starts_with("revalidator") {
            let status = read("status");
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sum = Some(sum.unwrap_or(0) + line?.trim().parse::<u64>().ok()?);
        }
    }
    sum
}

/// What the kernel says of the threads themselves, whatever any file says.
fn stand_still(pid: i32) -> bool {
    let before = rounds(pid);
    std::thread::sleep(TWO_ROUNDS);
    before.is_some() && rounds(pid) == before
}

fn is_locked(node: &Node) -> bool {
    let Ok(file) = std::fs::File::open(node.path("run/revalidators.pause")) else { return false };
    file.try_lock_shared().is_err()
}

fn answer(node: &Node) -> String {
    std::fs::read_to_string(node.path("run/revalidators.pause")).unwrap_or_default()
}

pub fn tool(node: &Node, program: &str, arguments: &[&str]) -> String {
    let socket = node.path("ovs/ovs-vswitchd.ctl");
    let mut command = Command::new("timeout");
    command.args(["10", program]).env("OVS_RUNDIR", node.path("ovs"));
    if program == "ovs-appctl" {
        command.arg("-t").arg(socket);
    }
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The main loop turns.
fn answers(node: &Node) -> bool {
    Command::new("timeout")
        .args(["3", "ovs-appctl", "-t"])
        .arg(node.path("ovs/ovs-vswitchd.ctl"))
        .arg("version")
        .stdin(Stdio::null())
        .output()
        .unwrap()
        .status
        .success()
}

/// The pod `ovs` and the bridge with one flow, as `ovn-controller` leaves it.
fn start_ovs(node: &Node, pod: &Pod<'_>, more: &[&str]) -> [Container; 2] {
    let database = pod.start_as_process_1(OVSDB);
    let datapath = pod.start_as_process_1_with(VSWITCHD, more);
    node.configure("unix:/nonexistent");
    pod.until_ready(OVSDB);
    pod.until_ready(VSWITCHD);
    node.vsctl(&["--may-exist", "add-br", "br-int", "--", "set", "bridge", "br-int", "fail-mode=secure"]);
    tool(node, "ovs-ofctl", &["add-flow", "br-int", "priority=1,actions=drop"]);
    until("the revalidators run", || process(&datapath, VSWITCHD).and_then(rounds).is_some());
    [database, datapath]
}

/// How often `ovn-controller` was started; before it is, its program is asked for its version.
fn controller_starts(node: &Node, pod: &Pod<'_>) -> usize {
    let log = node.path("logs").join(format!("{}-{CONTROLLER}", pod.uid));
    std::fs::read_to_string(log).unwrap_or_default().matches("started as process").count()
}

/// Starts `ovn-controller` and returns once the pause for it is in force.
#[track_caller]
fn start_controller(node: &Node, pod: &Pod<'_>) -> Container {
    let before = controller_starts(node, pod);
    let controller = pod.start_as_process_1(CONTROLLER);
    until("ovn-controller starts", || controller_starts(node, pod) > before);
    assert!(answer(node).starts_with("paused "), "{}\n{}", answer(node), controller.log());
    assert!(is_locked(node));
    controller
}

/// What the agent does once the flows are in.
fn flows_are_in(node: &Node) {
    std::fs::write(node.path("run/ovn-controller.hand-over"), "").unwrap();
}

#[test]
fn revalidators_stand_still_from_before_ovn_controller_starts_until_its_flows_are_in() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let [_database, datapath] = start_ovs(&node, &pod, &[]);
    let pid = vswitchd(&datapath);
    assert!(!stand_still(pid));
    let mut controller = start_controller(&node, &pod);
    assert!(controller.log().contains("keeps the kernel's flows"), "{}", controller.log());
    assert!(stand_still(pid));
    flows_are_in(&node);
    let begun = Instant::now();
    until("they are resumed", || !is_locked(&node));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(!stand_still(pid));

    // A container that is killed alone and started again by kubelet: the same, with the same ovs-vswitchd.
    controller.signal_pid(process(&controller, CONTROLLER).unwrap(), Signal::SIGKILL);
    assert_eq!(controller.exit_code(), 137);
    let _again = start_controller(&node, &pod);
    assert!(stand_still(pid));
    flows_are_in(&node);
    until("they are resumed", || !is_locked(&node));
    assert!(!stand_still(pid) && answers(&node));
    assert_eq!(vswitchd(&datapath), pid);
}

#[test]
fn case_2_a_connection_that_met_a_half_full_table_works_within_a_second_of_the_resume() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let [_database, datapath] = start_ovs(&node, &pod, &[]);
    for port in ["p1", "p2"] {
        node.vsctl(&["add-port", "br-int", port, "--", "set", "interface", port, "type=dummy"]);
    }
    let send = || {
        let packet = "eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),\
                      ipv4(src=192.168.0.1,dst=192.168.0.2,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)";
        tool(&node, "ovs-appctl", &["netdev-dummy/receive", "p1", packet]);
    };
    let arrived = || {
        let text = node.vsctl(&["get", "interface", "p2", "statistics:tx_packets"]);
        text.parse::<u64>().unwrap()
    };
    let datapath_flows = || tool(&node, "ovs-appctl", &["dpctl/dump-flows"]);
    let _controller = start_controller(&node, &pod);
    // It has emptied the tables, and a new connection comes.
    tool(&node, "ovs-ofctl", &["del-flows", "br-int"]);
    send();
    until("the datapath learned to drop it", || datapath_flows().contains("actions:drop"));
    tool(&node, "ovs-ofctl", &["add-flow", "br-int", "in_port=p1,actions=output:p2"]);
    assert!(stand_still(vswitchd(&datapath)));
    send();
    assert!(datapath_flows().contains("actions:drop"), "a drop that was learned stays during the pause");
    flows_are_in(&node);
    until("they are resumed", || !is_locked(&node));
    let resumed = Instant::now();
    until("packets go through", || {
        send();
        datapath_flows().lines().any(|line| line.contains("packets:") && !line.contains("actions:drop"))
    });
    assert!(resumed.elapsed() < Duration::from_secs(1), "{:?}", resumed.elapsed());
    until("and they are counted", || arrived() > 0);
}

#[test]
fn without_an_agent_the_watchdog_resumes_and_a_daemon_that_starts_again_and_again_gets_no_second_pause() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let [_database, datapath] = start_ovs(&node, &pod, &["--revalidators-paused-at-most-ms=4000"]);
    let pid = vswitchd(&datapath);
    let begun = Instant::now();
    let mut controller = start_controller(&node, &pod);
    assert!(stand_still(pid));
    // It crashes meanwhile: the same pause, with the same end.
    controller.signal_pid(process(&controller, CONTROLLER).unwrap(), Signal::SIGKILL);
    assert_eq!(controller.exit_code(), 137);
    let mut again = start_controller(&node, &pod);
    until("the watchdog resumes them", || !is_locked(&node));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(datapath.log().contains("the watchdog resumed them"), "{}", datapath.log());
    assert_eq!(datapath.log().matches("revalidators are paused").count(), 1, "{}", datapath.log());
    again.signal_pid(process(&again, CONTROLLER).unwrap(), Signal::SIGKILL);
    assert_eq!(again.exit_code(), 137);
    let third = pod.start_as_process_1(CONTROLLER);
    until("it is answered", || third.log().contains("pauses nothing"));
    assert!(!is_locked(&node) && !stand_still(pid) && answers(&node));
}

#[test]
fn a_stop_of_ovs_vswitchd_under_a_pause_resumes_first() {
    for with_hook in [true, false] {
        let node = Node::new();
        let pod = node.pod("pod-a");
        let [_database, mut datapath] = start_ovs(&node, &pod, &[]);
        let _controller = start_controller(&node, &pod);
        if with_hook {
            let hook = pod.pre_stop_within(VSWITCHD, 6);
            assert_eq!(hook.code, 0, "{}\n{}", hook.text, datapath.log());
            assert!(hook.took < Duration::from_secs(7), "{:?}", hook.took);
        }
        if let Some(pid) = process(&datapath, "ovn-chassis") {
            datapath.signal_pid(pid, Signal::SIGTERM);
        }
        assert_eq!(datapath.exit_code(), 0, "{}", datapath.log());
        let log = datapath.log();
        assert!(log.contains("revalidators run again (Ending)"), "{log}");
        assert!(!log.contains("killed") && !log.contains("is killed"), "{log}");
        assert!(!is_locked(&node));
    }
}

#[test]
fn a_process_1_that_is_killed_under_a_pause_takes_the_pause_with_it() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let [_database, mut datapath] = start_ovs(&node, &pod, &[]);
    let _controller = start_controller(&node, &pod);
    datapath.signal_pid(process_1(&datapath), Signal::SIGKILL);
    datapath.exit_code();
    until("nobody holds the pause", || !is_locked(&node));
    let again = pod.start_as_process_1_with(VSWITCHD, &["--flow-restore-wait-at-most-ms=2000"]);
    until("the successor's threads run", || process(&again, VSWITCHD).and_then(rounds).is_some());
    assert!(!stand_still(vswitchd(&again)) && answers(&node));
}

#[test]
fn a_start_while_flow_restore_wait_is_on_pauses_nothing_and_does_not_wait() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let [_database, mut datapath] = start_ovs(&node, &pod, &[]);
    datapath.signal_pid(vswitchd(&datapath), Signal::SIGKILL);
    assert_eq!(datapath.exit_code(), 137);
    let again = pod.start_as_process_1_with(VSWITCHD, &["--flow-restore-wait-at-most-ms=5000"]);
    until("it answers", || process(&again, VSWITCHD).is_some() && answers(&node));
    let _controller = pod.start_as_process_1(CONTROLLER);
    until("ovn-controller starts", || controller_starts(&node, &pod) > 0);
    assert!(answer(&node).starts_with("left "), "{}", answer(&node));
    until("the flag is gone", || again.log().contains("the watchdog took it away"));
    until("the threads run", || rounds(vswitchd(&again)).is_some());
    assert!(!stand_still(vswitchd(&again)) && answers(&node));
}

#[test]
fn a_daemon_that_hangs_under_a_pause_is_killed_and_starts_again() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let [_database, mut datapath] = start_ovs(&node, &pod, &["--revalidators-paused-at-most-ms=3000"]);
    let _controller = start_controller(&node, &pod);
    // By hand, as nobody should: it never returns, and nothing else does any more.
    let mut exit = Command::new("timeout")
        .args(["30", "ovs-appctl", "-t"])
        .arg(node.path("ovs/ovs-vswitchd.ctl"))
        .arg("exit")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    assert_eq!(datapath.exit_code(), 137, "{}", datapath.log());
    assert!(begun.elapsed() < SOON);
    assert!(datapath.log().contains("killed, because it hangs"), "{}", datapath.log());
    let _ = exit.kill();
    let _ = exit.wait();
    let again = pod.start_as_process_1_with(VSWITCHD, &["--flow-restore-wait-at-most-ms=1000"]);
    until("the successor's threads run", || process(&again, VSWITCHD).and_then(rounds).is_some());
    assert!(!is_locked(&node) && answers(&node));
}

#[test]
fn a_datapath_in_user_space_and_an_older_ovs_pod_cost_no_more_than_the_wait() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let [_database, datapath] = start_ovs(&node, &pod, &[]);
    node.vsctl(&["add-br", "br-u", "--", "set", "bridge", "br-u", "datapath_type=netdev"]);
    let mut controller = pod.start_as_process_1(CONTROLLER);
    until("ovn-controller starts", || controller_starts(&node, &pod) == 1);
    assert!(answer(&node).starts_with("left "), "{}", answer(&node));
    assert!(!is_locked(&node) && !stand_still(vswitchd(&datapath)));
    controller.signal_pid(process(&controller, CONTROLLER).unwrap(), Signal::SIGKILL);
    controller.exit_code();

    // Nobody answers.
    std::fs::remove_file(node.path("run/revalidators.pause")).unwrap();
    datapath.signal_pid(process_1(&datapath), Signal::SIGSTOP);
    let begun = Instant::now();
    let controller = pod.start_as_process_1(CONTROLLER);
    until("ovn-controller starts all the same", || controller_starts(&node, &pod) == 2);
    assert!(begun.elapsed() >= Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(controller.log().contains("said nothing within 5.0 s"), "{}", controller.log());
    assert!(!Path::new(&node.path("run/revalidators.pause")).exists());
    datapath.signal_pid(process_1(&datapath), Signal::SIGCONT);
}
