//! What the controller creates, as pure functions of an [`OVNChassis`] and a few facts: nothing here reads or writes.
//!
//! | module | objects |
//! | --- | --- |
//! | [`daemon_sets`] | `{chassis}-ovs`, `{chassis}-ovn-controller` |
//! | [`pod`] | what the pods of both have in common |
//! | [`node`] | `OVNChassisNode` and its `configHash` |
//! | [`nodes_view`] | ConfigMap `{chassis}-nodes` |
//! | [`jobs`] | `{chassis}-{apply,evacuate,chassis-del}-{hash}` and the pod that prints why one failed |
//! | [`access`] | ServiceAccount and RoleBinding of the agents |

pub mod access;
pub mod daemon_sets;
pub mod jobs;
pub mod node;
pub mod nodes_view;
pub mod pod;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};

use crate::api::OVNChassis;
use crate::model::names::{
    APP_NAME, COMPONENT_LABEL, ChassisRef, INSTANCE_LABEL, MANAGED_BY, MANAGED_BY_LABEL, NAME_LABEL,
};

/// What rendering needs to know besides the OVNChassis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenderContext {
    /// Our own image: brings the binary along, prints causes of failure, and holds the daemons where `spec.image` is unset.
    pub image: String,
    /// Secret with the nodes' client certificate; none where the Southbound database is reached by `tcp:`.
    pub node_client_secret: Option<String>,
    /// Seconds that a Job may work.
    pub job_deadline_seconds: i64,
    /// Roll by stopping the old pods first although the specification asks for nothing of the kind: the daemons on the
    /// nodes hold no locks (another operator's), so no successor could wait for them.
    pub stop_first: bool,
    /// Where agents reach the API server, if not at the address that the kubelet puts into every container: nodes
    /// without kube-proxy, or with one that itself waits for the datapath.
    pub api_server: Option<ApiServer>,
}

/// Address of an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServer {
    pub host: String,
    pub port: u16,
}

/// Where an OVNChassis lives. One read from an API server always has a name and a namespace.
pub fn chassis_ref(chassis: &OVNChassis) -> ChassisRef {
    ChassisRef::new(chassis.namespace().unwrap_or_default(), chassis.name_any())
}

/// Labels of everything that belongs to an OVNChassis.
pub fn labels(chassis: &OVNChassis, component: &str) -> BTreeMap<String, String> {
    let mut labels = selector_labels(chassis, component);
    labels.insert(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned());
    labels
}

/// The part of [`labels`] that a DaemonSet selects on. A selector cannot be changed, so it holds what never will.
pub fn selector_labels(chassis: &OVNChassis, component: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (NAME_LABEL.to_owned(), APP_NAME.to_owned()),
        (INSTANCE_LABEL.to_owned(), chassis.name_any()),
        (COMPONENT_LABEL.to_owned(), component.to_owned()),
    ])
}

/// Name, namespace, labels and owner: deleting the OVNChassis takes the object along.
pub fn metadata(chassis: &OVNChassis, name: String, component: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: chassis.namespace(),
        labels: Some(labels(chassis, component)),
        owner_references: Some(owner_references(chassis)),
        ..ObjectMeta::default()
    }
}

fn owner_references(chassis: &OVNChassis) -> Vec<OwnerReference> {
    chassis.controller_owner_ref(&()).into_iter().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The OVNChassis of most tests, as an API server would hand it out.
    pub fn chassis(spec: serde_json::Value) -> OVNChassis {
        let mut whole = serde_json::json!({
            "centralRef": {"name": "controlplane-ovn"},
            "nodeSelector": {"openstack.c5c3.io/chassis": "true"},
        });
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        serde_json::from_value(serde_json::json!({
            "apiVersion": "ovn.openstack.c5c3.io/v1alpha1",
            "kind": "OVNChassis",
            "metadata": {"name": "controlplane-chassis", "namespace": "openstack", "uid": "0c1d"},
            "spec": whole,
        }))
        .unwrap()
    }

    pub fn context() -> RenderContext {
        RenderContext {
            image: "registry.example/ovn-chassis:1".to_owned(),
            node_client_secret: Some("ovn-client".to_owned()),
            job_deadline_seconds: 300,
            stop_first: false,
            api_server: None,
        }
    }

    #[test]
    fn objects_name_their_owner_as_controller() {
        let meta = metadata(&chassis(serde_json::json!({})), "x".to_owned(), "ovs");
        let owners = meta.owner_references.unwrap();
        assert_eq!(owners.len(), 1);
        assert_eq!((owners[0].kind.as_str(), owners[0].uid.as_str()), ("OVNChassis", "0c1d"));
        assert_eq!(owners[0].controller, Some(true));
    }

    #[test]
    fn instance_is_the_name_of_the_chassis() {
        let labels = labels(&chassis(serde_json::json!({})), "ovs");
        assert_eq!(labels["app.kubernetes.io/instance"], "controlplane-chassis");
        assert_eq!(labels["app.kubernetes.io/name"], "ovn-chassis");
        assert_eq!(labels["app.kubernetes.io/component"], "ovs");
        assert_eq!(labels["app.kubernetes.io/managed-by"], "ovn-chassis-controller");
    }
}
