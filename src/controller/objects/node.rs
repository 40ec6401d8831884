//! What one node is to be.

use serde::Serialize;

use super::{chassis_ref, metadata};
use crate::api::{BridgeMapping, DatapathType, EncapType, Handover, OVNChassis, OVNChassisNode, OVNChassisNodeSpec};
use crate::model::hash::sha256_hex;
use crate::model::ids::{ConfigHash, NodeName, SystemId};

/// What the controller found out or decided about one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInputs {
    pub node: NodeName,
    /// None until it is known whether the node brings one along.
    pub system_id: Option<SystemId>,
    pub gateway: bool,
    pub evacuate: bool,
    pub leaving: bool,
    /// None while the central is not ready.
    pub ovn_remote: Option<String>,
    /// Pods that may take over.
    pub grants: Vec<String>,
}

/// Everything that the agent applies, in the order in which it is hashed.
#[derive(Serialize)]
struct Applied<'a> {
    system_id: Option<&'a str>,
    gateway: bool,
    bridge_mappings: &'a [BridgeMapping],
    encap_type: EncapType,
    ovn_remote: Option<&'a str>,
    remote_probe_interval_ms: i64,
    datapath_type: DatapathType,
}

/// The specification of a node's OVNChassisNode.
///
/// Mappings are sorted: their order means nothing to OVN, and must not look like a change.
pub fn node_spec(chassis: &OVNChassis, inputs: &NodeInputs) -> OVNChassisNodeSpec {
    let mut bridge_mappings = chassis.spec.bridge_mappings.clone();
    bridge_mappings.sort();
    let mut spec = OVNChassisNodeSpec {
        chassis_name: chassis_ref(chassis).name,
        node_name: inputs.node.to_string(),
        system_id: inputs.system_id.as_ref().map(SystemId::to_string),
        gateway: inputs.gateway,
        evacuate: inputs.evacuate,
        leaving: inputs.leaving,
        bridge_mappings,
        encap_type: chassis.spec.encap_type,
        ovn_remote: inputs.ovn_remote.clone(),
        remote_probe_interval_ms: chassis.spec.remote_probe_interval_ms,
        datapath_type: chassis.spec.datapath_type,
        config_hash: String::new(),
        handover: (!inputs.grants.is_empty()).then(|| Handover { grants: inputs.grants.clone() }),
    };
    spec.config_hash = config_hash(&spec).to_string();
    spec
}

/// Sixteen hexadecimal digits over the settings that the agent applies. What only the controller cares about
/// (leaving, evacuate, grants) is left out: it must not make a node apply anything again.
pub fn config_hash(spec: &OVNChassisNodeSpec) -> ConfigHash {
    let applied = Applied {
        system_id: spec.system_id.as_deref(),
        gateway: spec.gateway,
        bridge_mappings: &spec.bridge_mappings,
        encap_type: spec.encap_type,
        ovn_remote: spec.ovn_remote.as_deref(),
        remote_probe_interval_ms: spec.remote_probe_interval_ms,
        datapath_type: spec.datapath_type,
    };
    // Strings, numbers, booleans and lists of them: JSON can hold them all, so this cannot fail.
    let text = serde_json::to_string(&applied).unwrap_or_default();
    ConfigHash::new(sha256_hex(&text, 16))
}

/// The object around [`node_spec`].
pub fn chassis_node(chassis: &OVNChassis, inputs: &NodeInputs) -> OVNChassisNode {
    OVNChassisNode {
        metadata: metadata(chassis, inputs.node.to_string(), "node"),
        spec: node_spec(chassis, inputs),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::chassis;
    use super::*;
    use serde_json::json;

    fn inputs() -> NodeInputs {
        NodeInputs {
            node: NodeName::from("node-a"),
            system_id: Some(SystemId::new("id-a")),
            gateway: true,
            evacuate: false,
            leaving: false,
            ovn_remote: Some("ssl:192.0.2.1:6642".to_owned()),
            grants: vec![],
        }
    }

    fn hash(spec: serde_json::Value, inputs: &NodeInputs) -> String {
        node_spec(&chassis(spec), inputs).config_hash
    }

    #[test]
    fn the_hash_has_sixteen_digits_and_is_stable() {
        let first = hash(json!({}), &inputs());
        assert_eq!(first.len(), 16);
        // Pinned: a change of it makes every node of every cluster apply its settings again on an upgrade.
        assert_eq!(first, "dcf18f07be9ef2b7");
    }

    #[test]
    fn every_applied_setting_changes_the_hash() {
        let base = hash(json!({}), &inputs());
        let others = [
            hash(json!({}), &NodeInputs { system_id: None, ..inputs() }),
            hash(json!({}), &NodeInputs { gateway: false, ..inputs() }),
            hash(json!({}), &NodeInputs { ovn_remote: None, ..inputs() }),
            hash(json!({"encapType": "vxlan"}), &inputs()),
            hash(json!({"remoteProbeIntervalMs": 0}), &inputs()),
            hash(json!({"datapathType": "netdev"}), &inputs()),
            hash(json!({"bridgeMappings": [{"physicalNetwork": "a", "bridge": "br-a"}]}), &inputs()),
        ];
        let mut all: Vec<_> = others.into_iter().chain([base]).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn what_the_agent_does_not_apply_leaves_the_hash_alone() {
        let base = hash(json!({}), &inputs());
        for same in [
            NodeInputs { leaving: true, ..inputs() },
            NodeInputs { evacuate: true, ..inputs() },
            NodeInputs { grants: vec!["uid".to_owned()], ..inputs() },
        ] {
            assert_eq!(hash(json!({}), &same), base);
        }
        assert_eq!(hash(json!({"tolerations": [{"operator": "Exists"}]}), &inputs()), base);
    }

    #[test]
    fn the_order_of_mappings_is_no_change() {
        let a = json!({"physicalNetwork": "a", "bridge": "br-a"});
        let b = json!({"physicalNetwork": "b", "bridge": "br-b"});
        let one = node_spec(&chassis(json!({"bridgeMappings": [a, b]})), &inputs());
        let other = node_spec(&chassis(json!({"bridgeMappings": [b, a]})), &inputs());
        assert_eq!(one, other);
    }

    #[test]
    fn the_object_is_named_after_the_node_and_lives_with_its_chassis() {
        let object = chassis_node(&chassis(json!({})), &inputs());
        assert_eq!(object.metadata.name.as_deref(), Some("node-a"));
        assert_eq!(object.metadata.namespace.as_deref(), Some("openstack"));
        assert_eq!(object.spec.chassis_name, "controlplane-chassis");
        assert_eq!(object.spec.handover, None);
    }
}
