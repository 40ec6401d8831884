//! One test's world: an API server of its own for as long as the test lasts, OVN databases, nodes with agents, our controller, and a recorder of all that is written.
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::central::{Central, Shape};
use super::control_plane::{Lane, base64};
use super::daemon::{Daemon, Program};
use super::kube_api::{self, JOB, KubeApi, NODE, OVN_CHASSIS, OVN_CHASSIS_NODE};
use super::node::SimNode;
use super::recorder::Recorder;
use super::scratch::Folder;
use super::{binaries, scratch, until};

pub const CHASSIS_LABEL: &str = "openstack.c5c3.io/chassis";
pub const GATEWAY_LABEL: &str = "openstack.c5c3.io/gateway";
/// Where the controller's account and its lease are, as the manifests have it.
pub const SYSTEM_NAMESPACE: &str = "ovn-chassis-system";
const CONTROLLER_ACCOUNT: &str = "ovn-chassis-controller";
const CLIENT_SECRET: &str = "central-client";
/// How long a step that takes a fraction of a second may take on a loaded machine.
pub const SOON: Duration = Duration::from_secs(60);

/// The order of the fields is the order in which they are dropped: processes before what they use.
pub struct World {
    pub controllers: Vec<Daemon>,
    pub nodes: BTreeMap<String, SimNode>,
    pub recorder: Recorder,
    pub central: Central,
    pub kube: KubeApi,
    pub namespace: String,
    /// Name of the OVNChassis.
    pub chassis: String,
    /// Name of the OVNCentral.
    pub central_name: String,
    pub folder: Folder,
    pub lane: Lane,
    pub metrics_ports: Vec<u16>,
}

impl World {
    /// An empty world: databases, an OVNCentral that names them, no nodes, no OVNChassis, no controller.
    pub fn new(test: &str, shape: Shape) -> Self {
        static WORLDS: AtomicUsize = AtomicUsize::new(0);
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        Self::named(number, shape, &format!("{test}-{number}"), "drain", "central")
    }

    /// A world with the names of the walk-through that our users follow.
    pub fn as_in_the_guide(shape: Shape) -> Self {
        static WORLDS: AtomicUsize = AtomicUsize::new(1000);
        Self::named(
            WORLDS.fetch_add(1, Ordering::Relaxed),
            shape,
            "openstack",
            "controlplane-chassis",
            "controlplane-ovn",
        )
    }

    fn named(number: usize, shape: Shape, namespace: &str, chassis: &str, central_name: &str) -> Self {
        let lane = Lane::take();
        let folder = Folder::new(&format!("w{number}"));
        let namespace = namespace.to_owned();
        let kube = lane.admin.clone();
        for lease in kube.list(kube_api::LEASE, SYSTEM_NAMESPACE, "") {
            // The lease of the test before, whose controller was killed: nobody is to wait for its end.
            kube.delete(kube_api::LEASE, SYSTEM_NAMESPACE, lease["metadata"]["name"].as_str().unwrap_or_default());
        }
        if kube.get(kube_api::NAMESPACE, "", &namespace).is_none() {
            kube.create(kube_api::NAMESPACE, "", json!({"metadata": {"name": namespace}}));
        }
        // The API server refuses pods without it, and the controller that makes it does not run here.
        kube.delete(kube_api::SERVICE_ACCOUNT, &namespace, "default");
        kube.create(kube_api::SERVICE_ACCOUNT, &namespace, json!({"metadata": {"name": "default"}}));
        let recorder = Recorder::start(&kube, &namespace, &[OVN_CHASSIS, OVN_CHASSIS_NODE, JOB]);
        let central = Central::start(shape, folder.path());
        let world = Self {
            controllers: Vec::new(),
            nodes: BTreeMap::new(),
            recorder,
            central,
            kube,
            namespace,
            chassis: chassis.to_owned(),
            central_name: central_name.to_owned(),
            folder,
            lane,
            metrics_ports: Vec::new(),
        };
        world.write_client_secret(&world.namespace, CLIENT_SECRET);
        world.kube.create(
            kube_api::OVN_CENTRAL,
            &world.namespace,
            json!({"metadata": {"name": world.central_name}, "spec": {}}),
        );
        world.write_central_status(true);
        world
    }

    /// The usual world: `nodes` (all chassis; those named in `gateways` too) with agents, one OVNChassis, one controller, every node applied.
    pub fn ready(test: &str, shape: Shape, nodes: &[&str], gateways: &[&str]) -> Self {
        let mut world = Self::new(test, shape);
        world.create_chassis(json!({}));
        for name in nodes {
            world.add_node(name, true, gateways.contains(name));
        }
        world.start_controller(&[], &[]);
        for name in nodes {
            world.start_agent(name);
        }
        for name in nodes {
            world.wait_applied(name);
        }
        world
    }

    pub fn client_secret_data(&self) -> Value {
        let read = |path: &PathBuf| base64(&std::fs::read(path).expect("certificate file"));
        let client = &self.central.client;
        json!({"tls.crt": read(&client.certificate), "tls.key": read(&client.key), "ca.crt": read(&client.authority)})
    }

    pub fn write_client_secret(&self, namespace: &str, name: &str) {
        self.kube.create(
            kube_api::SECRET,
            namespace,
            json!({"metadata": {"name": name}, "type": "Opaque", "data": self.client_secret_data()}),
        );
    }

    pub fn write_central_status(&self, ready: bool) {
        let (northbound, southbound) = (self.central.northbound.addresses(), self.central.southbound.addresses());
        let mut status = json!({
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }, "reason": "Test", "message": "as the test wants it"}],
            "northbound": {"internalDbAddress": northbound, "dbAddress": northbound},
            "southbound": {"internalDbAddress": southbound, "dbAddress": southbound},
            "clientSecretName": CLIENT_SECRET,
        });
        if let Some(relay) = &self.central.relay {
            status["relayAddress"] = json!(format!("ssl:127.0.0.1:{}", relay.proxy.port));
        }
        self.kube.merge_status(kube_api::OVN_CENTRAL, &self.namespace, &self.central_name, status);
    }

    /// The spec that tests use, with `changes` merged over it.
    pub fn chassis_spec(changes: &Value) -> Value {
        Self::chassis_spec_for("central", changes)
    }

    fn chassis_spec_for(central: &str, changes: &Value) -> Value {
        let mut spec = json!({
            "centralRef": {"name": central},
            "nodeSelector": {CHASSIS_LABEL: "true"},
            "gateway": {"nodeSelector": {GATEWAY_LABEL: "true"}},
        });
        for (key, value) in changes.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        spec
    }

    pub fn create_chassis(&self, changes: Value) -> Value {
        self.kube.create(
            OVN_CHASSIS,
            &self.namespace,
            json!({"metadata": {"name": self.chassis}, "spec": Self::chassis_spec_for(&self.central_name, &changes)}),
        )
    }

    /// A Node object with its labels and the node's own Open vSwitch database; no agent yet.
    pub fn add_node(&mut self, name: &str, chassis: bool, gateway: bool) {
        self.create_node_object(name, chassis, gateway);
        if !self.nodes.contains_key(name) {
            let folder = self.folder.join(format!("n{}", self.nodes.len()));
            self.nodes.insert(name.into(), SimNode::start(name, folder));
        }
    }

    pub fn create_node_object(&self, name: &str, chassis: bool, gateway: bool) {
        let mut labels =
            json!({"kubernetes.io/hostname": name.chars().take(63).collect::<String>().trim_end_matches(['.', '-'])});
        for (wanted, label) in [(chassis, CHASSIS_LABEL), (gateway, GATEWAY_LABEL)] {
            if wanted {
                labels[label] = json!("true");
            }
        }
        self.kube.create(NODE, "", json!({"metadata": {"name": name, "labels": labels}}));
    }

    pub fn node(&self, name: &str) -> &SimNode {
        self.nodes.get(name).unwrap_or_else(|| panic!("no node {name} in this world"))
    }

    pub fn node_mut(&mut self, name: &str) -> &mut SimNode {
        self.nodes.get_mut(name).unwrap_or_else(|| panic!("no node {name} in this world"))
    }

    /// Starts one more replica of the controller, with the rights of its ServiceAccount; the first one leads. Returns its index.
    pub fn start_controller(&mut self, arguments: &[&str], environment: &[(&str, &str)]) -> usize {
        let index = self.controllers.len();
        let kubeconfig = self.folder.join(format!("controller{index}.kubeconfig"));
        let user = format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{CONTROLLER_ACCOUNT}");
        self.lane.kubeconfig_as(
            &kubeconfig,
            &user,
            &["system:serviceaccounts", &format!("system:serviceaccounts:{SYSTEM_NAMESPACE}"), "system:authenticated"],
        );
        let metrics = scratch::free_port();
        self.metrics_ports.push(metrics);
        let mut program = Program::new(&format!("controller{index}"), binaries::ovn_chassis(), self.folder.path())
            .args(["controller", "--lease-namespace", SYSTEM_NAMESPACE, "--identity", &format!("replica-{index}")])
            .args(["--metrics-addr", &format!("127.0.0.1:{metrics}"), "--image", "registry.example/ovn-chassis:test"]);
        if !arguments.contains(&"--dead-agent-wait-seconds") {
            program = program.args(["--dead-agent-wait-seconds", "3"]);
        }
        program = program
            .args(arguments.iter().copied())
            .env("KUBECONFIG", kubeconfig.display().to_string())
            .env("RUST_LOG", "info,ovn_chassis=debug");
        for (key, value) in environment {
            program = program.env(key, *value);
        }
        self.controllers.push(program.start());
        index
    }

    /// Starts the node's agent with a token that is bound to a pod on that node, as kubelet would hand it one.
    pub fn start_agent(&mut self, name: &str) {
        let account = format!("{}-agent", self.chassis);
        let (namespace, pod) = (self.namespace.clone(), self.token_pod(name, &account));
        let token = self.agent_token(&namespace, &account, &pod);
        let kubeconfig = self.node(name).folder.join("agent.kubeconfig");
        self.lane.kubeconfig(&kubeconfig, json!({"token": token}));
        let uid = pod["metadata"]["uid"].as_str().expect("a pod has a uid").to_owned();
        let node = self.node_mut(name);
        let path = |p: &PathBuf| p.display().to_string();
        let daemon = Program::new("agent", binaries::ovn_chassis(), &node.folder)
            .args(["agent", "--node-name", name, "--namespace", &namespace])
            .args([
                "--ovs-rundir",
                &path(&node.ovs_rundir),
                "--ovn-rundir",
                &path(&node.ovn_rundir),
                "--run-dir",
                &path(&node.run_dir),
            ])
            .args(["--encap-ip", &node.encap_ip, "--metrics-addr", &format!("127.0.0.1:{}", scratch::free_port())])
            .env("KUBECONFIG", kubeconfig.display().to_string())
            .env("POD_NAME", pod["metadata"]["name"].as_str().unwrap_or_default())
            .env("POD_NAMESPACE", namespace)
            .env("POD_UID", uid)
            .env("NODE_NAME", name)
            .env("HOST_IP", &node.encap_ip)
            .env("RUST_LOG", "info,ovn_chassis=debug")
            .start();
        node.agent = Some(daemon);
    }

    /// A pod on the node for the token to be bound to. It carries none of the DaemonSets' labels: there is no kubelet here that would ever end it.
    fn token_pod(&self, node: &str, account: &str) -> Value {
        until("the agents' ServiceAccount", SOON, || {
            self.kube
                .get(kube_api::SERVICE_ACCOUNT, &self.namespace, account)
                .ok_or("the controller has not created it")
        });
        let spec = json!({"nodeName": node, "serviceAccountName": account, "containers": [{"name": "agent", "image": "none.example/agent"}]});
        self.kube.create(kube_api::POD, &self.namespace, json!({"metadata": {"generateName": "agent-"}, "spec": spec}))
    }

    /// A pod as the DaemonSet `suffix` (`ovs` or `ovn-controller`) would put on the node. It ends when the test says so: deleting it marks it, as with a real kubelet.
    pub fn add_daemon_pod(&self, node: &str, suffix: &str) -> String {
        let name = format!("{}-{suffix}", self.chassis);
        let set = until("the DaemonSet", SOON, || {
            self.kube.get(kube_api::DAEMON_SET, &self.namespace, &name).ok_or("the controller has not created it")
        });
        let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": set["metadata"]["uid"], "controller": true});
        let template = &set["spec"]["template"]["metadata"];
        let metadata = json!({"generateName": format!("{name}-"), "labels": template["labels"], "annotations": template["annotations"], "ownerReferences": [owner]});
        let spec = json!({"nodeName": node, "containers": [{"name": "main", "image": "none.example/pod"}]});
        let pod = self.kube.create(kube_api::POD, &self.namespace, json!({"metadata": metadata, "spec": spec}));
        let name = pod["metadata"]["name"].as_str().expect("a pod has a name").to_owned();
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        self.kube.merge_status(
            kube_api::POD,
            &self.namespace,
            &name,
            json!({"phase": "Running", "conditions": conditions}),
        );
        name
    }

    /// The pod is gone, as kubelet would report it once its containers have ended.
    pub fn end_pod(&self, name: &str) {
        let now = json!({"gracePeriodSeconds": 0});
        let path = kube_api::POD.path(&self.namespace, name);
        self.kube
            .request("DELETE", &path, "application/json", Some(&now))
            .unwrap_or_else(|e| panic!("cannot end pod {name}: {e}"));
    }

    /// Our ownership label of the node, which both DaemonSets select on.
    pub fn owner_label(&self, node: &str) -> Option<String> {
        let object = self.kube.get(NODE, "", node)?;
        object["metadata"]["labels"]["ovn.openstack.c5c3.io/chassis-owner"].as_str().map(str::to_owned)
    }

    pub fn agent_token(&self, namespace: &str, account: &str, pod: &Value) -> String {
        let bound =
            json!({"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]});
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound, "expirationSeconds": 3600}});
        let path = format!("{}/token", kube_api::SERVICE_ACCOUNT.path(namespace, account));
        let answer = self
            .kube
            .request("POST", &path, "application/json", Some(&request))
            .unwrap_or_else(|e| panic!("cannot get a token of {account}: {e}"));
        answer["status"]["token"].as_str().expect("a token").to_owned()
    }
}

/// First eight hex digits of the SHA-256, as the guide computes them with sha256sum.
pub fn hash8(name: &str) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(name.as_bytes()).iter().take(4).map(|b| format!("{b:02x}")).collect()
}

pub fn record_in<'a>(chassis: &'a Value, node: &str) -> Option<&'a Value> {
    chassis["status"]["nodes"].as_array()?.iter().find(|n| n["name"] == node)
}

pub fn job_has(job: &Value, condition: &str) -> bool {
    kube_api::condition(job, condition).is_some_and(|c| c["status"] == "True")
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.explain();
            return;
        }
        self.controllers.clear();
        for node in self.nodes.values_mut() {
            node.agent = None;
        }
    }
}

impl World {
    /// What one wants to see when a test failed.
    fn explain(&self) {
        let show = |kind| {
            for object in self
                .kube
                .try_get(kind, &self.namespace, "")
                .ok()
                .and_then(|l| l["items"].as_array().cloned())
                .unwrap_or_default()
            {
                eprintln!(
                    "--- {} {}: spec {} status {}",
                    kind.kind, object["metadata"]["name"], object["spec"], object["status"]
                );
            }
        };
        show(OVN_CHASSIS);
        show(OVN_CHASSIS_NODE);
        show(JOB);
        for controller in &self.controllers {
            eprintln!("--- log of {}:\n{}", controller.program.name, controller.log_tail(60));
        }
        for node in self.nodes.values() {
            if let Some(agent) = &node.agent {
                eprintln!("--- log of the agent on {}:\n{}", node.name, agent.log_tail(25));
            }
        }
    }
}
