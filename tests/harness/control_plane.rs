//! etcd and kube-apiserver: a few of them per test binary, each lent to one test at a time.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::daemon::{Daemon, Program, run};
use super::kube_api::{self, KubeApi};
use super::pki::Authority;
use super::{binaries, runtime, scratch, until};

/// How many tests run at once. Two cores carry two API servers; more only makes every wait longer.
pub const LANES: usize = 2;

pub struct ControlPlane {
    pub folder: PathBuf,
    pub url: String,
    pub admin: KubeApi,
    pub admin_kubeconfig: PathBuf,
    pub authority: Authority,
    pub etcd: Daemon,
    pub api_server: Daemon,
}

impl ControlPlane {
    /// `extra` goes to kube-apiserver as it is (feature gates, for instance).
    pub fn start(name: &str, extra: &[&str]) -> Self {
        let folder = scratch::root().join(name);
        std::fs::create_dir_all(&folder).expect("a folder for the control plane");
        let authority = Authority::new("process-test");
        let server = authority.write(&folder, "apiserver", &authority.identity("kube-apiserver", None));
        let (private, public) = super::pki::token_signing_keys();
        let (signing, verifying) = (folder.join("sa.key"), folder.join("sa.pub"));
        std::fs::write(&signing, private).expect("token key");
        std::fs::write(&verifying, public).expect("token key");

        let [client_port, peer_port, port] = [(); 3].map(|()| scratch::free_port());
        let etcd_url = format!("http://127.0.0.1:{client_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let etcd = Program::new("etcd", binaries::control_plane("etcd"), &folder)
            .args(["--data-dir".into(), folder.join("etcd").display().to_string()])
            .args([
                "--listen-client-urls",
                &etcd_url,
                "--advertise-client-urls",
                &etcd_url,
                "--listen-peer-urls",
                &peer_url,
            ])
            .args(["--initial-advertise-peer-urls", &peer_url, "--initial-cluster", &format!("default={peer_url}")])
            .args(["--unsafe-no-fsync", "--log-level", "warn"])
            .start();
        let file = |path: &Path| path.display().to_string();
        let api_server = Program::new("kube-apiserver", binaries::control_plane("kube-apiserver"), &folder)
            .args([
                "--etcd-servers",
                &etcd_url,
                "--secure-port",
                &port.to_string(),
                "--bind-address",
                "127.0.0.1",
                "--advertise-address",
                "127.0.0.1",
            ])
            .args(["--client-ca-file", &file(&server.authority), "--tls-cert-file", &file(&server.certificate)])
            .args(["--tls-private-key-file", &file(&server.key)])
            .args([
                "--service-account-key-file",
                &file(&verifying),
                "--service-account-signing-key-file",
                &file(&signing),
            ])
            .args([
                "--service-account-issuer",
                "https://kubernetes.default.svc",
                "--service-cluster-ip-range",
                "10.96.0.0/16",
            ])
            .args([
                "--authorization-mode",
                "Node,RBAC",
                "--enable-admission-plugins",
                "NodeRestriction",
                "--allow-privileged=true",
            ])
            .args(["--endpoint-reconciler-type=none", "--profiling=false"])
            .args(extra.iter().copied())
            .start();

        let url = format!("https://127.0.0.1:{port}");
        let admin_kubeconfig = folder.join("admin.kubeconfig");
        let admin_identity = authority.identity("admin", Some("system:masters"));
        let user = json!({"client-certificate-data": base64(admin_identity.certificate.as_bytes()), "client-key-data": base64(admin_identity.key.as_bytes())});
        write_kubeconfig(&admin_kubeconfig, &url, &authority.certificate, user);
        let admin = KubeApi::from_kubeconfig(&admin_kubeconfig);
        let mut plane = Self { folder, url, admin, admin_kubeconfig, authority, etcd, api_server };
        plane.wait_until_ready();
        plane
    }

    pub fn wait_until_ready(&mut self) {
        let (admin, server) = (self.admin.clone(), &mut self.api_server);
        until("kube-apiserver to be ready", Duration::from_secs(90), || {
            if let Some(status) = server.try_wait() {
                panic!("kube-apiserver ended with {status}: {}", server.log_tail(30));
            }
            let ready = axum::http::Request::get("/readyz").body(Vec::new()).expect("a request");
            runtime().block_on(async {
                tokio::time::timeout(Duration::from_secs(5), admin.client.request_text(ready))
                    .await
                    .map_err(|e| e.to_string())?
                    .map_err(|e| e.to_string())
            })
        });
    }

    /// A kubeconfig of another user: `user` as it stands in the file.
    pub fn kubeconfig(&self, path: &Path, user: Value) -> KubeApi {
        write_kubeconfig(path, &self.url, &self.authority.certificate, user);
        KubeApi::from_kubeconfig(path)
    }

    /// The administrator acting as somebody else: what that user may do is up to RBAC, as with a token of theirs.
    pub fn kubeconfig_as(&self, path: &Path, user: &str, groups: &[&str]) {
        let identity = self.authority.identity("admin", Some("system:masters"));
        let user = json!({
            "client-certificate-data": base64(identity.certificate.as_bytes()),
            "client-key-data": base64(identity.key.as_bytes()),
            "as": user,
            "as-groups": groups,
        });
        write_kubeconfig(path, &self.url, &self.authority.certificate, user);
    }

    /// kubectl of the same build, as the administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(binaries::control_plane("kubectl"));
        run(
            command.args(arguments).env("KUBECONFIG", &self.admin_kubeconfig).env("HOME", &self.folder),
            Duration::from_secs(120),
        )
    }

    /// Our CRDs as the binary prints them, the minimal OVNCentral of another operator, and our roles and admission policy.
    pub fn install_product(&self) {
        let crds = run(Command::new(binaries::ovn_chassis()).arg("crd"), Duration::from_secs(10))
            .expect("`ovn-chassis crd` prints the CRDs");
        let file = self.folder.join("crds.yaml");
        std::fs::write(&file, crds).expect("crds.yaml");
        self.kubectl(&["apply", "--server-side", "-f", &file.display().to_string()])
            .expect("the API server takes our CRDs");
        self.admin.create(kube_api::CRD, "", ovn_central_crd());
        self.kubectl(&["wait", "--for=condition=established", "crd", "--all", "--timeout=30s"])
            .expect("CRDs established");
        self.admin.create(kube_api::NAMESPACE, "", json!({"metadata": {"name": "ovn-chassis-system"}}));
        for part in ["rbac", "policy"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/base").join(part);
            if folder.is_dir() {
                self.kubectl(&["apply", "--server-side", "-k", &folder.display().to_string()])
                    .unwrap_or_else(|e| panic!("manifests/base/{part}: {e}"));
            }
        }
    }
}

impl ControlPlane {
    /// The next test must meet nothing that selects its Nodes, is selected, or is counted.
    fn remove_what_selects_nodes(&self) {
        use kube_api::{CONFIG_MAP, DAEMON_SET, JOB, NODE, OVN_CENTRAL, OVN_CHASSIS, OVN_CHASSIS_NODE, POD, SECRET};
        for kind in [OVN_CHASSIS, OVN_CHASSIS_NODE, JOB, POD, DAEMON_SET, OVN_CENTRAL, SECRET, CONFIG_MAP, NODE] {
            for object in self.admin.list(kind, "", "") {
                let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
                let (namespace, name) = (text("namespace"), text("name"));
                if namespace == "kube-system" {
                    continue;
                }
                if object["metadata"]["finalizers"].is_array() {
                    let none = json!({"metadata": {"finalizers": null}});
                    let _ = self.admin.try_merge(kind, &namespace, &name, "", &none);
                }
                let now = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
                let _ = self.admin.request("DELETE", &kind.path(&namespace, &name), "application/json", Some(&now));
            }
        }
    }
}

fn write_kubeconfig(path: &Path, url: &str, authority: &str, user: Value) {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority-data": base64(authority.as_bytes())}}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    });
    std::fs::write(path, config.to_string()).expect("a kubeconfig");
}

/// What we read of OVNCentral, whose kind is another operator's.
fn ovn_central_crd() -> Value {
    let version = json!({
        "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}},
    });
    json!({
        "metadata": {"name": "ovncentrals.ovn.openstack.c5c3.io"},
        "spec": {
            "group": "ovn.openstack.c5c3.io", "scope": "Namespaced",
            "names": {"plural": "ovncentrals", "singular": "ovncentral", "kind": "OVNCentral", "listKind": "OVNCentralList"},
            "versions": [version],
        },
    })
}

/// Standard base64 with padding, as Kubernetes wants it.
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = u32::from(chunk[0]) << 16
            | u32::from(*chunk.get(1).unwrap_or(&0)) << 8
            | u32::from(*chunk.get(2).unwrap_or(&0));
        for position in 0..4 {
            let letter = ALPHABET[(word >> (18 - 6 * position) & 63) as usize] as char;
            text.push(if position <= chunk.len() { letter } else { '=' });
        }
    }
    text
}

/// A control plane that belongs to the holder alone until it is dropped.
pub struct Lane {
    plane: Option<ControlPlane>,
}

struct Pool {
    idle: Vec<ControlPlane>,
    lent: usize,
    started: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { idle: Vec::new(), lent: 0, started: 0 });
static RETURNED: Condvar = Condvar::new();

fn lanes() -> usize {
    std::env::var("OVN_CHASSIS_TEST_LANES").ok().and_then(|v| v.parse().ok()).unwrap_or(LANES).max(1)
}

impl Lane {
    /// Takes an idle control plane, starts one if the limit allows, or waits for a test to end.
    pub fn take() -> Self {
        let mut pool = POOL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        loop {
            if let Some(plane) = pool.idle.pop() {
                pool.lent += 1;
                return Self { plane: Some(plane) };
            }
            if pool.lent < lanes() {
                pool.lent += 1;
                pool.started += 1;
                let name = format!("cp{}", pool.started);
                drop(pool);
                // Counted as lent already: should the start fail, the guard gives the place back.
                let mut lane = Self { plane: None };
                let plane = ControlPlane::start(&name, &[]);
                plane.install_product();
                lane.plane = Some(plane);
                return lane;
            }
            pool = RETURNED.wait(pool).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

impl std::ops::Deref for Lane {
    type Target = ControlPlane;
    fn deref(&self) -> &ControlPlane {
        self.plane.as_ref().expect("a lane has its control plane until it is dropped")
    }
}

impl std::ops::DerefMut for Lane {
    fn deref_mut(&mut self) -> &mut ControlPlane {
        self.plane.as_mut().expect("a lane has its control plane until it is dropped")
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // After a failed test the state of the API server is anybody's guess: the next test gets a fresh one.
        let keep = !std::thread::panicking();
        if let Some(plane) = self.plane.as_ref().filter(|_| keep) {
            plane.remove_what_selects_nodes();
        }
        let mut pool = POOL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        pool.lent -= 1;
        if let Some(plane) = self.plane.take()
            && keep
        {
            pool.idle.push(plane);
        }
        RETURNED.notify_one();
    }
}
