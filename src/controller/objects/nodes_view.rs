//! ConfigMap `{chassis}-nodes`: every node's settings, for people and scripts. Agents do not read it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;

use super::{chassis_ref, metadata};
use crate::api::{BridgeMapping, OVNChassis, OVNChassisNodeSpec};

/// What the API accepts in one ConfigMap. Keys are counted too, so that the limit is met before the API's own.
pub const LIMIT_BYTES: usize = 1024 * 1024;

/// Why the view cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodesViewError {
    #[error(
        "ConfigMap {name} would hold {bytes} bytes for {nodes} nodes and the limit is {limit}: the nodes work without it; \
         spread them over several OVNChassis to have the view back"
    )]
    TooLarge { name: String, nodes: usize, bytes: usize, limit: usize },
}

/// The view of all nodes, or why there is none.
pub fn nodes_config_map<'a>(
    chassis: &OVNChassis,
    nodes: impl IntoIterator<Item = &'a OVNChassisNodeSpec>,
) -> Result<ConfigMap, NodesViewError> {
    let data: BTreeMap<String, String> =
        nodes.into_iter().map(|node| (node.node_name.clone(), node_entry(node))).collect();
    let name = chassis_ref(chassis).nodes_config_map();
    let bytes: usize = data.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > LIMIT_BYTES {
        return Err(NodesViewError::TooLarge { name, nodes: data.len(), bytes, limit: LIMIT_BYTES });
    }
    Ok(ConfigMap {
        metadata: metadata(chassis, name, "nodes"),
        // Present even if empty: an apply then takes the last node's key away, and leaves the map to be read.
        data: Some(data),
        ..ConfigMap::default()
    })
}

/// One node's lines. `LEAVING=true` comes last, and only while the node leaves.
pub fn node_entry(node: &OVNChassisNodeSpec) -> String {
    let mut text = format!(
        "SYSTEM_ID={}\nGATEWAY={}\nBRIDGE_MAPPINGS={}\nENCAP_TYPE={}\n",
        node.system_id.as_deref().unwrap_or_default(),
        node.gateway,
        mappings_text(&node.bridge_mappings),
        node.encap_type.as_str(),
    );
    if node.leaving {
        text.push_str("LEAVING=true\n");
    }
    text
}

/// `physnet:bridge` pairs as `ovn-bridge-mappings` has them.
fn mappings_text(mappings: &[BridgeMapping]) -> String {
    let pairs: Vec<_> = mappings.iter().map(|m| format!("{}:{}", m.physical_network, m.bridge)).collect();
    pairs.join(",")
}

#[cfg(test)]
mod tests {
    use super::super::tests::chassis;
    use super::*;
    use serde_json::json;

    fn node(name: &str) -> OVNChassisNodeSpec {
        let mapping = |network: &str, bridge: &str| BridgeMapping {
            physical_network: network.to_owned(),
            bridge: bridge.to_owned(),
        };
        OVNChassisNodeSpec {
            node_name: name.to_owned(),
            system_id: Some("id-1".to_owned()),
            gateway: true,
            bridge_mappings: vec![mapping("public", "br-ex"), mapping("storage", "br-st")],
            ..OVNChassisNodeSpec::default()
        }
    }

    #[test]
    fn an_entry_has_its_lines_in_order() {
        assert_eq!(
            node_entry(&node("a")),
            "SYSTEM_ID=id-1\nGATEWAY=true\nBRIDGE_MAPPINGS=public:br-ex,storage:br-st\nENCAP_TYPE=geneve\n"
        );
    }

    #[test]
    fn leaving_is_the_last_line_and_absent_otherwise() {
        let leaving = OVNChassisNodeSpec { leaving: true, gateway: false, ..node("a") };
        assert!(node_entry(&leaving).ends_with("\nLEAVING=true\n"));
        assert!(node_entry(&leaving).contains("GATEWAY=false\n"));
        assert!(!node_entry(&node("a")).contains("LEAVING"));
    }

    #[test]
    fn the_map_has_one_key_per_node_and_stays_when_empty() {
        let full = nodes_config_map(&chassis(json!({})), &[node("b"), node("a.example")]).unwrap();
        assert_eq!(full.data.unwrap().into_keys().collect::<Vec<_>>(), ["a.example", "b"]);
        assert_eq!(full.metadata.name.as_deref(), Some("controlplane-chassis-nodes"));
        let empty = nodes_config_map(&chassis(json!({})), &[]).unwrap();
        assert_eq!(empty.data, Some(BTreeMap::new()));
    }

    #[test]
    fn past_the_limit_it_says_so_with_the_figures() {
        let nodes: Vec<_> = (0..11_000).map(|i| node(&format!("node-{i:05}"))).collect();
        let error = nodes_config_map(&chassis(json!({})), &nodes).unwrap_err();
        let NodesViewError::TooLarge { nodes: count, bytes, limit, .. } = &error;
        assert_eq!((*count, *limit), (11_000, 1_048_576));
        assert!(*bytes > *limit);
        assert!(error.to_string().contains("controlplane-chassis-nodes"), "{error}");
        assert!(nodes_config_map(&chassis(json!({})), &nodes[..10_000]).is_ok());
    }
}
