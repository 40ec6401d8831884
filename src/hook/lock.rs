//! The run folder of one node and the locks in it.
//!
//! ```text
//! members/<pod uid>            shared lock of every process of that pod; free = the pod has no process left
//! <claim>.claim                the holder's pod uid; its lock serialises every change of the claim
//! <daemon>.lock                held by the daemon process itself, from its start to its very end
//! <daemon>.stopping            pod uid whose pre-stop hook ran; its lock is held while that hook runs
//! <daemon>.hand-over           how far a warm restart of ovs-vswitchd or ovn-controller is (see `warm_restart`)
//! warm-restart.lock            held for each step of a warm restart
//! revalidators.pause           held by ovs-vswitchd's entrypoint while a pause is in force; what it answered last
//! grants                       pod uids that may turn Ready as standby, written by the agent
//! ```
//!
//! No file here is ever unlinked: a lock on an unlinked file protects nothing. All are empty or one line long and
//! live in memory (`/run`).

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::daemon::{ClaimName, Daemon};

/// How often a lock is asked for again. `flock` has no deadline and a blocked thread cannot be called back, so
/// waiting with a bound means asking; a hundredth of a second is far below what a hand-over takes, and costs one
/// system call.
pub const LOCK_POLL: Duration = Duration::from_millis(10);

/// The longest line that is read from a file of the run folder.
const LINE_LIMIT: u64 = 256;
/// The longest list of grants that is read.
const GRANTS_LIMIT: u64 = 1 << 16;

/// A file of the run folder could not be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Opening, locking, reading or writing failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    /// The pod's uid would not do as a file name.
    #[error("POD_UID is {found:?}, expected 1 to 64 letters, digits and dashes (metadata.uid by the downward API)")]
    PodUid { found: String },
}

/// The uid of a pod, safe as a file name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodUid(String);

impl PodUid {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for PodUid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for PodUid {
    type Err = LockError;

    fn from_str(text: &str) -> Result<Self, LockError> {
        let good =
            (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if good { Ok(Self(text.to_owned())) } else { Err(LockError::PodUid { found: text.to_owned() }) }
    }
}

/// The folder `/run/ovn-chassis` of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// Opens the folder, making what is missing.
    pub fn open(path: &Path) -> Result<Self, LockError> {
        let members = path.join("members");
        std::fs::create_dir_all(&members).map_err(|source| LockError::Io {
            action: "create",
            path: members,
            source,
        })?;
        Ok(Self(path.into()))
    }

    /// The folder without making anything: for a process that only looks.
    pub fn at(path: &Path) -> Self {
        Self(path.into())
    }

    pub(super) fn claim_file(&self, claim: ClaimName) -> PathBuf {
        self.0.join(format!("{}.claim", claim.as_str()))
    }

    fn member_file(&self, pod: &PodUid) -> PathBuf {
        self.0.join("members").join(pod.as_str())
    }

    fn daemon_file(&self, daemon: Daemon) -> PathBuf {
        self.0.join(format!("{daemon}.lock"))
    }

    fn stopping_file(&self, daemon: Daemon) -> PathBuf {
        self.0.join(format!("{daemon}.stopping"))
    }

    pub(super) fn hand_over_file(&self, daemon: Daemon) -> PathBuf {
        self.0.join(format!("{daemon}.hand-over"))
    }

    pub(super) fn warm_restart_lock(&self) -> PathBuf {
        self.0.join("warm-restart.lock")
    }

    pub(super) fn pause_file(&self) -> PathBuf {
        self.0.join("revalidators.pause")
    }

    pub(super) fn tunnels_file(&self) -> PathBuf {
        self.0.join("tunnels")
    }

    /// True while the revalidators of `ovs-vswitchd` are paused.
    pub fn is_paused(&self) -> Result<bool, LockError> {
        let path = self.pause_file();
        match File::open(&path) {
            Ok(file) => is_locked(&file, &path),
            Err(source) if source.kind() == ErrorKind::NotFound => Ok(false),
            Err(source) => Err(LockError::Io { action: "open", path, source }),
        }
    }

    /// Where the agent leaves the grants.
    pub fn grants_file(&self) -> PathBuf {
        self.0.join("grants")
    }

    /// Joins the pod's processes, until the returned file is closed.
    pub fn join(&self, pod: &PodUid) -> Result<File, LockError> {
        let path = self.member_file(pod);
        let file = open(&path)?;
        // Somebody may be testing the lock at this moment, for microseconds: wait.
        file.lock_shared().map_err(|source| LockError::Io { action: "lock", path, source })?;
        Ok(file)
    }

    /// True when a process of that pod is alive.
    pub fn is_alive(&self, pod: &PodUid) -> Result<bool, LockError> {
        let path = self.member_file(pod);
        match File::open(&path) {
            Ok(file) => is_shared_or_locked(&file, &path),
            Err(source) if source.kind() == ErrorKind::NotFound => Ok(false),
            Err(source) => Err(LockError::Io { action: "open", path, source }),
        }
    }

    /// Takes the daemon's lock if it is free. Whoever owns the returned file owns the lock, also across a fork.
    pub fn try_lock_daemon(&self, daemon: Daemon) -> Result<Option<File>, LockError> {
        let path = self.daemon_file(daemon);
        let file = open(&path)?;
        Ok(try_exclusive(&file, &path)?.then_some(file))
    }

    /// True when the daemon's process is alive (or about to be started).
    pub fn is_running(&self, daemon: Daemon) -> Result<bool, LockError> {
        let path = self.daemon_file(daemon);
        match File::open(&path) {
            Ok(file) => is_locked(&file, &path),
            Err(source) if source.kind() == ErrorKind::NotFound => Ok(false),
            Err(source) => Err(LockError::Io { action: "open", path, source }),
        }
    }

    /// Opens the file that says which pod's hook stops this daemon.
    pub fn stop_mark(&self, daemon: Daemon) -> Result<StopMark, LockError> {
        let path = self.stopping_file(daemon);
        Ok(StopMark { file: open(&path)?, path })
    }

    /// The pods that may turn Ready while another one works. No file means nobody.
    pub fn read_grants(&self) -> Result<Vec<PodUid>, LockError> {
        let path = self.grants_file();
        let mut text = String::new();
        match File::open(&path).and_then(|file| file.take(GRANTS_LIMIT).read_to_string(&mut text)) {
            Ok(_) => Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect()),
            Err(source) if source.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(source) => Err(LockError::Io { action: "read", path, source }),
        }
    }

    /// Replaces the list of grants as a whole, and only when it differs.
    pub fn write_grants(&self, pods: &[PodUid]) -> Result<bool, LockError> {
        if self.read_grants()? == pods {
            return Ok(false);
        }
        let path = self.grants_file();
        let fresh = self.0.join("grants.new");
        let text: String = pods.iter().map(|pod| format!("{pod}\n")).collect();
        std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, &path)).map_err(|source| LockError::Io {
            action: "write",
            path,
            source,
        })?;
        Ok(true)
    }
}

/// Which pod's pre-stop hook has run for a daemon, and whether it still runs.
#[derive(Debug)]
pub struct StopMark {
    file: File,
    path: PathBuf,
}

impl StopMark {
    /// Takes the hook's lock, if no other hook has it. It is held until this value is dropped.
    pub fn try_lock(&self) -> Result<bool, LockError> {
        try_exclusive(&self.file, &self.path)
    }

    /// True while a hook holds the lock.
    pub fn hook_runs(&self) -> Result<bool, LockError> {
        is_locked(&self.file, &self.path)
    }

    /// True when the last hook that ran was that pod's.
    pub fn is_of(&mut self, pod: &PodUid) -> Result<bool, LockError> {
        Ok(read_uid(&mut self.file, &self.path)?.as_ref() == Some(pod))
    }

    /// Says that this pod's daemon is to end and not to be started again.
    pub fn set(&mut self, pod: Option<&PodUid>) -> Result<(), LockError> {
        write_uid(&mut self.file, &self.path, pod)
    }
}

/// Opens a file of the run folder for reading and writing, making it if it is missing.
pub(super) fn open(path: &Path) -> Result<File, LockError> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(|source| LockError::Io {
        action: "open",
        path: path.into(),
        source,
    })
}

/// Takes the lock if it is free, and keeps it.
pub(super) fn try_exclusive(file: &File, path: &Path) -> Result<bool, LockError> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => Err(LockError::Io { action: "lock", path: path.into(), source }),
    }
}

/// Looks whether somebody holds the lock alone. Looking takes a shared lock for an instant: lookers do not disturb
/// each other, and a taker asks again.
fn is_locked(file: &File, path: &Path) -> Result<bool, LockError> {
    let io = |action| move |source| LockError::Io { action, path: path.into(), source };
    match file.try_lock_shared() {
        Ok(()) => file.unlock().map(|()| false).map_err(io("unlock")),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(source)) => Err(io("lock")(source)),
    }
}

/// Looks whether anybody holds the lock, shared or alone. Two of these at the same instant would see each other, so
/// callers hold the claim's lock.
fn is_shared_or_locked(file: &File, path: &Path) -> Result<bool, LockError> {
    if !try_exclusive(file, path)? {
        return Ok(true);
    }
    file.unlock().map(|()| false).map_err(|source| LockError::Io { action: "unlock", path: path.into(), source })
}

/// The pod named in a file, if there is one.
pub(super) fn read_uid(file: &mut File, path: &Path) -> Result<Option<PodUid>, LockError> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))
        .and_then(|_| file.take(LINE_LIMIT).read_to_string(&mut text))
        .map_err(|source| LockError::Io { action: "read", path: path.into(), source })?;
    // What is no uid names nobody: a writer that was killed half-way leaves a claim that is free, not one that is
    // stuck.
    Ok(text.trim().parse().ok())
}

/// Writes the pod's name into a file, or empties it.
pub(super) fn write_uid(file: &mut File, path: &Path, pod: Option<&PodUid>) -> Result<(), LockError> {
    let text = pod.map(|pod| format!("{pod}\n")).unwrap_or_default();
    file.set_len(0)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .and_then(|_| file.write_all(text.as_bytes()))
        .map_err(|source| LockError::Io { action: "write", path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(text: &str) -> PodUid {
        text.parse().unwrap()
    }

    #[test]
    fn a_pod_uid_is_a_plain_file_name() {
        for bad in ["", "../x", "a b", "a/b", &"x".repeat(65)] {
            assert!(bad.parse::<PodUid>().unwrap_err().to_string().starts_with("POD_UID is"), "{bad}");
        }
        assert_eq!(pod("0b1c-9").as_str(), "0b1c-9");
    }

    #[test]
    fn a_pod_is_alive_as_long_as_one_of_its_processes_is() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::open(folder.path()).unwrap();
        assert!(!run.is_alive(&pod("a")).unwrap());
        let first = run.join(&pod("a")).unwrap();
        let second = run.join(&pod("a")).unwrap();
        drop(first);
        assert!(run.is_alive(&pod("a")).unwrap());
        drop(second);
        assert!(!run.is_alive(&pod("a")).unwrap());
    }

    #[test]
    fn a_daemon_lock_goes_to_one_and_follows_the_process_that_inherits_it() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::open(folder.path()).unwrap();
        let lock = run.try_lock_daemon(Daemon::OvsVswitchd).unwrap().unwrap();
        assert!(run.try_lock_daemon(Daemon::OvsVswitchd).unwrap().is_none());
        let mut child = std::process::Command::new("sleep").arg("60").stdin(lock).spawn().unwrap();
        assert!(run.is_running(Daemon::OvsVswitchd).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!run.is_running(Daemon::OvsVswitchd).unwrap());
        assert!(run.try_lock_daemon(Daemon::OvsVswitchd).unwrap().is_some());
    }

    #[test]
    fn a_half_written_uid_names_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, [0x61, 0x20, 0x62]).unwrap();
        assert_eq!(read_uid(&mut open(&path).unwrap(), &path).unwrap(), None);
    }

    #[test]
    fn grants_are_replaced_as_a_whole_and_only_when_they_differ() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::open(folder.path()).unwrap();
        assert_eq!(run.read_grants().unwrap(), []);
        assert!(run.write_grants(&[pod("a"), pod("b")]).unwrap());
        assert!(!run.write_grants(&[pod("a"), pod("b")]).unwrap());
        assert_eq!(run.read_grants().unwrap(), [pod("a"), pod("b")]);
        assert!(run.write_grants(&[]).unwrap());
        assert_eq!(run.read_grants().unwrap(), []);
    }
}
