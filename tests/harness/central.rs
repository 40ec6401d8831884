//! The central OVN databases: one member each, or three with Raft; always TLS for clients, and a proxy in front of each member that can be cut.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::daemon::{Daemon, Program, run};
use super::pki::{Authority, Files};
use super::proxy::{Line, Proxy};
use super::{scratch, until};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    Northbound,
    Southbound,
}

impl Schema {
    pub fn database(self) -> &'static str {
        match self {
            Self::Northbound => "OVN_Northbound",
            Self::Southbound => "OVN_Southbound",
        }
    }
    fn short(self) -> &'static str {
        match self {
            Self::Northbound => "nb",
            Self::Southbound => "sb",
        }
    }
    fn file(self) -> String {
        format!("/usr/share/ovn/ovn-{}.ovsschema", self.short())
    }
}

pub struct Member {
    pub daemon: Daemon,
    pub proxy: Proxy,
    pub socket: PathBuf,
    pub control: PathBuf,
}

pub struct Database {
    pub schema: Schema,
    pub members: Vec<Member>,
    clustered: bool,
}

impl Database {
    fn start(schema: Schema, members: usize, folder: &Path, tls: &Files) -> Self {
        let raft: Vec<u16> = (0..members).map(|_| scratch::free_port()).collect();
        let clustered = members > 1;
        let mut database = Self { schema, members: Vec::new(), clustered };
        for (index, raft_port) in raft.iter().enumerate() {
            let name = format!("{}{index}", schema.short());
            let file = folder.join(format!("{name}.db"));
            let mut tool = Command::new("ovsdb-tool");
            match (clustered, index) {
                (false, _) => tool.arg("create").arg(&file).arg(schema.file()),
                (true, 0) => {
                    tool.arg("create-cluster").arg(&file).arg(schema.file()).arg(format!("ssl:127.0.0.1:{raft_port}"))
                }
                (true, _) => tool
                    .arg("join-cluster")
                    .arg(&file)
                    .arg(schema.database())
                    .arg(format!("ssl:127.0.0.1:{raft_port}"))
                    .arg(format!("ssl:127.0.0.1:{}", raft[0])),
            };
            run(&mut tool, Duration::from_secs(10)).expect("ovsdb-tool makes the database");
            database.members.push(member(&name, folder, tls, &file.display().to_string()));
        }
        for member in &database.members {
            let wanted = if clustered { "status: cluster member" } else { "" };
            until("the database to serve", Duration::from_secs(20), || {
                if clustered {
                    let status = cluster_status(member, schema)?;
                    if !status.to_lowercase().contains(wanted) {
                        return Err(status);
                    }
                }
                run(
                    Command::new("ovsdb-client")
                        .args(["--timeout=2", "list-dbs"])
                        .arg(format!("unix:{}", member.socket.display())),
                    Duration::from_secs(3),
                )
            });
        }
        database
    }

    /// As an OVNCentral's status would name them: through the proxies.
    pub fn addresses(&self) -> String {
        self.members.iter().map(|m| format!("ssl:127.0.0.1:{}", m.proxy.port)).collect::<Vec<_>>().join(",")
    }

    /// For the test's own tools, past the proxies: the members that are neither killed nor paused.
    pub fn sockets(&self) -> String {
        let answering = self.members.iter().filter(|m| m.daemon.answers());
        answering.map(|m| format!("unix:{}", m.socket.display())).collect::<Vec<_>>().join(",")
    }

    /// Cuts, stalls or opens the way to every member.
    pub fn set_lines(&self, line: Line) {
        for member in &self.members {
            member.proxy.set(line);
        }
    }

    /// The member that leads by its own word.
    pub fn leader(&self) -> usize {
        if !self.clustered {
            return 0;
        }
        until("a Raft leader", Duration::from_secs(20), || {
            let leads = |m: &Member| {
                m.daemon.answers() && cluster_status(m, self.schema).is_ok_and(|s| s.contains("Role: leader"))
            };
            self.members.iter().position(leads).ok_or("no member says that it leads")
        })
    }

    pub fn followers(&self) -> Vec<usize> {
        let leader = self.leader();
        (0..self.members.len()).filter(|i| *i != leader).collect()
    }

    /// All rows of all tables as `ovsdb-client dump` prints them: what "not changed by a byte" is checked on.
    pub fn dump(&self, table: &str) -> String {
        let leader = &self.members[self.leader()];
        let mut command = Command::new("ovsdb-client");
        command
            .args(["--timeout=10", "-f", "json", "dump"])
            .arg(format!("unix:{}", leader.socket.display()))
            .arg(self.schema.database());
        if !table.is_empty() {
            command.arg(table);
        }
        run(&mut command, Duration::from_secs(15)).expect("ovsdb-client dump")
    }
}

fn member(name: &str, folder: &Path, tls: &Files, database: &str) -> Member {
    let (socket, control, port) =
        (folder.join(format!("{name}.sock")), folder.join(format!("{name}.ctl")), scratch::free_port());
    let daemon = Program::new(name, "ovsdb-server", folder)
        .arg(database)
        .arg(format!("--remote=punix:{}", socket.display()))
        .arg(format!("--remote=pssl:{port}:127.0.0.1"))
        .arg(format!("--unixctl={}", control.display()))
        .args(tls.ovs_arguments())
        .args(["-vconsole:info", "-vsyslog:off", "-vfile:off"])
        .start();
    Member { daemon, proxy: Proxy::to(port), socket, control }
}

fn cluster_status(member: &Member, schema: Schema) -> Result<String, String> {
    run(
        Command::new("ovs-appctl")
            .arg("--timeout=1")
            .arg("-t")
            .arg(&member.control)
            .args(["cluster/status", schema.database()]),
        Duration::from_secs(2),
    )
}

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub members: usize,
    pub relay: bool,
    pub northd: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self { members: 1, relay: false, northd: true }
    }
}

impl Shape {
    pub fn raft() -> Self {
        Self { members: 3, ..Self::default() }
    }
    pub fn with_relay(self) -> Self {
        Self { relay: true, ..self }
    }
    pub fn without_northd(self) -> Self {
        Self { northd: false, ..self }
    }
}

pub struct Central {
    pub northbound: Database,
    pub southbound: Database,
    pub relay: Option<Member>,
    pub northd: Option<Daemon>,
    pub authority: Authority,
    /// The client certificate that a central's `clientSecretName` holds.
    pub client: Files,
}

impl Central {
    pub fn start(shape: Shape, folder: &Path) -> Self {
        let authority = Authority::new("ovn-central");
        let server = authority.write(folder, "ovsdb", &authority.identity("ovsdb", None));
        let client = authority.write(folder, "client", &authority.identity("client", None));
        let northbound = Database::start(Schema::Northbound, shape.members, folder, &server);
        let southbound = Database::start(Schema::Southbound, shape.members, folder, &server);
        let relay = shape
            .relay
            .then(|| member("relay", folder, &server, &format!("relay:OVN_Southbound:{}", southbound.addresses())));
        let mut central = Self { northbound, southbound, relay, northd: None, authority, client };
        central.nbctl(&["init"]);
        central.sbctl(&["init"]);
        central.northd = shape.northd.then(|| {
            Program::new("northd", "ovn-northd", folder)
                .arg(format!("--ovnnb-db={}", central.northbound.sockets()))
                .arg(format!("--ovnsb-db={}", central.southbound.sockets()))
                .arg(format!("--unixctl={}", folder.join("northd.ctl").display()))
                .args(["-vconsole:info", "-vsyslog:off", "-vfile:off"])
                .start()
        });
        central
    }

    pub fn try_nbctl(&self, arguments: &[&str]) -> Result<String, String> {
        run(
            Command::new("ovn-nbctl")
                .arg(format!("--db={}", self.northbound.sockets()))
                .arg("--timeout=15")
                .args(arguments),
            Duration::from_secs(20),
        )
    }

    pub fn try_sbctl(&self, arguments: &[&str]) -> Result<String, String> {
        run(
            Command::new("ovn-sbctl")
                .arg(format!("--db={}", self.southbound.sockets()))
                .arg("--timeout=15")
                .args(arguments),
            Duration::from_secs(20),
        )
    }

    #[track_caller]
    pub fn nbctl(&self, arguments: &[&str]) -> String {
        self.northbound.leader();
        self.try_nbctl(arguments).unwrap_or_else(|e| panic!("{e}"))
    }

    #[track_caller]
    pub fn sbctl(&self, arguments: &[&str]) -> String {
        self.southbound.leader();
        self.try_sbctl(arguments).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Names of the Gateway_Chassis and HA_Chassis rows' chassis in the Northbound, one entry a row, sorted.
    pub fn gateway_rows(&self) -> Vec<String> {
        let mut names: Vec<String> = ["gateway_chassis", "ha_chassis"]
            .iter()
            .flat_map(|table| {
                self.nbctl(&["--bare", "--no-headings", "--columns=chassis_name", "list", table])
                    .split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
            .collect();
        names.sort();
        names
    }

    /// Names in the Southbound's Chassis table, sorted.
    pub fn chassis_names(&self) -> Vec<String> {
        self.southbound_names("chassis")
    }

    pub fn southbound_names(&self, table: &str) -> Vec<String> {
        let column = if table == "encap" { "chassis_name" } else { "name" };
        let mut names: Vec<String> = self
            .sbctl(&["--bare", "--no-headings", &format!("--columns={column}"), "list", table])
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        names.sort();
        names
    }
}
