//! What is wanted against what the database holds: the smallest change, and the keys that would make it vain.

use super::cms_options::{has_gateway, with_gateway};
use super::wanted::Wanted;
use crate::agent::observe::LocalDatabase;
use crate::api::DatapathType;
use crate::ovs::vsctl::{DatabaseChange, NewBridge};

const CMS_OPTIONS: &str = "ovn-cms-options";

/// What has to be written so that the database holds what is wanted. Empty when it does.
pub fn plan_change(wanted: &Wanted, database: &LocalDatabase) -> DatabaseChange {
    let mut change = DatabaseChange::default();
    for (key, value) in &wanted.keys {
        let found = database.external_ids.get(*key);
        match value {
            Some(value) if found != Some(value) => {
                change.set.insert((*key).to_owned(), value.clone());
            }
            None if found.is_some() => {
                change.remove.insert((*key).to_owned());
            }
            _ => {}
        }
    }
    let options = database.external_ids.get(CMS_OPTIONS);
    let wanted_options = with_gateway(options.map(String::as_str), wanted.gateway);
    match (options, wanted_options) {
        (None, Some(fresh)) => {
            // Never over somebody's options that appear at this very moment.
            change.add.insert(CMS_OPTIONS.to_owned(), fresh);
        }
        (Some(old), new) if new.as_ref() != Some(old) => {
            change.expect.insert(CMS_OPTIONS.to_owned(), old.clone());
            match new {
                Some(new) => {
                    change.set.insert(CMS_OPTIONS.to_owned(), new);
                }
                None => {
                    change.remove.insert(CMS_OPTIONS.to_owned());
                }
            }
        }
        _ => {}
    }
    let datapath_type = (wanted.datapath != DatapathType::System).then(|| wanted.datapath.as_str().to_owned());
    for name in wanted.bridges.iter().filter(|name| !database.bridges.contains_key(*name)) {
        change.bridges.push(NewBridge { name: name.clone(), datapath_type: datapath_type.clone() });
    }
    change
}

/// Keys `<key>-<system-id>` that `ovn-controller` prefers to ours and that say something else. They are other
/// people's: named, never touched.
pub fn find_overrides(wanted: &Wanted, database: &LocalDatabase) -> Vec<String> {
    let of = |key: &str| {
        let name = format!("{key}-{}", wanted.system_id);
        database.external_ids.get(&name).map(|value| (name, value))
    };
    let mut found: Vec<String> = Vec::new();
    // The id itself cannot be overridden this way: it is part of the name.
    for (key, value) in wanted.keys.iter().filter(|(key, _)| **key != "system-id") {
        if let Some((name, other)) = of(key)
            && Some(other) != value.as_ref()
        {
            found.push(format!("{name}={other}"));
        }
    }
    if let Some((name, other)) = of(CMS_OPTIONS)
        && has_gateway(other) != wanted.gateway
    {
        found.push(format!("{name}={other}"));
    }
    found
}

/// Bridges that exist with another datapath than the one wanted. Changing it would tear the bridge down, so a person
/// has to.
pub fn find_wrong_datapaths(wanted: &Wanted, database: &LocalDatabase) -> Vec<String> {
    if wanted.datapath == DatapathType::System {
        // A bridge that somebody made for a userspace datapath is their choice.
        return Vec::new();
    }
    let expected = wanted.datapath.as_str();
    let differing = wanted.bridges.iter().filter_map(|name| {
        let found = database.bridges.get(name)?;
        (found != expected).then(|| format!("{name} has datapath_type {found:?}, expected {expected:?}"))
    });
    differing.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::decide::wanted::read_spec;
    use crate::api::{BridgeMapping, OVNChassisNodeSpec};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn spec() -> OVNChassisNodeSpec {
        OVNChassisNodeSpec {
            node_name: "node-a".into(),
            system_id: Some("id-a".into()),
            ovn_remote: Some("ssl:192.0.2.1:6642".into()),
            remote_probe_interval_ms: 60_000,
            bridge_mappings: vec![BridgeMapping { physical_network: "ext".into(), bridge: "br-ex".into() }],
            gateway: true,
            ..Default::default()
        }
    }

    fn wanted(spec: &OVNChassisNodeSpec) -> Wanted {
        read_spec(spec, "192.0.2.9").unwrap().unwrap()
    }

    /// The database after the change, by the rules of `ovs-vsctl`.
    fn after(change: &DatabaseChange, mut database: LocalDatabase) -> LocalDatabase {
        for (key, value) in &change.expect {
            assert_eq!(database.external_ids.get(key), Some(value));
        }
        for (key, value) in &change.set {
            database.external_ids.insert(key.clone(), value.clone());
        }
        for (key, value) in &change.add {
            database.external_ids.entry(key.clone()).or_insert_with(|| value.clone());
        }
        for key in &change.remove {
            database.external_ids.remove(key);
        }
        for bridge in &change.bridges {
            database
                .bridges
                .entry(bridge.name.clone())
                .or_insert_with(|| bridge.datapath_type.clone().unwrap_or_default());
        }
        database
    }

    fn applied() -> LocalDatabase {
        let wanted = wanted(&spec());
        after(&plan_change(&wanted, &LocalDatabase::default()), LocalDatabase::default())
    }

    #[test]
    fn an_empty_database_gets_everything_in_one_change_and_then_nothing_more() {
        let wanted = wanted(&spec());
        let change = plan_change(&wanted, &LocalDatabase::default());
        assert_eq!(change.set.len(), 7);
        assert_eq!(change.add, BTreeMap::from([("ovn-cms-options".to_owned(), "enable-chassis-as-gw".to_owned())]));
        assert_eq!(change.bridges, [NewBridge { name: "br-ex".into(), datapath_type: None }]);
        assert!(plan_change(&wanted, &applied()).is_empty());
    }

    #[test]
    fn case_27_one_mapping_changed_is_one_key_written() {
        let mut spec = spec();
        spec.bridge_mappings[0].physical_network = "other".into();
        let change = plan_change(&wanted(&spec), &applied());
        assert_eq!(
            change,
            DatabaseChange {
                set: [("ovn-bridge-mappings".to_owned(), "other:br-ex".to_owned())].into(),
                ..Default::default()
            }
        );
    }

    #[test]
    fn case_26_gateway_off_keeps_the_other_tokens_and_guards_what_it_read() {
        let mut database = applied();
        database.external_ids.insert("ovn-cms-options".into(), "b=2,enable-chassis-as-gw,a=1".into());
        let change = plan_change(&wanted(&OVNChassisNodeSpec { gateway: false, ..spec() }), &database);
        assert_eq!(
            change,
            DatabaseChange {
                expect: [("ovn-cms-options".to_owned(), "b=2,enable-chassis-as-gw,a=1".to_owned())].into(),
                set: [("ovn-cms-options".to_owned(), "b=2,a=1".to_owned())].into(),
                ..Default::default()
            }
        );
    }

    #[test]
    fn the_last_mapping_gone_takes_the_key_away_and_leaves_the_bridge() {
        let change = plan_change(&wanted(&OVNChassisNodeSpec { bridge_mappings: vec![], ..spec() }), &applied());
        assert_eq!(change, DatabaseChange { remove: ["ovn-bridge-mappings".to_owned()].into(), ..Default::default() });
    }

    #[test]
    fn case_12_a_new_id_on_the_node_is_replaced_by_the_recorded_one() {
        let mut database = applied();
        database.external_ids.insert("system-id".into(), "fresh".into());
        let change = plan_change(&wanted(&spec()), &database);
        assert_eq!(change.names(), ["system-id"]);
    }

    #[test]
    fn overrides_that_say_something_else_are_found_and_never_written() {
        let mut database = applied();
        let mut with = |key: &str, value: &str| database.external_ids.insert(key.into(), value.into());
        with("ovn-remote-id-a", "tcp:198.51.100.1:6642");
        with("ovn-encap-type-id-a", "geneve");
        with("ovn-cms-options-id-a", "x,enable-chassis-as-gw");
        with("ovn-remote-id-b", "tcp:198.51.100.2:6642");
        with("ovn-monitor-all-id-a", "true");
        let wanted_now = wanted(&spec());
        assert_eq!(find_overrides(&wanted_now, &database), ["ovn-remote-id-a=tcp:198.51.100.1:6642"]);
        assert!(plan_change(&wanted_now, &database).is_empty());
        let off = wanted(&OVNChassisNodeSpec { gateway: false, ..spec() });
        assert_eq!(find_overrides(&off, &database)[1..], ["ovn-cms-options-id-a=x,enable-chassis-as-gw"]);
    }

    #[test]
    fn an_override_where_the_key_should_be_absent_counts() {
        let mut database = applied();
        database.external_ids.insert("ovn-bridge-mappings-id-a".into(), "x:br-x".into());
        let wanted = wanted(&OVNChassisNodeSpec { bridge_mappings: vec![], ..spec() });
        assert_eq!(find_overrides(&wanted, &database), ["ovn-bridge-mappings-id-a=x:br-x"]);
    }

    #[test]
    fn a_bridge_with_another_datapath_is_named_and_left() {
        let netdev = OVNChassisNodeSpec { datapath_type: DatapathType::Netdev, ..spec() };
        let mut database = applied();
        database.bridges.insert("br-int".into(), "netdev".into());
        let wanted_netdev = wanted(&netdev);
        assert_eq!(
            find_wrong_datapaths(&wanted_netdev, &database),
            ["br-ex has datapath_type \"\", expected \"netdev\""]
        );
        assert!(plan_change(&wanted_netdev, &database).bridges.is_empty());
        assert!(find_wrong_datapaths(&wanted(&spec()), &database).is_empty());
    }

    proptest! {
        /// Row 14: whatever others keep in the database, in any state of ours, is there after an apply, to the byte.
        #[test]
        fn row_14_others_keys_and_bridges_survive_every_apply(
            others in prop::collection::btree_map("[a-z]{1,6}-[a-z-]{1,12}", ".{0,20}", 0..8),
            tokens in prop::collection::vec("[a-z=:0-9 -]{1,10}", 0..4),
            stale in prop::collection::btree_map(prop::sample::select(vec!["system-id", "ovn-remote", "ovn-encap-ip", "hostname"]), "[a-z.]{0,10}", 0..4),
            gateway: bool,
        ) {
            let ours = ["system-id", "hostname", "ovn-remote", "ovn-remote-probe-interval", "ovn-encap-type", "ovn-encap-ip", "ovn-bridge-mappings", "ovn-cms-options"];
            prop_assume!(others.keys().all(|key| !ours.contains(&key.as_str())));
            prop_assume!(tokens.iter().all(|token| token.trim() != "enable-chassis-as-gw"));
            let mut database = LocalDatabase { external_ids: others.clone(), ..Default::default() };
            database.bridges.insert("br-theirs".into(), "netdev".into());
            database.external_ids.extend(stale.into_iter().map(|(key, value)| (key.to_owned(), value)));
            if !tokens.is_empty() {
                database.external_ids.insert("ovn-cms-options".into(), tokens.join(","));
            }
            let wanted = wanted(&OVNChassisNodeSpec { gateway, ..spec() });
            let end = after(&plan_change(&wanted, &database), database.clone());
            for (key, value) in &others {
                prop_assert_eq!(end.external_ids.get(key), Some(value));
            }
            let rest: Vec<&str> = end.external_ids.get("ovn-cms-options").into_iter().flat_map(|text| text.split(',')).filter(|token| *token != "enable-chassis-as-gw").collect();
            prop_assert_eq!(rest, tokens.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert!(end.bridges.contains_key("br-theirs"));
            prop_assert!(plan_change(&wanted, &end).is_empty());
        }
    }
}
