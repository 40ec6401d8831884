//! Where gateway ports sit now, who is registered, and who reaches which physical network: from a followed Southbound.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::ids::SystemId;
use crate::ovsdb::{Replica, Row, ValueError};

use super::chassis::{has_gateway, in_table};
use super::{SouthboundError, tables};

/// What the Southbound says around one chassis.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Whereabouts {
    /// Every registered chassis with the physical networks that it has a bridge for.
    pub networks: BTreeMap<SystemId, BTreeSet<String>>,
    /// Gateway ports on the chassis, by the names that the Northbound has for them.
    pub here: BTreeSet<String>,
    /// Gateway ports on no chassis at all.
    pub nowhere: BTreeSet<String>,
}

/// `cr-lrp0` is the binding of the router port `lrp0`.
fn northbound_name(binding: &str) -> &str {
    binding.strip_prefix("cr-").unwrap_or(binding)
}

/// From `other_config`, where ovn-controller writes it, or from `external_ids`, where older ones did.
fn bridge_mappings(row: &Row) -> Result<BTreeSet<String>, ValueError> {
    const KEY: &str = "ovn-bridge-mappings";
    let text = row.map_entry("other_config", KEY)?.or(row.map_entry("external_ids", KEY)?).unwrap_or_default();
    let networks =
        text.split(',').filter_map(|pair| pair.split_once(':')).map(|(network, _)| network.trim().to_owned());
    Ok(networks.collect())
}

impl Whereabouts {
    pub fn in_replica(replica: &Replica, chassis: &SystemId) -> Result<Self, SouthboundError> {
        let mut found = Self::default();
        let mut own = None;
        for (uuid, row) in replica.table(tables::CHASSIS) {
            let name = SystemId::new(in_table(tables::CHASSIS, row.text("name"))?);
            if name == *chassis {
                own = Some(*uuid);
            }
            found.networks.insert(name, in_table(tables::CHASSIS, bridge_mappings(row))?);
        }
        for row in replica.table(tables::PORT_BINDING).values() {
            if !has_gateway(row)? {
                continue;
            }
            let port = northbound_name(in_table(tables::PORT_BINDING, row.text("logical_port"))?).to_owned();
            match in_table(tables::PORT_BINDING, row.optional_uuid("chassis"))? {
                None => found.nowhere.insert(port),
                holder if holder == own => found.here.insert(port),
                Some(_) => continue,
            };
        }
        Ok(found)
    }
}
