//! `OVNChassis`: what a user applies.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_false;

/// A set of nodes that run Open vSwitch and ovn-controller as OVN chassis.
///
/// Nodes that carry the labels of `nodeSelector` become chassis; those that also carry the labels of
/// `gateway.nodeSelector` announce themselves as gateway chassis. Taking the labels away drains the node.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "ovn.openstack.c5c3.io",
    version = "v1alpha1",
    kind = "OVNChassis",
    plural = "ovnchassis",
    singular = "ovnchassis",
    shortname = "ovc",
    category = "ovn",
    namespaced,
    doc = "A set of nodes that run Open vSwitch and ovn-controller as OVN chassis.",
    status = "OVNChassisStatus",
    derive = "PartialEq",
    validation = Rule::new("size(self.metadata.name) <= 42")
        .message("metadata.name must have at most 42 characters, because Job names are made of it: use a shorter name"),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".status.desiredNumberScheduled"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.numberReady"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Maintenance", type_ = "string", json_path = ".status.conditions[?(@.type==\"MaintenanceReady\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.centralRef) != has(self.central)")
    .message("set exactly one of spec.centralRef (the name of an OVNCentral) and spec.central (addresses of the databases)"))]
#[x_kube(validation = Rule::new("has(self.centralRef) == has(oldSelf.centralRef) && (!has(self.centralRef) || self.centralRef.name == oldSelf.centralRef.name)")
    .message("spec.centralRef cannot be changed: drain the nodes, delete this OVNChassis and create one with the other reference"))]
pub struct OVNChassisSpec {
    /// The OVNCentral, in the same namespace, whose databases the chassis register with. Cannot be changed later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub central_ref: Option<CentralRef>,

    /// Addresses of the databases, for clusters without an OVNCentral. Takes the place of `centralRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub central: Option<CentralEndpoints>,

    /// Labels of the nodes that become chassis. At least one.
    #[x_kube(validation = Rule::new("size(self) > 0")
        .message("spec.nodeSelector must hold at least one label, for example openstack.c5c3.io/chassis: \"true\""))]
    #[x_kube(validation = Rule::new("size(self) <= 16")
        .message("spec.nodeSelector must hold at most 16 labels: label the nodes with one label of their own instead"))]
    #[x_kube(validation = Rule::new(LABELS)
        .message("spec.nodeSelector must hold labels as nodes carry them: a key like openstack.c5c3.io/chassis, a value of at most 63 letters, digits, '-', '_' and '.'"))]
    #[schemars(schema_with = "label_map")]
    pub node_selector: BTreeMap<String, String>,

    /// Which of the chassis are gateways. Unset: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayRole>,

    /// Image that holds Open vSwitch and OVN. Unset: the image of this software, which holds both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageRef>,

    /// Taints that the pods tolerate, besides those that every DaemonSet tolerates and every `NoExecute` taint (the way off
    /// a node is its label).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.all(t, !has(t.operator) || t.operator in ['', 'Equal', 'Exists'])")
        .message("spec.tolerations[].operator must be Exists or Equal"))]
    #[x_kube(validation = Rule::new("self.all(t, !has(t.operator) || t.operator != 'Exists' || !has(t.value) || t.value == '')")
        .message("spec.tolerations[].value must be left out with operator: Exists, which tolerates every value"))]
    #[x_kube(validation = Rule::new("self.all(t, (has(t.key) && t.key != '') || (has(t.operator) && t.operator == 'Exists'))")
        .message("spec.tolerations[].key is needed with operator Equal; without a key set operator: Exists, which tolerates every taint"))]
    #[x_kube(validation = Rule::new("self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])")
        .message("spec.tolerations[].effect must be NoSchedule, PreferNoSchedule or NoExecute, or left out for all of them"))]
    #[x_kube(validation = Rule::new("self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))")
        .message("spec.tolerations[].tolerationSeconds goes with effect: NoExecute only: remove it or set the effect"))]
    pub tolerations: Vec<Toleration>,

    /// Physical networks and the bridges that reach them (`external_ids:ovn-bridge-mappings`). Missing bridges are created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.all(m, self.exists_one(n, n.physicalNetwork == m.physicalNetwork))")
        .message("spec.bridgeMappings names a physical network twice: give each physicalNetwork one bridge"))]
    #[x_kube(validation = Rule::new("self.all(m, self.exists_one(n, n.bridge == m.bridge))")
        .message("spec.bridgeMappings names a bridge twice: give each physical network a bridge of its own"))]
    pub bridge_mappings: Vec<BridgeMapping>,

    /// Tunnel protocol (`external_ids:ovn-encap-type`).
    #[serde(default)]
    pub encap_type: EncapType,

    /// How pods are replaced when their template changes. Unset: hand-over rolls that lose no packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<UpdateStrategy>,

    /// Milliseconds of silence after which ovn-controller probes the Southbound database
    /// (`external_ids:ovn-remote-probe-interval`); 0 turns probes off. OVN rounds values below 1000 up to it.
    #[serde(default = "default_probe_interval")]
    #[x_kube(validation = Rule::new("self == 0 || (self >= 1000 && self <= 3600000)")
        .message("spec.remoteProbeIntervalMs must be 0 (no probes) or between 1000 and 3600000 milliseconds"))]
    pub remote_probe_interval_ms: i64,

    /// The containers of ovsdb-server and ovs-vswitchd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ovs: Option<DaemonResources>,

    /// The container of ovn-controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<DaemonResources>,

    /// Secret with the client certificate (`tls.crt`, `tls.key`, `ca.crt`) that nodes use for the Southbound database.
    /// Unset: the central's one, which with an OVNCentral opens the Northbound database as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$') && size(self) <= 253")
        .message("spec.nodeClientSecretName must be the name of a Secret in the same namespace (lower case letters, digits, '-' and '.')"))]
    pub node_client_secret_name: Option<String>,

    /// Datapath of the bridges: `system` (kernel) or `netdev` (userspace, rolled by stopping first).
    #[serde(default)]
    pub datapath_type: DatapathType,

    /// What a drain may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainPolicy>,

    /// What deleting this object does: `Orphan` leaves the rows in the databases, `Drain` lets each node leave first.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// One address: the host a name, an IPv4 address or an IPv6 address in brackets, the port 1 to 65535.
macro_rules! address {
    () => {
        concat!(
            r"(ssl|tcp):([A-Za-z0-9.-]+|\\[[0-9A-Fa-f:.]+\\]):",
            "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])",
        )
    };
}
/// A comma-separated list of them, in one pattern: the API server reckons a split as dear as its longest list.
const ADDRESS_LIST: &str = concat!("self.matches('^", address!(), "(,", address!(), ")*$')");
/// Keys and values of a selector are those of labels; others would match no node, without a word.
const LABELS: &str = concat!(
    "self.all(k, k.matches('^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$')",
    " && self[k].matches('^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$'))",
);

fn default_probe_interval() -> i64 {
    60_000
}

/// Names an OVNCentral.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CentralRef {
    /// Name of the OVNCentral in the same namespace.
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$') && size(self) <= 253")
        .message("spec.centralRef.name must be the name of an OVNCentral (lower case letters, digits, '-' and '.')"))]
    pub name: String,
}

/// Addresses of the two databases.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.clientSecretName) || !(self.northbound.contains('ssl:') || self.southbound.contains('ssl:'))")
    .message("spec.central.clientSecretName is needed for ssl: addresses: name a Secret with tls.crt, tls.key and ca.crt"))]
pub struct CentralEndpoints {
    /// Northbound database, comma-separated `ssl:HOST:PORT` or `tcp:HOST:PORT` (ovsdb(7)).
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new(ADDRESS_LIST)
        .message("spec.central.northbound must be a comma-separated list like ssl:192.0.2.1:6641,ssl:[2001:db8::1]:6641"))]
    pub northbound: String,
    /// Southbound database, in the same syntax. Nodes get it as `ovn-remote`.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new(ADDRESS_LIST)
        .message("spec.central.southbound must be a comma-separated list like ssl:192.0.2.1:6642,ssl:[2001:db8::1]:6642"))]
    pub southbound: String,
    /// Secret in the same namespace with `tls.crt`, `tls.key` and `ca.crt`. Needed with `ssl:`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$') && size(self) <= 253")
        .message("spec.central.clientSecretName must be the name of a Secret in the same namespace (lower case letters, digits, '-' and '.')"))]
    pub client_secret_name: Option<String>,
}

/// Which chassis are gateways.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayRole {
    /// Labels that make a chassis a gateway. At least one.
    #[x_kube(validation = Rule::new("size(self) > 0")
        .message("spec.gateway.nodeSelector must hold at least one label, for example openstack.c5c3.io/gateway: \"true\""))]
    #[x_kube(validation = Rule::new("size(self) <= 16")
        .message("spec.gateway.nodeSelector must hold at most 16 labels: label the nodes with one label of their own instead"))]
    #[x_kube(validation = Rule::new(LABELS)
        .message("spec.gateway.nodeSelector must hold labels as nodes carry them: a key like openstack.c5c3.io/gateway, a value of at most 63 letters, digits, '-', '_' and '.'"))]
    #[schemars(schema_with = "label_map")]
    pub node_selector: BTreeMap<String, String>,
}

/// An image by tag or by digest.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("has(self.tag) != has(self.digest)")
    .message("spec.image needs exactly one of tag and digest"))]
pub struct ImageRef {
    /// Registry and path, without tag or digest.
    #[x_kube(validation = Rule::new(r"self.matches('^[A-Za-z0-9][A-Za-z0-9._:/-]*$') && !self.matches(':[^/]*$') && size(self) <= 512")
        .message("spec.image.repository must be a registry and path without a tag: put the tag into spec.image.tag"))]
    pub repository: String,
    /// For example `24.03`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$')")
        .message("spec.image.tag must be an image tag: letters, digits, '_', '.' and '-', at most 128"))]
    pub tag: Option<String>,
    /// `sha256:` and 64 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self.matches('^sha256:[0-9a-f]{64}$')")
        .message("spec.image.digest must be sha256: followed by 64 lower case hexadecimal digits"))]
    pub digest: Option<String>,
}

impl ImageRef {
    /// `repository:tag` or `repository@digest`.
    pub fn reference(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => format!("{}@{digest}", self.repository),
            (None, Some(tag)) => format!("{}:{tag}", self.repository),
            (None, None) => self.repository.clone(),
        }
    }
}

/// A physical network and the bridge that reaches it.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BridgeMapping {
    /// Name of the physical network, as in the Northbound's `network_name`.
    #[schemars(length(max = 256))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$')")
        .message("spec.bridgeMappings[].physicalNetwork must be 1 to 64 letters, digits, '_', '.' and '-', and not start with '.' or '-'"))]
    pub physical_network: String,
    /// Name of the bridge. Linux allows 15 characters; `br-int` is OVN's own.
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$') && self != 'br-int'")
        .message("spec.bridgeMappings[].bridge must be 1 to 15 letters, digits, '_', '.' and '-', not start with '.' or '-', and not be br-int, which is OVN's own"))]
    pub bridge: String,
}

/// Tunnel protocol between chassis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EncapType {
    #[default]
    Geneve,
    Vxlan,
}

impl EncapType {
    pub fn as_str(self) -> &'static str {
        match self {
            EncapType::Geneve => "geneve",
            EncapType::Vxlan => "vxlan",
        }
    }
}

/// Datapath of the bridges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DatapathType {
    #[default]
    System,
    Netdev,
}

impl DatapathType {
    pub fn as_str(self) -> &'static str {
        match self {
            DatapathType::System => "system",
            DatapathType::Netdev => "netdev",
        }
    }
}

/// How pods are replaced.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.maxUnavailable) || self.type == 'RollingUpdate'")
    .message("spec.updateStrategy.maxUnavailable goes with type RollingUpdate only: remove it or set type: RollingUpdate"))]
pub struct UpdateStrategy {
    /// `RollingUpdate` or `OnDelete`.
    #[serde(rename = "type", default)]
    pub type_: UpdateStrategyType,
    /// How many nodes may be without their pods at once: a number or a percentage. Setting it rolls by stopping the old
    /// pod first; unset, the new pod takes over from the old one.
    // The default is for the schema, which would ask for the field otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_string")]
    #[x_kube(validation = Rule::new("type(self) == int ? self > 0 : self.matches('^([1-9][0-9]?|100)%$')")
        .message("spec.updateStrategy.maxUnavailable must be a number above 0 or a percentage from 1% to 100%: with 0 no pod would ever be replaced"))]
    pub max_unavailable: Option<IntOrString>,
}

/// The bounds are there for the cost of the rules; the messages are the rules'.
fn label_map(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object", "maxProperties": 64, "additionalProperties": { "type": "string", "maxLength": 256 }
    })
}

fn int_or_string(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "x-kubernetes-int-or-string": true })
}

/// Kind of roll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategyType {
    #[default]
    RollingUpdate,
    OnDelete,
}

/// Settings of one container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DaemonResources {
    /// Requests and limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
}

/// What a drain may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainPolicy {
    /// When ports would be left without any gateway: `Proceed` names them and goes on, `Hold` stops before anything is taken away.
    #[serde(default)]
    pub last_gateway: LastGateway,
}

/// What happens when the last gateway of a port is drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LastGateway {
    #[default]
    Proceed,
    Hold,
}

/// What deleting an OVNChassis does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    #[default]
    Orphan,
    Drain,
}

/// What was observed and done.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OVNChassisStatus {
    /// `CentralReady`, `NodesReady`, `OVSReady`, `ControllerReady`, `MaintenanceReady` and `Ready`, which sums them up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Generation of the specification that the conditions speak of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Image that every ready pod runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed_image: Option<String>,
    /// Nodes that should run the daemons.
    #[serde(default)]
    pub desired_number_scheduled: i32,
    /// Nodes whose daemons run and whose settings are applied.
    #[serde(default)]
    pub number_ready: i32,
    /// One entry for each node, sorted by name; gone once the node is forgotten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub nodes: Vec<NodeRecord>,
    /// Nodes that left in the last hours, so that a registration that comes back is noticed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub departed: Vec<DepartedNode>,
}

/// What is recorded of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// Name of the Node.
    pub name: String,
    /// The id under which the node registers in the Southbound database.
    #[serde(rename = "systemID", default, skip_serializing_if = "Option::is_none")]
    pub system_id: Option<String>,
    /// The node holds gateway duties: what it last applied, held at true until an evacuation is confirmed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub gateway: bool,
    /// Hash of the settings that the node last applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_hash: Option<String>,
    /// The databases confirmed that no gateway duty is left on the node.
    #[serde(default, skip_serializing_if = "is_false")]
    pub gateway_evacuated: bool,
    /// The node lost its chassis label, or is gone, and is being deregistered.
    #[serde(default, skip_serializing_if = "is_false")]
    pub leaving: bool,
    /// Where the node is on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<NodePhase>,
    /// Why it is there, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same for people, with what to do if something is to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Gateway ports whose binding is still on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_bindings: Option<i32>,
    /// When the phase last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// Where a node is on its way through the roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodePhase {
    /// Waits for its agent's first report.
    Pending,
    /// Settings were changed and the agent has not applied them yet.
    Applying,
    /// Settings are applied.
    Active,
    /// Gateway duties are being moved away.
    Evacuating,
    /// Something outside has to change before the drain goes on.
    Held,
    /// Gateway duties are confirmed gone.
    Evacuated,
    /// The node leaves and its pods are ending.
    Stopping,
    /// The node's rows are being deleted from the Southbound database.
    Deregistering,
    /// A Job failed; the message says why and what to do.
    Failed,
}

impl NodePhase {
    pub fn as_str(self) -> &'static str {
        match self {
            NodePhase::Pending => "Pending",
            NodePhase::Applying => "Applying",
            NodePhase::Active => "Active",
            NodePhase::Evacuating => "Evacuating",
            NodePhase::Held => "Held",
            NodePhase::Evacuated => "Evacuated",
            NodePhase::Stopping => "Stopping",
            NodePhase::Deregistering => "Deregistering",
            NodePhase::Failed => "Failed",
        }
    }
}

/// A node that was deregistered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DepartedNode {
    /// Name the Node had.
    pub name: String,
    /// The id whose rows were deleted.
    #[serde(rename = "systemID")]
    pub system_id: String,
    /// When they were deleted.
    pub time: Time,
    /// How often the registration came back since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<i32>,
}
