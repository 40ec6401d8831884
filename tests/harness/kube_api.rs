//! The Kubernetes API as JSON: tests read what is really there, not what our own types make of it.
use std::path::Path;
use std::time::Duration;

use axum::http::Request;
use serde_json::{Value, json};

/// Where objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub api_version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
}

const fn kind(api_version: &'static str, kind: &'static str, plural: &'static str, namespaced: bool) -> Kind {
    Kind { api_version, kind, plural, namespaced }
}

pub const NAMESPACE: Kind = kind("v1", "Namespace", "namespaces", false);
pub const NODE: Kind = kind("v1", "Node", "nodes", false);
pub const POD: Kind = kind("v1", "Pod", "pods", true);
pub const SECRET: Kind = kind("v1", "Secret", "secrets", true);
pub const CONFIG_MAP: Kind = kind("v1", "ConfigMap", "configmaps", true);
pub const EVENT: Kind = kind("v1", "Event", "events", true);
pub const SERVICE_ACCOUNT: Kind = kind("v1", "ServiceAccount", "serviceaccounts", true);
pub const JOB: Kind = kind("batch/v1", "Job", "jobs", true);
pub const DAEMON_SET: Kind = kind("apps/v1", "DaemonSet", "daemonsets", true);
pub const LEASE: Kind = kind("coordination.k8s.io/v1", "Lease", "leases", true);
pub const CRD: Kind = kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", false);
pub const OVN_CHASSIS: Kind = kind("ovn.openstack.c5c3.io/v1alpha1", "OVNChassis", "ovnchassis", true);
pub const OVN_CHASSIS_NODE: Kind = kind("ovn.openstack.c5c3.io/v1alpha1", "OVNChassisNode", "ovnchassisnodes", true);
pub const OVN_CENTRAL: Kind = kind("ovn.openstack.c5c3.io/v1alpha1", "OVNCentral", "ovncentrals", true);

impl Kind {
    pub fn path(&self, namespace: &str, name: &str) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        let namespace =
            if self.namespaced && !namespace.is_empty() { format!("/namespaces/{namespace}") } else { String::new() };
        let name = if name.is_empty() { String::new() } else { format!("/{name}") };
        format!("/{root}/{}{namespace}/{}{name}", self.api_version, self.plural)
    }
}

/// A refusal of the API server.
#[derive(Clone, Debug)]
pub struct Refused {
    pub code: u16,
    pub message: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

/// One user's way to the API server.
#[derive(Clone)]
pub struct KubeApi {
    pub client: kube::Client,
}

impl KubeApi {
    pub fn from_kubeconfig(path: &Path) -> Self {
        super::runtime().block_on(async {
            let file = kube::config::Kubeconfig::read_from(path).expect("a kubeconfig");
            let mut config =
                kube::Config::from_custom_kubeconfig(file, &Default::default()).await.expect("a usable kubeconfig");
            config.connect_timeout = Some(Duration::from_secs(5));
            Self { client: kube::Client::try_from(config).expect("a client") }
        })
    }

    /// One request; the answer's JSON or the API server's refusal.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Value, Refused> {
        let bytes = body.map(|b| serde_json::to_vec(b).expect("JSON")).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .body(bytes)
            .expect("a request");
        let answer = super::runtime().block_on(async {
            tokio::time::timeout(Duration::from_secs(30), self.client.request::<Value>(request)).await
        });
        match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(kube::Error::Api(status))) => Err(Refused { code: status.code, message: status.message.clone() }),
            Ok(Err(other)) => Err(Refused { code: 0, message: format!("{method} {path}: {other}") }),
            Err(_) => Err(Refused { code: 0, message: format!("{method} {path}: no answer in 30 s") }),
        }
    }

    pub fn try_get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Value, Refused> {
        self.request("GET", &kind.path(namespace, name), "application/json", None)
    }

    /// The object, or nothing when it does not exist.
    #[track_caller]
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Value> {
        match self.try_get(kind, namespace, name) {
            Ok(value) => Some(value),
            Err(refused) if refused.code == 404 => None,
            Err(refused) => panic!("cannot read {} {namespace}/{name}: {refused}", kind.kind),
        }
    }

    #[track_caller]
    pub fn list(&self, kind: Kind, namespace: &str, label_selector: &str) -> Vec<Value> {
        let selector = label_selector.replace('=', "%3D").replace('/', "%2F").replace(',', "%2C");
        let path = format!("{}?labelSelector={selector}", kind.path(namespace, ""));
        let mut list = self
            .request("GET", &path, "application/json", None)
            .unwrap_or_else(|e| panic!("cannot list {}: {e}", kind.plural));
        match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        }
    }

    pub fn try_create(&self, kind: Kind, namespace: &str, mut object: Value) -> Result<Value, Refused> {
        object["apiVersion"] = json!(kind.api_version);
        object["kind"] = json!(kind.kind);
        self.request("POST", &kind.path(namespace, ""), "application/json", Some(&object))
    }

    #[track_caller]
    pub fn create(&self, kind: Kind, namespace: &str, object: Value) -> Value {
        self.try_create(kind, namespace, object).unwrap_or_else(|e| panic!("cannot create {}: {e}", kind.kind))
    }

    pub fn try_merge(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        subresource: &str,
        patch: &Value,
    ) -> Result<Value, Refused> {
        let mut path = kind.path(namespace, name);
        if !subresource.is_empty() {
            path = format!("{path}/{subresource}");
        }
        self.request("PATCH", &path, "application/merge-patch+json", Some(patch))
    }

    #[track_caller]
    pub fn merge(&self, kind: Kind, namespace: &str, name: &str, patch: Value) -> Value {
        self.try_merge(kind, namespace, name, "", &patch)
            .unwrap_or_else(|e| panic!("cannot patch {} {namespace}/{name}: {e}", kind.kind))
    }

    #[track_caller]
    pub fn merge_status(&self, kind: Kind, namespace: &str, name: &str, status: Value) -> Value {
        let patch = json!({ "status": status });
        self.try_merge(kind, namespace, name, "status", &patch)
            .unwrap_or_else(|e| panic!("cannot patch the status of {} {namespace}/{name}: {e}", kind.kind))
    }

    pub fn try_delete(&self, kind: Kind, namespace: &str, name: &str) -> Result<Value, Refused> {
        self.request(
            "DELETE",
            &kind.path(namespace, name),
            "application/json",
            Some(&json!({"propagationPolicy": "Background"})),
        )
    }

    /// Deletes the object; its absence is fine.
    #[track_caller]
    pub fn delete(&self, kind: Kind, namespace: &str, name: &str) {
        if let Err(refused) = self.try_delete(kind, namespace, name)
            && refused.code != 404
        {
            panic!("cannot delete {} {namespace}/{name}: {refused}", kind.kind);
        }
    }

    /// Sets (`Some`) and removes (`None`) labels of a Node in one write, like one `kubectl label`.
    #[track_caller]
    pub fn label_node(&self, node: &str, labels: &[(&str, Option<&str>)]) {
        let map: serde_json::Map<String, Value> =
            labels.iter().map(|(k, v)| ((*k).to_string(), v.map_or(Value::Null, |v| json!(v)))).collect();
        self.merge(NODE, "", node, json!({"metadata": {"labels": map}}));
    }
}

/// The condition of a type in an object's status.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

/// `type=status/reason: message`, or that it is missing.
pub fn show_condition(object: &Value, kind: &str) -> String {
    condition(object, kind).map_or_else(
        || format!("no condition {kind}"),
        |c| {
            format!(
                "{kind}={}/{}: {}",
                c["status"].as_str().unwrap_or("?"),
                c["reason"].as_str().unwrap_or("?"),
                c["message"].as_str().unwrap_or("?")
            )
        },
    )
}
