//! What the node is: its database through a monitor, its daemons through their control sockets.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::hook::daemon::Daemon;
use crate::ovs::appctl;
use crate::ovs::run::{Invocation, run};
use crate::ovs::rundir::RunDirs;
use crate::ovsdb::{Client, ClientError, EndpointError, Followed, Replica, Settings, ValueError, View};

/// Longest wait for one answer of a daemon.
const ANSWER_BOUND: Duration = Duration::from_secs(5);
/// How often the daemons are asked while all is well, and while something is not.
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBE_EVERY_WHILE_NOT_WELL: Duration = Duration::from_secs(1);
/// The part of a node's database that is followed is a few kilobytes; a message of more than this is a fault.
const FRAME_LIMIT: usize = 16 << 20;
/// A local server is asked again soon: it is back within a second of a restart.
const RECONNECT_MOST: Duration = Duration::from_secs(1);

/// What matters of the local database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalDatabase {
    /// `Open_vSwitch.external_ids`, all of them.
    pub external_ids: BTreeMap<String, String>,
    /// `other_config:flow-restore-wait` is true.
    pub flow_restore_wait: bool,
    /// What `ovs-vswitchd` wrote about itself.
    pub ovs_version: Option<String>,
    /// Names of bridges and their `datapath_type`.
    pub bridges: BTreeMap<String, String>,
}

impl LocalDatabase {
    /// Reads a view. A database without its one row is a database without settings.
    pub fn parse(replica: &Replica) -> Result<Self, ValueError> {
        let mut database = Self::default();
        if let Some(row) = replica.table("Open_vSwitch").values().next() {
            let texts = row.text_map("external_ids")?;
            database.external_ids = texts.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            database.flow_restore_wait = row.map_entry("other_config", "flow-restore-wait")? == Some("true");
            database.ovs_version = row.optional_text("ovs_version")?.map(str::to_owned);
        }
        for row in replica.table("Bridge").values() {
            database.bridges.insert(row.text("name")?.to_owned(), row.text("datapath_type")?.to_owned());
        }
        Ok(database)
    }
}

/// Connects to the database of this node and follows what matters of it.
pub async fn follow_database(dirs: &RunDirs) -> Result<(Client, View), FollowError> {
    let endpoints = dirs.db_remote().parse().map_err(FollowError::Socket)?;
    let mut settings = Settings::new(endpoints, "Open_vSwitch");
    settings.frame_limit = FRAME_LIMIT;
    settings.backoff_most = RECONNECT_MOST;
    let client = Client::spawn(settings);
    let tables = BTreeMap::from([
        ("Open_vSwitch".to_owned(), Followed::columns(&["external_ids", "other_config", "ovs_version"])),
        ("Bridge".to_owned(), Followed::columns(&["name", "datapath_type"])),
    ]);
    let view = client.follow(tables).await.map_err(FollowError::Client)?;
    Ok((client, view))
}

/// The database cannot be followed at all.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error("the local database's socket: {0}")]
    Socket(EndpointError),
    #[error("the local database: {0}")]
    Client(ClientError),
}

/// The id that a distribution keeps for this machine, if there is one and it is a line of text.
pub fn read_system_id_file(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let id = text.trim();
    (!id.is_empty() && !id.contains('\n')).then(|| id.to_owned())
}

/// Versions of the database's schema: what runs, and what this image would make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schemas {
    pub database: String,
    pub image: String,
}

/// What the daemons answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probes {
    /// The version that `ovs-vswitchd` itself says it is, or why there is no answer.
    pub vswitchd: Result<String, String>,
    /// `connection-status` of `ovn-controller`, or why there is no answer.
    pub ovn_controller: Result<String, String>,
    pub ovn_version: Option<String>,
    pub schemas: Option<Schemas>,
}

impl Probes {
    /// Before the first answer.
    pub fn unknown() -> Self {
        let not_yet = || Err("it was not asked yet".to_owned());
        Self { vswitchd: not_yet(), ovn_controller: not_yet(), ovn_version: None, schemas: None }
    }

    fn all_well(&self) -> bool {
        self.vswitchd.is_ok() && self.ovn_controller.as_deref() == Ok("connected")
    }
}

/// Asks the daemons again and again, sooner when `look` is notified, and publishes answers that differ. Ends when
/// nobody listens any more.
pub async fn probe_daemons(dirs: RunDirs, look: Arc<Notify>, publish: watch::Sender<Probes>) {
    loop {
        let before = publish.borrow().clone();
        let (vswitchd, controller, schemas) =
            tokio::join!(ask_vswitchd(&dirs), ask_controller(&dirs, &before), read_schemas(&dirs, &before));
        let (ovn_controller, ovn_version) = controller;
        let probes = Probes { vswitchd, ovn_controller, ovn_version, schemas };
        let pause = if probes.all_well() { PROBE_EVERY } else { PROBE_EVERY_WHILE_NOT_WELL };
        publish.send_if_modified(|current| {
            let differs = *current != probes;
            *current = probes;
            differs
        });
        tokio::select! {
            () = publish.closed() => return,
            () = look.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn ask_vswitchd(dirs: &RunDirs) -> Result<String, String> {
    let socket = Daemon::OvsVswitchd.control_socket(dirs);
    let answer = appctl::version(&socket, ANSWER_BOUND).await.map_err(|error| error.to_string())?;
    parse_version(&answer).ok_or_else(|| "its version is empty".to_owned())
}

/// The connection's state, and the version, which is asked for once per life of the daemon.
async fn ask_controller(dirs: &RunDirs, before: &Probes) -> (Result<String, String>, Option<String>) {
    let socket = Daemon::OvnController.control_socket(dirs);
    let status = appctl::connection_status(&socket, ANSWER_BOUND).await.map_err(|error| error.to_string());
    if status.is_err() {
        return (status, None);
    }
    let version = match (&before.ovn_controller, &before.ovn_version) {
        (Ok(_), Some(version)) => Some(version.clone()),
        _ => appctl::version(&socket, ANSWER_BOUND).await.ok().and_then(|text| parse_version(&text)),
    };
    (status, version)
}

/// "ovn-controller 23.03.1" or "ovs-vswitchd (Open vSwitch) 3.1.0", and more lines: the last word of the first.
fn parse_version(text: &str) -> Option<String> {
    text.lines().next()?.split_whitespace().next_back().map(str::to_owned)
}

/// Both schema versions, as far as the tools of the image can tell. Read once: both come with the image, and with it
/// a new pod and a new agent.
async fn read_schemas(dirs: &RunDirs, before: &Probes) -> Option<Schemas> {
    if before.schemas.is_some() {
        return before.schemas.clone();
    }
    let image = Invocation::new("ovsdb-tool", ANSWER_BOUND).arg("schema-version");
    let image = run(&image).await.ok()?.trim().to_owned();
    let database = Invocation::new("ovsdb-client", ANSWER_BOUND)
        .arg("get-schema-version")
        .arg(dirs.db_remote())
        .arg("Open_vSwitch");
    let database = run(&database).await.ok()?.trim().to_owned();
    Some(Schemas { database, image })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_the_last_word_of_the_first_line() {
        assert_eq!(parse_version("ovn-controller 23.03.1\nOpen vSwitch Library 3.1.0\n").as_deref(), Some("23.03.1"));
        assert_eq!(parse_version("ovs-vswitchd (Open vSwitch) 3.1.0").as_deref(), Some("3.1.0"));
        assert_eq!(parse_version(""), None);
    }

    #[test]
    fn a_system_id_file_is_one_line_or_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("system-id.conf");
        assert_eq!(read_system_id_file(&path), None);
        for (text, id) in [("abc\n", Some("abc")), ("\n", None), ("a\nb\n", None)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read_system_id_file(&path).as_deref(), id);
        }
    }
}
