//! Starts real ovsdb-server processes, each on a loopback address of its own, and ends them by pid.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use super::certificates::{Authority, Pair, Validity};

pub const NORTHBOUND: (&str, &str) = ("OVN_Northbound", "/usr/share/ovn/ovn-nb.ovsschema");
pub const SOUTHBOUND: (&str, &str) = ("OVN_Southbound", "/usr/share/ovn/ovn-sb.ovsschema");

/// The port that every server here listens on; addresses differ.
pub const PORT: u16 = 6641;
const RAFT_PORT: u16 = 6643;

/// An address that no other process of this machine uses: 127/8 is all ours, and the pid makes it unique.
pub fn own_address() -> IpAddr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let pid = std::process::id();
    // 22 bits of pid in front of the counter would not fit: 14 bits of each, and 127.128/9 to keep off 127.0.0.1.
    let host = 0x80_0000 | (pid & 0x3fff) << 9 | u32::from(number & 0x1ff);
    IpAddr::V4(Ipv4Addr::from(0x7f00_0000 | host))
}

/// Asks again and again, in short steps, until `ready` has an answer.
pub fn eventually<T>(what: &str, deadline: Duration, mut ready: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(begin.elapsed() < deadline, "{what}: not within {deadline:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A process that ends with the test.
pub struct Process(pub Child);

impl Process {
    pub fn spawn(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    pub fn signal(&self, signal: &str) {
        run("kill", &[signal, &self.0.id().to_string()]);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How servers speak to clients and to each other.
#[derive(Clone, Copy)]
pub enum Transport<'a> {
    Tcp,
    Tls(&'a Authority),
}

pub struct Server {
    pub folder: PathBuf,
    pub address: IpAddr,
    database: (&'static str, &'static str),
    arguments: Vec<String>,
    process: Option<Process>,
    tls: bool,
}

fn tls_arguments(folder: &Path, authority: &Authority, pair: &Pair) -> Vec<String> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    vec![
        format!("--private-key={}", write("key.pem", &pair.key)),
        format!("--certificate={}", write("cert.pem", &pair.certificate)),
        format!("--ca-cert={}", write("ca.pem", &authority.pem)),
    ]
}

impl Server {
    fn prepare(
        folder: &Path,
        database: (&'static str, &'static str),
        transport: Transport,
        pair: Option<&Pair>,
    ) -> Self {
        fs::create_dir_all(folder).unwrap();
        let address = own_address();
        let mut arguments = Vec::new();
        if let Transport::Tls(authority) = transport {
            let issued;
            let pair = match pair {
                Some(pair) => pair,
                None => {
                    issued = authority.issue(&[address], &[], Validity::Now);
                    &issued
                }
            };
            arguments = tls_arguments(folder, authority, pair);
        }
        let tls = matches!(transport, Transport::Tls(_));
        Self { folder: folder.to_owned(), address, database, arguments, process: None, tls }
    }

    pub fn standalone(folder: &Path, database: (&'static str, &'static str), transport: Transport) -> Self {
        let mut server = Self::prepare(folder, database, transport, None);
        run("ovsdb-tool", &["create", &server.file(), database.1]);
        server.start();
        server
    }

    /// A standalone server that shows `pair` to its clients.
    pub fn with_certificate(folder: &Path, authority: &Authority, pair: &Pair) -> Self {
        let mut server = Self::prepare(folder, NORTHBOUND, Transport::Tls(authority), Some(pair));
        run("ovsdb-tool", &["create", &server.file(), NORTHBOUND.1]);
        server.start();
        server
    }

    /// A relay of the database behind `remotes`.
    pub fn relay(folder: &Path, database: (&'static str, &'static str), remotes: &str, transport: Transport) -> Self {
        let mut server = Self::prepare(folder, database, transport, None);
        server.arguments.push(format!("relay:{}:{remotes}", database.0));
        server.start();
        server
    }

    fn file(&self) -> String {
        self.folder.join("db").display().to_string()
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("db.sock")
    }

    pub fn unix(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    pub fn remote(&self) -> String {
        let scheme = if self.tls { "ssl" } else { "tcp" };
        format!("{scheme}:{}:{PORT}", self.address)
    }

    pub fn start(&mut self) {
        let _ = fs::remove_file(self.socket());
        let scheme = if self.tls { "pssl" } else { "ptcp" };
        let mut command = Command::new("ovsdb-server");
        command
            .arg("--no-chdir")
            .arg(format!("--unixctl={}", self.folder.join("ctl").display()))
            .arg(format!("--log-file={}", self.folder.join("log").display()))
            .args(["-vconsole:off", "-vsyslog:off"])
            .arg(format!("--remote=punix:{}", self.socket().display()))
            .arg(format!("--remote={scheme}:{PORT}:{}", self.address))
            .args(&self.arguments);
        if !self.arguments.iter().any(|argument| argument.starts_with("relay:")) {
            command.arg(self.file());
        }
        self.process = Some(Process::spawn(&mut command));
        let socket = self.socket();
        eventually("the server's socket", Duration::from_secs(90), || {
            std::os::unix::net::UnixStream::connect(&socket).ok()
        });
        let port = std::net::SocketAddr::new(self.address, PORT);
        eventually("the server's port", Duration::from_secs(90), || std::net::TcpStream::connect(port).ok());
    }

    pub fn kill(&mut self) {
        self.process = None;
    }

    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    pub fn pause(&self) {
        self.process.as_ref().unwrap().signal("-STOP");
    }

    pub fn resume(&self) {
        self.process.as_ref().unwrap().signal("-CONT");
    }

    pub fn appctl(&self, arguments: &[&str]) -> String {
        let control = self.folder.join("ctl").display().to_string();
        run("ovs-appctl", &[&["-t", control.as_str()], arguments].concat())
    }

    pub fn is_leader(&self) -> bool {
        self.is_running() && self.appctl(&["cluster/status", self.database.0]).contains("Role: leader")
    }

    /// `ovn-nbctl` or `ovn-sbctl` on the unix socket.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let program = if self.database == NORTHBOUND { "ovn-nbctl" } else { "ovn-sbctl" };
        let database = format!("--db={}", self.unix());
        run(program, &[&["--no-leader-only", database.as_str()], arguments].concat())
    }

    /// Every row of every table, byte for byte, for comparing before and after.
    pub fn dump(&self) -> String {
        run("ovsdb-client", &["-f", "json", "dump", &self.unix(), self.database.0])
    }
}

/// Members of one Raft cluster.
pub struct Cluster {
    pub members: Vec<Server>,
    database: (&'static str, &'static str),
}

impl Cluster {
    pub fn start(folder: &Path, database: (&'static str, &'static str), size: usize, transport: Transport) -> Self {
        let scheme = if matches!(transport, Transport::Tls(_)) { "ssl" } else { "tcp" };
        let mut members: Vec<Server> = Vec::new();
        for number in 0..size {
            let mut server = Server::prepare(&folder.join(number.to_string()), database, transport, None);
            let own = format!("{scheme}:{}:{RAFT_PORT}", server.address);
            match members.first() {
                None => {
                    run("ovsdb-tool", &["create-cluster", &server.file(), database.1, &own]);
                }
                Some(first) => {
                    let other = format!("{scheme}:{}:{RAFT_PORT}", first.address);
                    run("ovsdb-tool", &["join-cluster", &server.file(), database.0, &own, &other]);
                }
            }
            server.start();
            members.push(server);
        }
        let cluster = Self { members, database };
        for member in &cluster.members {
            eventually("cluster membership", Duration::from_secs(30), || {
                member.appctl(&["cluster/status", database.0]).contains("Status: cluster member").then_some(())
            });
        }
        cluster.leader();
        cluster
    }

    pub fn remotes(&self) -> String {
        self.members.iter().map(Server::remote).collect::<Vec<_>>().join(",")
    }

    /// Waits until there is a leader and says which member it is.
    pub fn leader(&self) -> usize {
        eventually("a leader", Duration::from_secs(30), || self.members.iter().position(Server::is_leader))
    }

    pub fn database(&self) -> &'static str {
        self.database.0
    }
}
