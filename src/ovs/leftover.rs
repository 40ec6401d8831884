//! Pid files and sockets of daemons that ended, told apart from those of daemons that live.
//!
//! In a pod without the host's pid namespace a pid file holds a small number of the pod's own namespace (1, 7, 9).
//! After a restart that number is alive again as something else, so "the pid exists" proves nothing. Two facts do:
//! the daemons hold a POSIX record lock on their pid file for as long as they live, which the kernel reports across
//! namespaces; and `/proc` says what a process of our own namespace really is.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

/// Who stands behind a pid file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PidFile {
    /// There is none.
    Absent,
    /// Nobody: the file can go.
    Stale,
    /// A living daemon holds it; the pid is 0 when it lives in another namespace.
    Held { pid: i32 },
}

/// Why a leftover could not be judged or removed.
#[derive(Debug, thiserror::Error)]
pub enum LeftoverError {
    /// Reading, asking for its lock, or removing failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
}

/// Looks who stands behind `path`; `daemon` is the process name it belongs to.
pub fn read_pid_file(path: &Path, daemon: &str) -> Result<PidFile, LeftoverError> {
    let io = |action| move |source| LeftoverError::Io { action, path: path.into(), source };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(PidFile::Absent),
        Err(error) => return Err(io("open")(error)),
    };
    if let Some(pid) = lock_owner(&file).map_err(io("ask for the lock of"))? {
        return Ok(PidFile::Held { pid });
    }
    let mut text = String::new();
    // A pid file is a number; a file that is not text holds none.
    if (&mut file).take(64).read_to_string(&mut text).is_err() {
        return Ok(PidFile::Stale);
    }
    Ok(match text.trim().parse::<i32>() {
        Ok(pid) if process_is(pid, daemon) => PidFile::Held { pid },
        _ => PidFile::Stale,
    })
}

/// Removes the pid file if nobody stands behind it, and says who does otherwise.
pub fn remove_if_stale(path: &Path, daemon: &str) -> Result<PidFile, LeftoverError> {
    let found = read_pid_file(path, daemon)?;
    if found == PidFile::Stale {
        std::fs::remove_file(path).map_err(|source| LeftoverError::Io {
            action: "remove",
            path: path.into(),
            source,
        })?;
    }
    Ok(found)
}

/// Removes control sockets `<daemon>.<pid>.ctl` that nobody listens on any more, and says how many went.
///
/// A daemon removes its own socket when it ends by itself; a killed one leaves it, and the next pod may meet the same
/// small number again.
pub fn remove_dead_sockets(folder: &Path, daemon: &str) -> Result<usize, LeftoverError> {
    let io = |action, path: &Path| {
        let path = path.to_owned();
        move |source| LeftoverError::Io { action, path, source }
    };
    let mut removed = 0;
    for entry in std::fs::read_dir(folder).map_err(io("list", folder))? {
        let path = entry.map_err(io("list", folder))?.path();
        let is_socket_of_daemon = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_prefix(daemon)?.strip_prefix('.')?.strip_suffix(".ctl"))
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
        if !is_socket_of_daemon {
            continue;
        }
        let refused = matches!(UnixStream::connect(&path), Err(error) if error.kind() == ErrorKind::ConnectionRefused);
        if refused {
            std::fs::remove_file(&path).map_err(io("remove", &path))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// The process that holds a record lock on `file`, if there is one. The kernel says 0 for a process of a namespace
/// that we cannot see.
fn lock_owner(file: &File) -> std::io::Result<Option<i32>> {
    let mut question =
        libc::flock { l_type: libc::F_WRLCK as i16, l_whence: libc::SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 };
    fcntl(file, FcntlArg::F_GETLK(&mut question))?;
    Ok((question.l_type != libc::F_UNLCK as i16).then_some(question.l_pid.max(0)))
}

/// True when `pid` of our own namespace runs the program `daemon`. The kernel cuts process names at 15 bytes.
fn process_is(pid: i32, daemon: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // "7 (ovs-vswitchd) S 1 …"; the name may hold anything, so the last parenthesis counts.
    let Some((head, rest)) = stat.rsplit_once(") ") else { return false };
    let Some((_, name)) = head.split_once(" (") else { return false };
    let short: String = daemon.chars().take(15).collect();
    // A process that has ended and was not waited for yet is not alive.
    name == short && !rest.starts_with(['Z', 'X'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_alive_as_something_else_is_stale() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ovs-vswitchd.pid");
        std::fs::write(&path, "1\n").unwrap();
        assert_eq!(remove_if_stale(&path, "ovs-vswitchd").unwrap(), PidFile::Stale);
        assert!(!path.exists());
        assert_eq!(remove_if_stale(&path, "ovs-vswitchd").unwrap(), PidFile::Absent);
    }

    #[test]
    fn a_process_of_that_name_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sleep.pid");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        std::fs::write(&path, format!("{}\n", child.id())).unwrap();
        assert_eq!(remove_if_stale(&path, "sleep").unwrap(), PidFile::Held { pid: child.id() as i32 });
        assert!(path.exists());
        child.kill().unwrap();
        // Not waited for yet: it is dead all the same.
        while read_pid_file(&path, "sleep").unwrap() != PidFile::Stale {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(remove_if_stale(&path, "sleep").unwrap(), PidFile::Stale);
    }

    #[test]
    fn nonsense_in_the_file_is_stale() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pid");
        std::fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
        assert_eq!(remove_if_stale(&path, "x").unwrap(), PidFile::Stale);
    }

    #[test]
    fn sockets_without_a_listener_go_and_the_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let alive = std::os::unix::net::UnixListener::bind(path("ovn-controller.9.ctl")).unwrap();
        drop(std::os::unix::net::UnixListener::bind(path("ovn-controller.7.ctl")).unwrap());
        drop(std::os::unix::net::UnixListener::bind(path("ovn-controller.ctl")).unwrap());
        drop(std::os::unix::net::UnixListener::bind(path("ovn-northd.7.ctl")).unwrap());
        assert_eq!(remove_dead_sockets(folder.path(), "ovn-controller").unwrap(), 1);
        assert!(!path("ovn-controller.7.ctl").exists());
        assert!(
            path("ovn-controller.9.ctl").exists()
                && path("ovn-controller.ctl").exists()
                && path("ovn-northd.7.ctl").exists()
        );
        drop(alive);
    }
}
