//! A child process that can be paused, killed and started again, and that never outlives the test.
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

type SpawnRequest = (Command, std::sync::mpsc::SyncSender<std::io::Result<Child>>);

/// All children are started by one thread that lives as long as the binary: the kernel's "kill me when my parent dies" means the parent *thread*, and a test's thread ends with its test.
fn spawner() -> Sender<SpawnRequest> {
    static SPAWNER: OnceLock<Mutex<Sender<SpawnRequest>>> = OnceLock::new();
    let sender = SPAWNER.get_or_init(|| {
        let (sender, requests) = channel::<SpawnRequest>();
        std::thread::Builder::new()
            .name("spawner".into())
            .spawn(move || {
                for (mut command, reply) in requests {
                    let _ = reply.send(command.spawn());
                }
            })
            .expect("the spawner thread");
        Mutex::new(sender)
    });
    sender.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
}

/// What to start: kept, so that a killed daemon can be started again as it was.
#[derive(Clone, Debug)]
pub struct Program {
    pub name: String,
    pub path: PathBuf,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub log: PathBuf,
}

impl Program {
    pub fn new(name: &str, path: impl Into<PathBuf>, log_folder: &Path) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            log: log_folder.join(format!("{name}.log")),
        }
    }
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }
    pub fn args<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }
    pub fn env(mut self, key: &str, value: impl Into<String>) -> Self {
        self.environment.push((key.into(), value.into()));
        self
    }
    pub fn start(self) -> Daemon {
        Daemon::start(self)
    }
}

pub struct Daemon {
    pub program: Program,
    child: Option<Child>,
    ended: Option<ExitStatus>,
    paused: AtomicBool,
}

impl Daemon {
    pub fn start(program: Program) -> Self {
        let mut daemon = Self { program, child: None, ended: None, paused: AtomicBool::new(false) };
        daemon.start_again();
        daemon
    }

    /// Starts the program (again); the log goes on in the same file.
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "{} runs already", self.program.name);
        let log = File::options().create(true).append(true).open(&self.program.log).expect("a log file");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(&self.program.path).args(&self.program.arguments);
        command.envs(self.program.environment.iter().map(|(k, v)| (k, v)));
        command
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second log handle"))
            .stderr(log)
            .process_group(0);
        let (reply, answer) = sync_channel(1);
        spawner().send((command, reply)).expect("the spawner lives");
        let child = answer.recv().expect("the spawner answers");
        self.child = Some(child.unwrap_or_else(|e| panic!("cannot start {}: {e}", self.program.path.display())));
        self.ended = None;
        self.paused.store(false, Ordering::Relaxed);
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Neither killed nor paused by the test.
    pub fn answers(&self) -> bool {
        self.pid().is_some() && !self.paused.load(Ordering::Relaxed)
    }

    fn process(&self) -> Pid {
        Pid::from_raw(self.pid().unwrap_or_else(|| panic!("{} is not running", self.program.name)) as i32)
    }

    /// SIGSTOP: its connections stay open and nothing answers.
    pub fn pause(&self) {
        killpg(self.process(), Signal::SIGSTOP).expect("SIGSTOP");
        self.paused.store(true, Ordering::Relaxed);
    }

    pub fn resume(&self) {
        killpg(self.process(), Signal::SIGCONT).expect("SIGCONT");
        self.paused.store(false, Ordering::Relaxed);
    }

    /// SIGKILL to its whole group, and reaped.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            self.ended = child.wait().ok();
        }
    }

    /// SIGTERM, as Kubernetes would; panics when it has not ended after `limit`.
    #[track_caller]
    pub fn terminate(&mut self, limit: Duration) -> ExitStatus {
        kill(self.process(), Signal::SIGTERM).expect("SIGTERM");
        self.wait(limit)
    }

    /// Waits for the process to end by itself.
    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.try_wait() {
                return status;
            }
            assert!(
                started.elapsed() < limit,
                "{} has not ended after {limit:?}; its log ends:\n{}",
                self.program.name,
                self.log_tail(40)
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        if let Some(child) = self.child.as_mut()
            && let Ok(Some(status)) = child.try_wait()
        {
            self.ended = Some(status);
            self.child = None;
        }
        if self.child.is_none() { self.ended } else { None }
    }

    pub fn is_running(&mut self) -> bool {
        self.try_wait().is_none() && self.child.is_some()
    }

    pub fn was_killed_by(status: ExitStatus) -> Option<i32> {
        status.signal()
    }

    pub fn log(&self) -> String {
        std::fs::read(&self.program.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    pub fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a tool to its end with a deadline; standard output on success, everything it said otherwise.
pub fn run(command: &mut Command, limit: Duration) -> Result<String, String> {
    let shown = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{shown}: {e}"))?;
    let pid = child.id() as i32;
    let (done, finished) = channel();
    std::thread::spawn(move || {
        if finished.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    });
    let mut errors = child.stderr.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = std::io::Read::read_to_string(&mut errors, &mut text);
        text
    });
    let output = child.wait_with_output().map_err(|e| format!("{shown}: {e}"))?;
    let _ = done.send(());
    let errors = reader.join().unwrap_or_default();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{shown}: {}: {text}{errors}", output.status)) }
}
