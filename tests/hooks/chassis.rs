//! `ovn-controller` against a real Southbound database: what the cloud sees of a restart.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::node::{CONTROLLER, Node, OVSDB, VSWITCHD, kill_process, until};

struct Southbound {
    server: Child,
    socket: PathBuf,
}

impl Southbound {
    fn start(node: &Node) -> Self {
        let (file, socket) = (node.path("sb.db"), node.path("sb.sock"));
        let made = Command::new("ovsdb-tool")
            .arg("create")
            .arg(&file)
            .arg("/usr/share/ovn/ovn-sb.ovsschema")
            .status()
            .unwrap();
        assert!(made.success());
        let server = Command::new("ovsdb-server")
            .arg(&file)
            .arg(format!("--remote=punix:{}", socket.display()))
            .args(["--unixctl=none", "-vsyslog:off", "-vconsole:off"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let southbound = Self { server, socket };
        until("the Southbound answers", || southbound.try_sbctl(&["init"]).is_some());
        southbound
    }

    fn try_sbctl(&self, arguments: &[&str]) -> Option<String> {
        let db = format!("--db=unix:{}", self.socket.display());
        let output = Command::new("ovn-sbctl").args([&db, "--timeout=5"]).args(arguments).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    /// The UUID of the node's row.
    fn chassis(&self) -> String {
        self.try_sbctl(&["--bare", "--columns=_uuid", "find", "chassis", "name=id-1"]).unwrap()
    }
}

impl Drop for Southbound {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn case_2_a_roll_keeps_the_chassis_row() {
    let node = Node::new();
    let southbound = Southbound::start(&node);
    let old = node.pod("pod-a");
    let _ovs = [old.start(OVSDB), old.start(VSWITCHD)];
    let mut container = old.start(CONTROLLER);
    node.configure(&format!("unix:{}", southbound.socket.display()));
    until("the node registers", || !southbound.chassis().is_empty());
    old.until_ready(CONTROLLER);
    let row = southbound.chassis();
    let before = node.pids();

    let new = node.pod("pod-b");
    let _successor = new.start(CONTROLLER);
    let hook = old.pre_stop(CONTROLLER);
    assert_eq!(hook.code, 0, "{}", hook.text);
    assert_eq!(container.terminate(), 0);
    new.until_ready(CONTROLLER);
    assert_eq!(node.holder("ovn-controller"), "pod-b");
    assert_eq!(southbound.chassis(), row);
    // The claim of the other DaemonSet is another one: its daemons were not touched.
    assert_eq!(node.pids()[..2], before[..2]);
    assert_ne!(node.pids()[2], before[2]);

    // Also when nobody succeeds it, and when kubelet's SIGTERM is all that comes.
    let mut last = new.start(CONTROLLER);
    assert_eq!(new.pre_stop(CONTROLLER).code, 0);
    assert_eq!(southbound.chassis(), row);
    last.terminate();
}

#[test]
fn case_3_sigterm_alone_keeps_the_chassis_row() {
    let node = Node::new();
    let southbound = Southbound::start(&node);
    let pod = node.pod("pod-a");
    let _ovs = [pod.start(OVSDB), pod.start(VSWITCHD)];
    let mut container = pod.start(CONTROLLER);
    node.configure(&format!("unix:{}", southbound.socket.display()));
    until("the node registers", || !southbound.chassis().is_empty());
    pod.until_ready(CONTROLLER);
    let row = southbound.chassis();
    assert_eq!(container.terminate(), 0);
    assert_eq!(node.pid(CONTROLLER), None);
    assert_eq!(southbound.chassis(), row);
    assert_eq!(node.holder("ovn-controller"), "");
}

#[test]
fn the_guides_command_reaches_ovn_controller_by_its_plain_name() {
    let node = Node::new();
    let southbound = Southbound::start(&node);
    let pod = node.pod("pod-a");
    let _ovs = [pod.start(OVSDB), pod.start(VSWITCHD)];
    let mut container = pod.start(CONTROLLER);
    node.configure(&format!("unix:{}", southbound.socket.display()));
    pod.until_ready(CONTROLLER);
    let ask = || {
        Command::new("ovn-appctl")
            .arg("-t")
            .arg(node.path("ovn/ovn-controller.ctl"))
            .arg("connection-status")
            .output()
            .unwrap()
    };
    until("it is connected", || String::from_utf8_lossy(&ask().stdout).trim() == "connected");
    // Killed, it leaves its socket; the next one does not trip over it.
    kill_process(node.pid(CONTROLLER));
    assert_eq!(container.exit_code(), 137);
    let _again = pod.start(CONTROLLER);
    pod.until_ready(CONTROLLER);
    until("it is connected", || String::from_utf8_lossy(&ask().stdout).trim() == "connected");
    let sockets = std::fs::read_dir(node.path("ovn"))
        .unwrap()
        .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().ends_with(".ctl"))
        .count();
    assert!(sockets <= 2, "{sockets} sockets");
}
