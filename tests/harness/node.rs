//! One simulated chassis node: its own Open vSwitch database, and on demand a real ovn-controller on it.
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::central::Central;
use super::daemon::{Daemon, Program, run};
use super::until;

pub struct SimNode {
    pub name: String,
    pub folder: PathBuf,
    /// Tunnel address: the Southbound takes each but once.
    pub encap_ip: String,
    /// The run folder that holds `db.sock`, as /run/openvswitch does.
    pub ovs_rundir: PathBuf,
    pub ovn_rundir: PathBuf,
    pub run_dir: PathBuf,
    pub database: Daemon,
    pub ovn_controller: Option<Daemon>,
    pub agent: Option<Daemon>,
}

impl SimNode {
    pub fn start(name: &str, folder: PathBuf) -> Self {
        let [ovs_rundir, ovn_rundir, run_dir] = ["ovs", "ovn", "run"].map(|f| folder.join(f));
        for path in [&ovs_rundir, &ovn_rundir, &run_dir] {
            std::fs::create_dir_all(path).expect("the node's folders");
        }
        let conf = folder.join("conf.db");
        create_conf(&conf);
        let database = Program::new("ovsdb-server", "ovsdb-server", &folder)
            .arg(conf.display().to_string())
            .arg(format!("--remote=punix:{}", ovs_rundir.join("db.sock").display()))
            .arg(format!("--unixctl={}", ovs_rundir.join("ovsdb-server.ctl").display()))
            .arg(format!("--pidfile={}", ovs_rundir.join("ovsdb-server.pid").display()))
            .args(["-vconsole:info", "-vsyslog:off", "-vfile:off"])
            .env("OVS_RUNDIR", ovs_rundir.display().to_string())
            .start();
        static ADDRESSES: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = ADDRESSES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let node = Self {
            name: name.into(),
            encap_ip: format!("127.1.{}.{}", number / 250, number % 250 + 1),
            folder,
            ovs_rundir,
            ovn_rundir,
            run_dir,
            database,
            ovn_controller: None,
            agent: None,
        };
        node.wait_for_database();
        node
    }

    fn wait_for_database(&self) {
        until("the node's database", Duration::from_secs(10), || self.try_vsctl(&["init"]));
    }

    /// The disk is lost: an empty database in place of the old one.
    pub fn lose_database(&mut self) {
        self.database.kill();
        let conf = self.folder.join("conf.db");
        let _ = std::fs::remove_file(&conf);
        let _ = std::fs::remove_file(self.folder.join(".conf.db.~lock~"));
        create_conf(&conf);
        self.database.start_again();
        self.wait_for_database();
    }

    pub fn try_vsctl(&self, arguments: &[&str]) -> Result<String, String> {
        let remote = format!("--db=unix:{}", self.ovs_rundir.join("db.sock").display());
        run(
            Command::new("ovs-vsctl").args([&remote, "--no-wait", "--timeout=10"]).args(arguments),
            Duration::from_secs(12),
        )
    }

    #[track_caller]
    pub fn vsctl(&self, arguments: &[&str]) -> String {
        self.try_vsctl(arguments).unwrap_or_else(|e| panic!("{e}"))
    }

    /// A key of `Open_vSwitch.external_ids`, empty when it is not there.
    pub fn external_id(&self, key: &str) -> String {
        self.vsctl(&["--if-exists", "get", "open_vswitch", ".", &format!("external_ids:{key}")])
            .trim()
            .trim_matches('"')
            .to_owned()
    }

    pub fn system_id(&self) -> String {
        self.external_id("system-id")
    }

    /// A real ovs-vswitchd with a datapath that needs no kernel.
    pub fn start_vswitchd(&self) -> Daemon {
        Program::new("ovs-vswitchd", "ovs-vswitchd", &self.folder)
            .arg(format!("unix:{}", self.ovs_rundir.join("db.sock").display()))
            .arg(format!("--pidfile={}", self.ovs_rundir.join("ovs-vswitchd.pid").display()))
            .arg(format!("--unixctl={}", self.ovs_rundir.join("ovs-vswitchd.ctl").display()))
            .args(["--enable-dummy=system", "--disable-system", "-vconsole:info", "-vsyslog:off", "-vfile:off"])
            .env("OVS_RUNDIR", self.ovs_rundir.display().to_string())
            .start()
    }

    /// The database as an image with another schema version would have left it.
    pub fn give_schema_version(&mut self, version: &str) {
        self.database.kill();
        let schema = std::fs::read_to_string(SCHEMA).expect("the installed schema");
        let mut schema: serde_json::Value = serde_json::from_str(&schema).expect("a schema is JSON");
        schema["version"] = version.into();
        let (conf, file) = (self.folder.join("conf.db"), self.folder.join("other.ovsschema"));
        std::fs::write(&file, schema.to_string()).expect("a schema file");
        let mut convert = Command::new("ovsdb-tool");
        run(convert.arg("convert").args([&conf, &file]), Duration::from_secs(10)).expect("ovsdb-tool convert");
        self.database.start_again();
        self.wait_for_database();
    }

    /// A real ovn-controller: registers this node in the Southbound as soon as the database holds its settings. Needs no vswitchd for that.
    pub fn start_ovn_controller(&mut self, central: &Central) {
        let daemon = Program::new("ovn-controller", "ovn-controller", &self.folder)
            .arg(format!("unix:{}", self.ovs_rundir.join("db.sock").display()))
            .arg(format!("--pidfile={}", self.ovn_rundir.join("ovn-controller.pid").display()))
            .args(central.client.ovs_arguments())
            .args(["-vconsole:info", "-vsyslog:off", "-vfile:off"])
            .env("OVS_RUNDIR", self.ovs_rundir.display().to_string())
            .env("OVN_RUNDIR", self.ovn_rundir.display().to_string())
            .start();
        self.ovn_controller = Some(daemon);
    }

    /// The gentle stop of the chassis-side daemon, as the preStop hook does it.
    pub fn stop_ovn_controller(&mut self) {
        if let Some(mut daemon) = self.ovn_controller.take() {
            let pid = daemon.pid().expect("ovn-controller runs");
            let socket = self.ovn_rundir.join(format!("ovn-controller.{pid}.ctl"));
            run(
                Command::new("ovn-appctl").arg("--timeout=5").arg("-t").arg(socket).args(["exit", "--restart"]),
                Duration::from_secs(6),
            )
            .expect("ovn-controller exits");
            daemon.wait(Duration::from_secs(10));
        }
    }
}

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

fn create_conf(path: &std::path::Path) {
    run(Command::new("ovsdb-tool").arg("create").arg(path).arg(SCHEMA), Duration::from_secs(10)).expect("conf.db");
}
