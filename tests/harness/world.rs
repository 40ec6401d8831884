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
pub const SOON: Duration = Duration::from_secs(30);

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
            .args(["--encap-ip", "127.0.0.1", "--metrics-addr", &format!("127.0.0.1:{}", scratch::free_port())])
            .env("KUBECONFIG", kubeconfig.display().to_string())
            .env("POD_NAME", pod["metadata"]["name"].as_str().unwrap_or_default())
            .env("POD_NAMESPACE", namespace)
            .env("POD_UID", uid)
            .env("NODE_NAME", name)
            .env("HOST_IP", "127.0.0.1")
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
        let metadata = json!({"generateName": format!("{name}-"), "labels": set["spec"]["template"]["metadata"]["labels"], "ownerReferences": [owner]});
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

    pub fn chassis_object(&self) -> Value {
        self.kube.get(OVN_CHASSIS, &self.namespace, &self.chassis).unwrap_or(Value::Null)
    }

    pub fn chassis_node(&self, node: &str) -> Option<Value> {
        self.kube.get(OVN_CHASSIS_NODE, &self.namespace, node)
    }

    /// The node's entry in `status.nodes`.
    pub fn record(&self, node: &str) -> Option<Value> {
        record_in(&self.chassis_object(), node).cloned()
    }

    pub fn recorded_system_id(&self, node: &str) -> String {
        self.record(node)
            .and_then(|r| r["systemID"].as_str().map(str::to_owned))
            .unwrap_or_else(|| panic!("no system-id recorded for {node}"))
    }

    /// Waits until the agent reports the settings that the controller wants now.
    pub fn wait_applied(&self, node: &str) {
        until(&format!("{node} to have its settings applied"), SOON, || {
            let object = self.chassis_node(node).ok_or_else(|| "no OVNChassisNode".to_owned())?;
            let record = self.record(node).ok_or_else(|| "no entry in status.nodes".to_owned())?;
            let wanted = &object["spec"]["configHash"];
            let applied = object["status"]["appliedHash"] == *wanted
                && object["status"]["observedGeneration"] == object["metadata"]["generation"];
            if wanted.as_str().is_some_and(|h| !h.is_empty())
                && object["spec"]["systemID"].is_string()
                && applied
                && record["configHash"] == *wanted
            {
                Ok(())
            } else {
                Err(format!("spec {} status {} record {record}", object["spec"], object["status"]))
            }
        });
    }

    pub fn label(&self, node: &str, labels: &[(&str, Option<&str>)]) {
        self.kube.label_node(node, labels);
    }

    pub fn job_name(&self, kind: &str, node: &str) -> String {
        format!("{}-{kind}-{}", self.chassis, hash8(node))
    }

    pub fn job(&self, kind: &str, node: &str) -> Option<Value> {
        self.kube.get(JOB, &self.namespace, &self.job_name(kind, node))
    }

    /// Waits for a condition (`Complete`, `Failed`) of a Job.
    #[track_caller]
    pub fn wait_job(&self, kind: &str, node: &str, condition: &str) -> Value {
        until(&format!("Job {kind} of {node} to be {condition}"), SOON, || {
            let job = self.job(kind, node).ok_or_else(|| format!("no such Job; {}", self.show_record(node)))?;
            if job_has(&job, condition) {
                Ok(job)
            } else {
                Err(format!("{}; {}", job["status"], self.show_record(node)))
            }
        })
    }

    #[track_caller]
    pub fn wait_evacuated(&self, node: &str) {
        until(&format!("{node} to be evacuated"), SOON, || match self.record(node) {
            Some(record) if record["gatewayEvacuated"] == json!(true) => Ok(()),
            _ => Err(self.show_record(node)),
        });
    }

    /// Waits until nothing in the cluster knows the node any more.
    #[track_caller]
    pub fn wait_forgotten(&self, node: &str) {
        until(&format!("{node} to be forgotten"), SOON, || {
            let view = self
                .kube
                .get(kube_api::CONFIG_MAP, &self.namespace, &format!("{}-nodes", self.chassis))
                .unwrap_or(Value::Null);
            if self.record(node).is_none() && self.chassis_node(node).is_none() && view["data"][node].is_null() {
                Ok(())
            } else {
                Err(format!("{}; ConfigMap: {}", self.show_record(node), view["data"][node]))
            }
        });
    }

    pub fn show_record(&self, node: &str) -> String {
        let chassis = self.chassis_object();
        format!(
            "record {}; {}",
            record_in(&chassis, node).unwrap_or(&Value::Null),
            kube_api::show_condition(&chassis, "MaintenanceReady")
        )
    }

    /// Waits for a condition of the OVNChassis by status and reason; an empty reason means any.
    #[track_caller]
    pub fn wait_condition(&self, kind: &str, status: &str, reason: &str) -> Value {
        until(&format!("condition {kind}={status}/{reason}"), SOON, || {
            let chassis = self.chassis_object();
            match kube_api::condition(&chassis, kind) {
                Some(c) if c["status"] == status && (reason.is_empty() || c["reason"] == reason) => Ok(c.clone()),
                _ => Err(kube_api::show_condition(&chassis, kind)),
            }
        })
    }

    /// Events about the OVNChassis with this reason.
    pub fn events(&self, reason: &str) -> Vec<Value> {
        self.kube.list(kube_api::EVENT, &self.namespace, "").into_iter().filter(|e| e["reason"] == reason).collect()
    }

    /// A router with `ports` gateway ports, each with a Gateway_Chassis row per `(chassis, priority)`.
    pub fn seed_gateway_ports(&self, router: &str, ports: usize, gateways: &[(&str, u32)]) {
        let mut call: Vec<String> = ["--", "--may-exist", "lr-add", router].map(String::from).to_vec();
        for port in 0..ports {
            let (name, high, low) = (format!("{router}-p{port}"), port / 250, port % 250);
            call.extend(
                [
                    "--",
                    "lrp-add",
                    router,
                    &name,
                    &format!("02:00:00:00:{high:02x}:{low:02x}"),
                    &format!("10.{high}.{low}.1/24"),
                ]
                .map(String::from),
            );
            for (chassis, priority) in gateways {
                call.extend(["--", "lrp-set-gateway-chassis", &name, chassis, &priority.to_string()].map(String::from));
            }
        }
        self.central.nbctl(&call.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// An HA chassis group with members, and a port of `router` that uses it.
    pub fn seed_ha_group(&self, router: &str, group: &str, members: &[(&str, u32)]) {
        let mut call: Vec<String> = ["--", "ha-chassis-group-add", group].map(String::from).to_vec();
        for (chassis, priority) in members {
            call.extend(
                ["--", "ha-chassis-group-add-chassis", group, chassis, &priority.to_string()].map(String::from),
            );
        }
        self.central.nbctl(&call.iter().map(String::as_str).collect::<Vec<_>>());
        let id = self.central.nbctl(&[
            "--bare",
            "--no-headings",
            "--columns=_uuid",
            "find",
            "ha_chassis_group",
            &format!("name={group}"),
        ]);
        let port = format!("{group}-port");
        self.central.nbctl(&[
            "--may-exist",
            "lr-add",
            router,
            "--",
            "lrp-add",
            router,
            &port,
            "02:00:00:01:00:01",
            "172.16.0.1/24",
            "--",
            "set",
            "logical_router_port",
            &port,
            &format!("ha_chassis_group={}", id.trim()),
        ]);
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
        // The lane is lent to the next test: what selects Nodes or is selected must not stay.
        for kind in [
            OVN_CHASSIS,
            OVN_CHASSIS_NODE,
            JOB,
            kube_api::POD,
            kube_api::DAEMON_SET,
            kube_api::OVN_CENTRAL,
            kube_api::SECRET,
            kube_api::CONFIG_MAP,
        ] {
            for object in self.kube.list(kind, "", "") {
                let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
                let (namespace, name) = (text("namespace"), text("name"));
                if object["metadata"]["finalizers"].is_array() {
                    let _ =
                        self.kube.try_merge(kind, &namespace, &name, "", &json!({"metadata": {"finalizers": null}}));
                }
                let immediately = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
                let _ =
                    self.kube.request("DELETE", &kind.path(&namespace, &name), "application/json", Some(&immediately));
            }
        }
        for node in self.kube.list(NODE, "", "") {
            let _ = self.kube.try_delete(NODE, "", node["metadata"]["name"].as_str().unwrap_or_default());
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
