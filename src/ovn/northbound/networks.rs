//! Over which physical network a gateway port reaches the outside: the `localnet` port of the switch that it stands on or
//! leads to. A chassis without a bridge for that network is no gateway for the port, whatever its priority.

use std::collections::{BTreeMap, BTreeSet};

use crate::ovsdb::{Condition, Operation, Outcome, Uuid};

use super::view::{GatewayPort, PortKind};
use super::{NorthboundError, tables};

pub fn plan_localnets() -> Vec<Operation> {
    let is_localnet = vec![Condition::equals("type", "localnet")];
    vec![Operation::select(tables::SWITCH_PORT, is_localnet, &["_uuid", "options"])]
}

/// Each `localnet` port with its physical network.
pub fn parse_localnets(outcomes: &[Outcome]) -> Result<BTreeMap<Uuid, String>, NorthboundError> {
    let [found] = outcomes else {
        return Err(NorthboundError::Reply { expected: 1, found: outcomes.len() });
    };
    let in_table = |source| NorthboundError::Row { table: tables::SWITCH_PORT, source };
    let mut localnets = BTreeMap::new();
    for row in found.rows() {
        if let Some(network) = row.map_entry("options", "network_name").map_err(in_table)? {
            localnets.insert(row.own_uuid().map_err(in_table)?, network.to_owned());
        }
    }
    Ok(localnets)
}

/// The switches on which they stand, one question each (a cloud has a few), and every switch port that leads to a router.
pub fn plan_networks(localnets: &BTreeMap<Uuid, String>) -> Vec<Operation> {
    let is_router = vec![Condition::equals("type", "router")];
    let switch = |port: &Uuid| Operation::select(tables::SWITCH, vec![Condition::includes("ports", *port)], &["ports"]);
    let mut plan = vec![Operation::select(tables::SWITCH_PORT, is_router, &["_uuid", "options"])];
    plan.extend(localnets.keys().map(switch));
    plan
}

pub fn parse_networks(
    localnets: &BTreeMap<Uuid, String>,
    ports: &[GatewayPort],
    outcomes: &[Outcome],
) -> Result<BTreeMap<String, String>, NorthboundError> {
    let Some((peers, switches)) = outcomes.split_first().filter(|(_, rest)| rest.len() == localnets.len()) else {
        return Err(NorthboundError::Reply { expected: localnets.len() + 1, found: outcomes.len() });
    };
    let mut network_of: BTreeMap<Uuid, &String> = BTreeMap::new();
    for (network, outcome) in localnets.values().zip(switches) {
        for switch in outcome.rows() {
            let members =
                switch.uuids("ports").map_err(|source| NorthboundError::Row { table: tables::SWITCH, source })?;
            network_of.extend(members.into_iter().map(|port| (port, network)));
        }
    }
    let in_table = |source| NorthboundError::Row { table: tables::SWITCH_PORT, source };
    let router_ports: BTreeSet<&str> =
        ports.iter().filter(|port| port.kind == PortKind::Router).map(|port| port.name.as_str()).collect();
    let mut networks = BTreeMap::new();
    for peer in peers.rows() {
        let Some(name) = row_peer(peer).map_err(in_table)?.filter(|name| router_ports.contains(name)) else { continue };
        if let Some(network) = network_of.get(&peer.own_uuid().map_err(in_table)?) {
            networks.insert(name.to_owned(), (*network).clone());
        }
    }
    for port in ports.iter().filter(|port| port.kind == PortKind::External) {
        if let Some(network) = network_of.get(&port.uuid) {
            networks.insert(port.name.clone(), (*network).clone());
        }
    }
    Ok(networks)
}

fn row_peer(row: &crate::ovsdb::Row) -> Result<Option<&str>, crate::ovsdb::ValueError> {
    row.map_entry("options", "router-port")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ovsdb::{Datum, Row};

    fn uuid(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn switch_port(number: u128, key: &str, value: &str) -> Row {
        Row::new().with("_uuid", uuid(number)).with("options", Datum::map([(key, value)]))
    }

    fn port(number: u128, name: &str, kind: PortKind) -> GatewayPort {
        GatewayPort { uuid: uuid(number), name: name.into(), kind, candidates: vec![] }
    }

    #[test]
    fn field21_a_port_has_the_network_of_the_switch_that_it_leads_to_or_stands_on() {
        let found = [Outcome::Rows(vec![switch_port(1, "network_name", "physnet1"), switch_port(2, "other", "x")])];
        let localnets = parse_localnets(&found).unwrap();
        assert_eq!(localnets.len(), 1);
        assert_eq!(plan_networks(&localnets).len(), 2);
        let switch = Row::new().with("ports", Datum::set([uuid(1), uuid(3), uuid(5)]));
        let outcomes = [
            Outcome::Rows(vec![switch_port(3, "router-port", "lrp-a"), switch_port(4, "router-port", "lrp-b")]),
            Outcome::Rows(vec![switch]),
        ];
        let ports = [
            port(10, "lrp-a", PortKind::Router),
            port(11, "lrp-b", PortKind::Router),
            port(5, "ext", PortKind::External),
        ];
        let networks = parse_networks(&localnets, &ports, &outcomes).unwrap();
        let expected = [("ext", "physnet1"), ("lrp-a", "physnet1")];
        assert_eq!(networks, expected.map(|(port, network)| (port.to_owned(), network.to_owned())).into());
        assert!(parse_networks(&localnets, &ports, &[]).is_err());
    }
}
