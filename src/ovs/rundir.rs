//! Where the daemons of one node keep their sockets, pid files and database.

use std::path::{Path, PathBuf};

/// The folders that all daemons of a node share. Every path is derived from these three, so that a test can move them
/// all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDirs {
    /// Sockets and pid files of Open vSwitch, `/run/openvswitch` on a node.
    pub ovs: PathBuf,
    /// Socket and pid file of `ovn-controller`, `/run/ovn` on a node.
    pub ovn: PathBuf,
    /// `conf.db` and `system-id.conf`, `/etc/openvswitch` on a node.
    pub database: PathBuf,
}

impl RunDirs {
    /// The socket that `ovsdb-server` listens on.
    pub fn db_socket(&self) -> PathBuf {
        self.ovs.join("db.sock")
    }

    /// The same as a connection method.
    pub fn db_remote(&self) -> String {
        format!("unix:{}", self.db_socket().display())
    }

    /// The database file.
    pub fn conf_db(&self) -> PathBuf {
        self.database.join("conf.db")
    }

    /// The file in which distributions keep an id for this machine.
    pub fn system_id_conf(&self) -> PathBuf {
        self.database.join("system-id.conf")
    }
}

/// The socket `<daemon>.<pid>.ctl` that belongs to the pid file next to it.
pub fn numbered_socket(folder: &Path, daemon: &str) -> Option<PathBuf> {
    let text = std::fs::read_to_string(folder.join(format!("{daemon}.pid"))).ok()?;
    let pid: u32 = text.trim().parse().ok()?;
    let socket = folder.join(format!("{daemon}.{pid}.ctl"));
    socket.exists().then_some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numbered_socket_is_found_by_its_pid_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ovn-controller.pid"), "7\n").unwrap();
        std::fs::write(folder.path().join("ovn-controller.3.ctl"), "").unwrap();
        assert_eq!(numbered_socket(folder.path(), "ovn-controller"), None);
        std::fs::write(folder.path().join("ovn-controller.7.ctl"), "").unwrap();
        assert_eq!(numbered_socket(folder.path(), "ovn-controller"), Some(folder.path().join("ovn-controller.7.ctl")));
    }

    #[test]
    fn a_pid_file_without_a_number_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ovn-controller.pid"), "../../x").unwrap();
        assert_eq!(numbered_socket(folder.path(), "ovn-controller"), None);
    }
}
