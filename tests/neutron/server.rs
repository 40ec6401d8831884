//! Neutron with ML2/OVN on the test's own databases: its API process, SQLite, no Keystone, no message bus. What reschedules gateways lives in that
//! process; the worker that looks for inconsistencies every few minutes is left out, because the two lock each other out of SQLite.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::central::Central;
use crate::harness::daemon::{Daemon, Program, run};
use crate::harness::{scratch, until};

const PROJECT: &str = "0123456789abcdef0123456789abcdef";
/// A process of this size takes its time to import itself on a busy machine.
const STARTS_WITHIN: Duration = Duration::from_secs(120);

pub struct Neutron {
    pub api: Daemon,
    port: u16,
    folder: PathBuf,
    records: PathBuf,
    venv: PathBuf,
}

impl Drop for Neutron {
    fn drop(&mut self) {
        self.api.kill();
        for more in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{more}", self.records.display()));
        }
    }
}

fn configuration(folder: &Path, records: &Path, venv: &Path, central: &Central) -> String {
    let socket = |members: &[crate::harness::central::Member]| format!("unix:{}", members[0].socket.display());
    let (folder, paste) = (folder.display(), venv.join("etc/neutron/api-paste.ini"));
    format!(
        "[DEFAULT]\ncore_plugin = ml2\nservice_plugins = ovn-router\nauth_strategy = noauth\ntransport_url = fake://\n\
         state_path = {folder}/state\napi_paste_config = {paste}\n\
         [database]\nconnection = sqlite:///{records}?timeout=140\n\
         [oslo_concurrency]\nlock_path = {folder}/state/lock\n\
         [ml2]\nmechanism_drivers = ovn\ntype_drivers = geneve,flat\ntenant_network_types = geneve\n\
         extension_drivers = port_security\n\
         [ml2_type_flat]\nflat_networks = physnet1\n\
         [ml2_type_geneve]\nvni_ranges = 1:1000\nmax_header_size = 38\n\
         [ovn]\novn_l3_scheduler = leastloaded\novn_nb_connection = {nb}\novn_sb_connection = {sb}\n",
        records = records.display(),
        paste = paste.display(),
        nb = socket(&central.northbound.members),
        sb = socket(&central.southbound.members),
    )
}

impl Neutron {
    /// Starts it on an empty database of its own and waits until it answers.
    pub fn start(folder: PathBuf, central: &Central) -> Self {
        let venv = std::env::var_os("NEUTRON_VENV").expect("NEUTRON_VENV names what tests/neutron/install made");
        let venv = PathBuf::from(venv);
        std::fs::create_dir_all(folder.join("state/lock")).unwrap();
        let records = PathBuf::from(format!("/dev/shm/ovn-chassis-neutron-{}.sqlite", std::process::id()));
        std::fs::write(folder.join("neutron.conf"), configuration(&folder, &records, &venv, central)).unwrap();
        // In memory: its threads are in each other's way for as long as a commit takes.
        let tables = "import sys, sqlalchemy\n\
                      from neutron.db.migration.models import head\n\
                      head.get_metadata().create_all(sqlalchemy.create_engine('sqlite:///' + sys.argv[1]))";
        let mut python = Command::new(venv.join("bin/python"));
        python.args(["-W", "ignore", "-c", tables]).arg(&records);
        run(&mut python, STARTS_WITHIN).expect("Neutron's tables");
        let port = scratch::free_port();
        let api = Program::new("neutron-api", venv.join("bin/uwsgi"), &folder)
            .args(["--http-socket", &format!("127.0.0.1:{port}"), "--module", "neutron.wsgi.api:application"])
            .args(["--master", "--die-on-term", "--lazy-apps", "--enable-threads"])
            .args(["--processes", "1", "--threads", "1", "--set-ph", "start-time=%t"])
            .env("OS_NEUTRON_CONFIG_DIR", folder.display().to_string())
            .env("OS_NEUTRON_CONFIG_FILES", "neutron.conf")
            .start();
        let neutron = Self { api, port, folder, records, venv };
        neutron.wait();
        neutron
    }

    fn tool(&self, name: &str) -> PathBuf {
        self.venv.join("bin").join(name)
    }

    fn configuration(&self) -> String {
        self.folder.join("neutron.conf").display().to_string()
    }

    fn wait(&self) {
        until("Neutron to answer", STARTS_WITHIN, || {
            self.try_call("GET", "networks", None).map_err(|error| format!("{error}; {}", self.api.log_tail(5)))
        });
    }

    /// Kills the API process and starts it again, without waiting for it to answer.
    pub fn restart_api(&mut self) {
        self.api.kill();
        // Its worker ends a moment later.
        until("the port to be free", STARTS_WITHIN, || std::net::TcpListener::bind(("127.0.0.1", self.port)));
        self.api.start_again();
    }

    pub fn try_call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--fail-with-body", "--max-time", "150", "-X", method])
            .args(["-H", "X-Roles: admin", "-H", &format!("X-Project-Id: {PROJECT}")])
            .arg(format!("http://127.0.0.1:{}/v2.0/{path}", self.port));
        if let Some(body) = body {
            curl.args(["-H", "Content-Type: application/json", "-d", &body.to_string()]);
        }
        let answer = run(&mut curl, Duration::from_secs(155))?;
        if answer.trim().is_empty() {
            Ok(Value::Null)
        } else {
            serde_json::from_str(&answer).map_err(|e| e.to_string())
        }
    }

    /// A call that is made again while nobody listens. One that was taken is waited for: made twice, it would do its work twice.
    #[track_caller]
    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let begun = Instant::now();
        loop {
            match self.try_call(method, path, body) {
                Ok(answer) => return answer,
                Err(error) if error.contains("curl: (7)") && begun.elapsed() < STARTS_WITHIN => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                Err(error) => panic!("{method} {path}: {error}; {}", self.api.log_tail(20)),
            }
        }
    }

    /// Makes one object and returns its id.
    #[track_caller]
    fn create(&self, kind: &str, mut fields: Value) -> String {
        fields["project_id"] = json!(PROJECT);
        let answer = self.call("POST", &format!("{kind}s"), Some(&json!({ kind: fields })));
        answer[kind]["id"].as_str().unwrap_or_else(|| panic!("{kind}: {answer}")).to_owned()
    }

    /// An outside network for routers to have their gateways on.
    pub fn create_outside(&self) -> String {
        let network = self.create(
            "network",
            json!({"name": "outside", "router:external": true, "provider:network_type": "flat", "provider:physical_network": "physnet1"}),
        );
        self.create(
            "subnet",
            json!({"network_id": network, "ip_version": 4, "cidr": "198.51.100.0/24", "enable_dhcp": false}),
        );
        network
    }

    pub fn create_router(&self, name: &str, outside: &str) -> String {
        self.create("router", json!({"name": name, "external_gateway_info": {"network_id": outside}}))
    }

    pub fn delete_router(&self, id: &str) {
        self.call("DELETE", &format!("routers/{id}"), None);
    }

    /// What Neutron's own check of the databases against its records complains about.
    pub fn differences(&self) -> BTreeSet<String> {
        let mut check = Command::new(self.tool("neutron-ovn-db-sync-util"));
        check.args(["--config-file", &self.configuration(), "--ovn-neutron_sync_mode", "log"]);
        check.args(["--log-file", &self.folder.join("sync.log").display().to_string()]);
        let _ = std::fs::remove_file(self.folder.join("sync.log"));
        run(&mut check, STARTS_WITHIN).expect("neutron-ovn-db-sync-util");
        let log = std::fs::read_to_string(self.folder.join("sync.log")).expect("its log");
        assert!(log.contains("sync"), "it did look: {log}");
        let complaint = |line: &str| {
            let warns = line.contains(" WARNING ") || line.contains(" ERROR ");
            // After the logger comes the request in brackets, another one each time.
            let (_, text) = line.split_once("ovn_db_sync [").filter(|_| warns)?.1.split_once("] ")?;
            // Which hosts it knows is a record of its own, which a registration makes and brings up to date.
            (!text.contains("SegmentHostMapping")).then(|| text.to_owned())
        };
        log.lines().filter_map(complaint).collect()
    }
}
