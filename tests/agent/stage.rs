//! One node with its agent, and what the controller would have made for it.
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::central::Shape;
use crate::harness::kube_api::{self, Kind, OVN_CHASSIS_NODE};
use crate::harness::until;
use crate::harness::world::{SOON, World};

const ROLE_BINDING: Kind =
    Kind { api_version: "rbac.authorization.k8s.io/v1", kind: "RoleBinding", plural: "rolebindings", namespaced: true };

pub const NODE: &str = "node-a";

pub struct Stage {
    pub world: World,
}

impl Stage {
    /// The node's database runs and is empty; no agent, no OVNChassisNode.
    pub fn new(test: &str) -> Self {
        let mut world = World::new(test, Shape::default().without_northd());
        let account = format!("{}-agent", world.chassis);
        let namespace = world.namespace.clone();
        world.kube.create(kube_api::SERVICE_ACCOUNT, &namespace, json!({"metadata": {"name": account}}));
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ovn-chassis-agent"});
        let subjects = json!([{"kind": "ServiceAccount", "name": account, "namespace": namespace}]);
        let binding = json!({"metadata": {"name": account}, "roleRef": role, "subjects": subjects});
        world.kube.create(ROLE_BINDING, &namespace, binding);
        world.add_node(NODE, true, false);
        Self { world }
    }

    /// The usual start: settings there, agent running, applied.
    pub fn applied(test: &str) -> Self {
        let mut stage = Self::new(test);
        stage.specify(json!({"systemID": "id-a"}));
        stage.world.start_agent(NODE);
        stage.wait_applied();
        stage
    }

    /// Creates or changes the OVNChassisNode; the hash is made from what is given.
    pub fn specify(&self, changes: Value) {
        let kube = &self.world.kube;
        let mut spec = json!({
            "chassisName": self.world.chassis,
            "nodeName": NODE,
            "ovnRemote": self.world.central.southbound.addresses(),
            "remoteProbeIntervalMs": 60000,
        });
        if let Some(object) = kube.get(OVN_CHASSIS_NODE, &self.world.namespace, NODE) {
            spec = object["spec"].clone();
        }
        for (key, value) in changes.as_object().unwrap() {
            spec[key] = value.clone();
        }
        spec["configHash"] = json!("");
        let text = spec.to_string();
        spec["configHash"] = json!(ovn_chassis::model::hash::sha256_hex(&text, 16));
        if kube.get(OVN_CHASSIS_NODE, &self.world.namespace, NODE).is_some() {
            kube.merge(OVN_CHASSIS_NODE, &self.world.namespace, NODE, json!({"spec": spec}));
        } else {
            let object = json!({"metadata": {"name": NODE}, "spec": spec});
            kube.create(OVN_CHASSIS_NODE, &self.world.namespace, object);
        }
    }

    pub fn object(&self) -> Value {
        self.world.kube.get(OVN_CHASSIS_NODE, &self.world.namespace, NODE).unwrap_or(Value::Null)
    }

    pub fn condition(&self, kind: &str) -> String {
        kube_api::show_condition(&self.object(), kind)
    }

    #[track_caller]
    pub fn wait_condition(&self, kind: &str, begins: &str) -> String {
        until(&format!("{kind} to begin with {begins}"), SOON, || {
            let shown = self.condition(kind);
            if shown.starts_with(&format!("{kind}={begins}")) { Ok(shown) } else { Err(shown) }
        })
    }

    /// The agent reports what is wanted now.
    #[track_caller]
    pub fn wait_applied(&self) {
        until("the settings to be applied", SOON, || {
            let object = self.object();
            let done = object["status"]["appliedHash"] == object["spec"]["configHash"]
                && object["status"]["observedGeneration"] == object["metadata"]["generation"];
            if done { Ok(()) } else { Err(format!("{} {}", object["spec"], object["status"])) }
        });
    }

    pub fn external_ids(&self) -> serde_json::Map<String, Value> {
        let text = self.world.node(NODE).vsctl(&["-f", "json", "--columns=external_ids", "list", "open_vswitch"]);
        let table: Value = serde_json::from_str(text.trim()).unwrap();
        let pairs = table["data"][0][0][1].as_array().cloned().unwrap_or_default();
        pairs.into_iter().map(|pair| (pair[0].as_str().unwrap().to_owned(), pair[1].clone())).collect()
    }

    pub fn set(&self, pairs: &[&str]) {
        let pairs = pairs.iter().map(|pair| format!("external_ids:{pair}")).collect::<Vec<_>>();
        let words: Vec<&str> =
            ["set", "open_vswitch", "."].into_iter().chain(pairs.iter().map(String::as_str)).collect();
        self.world.node(NODE).vsctl(&words);
    }

    /// Nothing is written to the object while nothing happens.
    pub fn assert_quiet(&self, during: Duration) {
        let before = self.object()["metadata"]["resourceVersion"].clone();
        std::thread::sleep(during);
        assert_eq!(self.object()["metadata"]["resourceVersion"], before, "{}", self.object()["status"]);
    }
}
