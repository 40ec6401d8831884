//! Changes of the local database as plain data, and the one `ovs-vsctl` call that makes them.
//!
//! A change is one transaction: all of it or nothing. `--no-wait`, because a settings change must not hang on a
//! `ovs-vswitchd` that is away or has hundreds of ports without a device.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::time::Duration;

use super::run::{Invocation, RunError, run};
use super::rundir::RunDirs;

/// The tool gives up by itself after this; [`VSCTL_DEADLINE`] is for a tool that does not.
const TOOL_TIMEOUT_SECONDS: u64 = 15;
const VSCTL_DEADLINE: Duration = Duration::from_secs(TOOL_TIMEOUT_SECONDS + 2);

/// A bridge that has to be made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NewBridge {
    /// Its name.
    pub name: String,
    /// Its `datapath_type`; none for the kernel's.
    pub datapath_type: Option<String>,
}

/// What to change in `Open_vSwitch.external_ids`, key by key, and which bridges to make. Empty means: nothing to do,
/// run nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseChange {
    /// Values that must still stand when the change is made, because it was computed from them. A value that changed
    /// meanwhile fails the call.
    pub expect: BTreeMap<String, String>,
    /// Keys to set, whatever they hold.
    pub set: BTreeMap<String, String>,
    /// Keys to set only where they are absent: a value that somebody else put there meanwhile stays.
    pub add: BTreeMap<String, String>,
    /// Keys to take away.
    pub remove: BTreeSet<String>,
    /// Bridges to make.
    pub bridges: Vec<NewBridge>,
}

impl DatabaseChange {
    /// True when there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty() && self.bridges.is_empty()
    }

    /// The names of what changes, for messages: keys first, bridges after.
    pub fn names(&self) -> Vec<String> {
        let keys: BTreeSet<&String> = self.set.keys().chain(self.add.keys()).chain(&self.remove).collect();
        keys.into_iter().cloned().chain(self.bridges.iter().map(|bridge| format!("bridge {}", bridge.name))).collect()
    }

    /// The call that makes this change.
    pub fn invocation(&self, dirs: &RunDirs) -> Invocation {
        let mut call = vsctl(dirs, TOOL_TIMEOUT_SECONDS, VSCTL_DEADLINE);
        for (key, value) in &self.expect {
            call = call
                .args(["--", "wait-until", "Open_vSwitch", "."])
                .arg(format!("external_ids:{key}={}", quoted(value)));
        }
        if !self.set.is_empty() {
            call = call.args(["--", "set", "Open_vSwitch", "."]);
            call = call.args(self.set.iter().map(|(key, value)| format!("external_ids:{key}={}", quoted(value))));
        }
        for (key, value) in &self.add {
            call =
                call.args(["--", "add", "Open_vSwitch", ".", "external_ids"]).arg(format!("{key}={}", quoted(value)));
        }
        for key in &self.remove {
            call = call.args(["--", "remove", "Open_vSwitch", ".", "external_ids"]).arg(key);
        }
        for NewBridge { name, datapath_type } in &self.bridges {
            call = call.args(["--", "--may-exist", "add-br"]).arg(name);
            if let Some(kind) = datapath_type {
                call = call.args(["--", "set", "Bridge"]).arg(name).arg(format!("datapath_type={}", quoted(kind)));
            }
        }
        call
    }
}

impl fmt::Display for DatabaseChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(", "))
    }
}

/// Makes the change, in one process and one transaction.
pub async fn apply_change(dirs: &RunDirs, change: &DatabaseChange) -> Result<(), RunError> {
    if change.is_empty() {
        return Ok(());
    }
    run(&change.invocation(dirs)).await.map(|_| ())
}

/// Waits inside `ovs-vsctl` until the database has a system-id and an `ovn-remote`, at most `patience`.
///
/// `Ok(false)` means that they were not there in time, which includes a database that does not answer yet.
pub async fn wait_for_settings(dirs: &RunDirs, patience: Duration) -> Result<bool, RunError> {
    let seconds = patience.as_secs().max(1);
    let call = vsctl(dirs, seconds, patience + Duration::from_secs(2)).arg("--retry").args([
        "--",
        "wait-until",
        "Open_vSwitch",
        ".",
        "external_ids:system-id!=\"\"",
        "external_ids:ovn-remote!=\"\"",
    ]);
    match run(&call).await {
        Ok(_) => Ok(true),
        // The tool ends itself by an alarm when the time is over.
        Err(RunError::Deadline { .. }) => Ok(false),
        Err(RunError::Failed { status, .. }) if std::os::unix::process::ExitStatusExt::signal(&status).is_some() => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The start of every call.
fn vsctl(dirs: &RunDirs, timeout_seconds: u64, deadline: Duration) -> Invocation {
    base(&dirs.db_remote(), &dirs.ovs, timeout_seconds, deadline)
}

fn base(remote: &str, rundir: &Path, timeout_seconds: u64, deadline: Duration) -> Invocation {
    Invocation::new("ovs-vsctl", deadline)
        .ovs_rundir(rundir)
        .arg(format!("--db={remote}"))
        .arg("--no-wait")
        .arg(format!("--timeout={timeout_seconds}"))
}

/// A value as the tool's own string syntax, which is JSON's: commas, blanks and quotes inside arrive as they are.
fn quoted(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs() -> RunDirs {
        RunDirs { ovs: "/r".into(), ovn: "/n".into(), database: "/d".into() }
    }

    #[test]
    fn a_change_is_one_call() {
        let change = DatabaseChange {
            expect: [("ovn-cms-options".to_owned(), "a,b".to_owned())].into(),
            set: [("ovn-cms-options".to_owned(), "a".to_owned()), ("system-id".to_owned(), "x".to_owned())].into(),
            add: [("hostname".to_owned(), "n".to_owned())].into(),
            remove: ["ovn-bridge-mappings".to_owned()].into(),
            bridges: vec![NewBridge { name: "br-ex".into(), datapath_type: Some("netdev".into()) }],
        };
        assert_eq!(
            change.invocation(&dirs()).words(),
            [
                "ovs-vsctl",
                "--db=unix:/r/db.sock",
                "--no-wait",
                "--timeout=15",
                "--",
                "wait-until",
                "Open_vSwitch",
                ".",
                "external_ids:ovn-cms-options=\"a,b\"",
                "--",
                "set",
                "Open_vSwitch",
                ".",
                "external_ids:ovn-cms-options=\"a\"",
                "external_ids:system-id=\"x\"",
                "--",
                "add",
                "Open_vSwitch",
                ".",
                "external_ids",
                "hostname=\"n\"",
                "--",
                "remove",
                "Open_vSwitch",
                ".",
                "external_ids",
                "ovn-bridge-mappings",
                "--",
                "--may-exist",
                "add-br",
                "br-ex",
                "--",
                "set",
                "Bridge",
                "br-ex",
                "datapath_type=\"netdev\"",
            ]
        );
    }

    #[test]
    fn an_expectation_alone_is_no_change() {
        let change = DatabaseChange { expect: [("a".to_owned(), "b".to_owned())].into(), ..Default::default() };
        assert!(change.is_empty());
    }

    #[test]
    fn names_list_each_key_once() {
        let change = DatabaseChange {
            set: [("b".to_owned(), String::new()), ("a".to_owned(), String::new())].into(),
            remove: ["c".to_owned()].into(),
            bridges: vec![NewBridge { name: "br-ex".into(), datapath_type: None }],
            ..Default::default()
        };
        assert_eq!(change.to_string(), "a, b, c, bridge br-ex");
    }
}
