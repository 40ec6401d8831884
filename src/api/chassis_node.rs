//! `OVNChassisNode`: the only channel between the controller and one node's agent.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::chassis::{BridgeMapping, DatapathType, EncapType, NodePhase};
use super::is_false;

/// What one node is to be, and what it is.
///
/// The controller writes `spec` and `status.drain`; the node's agent writes the rest of `status`. Nobody else writes.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "ovn.openstack.c5c3.io",
    version = "v1alpha1",
    kind = "OVNChassisNode",
    plural = "ovnchassisnodes",
    singular = "ovnchassisnode",
    shortname = "ocn",
    category = "ovn",
    namespaced,
    doc = "What one chassis node is to be, and what it is. Written by the controller and the node's agent; not for editing.",
    status = "OVNChassisNodeStatus",
    derive = "PartialEq",
    derive = "Default",
    validation = Rule::new("self.metadata.name == self.spec.nodeName")
        .message("metadata.name must equal spec.nodeName"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.drain.phase"),
    printcolumn(name = "Gateway", type_ = "boolean", json_path = ".spec.gateway"),
    printcolumn(name = "Bindings", type_ = "integer", json_path = ".status.drain.remainingBindings"),
    printcolumn(name = "Applied", type_ = "string", json_path = ".status.conditions[?(@.type==\"Applied\")].status"),
    printcolumn(name = "OVS", type_ = "string", json_path = ".status.conditions[?(@.type==\"OVSReady\")].status"),
    printcolumn(name = "Controller", type_ = "string", json_path = ".status.conditions[?(@.type==\"ControllerReady\")].status"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.drain.message", priority = "1"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct OVNChassisNodeSpec {
    /// Name of the OVNChassis, in the same namespace, that owns the node.
    pub chassis_name: String,
    /// Name of the Node.
    pub node_name: String,
    /// The id under which the node registers. Unset until it is known: a node may bring one along.
    #[serde(rename = "systemID", default, skip_serializing_if = "Option::is_none")]
    pub system_id: Option<String>,
    /// Announce `enable-chassis-as-gw`.
    #[serde(default)]
    pub gateway: bool,
    /// The gateway role was taken away and its duties are to be evacuated; the result stands in the OVNChassis' status.
    #[serde(default, skip_serializing_if = "is_false")]
    pub evacuate: bool,
    /// The node is on its way out.
    #[serde(default, skip_serializing_if = "is_false")]
    pub leaving: bool,
    /// Physical networks and their bridges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub bridge_mappings: Vec<BridgeMapping>,
    /// Tunnel protocol.
    #[serde(default)]
    pub encap_type: EncapType,
    /// Where ovn-controller finds the Southbound database. Unset while the central is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ovn_remote: Option<String>,
    /// Milliseconds of silence after which ovn-controller probes the Southbound database.
    #[serde(default)]
    pub remote_probe_interval_ms: i64,
    /// Datapath of the bridges.
    #[serde(default)]
    pub datapath_type: DatapathType,
    /// Hash over everything above that the agent applies.
    #[serde(default)]
    pub config_hash: String,
    /// Which standby pods may take over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
}

/// Leave for standby pods to take over from the active ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Handover {
    /// UIDs of the pods that may turn Ready and take over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub grants: Vec<String>,
}

/// What the node is.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OVNChassisNodeStatus {
    /// Hash of the settings that the agent applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_hash: Option<String>,
    /// Generation of the specification that `appliedHash` belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What the node's own database says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedSettings>,
    /// `Applied`, `OVSReady` and `ControllerReady`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Versions of the daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<NodeVersions>,
    /// UID of the pod whose agent says all this. Once another pod has taken over, it is about one that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_by: Option<String>,
    /// Where the node is on its way; written by the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainReport>,
}

/// `Open_vSwitch.external_ids` as far as they matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedSettings {
    /// `system-id`; unset when the database holds none.
    #[serde(rename = "systemID", default, skip_serializing_if = "Option::is_none")]
    pub system_id: Option<String>,
    /// `enable-chassis-as-gw` is among `ovn-cms-options`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub gateway: bool,
    /// `hostname`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// `ovn-remote`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ovn_remote: Option<String>,
    /// `ovn-encap-type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encap_type: Option<String>,
    /// `ovn-encap-ip`.
    #[serde(rename = "encapIP", default, skip_serializing_if = "Option::is_none")]
    pub encap_ip: Option<String>,
    /// `ovn-bridge-mappings`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge_mappings: Option<String>,
    /// `ovn-cms-options`, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cms_options: Option<String>,
}

/// Versions of what runs on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeVersions {
    /// Of Open vSwitch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ovs: Option<String>,
    /// Of OVN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ovn: Option<String>,
    /// Of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Where the node is on its way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainReport {
    /// The phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<NodePhase>,
    /// Why, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Gateway ports whose binding is still on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_bindings: Option<i32>,
    /// Ports left without any gateway, at most 64 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// When the phase last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}
