//! `datapathType: netdev`: the datapath is in `ovs-vswitchd` itself, so a restart stops the traffic, and the next pod
//! starts when the old one is gone. Real devices in network namespaces, real echoes; no module of the kernel is used.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::node::{CONTROLLER, Container, Node, OVSDB, Pod, VSWITCHD, stays, until};
use super::revalidators::tool;
use super::warm_restart::{flag, hand_over};

/// A network namespace of the machine, for the life of a test.
struct Network(String);

impl Network {
    fn new(name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        ip(&["netns", "add", &name]);
        ip(&["-n", &name, "link", "set", "lo", "up"]);
        Self(name)
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.0)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

#[track_caller]
fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Two workloads, each at the end of a cable that begins on the node.
struct Workloads<'a> {
    node: &'a Node,
    networks: [Network; 2],
}

impl<'a> Workloads<'a> {
    fn new(node: &'a Node, on: &Network) -> Self {
        let networks = [Network::new("workload-1"), Network::new("workload-2")];
        for (number, network) in networks.iter().enumerate() {
            let (port, address) = (format!("p{number}"), format!("192.0.2.{}/24", number + 1));
            ip(&["link", "add", &port, "netns", &on.0, "type", "veth", "peer", "name", "eth0", "netns", &network.0]);
            ip(&["-n", &on.0, "link", "set", &port, "up"]);
            ip(&["-n", &network.0, "address", "add", &address, "dev", "eth0"]);
            ip(&["-n", &network.0, "link", "set", "eth0", "up"]);
        }
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/roll/traffic.c");
        let built = Command::new("gcc").args(["-O2", "-o"]).arg(node.path("traffic")).arg(source).status().unwrap();
        assert!(built.success());
        Self { node, networks }
    }

    /// The first one asks the second a hundred times a second, until it is told to end.
    fn ask(&self) -> Child {
        Command::new("nsenter")
            .arg(format!("--net={}", self.networks[0].path().display()))
            .arg(self.node.path("traffic"))
            .args(["echo", "192.0.2.2", "10000"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Sent, lost.
    fn end(asking: Child) -> (u64, u64) {
        kill(Pid::from_raw(asking.id() as i32), Signal::SIGTERM).unwrap();
        let output = asking.wait_with_output().unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        (told["sent"].as_u64().unwrap(), told["lost"].as_u64().unwrap())
    }

    #[track_caller]
    fn reach_each_other(&self) {
        until("the workloads reach each other", || {
            let asking = self.ask();
            std::thread::sleep(Duration::from_millis(300));
            let (sent, lost) = Self::end(asking);
            sent > 10 && lost == 0
        });
    }
}

fn start(pod: &Pod<'_>) -> [Container; 2] {
    [pod.start(OVSDB), pod.start(VSWITCHD)]
}

#[test]
fn a_node_with_its_datapath_in_user_space_is_rolled_the_old_way() {
    let mut node = Node::new();
    let on = Network::new("node");
    node.network = Some(on.path());
    let workloads = Workloads::new(&node, &on);

    let old = node.pod("pod-a");
    let mut containers = start(&old);
    node.configure("unix:/nonexistent");
    old.until_ready(VSWITCHD);
    node.vsctl(&["add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev"]);
    node.vsctl(&["add-port", "br-int", "p0", "--", "add-port", "br-int", "p1"]);
    workloads.reach_each_other();
    let datapaths = || tool(&node, "ovs-appctl", &["dpif/show"]);
    assert!(datapaths().starts_with("netdev@ovs-netdev:"), "{}", datapaths());
    let database = node.database();

    // The whole old pod ends, then the new one starts: `maxSurge: 0`.
    let asking = workloads.ask();
    for daemon in [VSWITCHD, OVSDB] {
        let hook = old.pre_stop(daemon);
        assert_eq!(hook.code, 0, "{}", hook.text);
    }
    for container in &mut containers {
        assert_eq!(container.terminate(), 0);
    }
    let new = node.pod("pod-b");
    let _running = start(&new);
    new.until_ready(VSWITCHD);
    // There are no flows of a kernel that would be worth a wait.
    assert_eq!(flag(&node), "");
    workloads.reach_each_other();
    let (sent, lost) = Workloads::end(asking);
    eprintln!("a roll in user space lost {lost} of {sent} echoes");
    assert!(sent > lost);
    assert_eq!(node.database(), database);
    assert!(datapaths().starts_with("netdev@ovs-netdev:"), "{}", datapaths());

    // `ovn-controller` has nothing to pause here, starts at once, and no hand-over of the datapath is ever noted.
    let _controller = new.start(CONTROLLER);
    until("ovn-controller runs", || node.pid(CONTROLLER).is_some());
    stays("nothing is held", Duration::from_millis(500), || {
        flag(&node).is_empty() && hand_over(&node, VSWITCHD).is_empty()
    });
}
