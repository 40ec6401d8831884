//! One node: its folders, the pods on it, and the processes of those pods.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub const OVSDB: &str = "ovsdb-server";
pub const VSWITCHD: &str = "ovs-vswitchd";
pub const CONTROLLER: &str = "ovn-controller";

/// Long enough for a loaded machine; never waited out in a test that passes.
pub const SOON: Duration = Duration::from_secs(20);
/// The orphan grace of the pods of these tests.
pub const GRACE: Duration = Duration::from_millis(400);

pub struct Node {
    folder: tempfile::TempDir,
    /// Searched before PATH by the pods' processes.
    pub programs: Option<PathBuf>,
    /// A network namespace with devices for the daemons. Without one they have a datapath and devices of their own making.
    pub network: Option<PathBuf>,
}

impl Node {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("node").tempdir().unwrap();
        for name in ["ovs", "ovn", "etc", "run", "logs"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder, programs: None, network: None }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn pod<'a>(&'a self, uid: &'a str) -> Pod<'a> {
        Pod { node: self, uid }
    }

    fn hook(&self, uid: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ovn-chassis"));
        command.arg("hook").args(arguments);
        let path = std::env::var("PATH").unwrap();
        let path = self.programs.iter().fold(path, |path, first| format!("{}:{path}", first.display()));
        // Nothing of the machine's, no address of an API server: case 6, a hook needs neither agent nor API server.
        command.env_clear().env("PATH", path).env("POD_UID", uid);
        command.env("OVS_RUNDIR", self.path("ovs")).env("OVN_RUNDIR", self.path("ovn"));
        command.env("OVS_DBDIR", self.path("etc")).env("OVN_CHASSIS_RUN_DIR", self.path("run"));
        command
    }

    /// The living daemon's process, by its pid file.
    pub fn pid(&self, daemon: &str) -> Option<i32> {
        let folder = if daemon == CONTROLLER { "ovn" } else { "ovs" };
        let text = std::fs::read_to_string(self.path(folder).join(format!("{daemon}.pid"))).ok()?;
        let pid = text.trim().parse().ok()?;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        (name.trim() == daemon && !state.contains(") Z ")).then_some(pid)
    }

    pub fn pids(&self) -> Vec<Option<i32>> {
        [OVSDB, VSWITCHD, CONTROLLER].iter().map(|daemon| self.pid(daemon)).collect()
    }

    pub fn holder(&self, claim: &str) -> String {
        std::fs::read_to_string(self.path("run").join(format!("{claim}.claim"))).unwrap_or_default().trim().to_owned()
    }

    pub fn grant(&self, uids: &[&str]) {
        let text: String = uids.iter().map(|uid| format!("{uid}\n")).collect();
        std::fs::write(self.path("run/grants"), text).unwrap();
    }

    pub fn try_vsctl(&self, arguments: &[&str]) -> Result<String, String> {
        let socket = format!("--db=unix:{}", self.path("ovs/db.sock").display());
        let output = Command::new("ovs-vsctl")
            .args([&socket, "--timeout=10"])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    #[track_caller]
    pub fn vsctl(&self, arguments: &[&str]) -> String {
        self.try_vsctl(arguments).unwrap_or_else(|error| panic!("ovs-vsctl {arguments:?}: {error}"))
    }

    /// Gives the node its settings, as the agent would.
    pub fn configure(&self, remote: &str) {
        until("the database answers", || self.try_vsctl(&["--no-wait", "init"]).is_ok());
        let remote = format!("external_ids:ovn-remote=\"{remote}\"");
        let ids = [
            "external_ids:system-id=id-1",
            "external_ids:ovn-encap-type=geneve",
            "external_ids:ovn-encap-ip=127.0.0.1",
        ];
        self.vsctl(&[
            "--no-wait",
            "set",
            "open_vswitch",
            ".",
            &remote,
            ids[0],
            ids[1],
            ids[2],
            "external_ids:theirs=kept",
        ]);
    }

    /// What a person would look at after a restart: settings, bridges, ports, in full.
    pub fn database(&self) -> String {
        let columns = [
            ("open_vswitch", "external_ids,other_config"),
            ("bridge", "_uuid,name,ports,external_ids"),
            ("port", "_uuid,name,interfaces"),
            ("interface", "_uuid,name,type,options"),
        ];
        columns
            .map(|(table, columns)| self.vsctl(&["--no-wait", &format!("--columns={columns}"), "list", table]))
            .join("\n---\n")
    }

    /// The version of the schema that the running database has.
    pub fn schema_version(&self) -> String {
        let socket = format!("unix:{}", self.path("ovs/db.sock").display());
        let output =
            Command::new("ovsdb-client").args(["get-schema-version", &socket, "Open_vSwitch"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Every file of the run folder with its content.
    pub fn run_folder(&self) -> BTreeMap<PathBuf, String> {
        fn read(folder: &Path, into: &mut BTreeMap<PathBuf, String>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    read(&path, into);
                } else {
                    into.insert(path.clone(), std::fs::read_to_string(&path).unwrap());
                }
            }
        }
        let mut files = BTreeMap::new();
        read(&self.path("run"), &mut files);
        files
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for daemon in [CONTROLLER, VSWITCHD, OVSDB] {
            if let Some(pid) = self.pid(daemon) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        if std::thread::panicking() {
            for entry in std::fs::read_dir(self.path("logs")).unwrap() {
                let path = entry.unwrap().path();
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let tail: Vec<&str> = text.lines().rev().take(25).collect();
                eprintln!("--- {}", path.display());
                tail.iter().rev().for_each(|line| eprintln!("{line}"));
            }
        }
    }
}

#[derive(Clone, Copy)]
pub struct Pod<'a> {
    node: &'a Node,
    pub uid: &'a str,
}

/// How one run of a hook went.
#[derive(Debug)]
pub struct Outcome {
    pub code: i32,
    pub took: Duration,
    pub text: String,
}

impl<'a> Pod<'a> {
    /// Starts the container of one daemon: its process 1.
    pub fn start(&self, daemon: &str) -> Container {
        self.start_with(daemon, &[])
    }

    pub fn start_with(&self, daemon: &str, more: &[&str]) -> Container {
        self.start_container(daemon, more, false)
    }

    /// The same in a pid namespace of its own, as a container has it.
    pub fn start_as_process_1(&self, daemon: &str) -> Container {
        self.start_container(daemon, &[], true)
    }

    pub fn start_as_process_1_with(&self, daemon: &str, more: &[&str]) -> Container {
        self.start_container(daemon, more, true)
    }

    fn start_container(&self, daemon: &str, more: &[&str], own_namespace: bool) -> Container {
        let log = self.node.path("logs").join(format!("{}-{daemon}", self.uid));
        let out = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = self.node.hook(self.uid, &["start", daemon]);
        command.arg(format!("--orphan-grace-ms={}", GRACE.as_millis())).args(more).arg("--");
        if daemon == VSWITCHD && self.node.network.is_none() {
            // Datapath and devices in user space: this machine's kernel is not touched.
            command.args(["--enable-dummy=system", "--disable-system"]);
        }
        if own_namespace {
            command = within(&["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"], &command);
        }
        if let Some(network) = &self.node.network {
            command = within(&["nsenter", &format!("--net={}", network.display())], &command);
        }
        let child = command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap();
        Container { child, log, ended: None }
    }

    /// All of the `ovs` pod, once its daemons answer.
    #[track_caller]
    pub fn start_ovs(&self) -> Vec<Container> {
        let database = self.start(OVSDB);
        let datapath = self.start(VSWITCHD);
        self.node.configure("unix:/nonexistent");
        self.until_ready(OVSDB);
        self.until_ready(VSWITCHD);
        vec![database, datapath]
    }

    #[track_caller]
    pub fn until_ready(&self, daemon: &str) {
        until(&format!("{daemon} of pod {} is ready", self.uid), || self.ready(daemon).code == 0);
    }

    pub fn pre_stop(&self, daemon: &str) -> Outcome {
        self.finish(self.node.hook(self.uid, &["pre-stop", daemon]))
    }

    pub fn pre_stop_within(&self, daemon: &str, seconds: u64) -> Outcome {
        self.finish(self.node.hook(self.uid, &["pre-stop", daemon, "--within", &seconds.to_string()]))
    }

    /// A hook that runs beside the test.
    pub fn begin_pre_stop(&self, daemon: &str) -> Container {
        let log = self.node.path("logs").join(format!("{}-{daemon}-pre-stop", self.uid));
        let out = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = self.node.hook(self.uid, &["pre-stop", daemon]);
        let child = command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap();
        Container { child, log, ended: None }
    }

    pub fn ready(&self, daemon: &str) -> Outcome {
        self.finish(self.node.hook(self.uid, &["ready", daemon]))
    }

    fn finish(&self, mut command: Command) -> Outcome {
        let begun = Instant::now();
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        Outcome { code: output.status.code().unwrap_or(-1), took: begun.elapsed(), text }
    }
}

/// The same command, started by another one.
fn within(outer: &[&str], command: &Command) -> Command {
    let mut whole = Command::new(outer[0]);
    whole.args(&outer[1..]).arg(command.get_program()).args(command.get_args()).env_clear();
    whole.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    whole
}

/// A process that a test started: an entrypoint or a hook.
pub struct Container {
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Container {
    pub fn is_running(&mut self) -> bool {
        self.ended = self.ended.or_else(|| self.child.try_wait().unwrap());
        self.ended.is_none()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal_pid(&self, pid: i32, signal: Signal) {
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    /// Waits for its end and returns its exit code, or minus the signal.
    #[track_caller]
    pub fn exit_code(&mut self) -> i32 {
        until("the process ends", || !self.is_running());
        let status = self.ended.unwrap();
        status.code().unwrap_or_else(|| -status.signal().unwrap())
    }

    /// What kubelet does after the hook.
    #[track_caller]
    pub fn terminate(&mut self) -> i32 {
        if self.is_running() {
            self.signal(Signal::SIGTERM);
        }
        self.exit_code()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[track_caller]
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(what, SOON, condition);
}

#[track_caller]
pub fn until_within(what: &str, bound: Duration, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < bound, "not within {bound:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Nothing is to happen: the condition holds all the time.
#[track_caller]
pub fn stays(what: &str, during: Duration, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < during {
        assert!(condition(), "after {:?} no longer: {what}", begun.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn kill_process(pid: Option<i32>) {
    kill(Pid::from_raw(pid.expect("a living process")), Signal::SIGKILL).unwrap();
}
