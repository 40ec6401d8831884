//! Taking a chassis out of every port and group that names it, in one transaction.
//!
//! The transaction removes the references from ports and groups, deletes the rows by the chassis' id, and ends by reading
//! back that none is left. What protects it from a second writer:
//! - a row that somebody adds after we looked is deleted by the id but still referenced, so the commit is refused
//!   ("referential integrity violation") and nothing is done: look again, try again;
//! - a row that somebody removes after we looked is simply not there any more;
//! - rows of other chassis match neither the references nor the id.
//!
//! The references go by one `mutate` over all ports that have any: the server touches, and tells its monitors of, only
//! the rows that change. Deleting by id, not by a list of rows, keeps the request at half its size.
//!
//! Which ports lost their last row is asked inside the transaction, where it can be told for the price of their names: the
//! ports that had none before get a mark first, those without rows and without the mark afterwards are the ones, and the
//! mark is taken off again. At commit a marked row is what it was, so nothing of it is written or seen by anybody.

use std::collections::BTreeSet;

use crate::model::ids::SystemId;
use crate::ovsdb::{Condition, Datum, Function, Mutation, Operation, Outcome, Replica, Uuid};

use super::{NorthboundError, tables};

/// Exists only between two operations of one transaction.
const MARK: (&str, &str) = ("ovn-chassis-had-no-gateway", "true");

/// The rows that name one chassis, by their UUIDs: all that an evacuation needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChassisRows {
    pub chassis: SystemId,
    pub gateway_chassis: Vec<Uuid>,
    pub ha_chassis: Vec<Uuid>,
}

/// What an evacuation did. Empty: there was nothing to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evacuated {
    pub gateway_chassis: u64,
    pub ha_chassis: u64,
    /// Names of the ports that have no gateway at all now and had this chassis before, sorted.
    pub left_without: Vec<String>,
}

impl Evacuated {
    pub fn rows(&self) -> u64 {
        self.gateway_chassis + self.ha_chassis
    }
}

fn names(chassis: &SystemId) -> Vec<Condition> {
    vec![Condition::equals("chassis_name", chassis.as_str())]
}

/// What to ask for [`ChassisRows`].
pub fn plan_rows(chassis: &SystemId) -> Vec<Operation> {
    vec![
        Operation::select(tables::GATEWAY_CHASSIS, names(chassis), &["_uuid"]),
        Operation::select(tables::HA_CHASSIS, names(chassis), &["_uuid"]),
    ]
}

fn own_uuids(table: &'static str, outcome: &Outcome) -> Result<Vec<Uuid>, NorthboundError> {
    let in_table = |source| NorthboundError::Row { table, source };
    outcome.rows().iter().map(|row| row.own_uuid().map_err(in_table)).collect()
}

pub fn parse_rows(chassis: &SystemId, outcomes: &[Outcome]) -> Result<ChassisRows, NorthboundError> {
    let [gateway_chassis, ha_chassis] = outcomes else {
        return Err(NorthboundError::Reply { expected: 2, found: outcomes.len() });
    };
    Ok(ChassisRows {
        chassis: chassis.clone(),
        gateway_chassis: own_uuids(tables::GATEWAY_CHASSIS, gateway_chassis)?,
        ha_chassis: own_uuids(tables::HA_CHASSIS, ha_chassis)?,
    })
}

impl ChassisRows {
    pub fn is_empty(&self) -> bool {
        self.gateway_chassis.is_empty() && self.ha_chassis.is_empty()
    }

    pub fn count(&self) -> usize {
        self.gateway_chassis.len() + self.ha_chassis.len()
    }

    /// The same from a followed Northbound: an evacuation that starts from it need not ask.
    pub fn in_replica(replica: &Replica, chassis: &SystemId) -> Self {
        let rows = |table: &str| {
            let named = replica.table(table).iter().filter(|(_, row)| row.text("chassis_name") == Ok(chassis.as_str()));
            named.map(|(uuid, _)| *uuid).collect()
        };
        Self {
            chassis: chassis.clone(),
            gateway_chassis: rows(tables::GATEWAY_CHASSIS),
            ha_chassis: rows(tables::HA_CHASSIS),
        }
    }
}

/// Takes references out of one table's column and asks, in the third place, which rows have none left by that.
fn take_out(table: &str, column: &str, references: &[Uuid], ask: &[&str]) -> Vec<Operation> {
    let is_empty = || Condition::equals(column, Datum::empty());
    let mark = || Datum::map([MARK]);
    vec![
        Operation::mutate(table, vec![is_empty()], vec![Mutation::insert("external_ids", mark())]),
        Operation::mutate(
            table,
            vec![Condition::differs(column, Datum::empty())],
            vec![Mutation::delete(column, Datum::set(references.iter().copied()))],
        ),
        Operation::select(table, vec![is_empty(), Condition::new("external_ids", Function::Excludes, mark())], ask),
        Operation::mutate(
            table,
            vec![Condition::includes("external_ids", mark())],
            vec![Mutation::delete("external_ids", mark())],
        ),
    ]
}

/// The transaction; empty if there is nothing to do. `guards` are `wait` operations on what else the decision relied on;
/// if one does not hold, nothing is done.
pub fn plan_evacuation(rows: &ChassisRows, guards: &[Operation]) -> Vec<Operation> {
    if rows.is_empty() {
        return Vec::new();
    }
    let chassis = &rows.chassis;
    let mut plan = guards.to_vec();
    if !rows.gateway_chassis.is_empty() {
        let ask = ["name", "ha_chassis_group"];
        plan.extend(take_out(tables::ROUTER_PORT, "gateway_chassis", &rows.gateway_chassis, &ask));
    }
    if !rows.ha_chassis.is_empty() {
        plan.extend(take_out(tables::HA_GROUP, "ha_chassis", &rows.ha_chassis, &["_uuid"]));
    }
    // Both tables even if we saw rows in one only: rows that appeared meanwhile must refuse the commit, not outlive it.
    plan.push(Operation::delete(tables::GATEWAY_CHASSIS, names(chassis)));
    plan.push(Operation::delete(tables::HA_CHASSIS, names(chassis)));
    plan.push(Operation::Comment(format!("ovn-chassis: evacuate {chassis}")));
    plan.extend(plan_rows(chassis));
    plan
}

/// A router port without rows of its own, and the group that it may have besides.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BarePort {
    name: String,
    group: Option<Uuid>,
}

/// What the transaction's reply says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    gateway_chassis: u64,
    ha_chassis: u64,
    bare_ports: Vec<BarePort>,
    emptied_groups: BTreeSet<Uuid>,
}

fn parse_bare_ports(table: &'static str, outcome: &Outcome) -> Result<Vec<BarePort>, NorthboundError> {
    let in_table = |source| NorthboundError::Row { table, source };
    let read = |row: &crate::ovsdb::Row| {
        let name = row.text("name").map_err(in_table)?.to_owned();
        Ok(BarePort { name, group: row.optional_uuid("ha_chassis_group").map_err(in_table)? })
    };
    outcome.rows().iter().map(read).collect()
}

/// Reads the transaction's outcome: how many rows went, that none is left, and what was emptied.
pub fn parse_evacuation(rows: &ChassisRows, outcomes: &[Outcome]) -> Result<Reading, NorthboundError> {
    let mut rest = outcomes;
    let mut tail = |length: usize| {
        let at = rest.len().checked_sub(length);
        let split = at.and_then(|at| rest.split_at_checked(at));
        let (before, taken) = split.ok_or(NorthboundError::Reply { expected: length, found: rest.len() })?;
        rest = before;
        Ok::<&[Outcome], NorthboundError>(taken)
    };
    let [gateway_chassis, ha_chassis, _comment, left @ ..] = tail(5)? else {
        return Err(NorthboundError::Reply { expected: 5, found: outcomes.len() });
    };
    let left = parse_rows(&rows.chassis, left)?;
    if !left.is_empty() {
        return Err(NorthboundError::Survivors { chassis: rows.chassis.clone(), rows: left.count() });
    }
    let mut emptied_groups = BTreeSet::new();
    if !rows.ha_chassis.is_empty()
        && let [.., asked, _] = tail(4)?
    {
        emptied_groups.extend(own_uuids(tables::HA_GROUP, asked)?);
    }
    let mut bare_ports = Vec::new();
    if !rows.gateway_chassis.is_empty()
        && let [.., asked, _] = tail(4)?
    {
        bare_ports = parse_bare_ports(tables::ROUTER_PORT, asked)?;
    }
    Ok(Reading { gateway_chassis: gateway_chassis.count(), ha_chassis: ha_chassis.count(), bare_ports, emptied_groups })
}

impl Reading {
    /// What else has to be asked before the ports that are left without can be named: which ports stand behind groups that
    /// are empty now. Nothing in the usual case.
    pub fn plan_ports_behind_groups(&self) -> Vec<Operation> {
        if self.emptied_groups.is_empty() && self.bare_ports.iter().all(|port| port.group.is_none()) {
            return Vec::new();
        }
        let grouped = || Condition::differs("ha_chassis_group", Datum::empty());
        let no_own_rows = Condition::equals("gateway_chassis", Datum::empty());
        let ask = ["name", "ha_chassis_group"];
        vec![
            Operation::select(tables::HA_GROUP, vec![Condition::equals("ha_chassis", Datum::empty())], &["_uuid"]),
            Operation::select(tables::ROUTER_PORT, vec![grouped(), no_own_rows], &ask),
            Operation::select(tables::SWITCH_PORT, vec![grouped()], &ask),
        ]
    }

    /// Names the ports, with the answer to that question (or nothing, if nothing was asked).
    pub fn into_evacuated(self, answer: &[Outcome]) -> Result<Evacuated, NorthboundError> {
        let mut left_without: BTreeSet<String> = BTreeSet::new();
        left_without.extend(self.bare_ports.iter().filter(|port| port.group.is_none()).map(|port| port.name.clone()));
        if let [groups, router_ports, switch_ports] = answer {
            let empty: BTreeSet<Uuid> = own_uuids(tables::HA_GROUP, groups)?.into_iter().collect();
            let lost_its_rows = |name: &str| self.bare_ports.iter().any(|port| port.name == name);
            for (table, outcome) in [(tables::ROUTER_PORT, router_ports), (tables::SWITCH_PORT, switch_ports)] {
                for port in parse_bare_ports(table, outcome)? {
                    let Some(group) = port.group.filter(|group| empty.contains(group)) else { continue };
                    // A group that was empty already took nothing away, unless the port lost its own rows now.
                    if self.emptied_groups.contains(&group) || lost_its_rows(&port.name) {
                        left_without.insert(port.name);
                    }
                }
            }
        }
        Ok(Evacuated {
            gateway_chassis: self.gateway_chassis,
            ha_chassis: self.ha_chassis,
            left_without: left_without.into_iter().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ovsdb::Row;
    use serde_json::{Value, json};

    fn rows(gateway: &[u128], ha: &[u128]) -> ChassisRows {
        let uuids = |numbers: &[u128]| numbers.iter().map(|number| Uuid::from_u128(*number)).collect();
        ChassisRows { chassis: "gw1".into(), gateway_chassis: uuids(gateway), ha_chassis: uuids(ha) }
    }

    fn found(uuids: &[u128]) -> Outcome {
        Outcome::Rows(uuids.iter().map(|number| Row::new().with("_uuid", Uuid::from_u128(*number))).collect())
    }

    #[test]
    fn nothing_to_do_is_no_transaction() {
        assert!(plan_evacuation(&rows(&[], &[]), &[]).is_empty());
    }

    #[test]
    fn the_transaction_takes_references_then_rows_then_reads_back() {
        let written: Vec<Value> = plan_evacuation(&rows(&[1, 2], &[3]), &[]).iter().map(Operation::to_json).collect();
        let uuid = |n: u8| json!(["uuid", format!("00000000-0000-0000-0000-00000000000{n}")]);
        let mark = json!(["map", [["ovn-chassis-had-no-gateway", "true"]]]);
        let (no, named) = (json!(["set", []]), json!([["chassis_name", "==", "gw1"]]));
        assert_eq!(
            Value::Array(written),
            json!([
                {"op": "mutate", "table": "Logical_Router_Port", "where": [["gateway_chassis", "==", no]],
                 "mutations": [["external_ids", "insert", mark]]},
                {"op": "mutate", "table": "Logical_Router_Port", "where": [["gateway_chassis", "!=", no]],
                 "mutations": [["gateway_chassis", "delete", ["set", [uuid(1), uuid(2)]]]]},
                {"op": "select", "table": "Logical_Router_Port", "columns": ["name", "ha_chassis_group"],
                 "where": [["gateway_chassis", "==", no], ["external_ids", "excludes", mark]]},
                {"op": "mutate", "table": "Logical_Router_Port", "where": [["external_ids", "includes", mark]],
                 "mutations": [["external_ids", "delete", mark]]},
                {"op": "mutate", "table": "HA_Chassis_Group", "where": [["ha_chassis", "==", no]],
                 "mutations": [["external_ids", "insert", mark]]},
                {"op": "mutate", "table": "HA_Chassis_Group", "where": [["ha_chassis", "!=", no]],
                 "mutations": [["ha_chassis", "delete", uuid(3)]]},
                {"op": "select", "table": "HA_Chassis_Group", "columns": ["_uuid"],
                 "where": [["ha_chassis", "==", no], ["external_ids", "excludes", mark]]},
                {"op": "mutate", "table": "HA_Chassis_Group", "where": [["external_ids", "includes", mark]],
                 "mutations": [["external_ids", "delete", mark]]},
                {"op": "delete", "table": "Gateway_Chassis", "where": named},
                {"op": "delete", "table": "HA_Chassis", "where": named},
                {"op": "comment", "comment": "ovn-chassis: evacuate gw1"},
                {"op": "select", "table": "Gateway_Chassis", "where": named, "columns": ["_uuid"]},
                {"op": "select", "table": "HA_Chassis", "where": named, "columns": ["_uuid"]},
            ])
        );
    }

    #[test]
    fn every_mark_is_taken_off_again() {
        for seen in [rows(&[1], &[]), rows(&[], &[1]), rows(&[1], &[2])] {
            let plan = plan_evacuation(&seen, &[]);
            let of = |wanted: &Mutation| {
                let has = |operation: &&Operation| {
                    matches!(operation,
                    Operation::Mutate { mutations, .. } if mutations.contains(wanted))
                };
                plan.iter().filter(has).map(|operation| operation.table().to_owned()).collect::<Vec<_>>()
            };
            let put_on = of(&Mutation::insert("external_ids", Datum::map([MARK])));
            assert_eq!(put_on, of(&Mutation::delete("external_ids", Datum::map([MARK]))));
            assert!(!put_on.is_empty());
        }
    }

    #[test]
    fn both_tables_are_deleted_and_read_back_even_if_one_held_nothing() {
        for seen in [rows(&[1], &[]), rows(&[], &[1])] {
            let plan = plan_evacuation(&seen, &[]);
            let of = |name: &str| plan.iter().filter(|operation| operation.name() == name).count();
            assert_eq!((of("mutate"), of("delete"), of("select")), (3, 2, 3));
        }
    }

    #[test]
    fn guards_come_first() {
        let guard = Operation::guard("NB_Global", vec![], &["name"], vec![]);
        let plan = plan_evacuation(&rows(&[1], &[]), std::slice::from_ref(&guard));
        assert_eq!(plan.first(), Some(&guard));
    }

    fn bare(name: &str, group: &[u128]) -> Row {
        let mut row = Row::new().with("name", name);
        row.insert("ha_chassis_group".to_owned(), Datum::set(group.iter().map(|number| Uuid::from_u128(*number))));
        row
    }

    fn good() -> Vec<Outcome> {
        let count = Outcome::Count;
        let ports = Outcome::Rows(vec![bare("alone", &[]), bare("grouped", &[20]), bare("saved", &[22])]);
        vec![
            Outcome::Done,
            count(9),
            count(7),
            ports,
            count(9),
            count(4),
            count(1),
            found(&[21]),
            count(4),
            count(2),
            count(1),
            Outcome::Done,
            found(&[]),
            found(&[]),
        ]
    }

    #[test]
    fn the_outcome_counts_and_names_who_is_left_without() {
        let reading = parse_evacuation(&rows(&[1, 2], &[3]), &good()).unwrap();
        assert_eq!(reading.plan_ports_behind_groups().len(), 3);
        // Group 20 was empty before, 21 is emptied now, 22 has members.
        let answer = [
            found(&[20, 21]),
            Outcome::Rows(vec![bare("grouped", &[20]), bare("behind", &[21]), bare("never", &[20])]),
            Outcome::Rows(vec![bare("external", &[21])]),
        ];
        let evacuated = reading.into_evacuated(&answer).unwrap();
        assert_eq!((evacuated.gateway_chassis, evacuated.ha_chassis), (2, 1));
        assert_eq!(evacuated.left_without, ["alone", "behind", "external", "grouped"]);
    }

    #[test]
    fn nothing_more_is_asked_if_no_group_is_concerned() {
        let mut outcomes = good();
        *outcomes.get_mut(3).unwrap() = Outcome::Rows(vec![bare("alone", &[])]);
        *outcomes.get_mut(7).unwrap() = found(&[]);
        let reading = parse_evacuation(&rows(&[1, 2], &[3]), &outcomes).unwrap();
        assert!(reading.plan_ports_behind_groups().is_empty());
        assert_eq!(reading.into_evacuated(&[]).unwrap().left_without, ["alone"]);
    }

    #[test]
    fn survivors_and_short_replies_are_no_success() {
        let seen = rows(&[1, 2], &[3]);
        let mut bad = good();
        *bad.last_mut().unwrap() = found(&[5]);
        let error = parse_evacuation(&seen, &bad).unwrap_err();
        assert_eq!(error.to_string(), "after the evacuation 1 Northbound rows still name chassis gw1");
        for length in 0..13 {
            let short = good().split_off(14 - length);
            assert!(parse_evacuation(&seen, &short).is_err(), "{length}");
        }
    }
}
