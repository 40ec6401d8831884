//! From a specification to the values that the local database should hold, or to what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::api::{DatapathType, OVNChassisNodeSpec};
use crate::model::ids::SystemId;
use crate::ovsdb::Endpoints;
use crate::ovsdb::endpoint::{Endpoint, Host};

/// A setting that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: found {found:?}, expected {expected}")]
pub struct InvalidSetting {
    pub field: &'static str,
    pub found: String,
    pub expected: String,
}

/// OVN's own bridge.
pub const INTEGRATION_BRIDGE: &str = "br-int";
const LONGEST_BRIDGE_NAME: usize = 15;
const LONGEST_NETWORK_NAME: usize = 64;

/// What the database of a node should hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub system_id: SystemId,
    /// Keys of `external_ids` that are ours, whole; `None` means that the key should be absent.
    pub keys: BTreeMap<&'static str, Option<String>>,
    pub gateway: bool,
    /// Bridges that have to be there, with the datapath they are made with.
    pub bridges: BTreeSet<String>,
    pub datapath: DatapathType,
}

/// Reads a specification. `Ok(None)` means that the node has no id yet: nothing may be applied.
pub fn read_spec(spec: &OVNChassisNodeSpec, encap_ip: &str) -> Result<Option<Wanted>, InvalidSetting> {
    let Some(system_id) = &spec.system_id else { return Ok(None) };
    let system_id = SystemId::parse(system_id).map_err(|error| InvalidSetting {
        field: "spec.systemID",
        found: error.found,
        expected: error.expected.to_owned(),
    })?;
    let mut keys = BTreeMap::from([
        ("system-id", Some(system_id.to_string())),
        ("hostname", Some(spec.node_name.clone())),
        ("ovn-encap-type", Some(spec.encap_type.as_str().to_owned())),
        ("ovn-encap-ip", Some(check_encap_ip(encap_ip)?)),
        ("ovn-remote-probe-interval", Some(check_interval(spec.remote_probe_interval_ms)?)),
        ("ovn-bridge-mappings", check_mappings(spec)?),
    ]);
    // Without an address the central is not ready: what the database holds stays, and the node goes on with it.
    if let Some(remote) = &spec.ovn_remote {
        keys.insert("ovn-remote", Some(check_remote(remote)?));
    }
    let mut bridges: BTreeSet<String> = spec.bridge_mappings.iter().map(|mapping| mapping.bridge.clone()).collect();
    if spec.datapath_type == DatapathType::Netdev {
        // ovn-controller would make it with the kernel's datapath.
        bridges.insert(INTEGRATION_BRIDGE.to_owned());
    }
    Ok(Some(Wanted { system_id, keys, gateway: spec.gateway, bridges, datapath: spec.datapath_type }))
}

fn check_encap_ip(text: &str) -> Result<String, InvalidSetting> {
    let expected = "one IPv4 or IPv6 address of this node (--encap-ip, or HOST_IP from status.hostIP)";
    let invalid = || InvalidSetting { field: "encap-ip", found: text.to_owned(), expected: expected.to_owned() };
    let address: IpAddr = text.parse().map_err(|_| invalid())?;
    if address.is_unspecified() || address.is_multicast() { Err(invalid()) } else { Ok(address.to_string()) }
}

fn check_interval(milliseconds: i64) -> Result<String, InvalidSetting> {
    if (0..=i64::from(i32::MAX)).contains(&milliseconds) {
        return Ok(milliseconds.to_string());
    }
    Err(InvalidSetting {
        field: "spec.remoteProbeIntervalMs",
        found: milliseconds.to_string(),
        expected: "0 (no probes) to 2147483647".to_owned(),
    })
}

/// A DNS name passes as it is: `ovn-controller` looks it up at each connection, if its build can, and [`dns_names`]
/// says so when it does not connect.
fn check_remote(remote: &str) -> Result<String, InvalidSetting> {
    let parsed: Result<Endpoints, _> = remote.parse();
    match parsed {
        Ok(_) => Ok(remote.to_owned()),
        Err(error) => Err(InvalidSetting {
            field: "spec.ovnRemote",
            found: remote.to_owned(),
            expected: format!("ssl:IP:PORT[,…] ({error})"),
        }),
    }
}

/// The DNS names in a list of addresses.
pub fn dns_names(remote: &str) -> Vec<String> {
    let Ok(endpoints) = remote.parse::<Endpoints>() else { return Vec::new() };
    let names = endpoints.iter().filter_map(|endpoint| match endpoint {
        Endpoint::Tcp { host: Host::Name(name), .. } | Endpoint::Ssl { host: Host::Name(name), .. } => {
            Some(name.clone())
        }
        _ => None,
    });
    names.collect()
}

fn check_mappings(spec: &OVNChassisNodeSpec) -> Result<Option<String>, InvalidSetting> {
    let plain = |text: &str, longest: usize| {
        (1..=longest).contains(&text.len())
            && !text.starts_with('-')
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
    };
    let mut networks = BTreeSet::new();
    for mapping in &spec.bridge_mappings {
        if !plain(&mapping.physical_network, LONGEST_NETWORK_NAME) {
            return Err(InvalidSetting {
                field: "spec.bridgeMappings[].physicalNetwork",
                found: mapping.physical_network.clone(),
                expected: "1 to 64 letters, digits, '_', '.' and '-', not beginning with '-'".to_owned(),
            });
        }
        if !plain(&mapping.bridge, LONGEST_BRIDGE_NAME) || mapping.bridge == INTEGRATION_BRIDGE {
            return Err(InvalidSetting {
                field: "spec.bridgeMappings[].bridge",
                found: mapping.bridge.clone(),
                expected: "1 to 15 letters, digits, '_', '.' and '-', not beginning with '-', and not br-int"
                    .to_owned(),
            });
        }
        if !networks.insert(&mapping.physical_network) {
            return Err(InvalidSetting {
                field: "spec.bridgeMappings[].physicalNetwork",
                found: mapping.physical_network.clone(),
                expected: "each physical network once".to_owned(),
            });
        }
    }
    let pairs: Vec<String> =
        spec.bridge_mappings.iter().map(|mapping| format!("{}:{}", mapping.physical_network, mapping.bridge)).collect();
    Ok((!pairs.is_empty()).then(|| pairs.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::BridgeMapping;
    use rstest::rstest;

    fn spec() -> OVNChassisNodeSpec {
        OVNChassisNodeSpec {
            node_name: "node-a".into(),
            system_id: Some("id-a".into()),
            ovn_remote: Some("ssl:192.0.2.1:6642".into()),
            remote_probe_interval_ms: 60_000,
            ..Default::default()
        }
    }

    fn mapping(network: &str, bridge: &str) -> BridgeMapping {
        BridgeMapping { physical_network: network.into(), bridge: bridge.into() }
    }

    #[test]
    fn without_an_id_nothing_is_wanted() {
        assert_eq!(read_spec(&OVNChassisNodeSpec { system_id: None, ..spec() }, "192.0.2.9"), Ok(None));
    }

    #[test]
    fn exactly_our_keys_are_wanted() {
        let spec =
            OVNChassisNodeSpec { bridge_mappings: vec![mapping("ext", "br-ex"), mapping("vlan", "br-vlan")], ..spec() };
        let wanted = read_spec(&spec, "192.0.2.9").unwrap().unwrap();
        let pairs: Vec<(&str, &str)> =
            wanted.keys.iter().map(|(key, value)| (*key, value.as_deref().unwrap())).collect();
        assert_eq!(
            pairs,
            [
                ("hostname", "node-a"),
                ("ovn-bridge-mappings", "ext:br-ex,vlan:br-vlan"),
                ("ovn-encap-ip", "192.0.2.9"),
                ("ovn-encap-type", "geneve"),
                ("ovn-remote", "ssl:192.0.2.1:6642"),
                ("ovn-remote-probe-interval", "60000"),
                ("system-id", "id-a"),
            ]
        );
        assert_eq!(wanted.bridges.into_iter().collect::<Vec<_>>(), ["br-ex", "br-vlan"]);
    }

    #[test]
    fn without_mappings_the_key_should_be_absent_and_without_a_central_the_remote_is_left_alone() {
        let wanted = read_spec(&OVNChassisNodeSpec { ovn_remote: None, ..spec() }, "192.0.2.9").unwrap().unwrap();
        assert_eq!(wanted.keys.get("ovn-bridge-mappings"), Some(&None));
        assert_eq!(wanted.keys.get("ovn-remote"), None);
    }

    #[test]
    fn a_userspace_datapath_brings_br_int_along() {
        let spec = OVNChassisNodeSpec { datapath_type: DatapathType::Netdev, ..spec() };
        assert!(read_spec(&spec, "192.0.2.9").unwrap().unwrap().bridges.contains("br-int"));
    }

    #[rstest]
    #[case::empty("", "ovnRemote")]
    #[case::no_scheme("192.0.2.1:6642", "ssl:IP:PORT")]
    #[case::passive("pssl:6642", "ssl:IP:PORT")]
    #[case::mistyped("ssl:192.0.2.1:66420", "ssl:IP:PORT")]
    fn a_remote_that_cannot_work_is_refused_with_the_reason(#[case] remote: &str, #[case] says: &str) {
        let error =
            read_spec(&OVNChassisNodeSpec { ovn_remote: Some(remote.into()), ..spec() }, "192.0.2.9").unwrap_err();
        assert_eq!((error.field, error.found.as_str()), ("spec.ovnRemote", remote));
        assert!(error.to_string().contains(says), "{error}");
    }

    #[rstest]
    #[case::ipv6("[2001:db8::1]:6642")]
    #[case::case_29_a_dns_name("sb.example.org:6642,ssl:192.0.2.1:6642")]
    #[case::three("192.0.2.1:6642,ssl:192.0.2.2:6642,ssl:192.0.2.3:6642")]
    fn addresses_pass_as_they_are(#[case] remote: &str) {
        let remote = format!("ssl:{remote}");
        let wanted = read_spec(&OVNChassisNodeSpec { ovn_remote: Some(remote.clone()), ..spec() }, "192.0.2.9")
            .unwrap()
            .unwrap();
        assert_eq!(wanted.keys.get("ovn-remote"), Some(&Some(remote)));
    }

    #[test]
    fn case_29_names_are_told_from_addresses() {
        assert_eq!(dns_names("ssl:sb.example.org:6642,tcp:192.0.2.1:6642,ssl:[2001:db8::1]:6642"), ["sb.example.org"]);
        assert!(dns_names("nonsense").is_empty());
    }

    #[rstest]
    #[case::missing("")]
    #[case::two("192.0.2.1,192.0.2.2")]
    #[case::any("0.0.0.0")]
    #[case::name("node-a")]
    fn an_encap_address_that_is_none_is_refused(#[case] address: &str) {
        let error = read_spec(&spec(), address).unwrap_err();
        assert_eq!((error.field, error.found.as_str()), ("encap-ip", address));
    }

    #[rstest]
    #[case::br_int(vec![mapping("a", "br-int")], "bridge")]
    #[case::an_option(vec![mapping("a", "--all")], "bridge")]
    #[case::too_long(vec![mapping("a", "a234567890123456")], "bridge")]
    #[case::colon(vec![mapping("a:b", "br-a")], "physicalNetwork")]
    #[case::twice(vec![mapping("a", "br-a"), mapping("a", "br-b")], "physicalNetwork")]
    fn mappings_that_break_the_list_are_refused(#[case] mappings: Vec<BridgeMapping>, #[case] field: &str) {
        let error = read_spec(&OVNChassisNodeSpec { bridge_mappings: mappings, ..spec() }, "192.0.2.9").unwrap_err();
        assert_eq!(error.field, format!("spec.bridgeMappings[].{field}"));
    }

    #[test]
    fn bad_ids_and_intervals_are_refused() {
        let error =
            read_spec(&OVNChassisNodeSpec { system_id: Some("a b".into()), ..spec() }, "192.0.2.9").unwrap_err();
        assert_eq!(error.field, "spec.systemID");
        let error = read_spec(&OVNChassisNodeSpec { remote_probe_interval_ms: -1, ..spec() }, "192.0.2.9").unwrap_err();
        assert_eq!(error.to_string(), "spec.remoteProbeIntervalMs: found \"-1\", expected 0 (no probes) to 2147483647");
    }
}
