//! Ports with gateway duties around one chassis: who else could take them, and which would be left with nobody.
//!
//! A router port names its candidates itself (`gateway_chassis`) or through a group (`ha_chassis_group`), during a CMS
//! upgrade both; an external switch port through a group only. A group can stand behind any number of ports.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::ids::SystemId;
use crate::ovsdb::{Condition, Datum, Operation, Outcome, Replica, Row, Uuid, ValueError};

use super::evacuation::ChassisRows;
use super::{NorthboundError, tables};

/// A chassis that may carry a port's gateway duties; the highest priority that lives does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    pub priority: i64,
    pub chassis: SystemId,
    /// Its row in `Gateway_Chassis` or `HA_Chassis`.
    pub row: Uuid,
    pub in_group: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortKind {
    Router,
    /// A switch port of type `external`.
    External,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayPort {
    pub uuid: Uuid,
    pub name: String,
    pub kind: PortKind,
    /// Highest priority first.
    pub candidates: Vec<Candidate>,
}

impl GatewayPort {
    /// The candidates other than `chassis`, highest priority first.
    pub fn others<'a>(&'a self, chassis: &'a SystemId) -> impl Iterator<Item = &'a Candidate> {
        self.candidates.iter().filter(move |candidate| candidate.chassis != *chassis)
    }

    /// The rows of its own and those of its group, each list with its own order, highest priority first.
    pub fn lists(&self) -> [Vec<&Candidate>; 2] {
        let of = |in_group: bool| self.candidates.iter().filter(|c| c.in_group == in_group).collect();
        [of(false), of(true)]
    }

    /// The candidates that northd goes by: the group's where there is one, else the port's own.
    pub fn effective(&self) -> Vec<&Candidate> {
        let [own, group] = self.lists();
        if group.is_empty() { own } else { group }
    }
}

/// All ports that have `chassis` among their candidates, or are asked for by name, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayView {
    pub rows: ChassisRows,
    /// The same rows with their priorities.
    pub own: Vec<Candidate>,
    pub ports: Vec<GatewayPort>,
}

impl GatewayView {
    pub fn chassis(&self) -> &SystemId {
        &self.rows.chassis
    }

    /// Ports that will have no gateway at all once this chassis is out.
    pub fn ports_without_other(&self) -> Vec<&GatewayPort> {
        self.ports.iter().filter(|port| port.others(self.chassis()).next().is_none()).collect()
    }

    /// Every other chassis that is a candidate for one of the ports.
    pub fn other_chassis(&self) -> BTreeSet<&SystemId> {
        self.ports.iter().flat_map(|port| port.others(self.chassis())).map(|candidate| &candidate.chassis).collect()
    }

    /// `wait` guards that hold the evacuation to what was seen: every candidate that was to take over is still one. For
    /// `lastGateway: Hold`, where that is what the decision relied on. One guard for each row that stands in for a port.
    pub fn candidate_guards(&self) -> Vec<Operation> {
        let mut stand_ins: BTreeMap<Uuid, &Candidate> = BTreeMap::new();
        for port in &self.ports {
            if let Some(first) = port.others(self.chassis()).next() {
                stand_ins.insert(first.row, first);
            }
        }
        stand_ins
            .into_values()
            .map(|candidate| {
                let table = if candidate.in_group { tables::HA_CHASSIS } else { tables::GATEWAY_CHASSIS };
                let is_row = vec![Condition::equals("_uuid", candidate.row)];
                let rows = vec![Row::new().with("chassis_name", candidate.chassis.as_str())];
                Operation::guard(table, is_row, &["chassis_name"], rows)
            })
            .collect()
    }
}

/// What to ask for a [`GatewayView`]. Only ports and groups that have candidates at all, and of those only what is needed.
pub fn plan_view() -> Vec<Operation> {
    let filled = |column: &str| vec![Condition::differs(column, Datum::empty())];
    let candidate = ["_uuid", "chassis_name", "priority"];
    vec![
        Operation::select(tables::GATEWAY_CHASSIS, vec![], &candidate),
        Operation::select(tables::HA_CHASSIS, vec![], &candidate),
        Operation::select(tables::HA_GROUP, filled("ha_chassis"), &["_uuid", "ha_chassis"]),
        Operation::select(tables::ROUTER_PORT, filled("gateway_chassis"), &["_uuid", "name", "gateway_chassis"]),
        Operation::select(tables::ROUTER_PORT, filled("ha_chassis_group"), &["_uuid", "name", "ha_chassis_group"]),
        Operation::select(tables::SWITCH_PORT, filled("ha_chassis_group"), &["_uuid", "name", "ha_chassis_group"]),
    ]
}

type Candidates = BTreeMap<Uuid, Candidate>;

fn in_table<T>(table: &'static str, parsed: Result<T, ValueError>) -> Result<T, NorthboundError> {
    parsed.map_err(|source| NorthboundError::Row { table, source })
}

fn parse_candidates(table: &'static str, rows: &[Row]) -> Result<Candidates, NorthboundError> {
    let mut candidates = Candidates::new();
    for row in rows {
        let uuid = in_table(table, row.own_uuid())?;
        let candidate = Candidate {
            priority: in_table(table, row.integer("priority"))?,
            chassis: SystemId::new(in_table(table, row.text("chassis_name"))?),
            row: uuid,
            in_group: table == tables::HA_CHASSIS,
        };
        candidates.insert(uuid, candidate);
    }
    Ok(candidates)
}

/// `named`: ports that matter although nothing names the chassis there (any more).
pub fn parse_view(
    chassis: &SystemId,
    named: &BTreeSet<String>,
    outcomes: &[Outcome],
) -> Result<GatewayView, NorthboundError> {
    let [gateway, ha, groups, own_ports, group_ports, external_ports] = outcomes else {
        return Err(NorthboundError::Reply { expected: 6, found: outcomes.len() });
    };
    let gateway = parse_candidates(tables::GATEWAY_CHASSIS, gateway.rows())?;
    let ha = parse_candidates(tables::HA_CHASSIS, ha.rows())?;

    let mut members: BTreeMap<Uuid, Vec<&Candidate>> = BTreeMap::new();
    for group in groups.rows() {
        let uuid = in_table(tables::HA_GROUP, group.own_uuid())?;
        let rows = in_table(tables::HA_GROUP, group.uuids("ha_chassis"))?;
        members.insert(uuid, rows.iter().filter_map(|row| ha.get(row)).collect());
    }

    let mut ports: BTreeMap<Uuid, GatewayPort> = BTreeMap::new();
    let mut add = |row: &Row, table: &'static str, kind: PortKind, found: &[&Candidate]| {
        let uuid = in_table(table, row.own_uuid())?;
        let name = in_table(table, row.text("name"))?.to_owned();
        let port = ports.entry(uuid).or_insert(GatewayPort { uuid, name, kind, candidates: Vec::new() });
        port.candidates.extend(found.iter().map(|candidate| (*candidate).clone()));
        Ok::<(), NorthboundError>(())
    };
    for row in own_ports.rows() {
        let rows = in_table(tables::ROUTER_PORT, row.uuids("gateway_chassis"))?;
        let found: Vec<&Candidate> = rows.iter().filter_map(|row| gateway.get(row)).collect();
        add(row, tables::ROUTER_PORT, PortKind::Router, &found)?;
    }
    for (outcome, table, kind) in [
        (group_ports, tables::ROUTER_PORT, PortKind::Router),
        (external_ports, tables::SWITCH_PORT, PortKind::External),
    ] {
        for row in outcome.rows() {
            let group = in_table(table, row.optional_uuid("ha_chassis_group"))?;
            let found = group.and_then(|group| members.get(&group)).map(Vec::as_slice).unwrap_or_default();
            add(row, table, kind, found)?;
        }
    }

    let mut ports: Vec<GatewayPort> = ports
        .into_values()
        .filter(|port| port.candidates.iter().any(|c| c.chassis == *chassis) || named.contains(&port.name))
        .collect();
    for port in &mut ports {
        // Highest priority first; among equals by name, so that two looks at the same rows give the same view.
        port.candidates.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.chassis.cmp(&b.chassis)));
    }
    ports.sort_by(|a, b| a.name.cmp(&b.name).then(a.uuid.cmp(&b.uuid)));
    let own: Vec<Candidate> =
        gateway.into_values().chain(ha.into_values()).filter(|candidate| candidate.chassis == *chassis).collect();
    let ours = |in_group: bool| own.iter().filter(|c| c.in_group == in_group).map(|c| c.row).collect();
    let rows = ChassisRows { chassis: chassis.clone(), gateway_chassis: ours(false), ha_chassis: ours(true) };
    Ok(GatewayView { rows, own, ports })
}

/// How many rows of a followed Northbound name each chassis: rows that somebody puts back show here at once.
pub fn chassis_named(replica: &Replica) -> Result<BTreeMap<SystemId, usize>, NorthboundError> {
    let mut named = BTreeMap::new();
    for table in [tables::GATEWAY_CHASSIS, tables::HA_CHASSIS] {
        for row in replica.table(table).values() {
            let chassis = SystemId::new(in_table(table, row.text("chassis_name"))?);
            *named.entry(chassis).or_insert(0) += 1;
        }
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuid(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn candidate(number: u128, chassis: &str, priority: i64) -> Row {
        Row::new().with("_uuid", uuid(number)).with("chassis_name", chassis).with("priority", priority)
    }

    fn port(number: u128, name: &str, column: &str, rows: &[u128]) -> Row {
        let rows = Datum::set(rows.iter().map(|row| uuid(*row)));
        let mut port = Row::new().with("_uuid", uuid(number)).with("name", name);
        port.insert(column.to_owned(), rows);
        port
    }

    /// Two own ports, one of them also in a group; a port held by a group; an external port; a foreign port.
    fn outcomes() -> Vec<Outcome> {
        let mut group = Row::new().with("_uuid", uuid(20));
        group.insert("ha_chassis".to_owned(), Datum::set([uuid(11), uuid(12)]));
        let mut lonely = Row::new().with("_uuid", uuid(21));
        lonely.insert("ha_chassis".to_owned(), Datum::set([uuid(13)]));
        vec![
            Outcome::Rows(vec![
                candidate(1, "gw1", 3),
                candidate(2, "gw2", 5),
                candidate(3, "gw1", 1),
                candidate(4, "other", 1),
            ]),
            Outcome::Rows(vec![candidate(11, "gw1", 9), candidate(12, "gw3", 9), candidate(13, "gw1", 1)]),
            Outcome::Rows(vec![group, lonely]),
            Outcome::Rows(vec![
                port(30, "lrp-b", "gateway_chassis", &[1, 2]),
                port(31, "lrp-a", "gateway_chassis", &[3]),
                port(32, "lrp-foreign", "gateway_chassis", &[4]),
            ]),
            Outcome::Rows(vec![
                port(31, "lrp-a", "ha_chassis_group", &[20]),
                port(33, "lrp-c", "ha_chassis_group", &[21]),
            ]),
            Outcome::Rows(vec![port(34, "lsp-ext", "ha_chassis_group", &[20])]),
        ]
    }

    fn view() -> GatewayView {
        parse_view(&"gw1".into(), &BTreeSet::new(), &outcomes()).unwrap()
    }

    #[test]
    fn ports_with_their_candidates_of_both_kinds() {
        let view = view();
        let names: Vec<&str> = view.ports.iter().map(|port| port.name.as_str()).collect();
        assert_eq!(names, ["lrp-a", "lrp-b", "lrp-c", "lsp-ext"]);
        let of = |at: usize| -> Vec<(&str, i64)> {
            view.ports[at].candidates.iter().map(|found| (found.chassis.as_str(), found.priority)).collect()
        };
        assert_eq!(of(0), [("gw1", 9), ("gw3", 9), ("gw1", 1)]);
        assert_eq!(of(1), [("gw2", 5), ("gw1", 3)]);
        assert_eq!(view.ports[3].kind, PortKind::External);
        assert_eq!(view.rows.gateway_chassis, [uuid(1), uuid(3)]);
        assert_eq!(view.rows.ha_chassis, [uuid(11), uuid(13)]);
    }

    #[test]
    fn ports_left_without_any_gateway_are_named() {
        let view = view();
        let left: Vec<&str> = view.ports_without_other().iter().map(|port| port.name.as_str()).collect();
        assert_eq!(left, ["lrp-c"]);
        let others: Vec<&str> = view.other_chassis().iter().map(|chassis| chassis.as_str()).collect();
        assert_eq!(others, ["gw2", "gw3"]);
    }

    #[test]
    fn guards_name_each_stand_in_once() {
        let guards = view().candidate_guards();
        assert_eq!(guards.len(), 2);
        assert!(guards.iter().all(|guard| guard.name() == "wait"));
        let tables: Vec<&str> = guards.iter().map(Operation::table).collect();
        assert_eq!(tables, ["Gateway_Chassis", "HA_Chassis"]);
    }

    #[test]
    fn a_chassis_that_nothing_names_has_an_empty_view() {
        let view = parse_view(&"stranger".into(), &BTreeSet::new(), &outcomes()).unwrap();
        assert!(view.ports.is_empty() && view.rows.is_empty());
    }

    #[test]
    fn a_broken_row_names_table_and_column() {
        let mut broken = outcomes();
        broken[0] = Outcome::Rows(vec![Row::new().with("_uuid", uuid(1)).with("priority", "high")]);
        let message = parse_view(&"gw1".into(), &BTreeSet::new(), &broken).unwrap_err().to_string();
        assert!(message.contains("Gateway_Chassis") && message.contains("priority"), "{message}");
        assert!(parse_view(&"gw1".into(), &BTreeSet::new(), &[]).is_err());
    }
}
