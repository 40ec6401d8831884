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

use crate::model::ids::SystemId;
use crate::ovsdb::{Condition, Datum, Mutation, Operation, Outcome, Uuid};

use super::{NorthboundError, tables};

/// The rows that name one chassis, by their UUIDs: all that an evacuation needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChassisRows {
    pub chassis: SystemId,
    pub gateway_chassis: Vec<Uuid>,
    pub ha_chassis: Vec<Uuid>,
}

/// What an evacuation did. All zeros: there was nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evacuated {
    pub gateway_chassis: u64,
    pub ha_chassis: u64,
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

pub fn parse_rows(chassis: &SystemId, outcomes: &[Outcome]) -> Result<ChassisRows, NorthboundError> {
    let [gateway_chassis, ha_chassis] = outcomes else {
        return Err(NorthboundError::Reply { expected: 2, found: outcomes.len() });
    };
    let uuids = |table: &'static str, outcome: &Outcome| {
        outcome
            .rows()
            .iter()
            .map(|row| row.own_uuid().map_err(|source| NorthboundError::Row { table, source }))
            .collect::<Result<Vec<Uuid>, _>>()
    };
    Ok(ChassisRows {
        chassis: chassis.clone(),
        gateway_chassis: uuids(tables::GATEWAY_CHASSIS, gateway_chassis)?,
        ha_chassis: uuids(tables::HA_CHASSIS, ha_chassis)?,
    })
}

impl ChassisRows {
    pub fn is_empty(&self) -> bool {
        self.gateway_chassis.is_empty() && self.ha_chassis.is_empty()
    }

    pub fn count(&self) -> usize {
        self.gateway_chassis.len() + self.ha_chassis.len()
    }
}

/// The transaction; empty if there is nothing to do. `guards` are `wait` operations on what else the decision relied on;
/// if one does not hold, nothing is done.
pub fn plan_evacuation(rows: &ChassisRows, guards: &[Operation]) -> Vec<Operation> {
    if rows.is_empty() {
        return Vec::new();
    }
    let chassis = &rows.chassis;
    let mut plan = guards.to_vec();
    let mut take_out = |table: &str, column: &str, uuids: &[Uuid]| {
        if !uuids.is_empty() {
            let holders = vec![Condition::differs(column, Datum::empty())];
            let references = Mutation::delete(column, Datum::set(uuids.iter().copied()));
            plan.push(Operation::mutate(table, holders, vec![references]));
        }
    };
    take_out(tables::ROUTER_PORT, "gateway_chassis", &rows.gateway_chassis);
    take_out(tables::HA_GROUP, "ha_chassis", &rows.ha_chassis);
    // Both tables even if we saw rows in one only: rows that appeared meanwhile must refuse the commit, not outlive it.
    plan.push(Operation::delete(tables::GATEWAY_CHASSIS, names(chassis)));
    plan.push(Operation::delete(tables::HA_CHASSIS, names(chassis)));
    plan.push(Operation::Comment(format!("ovn-chassis: evacuate {chassis}")));
    plan.extend(plan_rows(chassis));
    plan
}

/// Reads the transaction's outcome: how many rows went, and that none is left.
pub fn parse_evacuation(chassis: &SystemId, outcomes: &[Outcome]) -> Result<Evacuated, NorthboundError> {
    let tail = outcomes.len().checked_sub(5).and_then(|at| outcomes.get(at..));
    let Some([gateway_chassis, ha_chassis, _comment, left @ ..]) = tail else {
        return Err(NorthboundError::Reply { expected: 5, found: outcomes.len() });
    };
    let left = parse_rows(chassis, left)?;
    if !left.is_empty() {
        return Err(NorthboundError::Survivors { chassis: chassis.clone(), rows: left.count() });
    }
    Ok(Evacuated { gateway_chassis: gateway_chassis.count(), ha_chassis: ha_chassis.count() })
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
        assert_eq!(
            Value::Array(written),
            json!([
                {"op": "mutate", "table": "Logical_Router_Port", "where": [["gateway_chassis", "!=", ["set", []]]],
                 "mutations": [["gateway_chassis", "delete", ["set", [uuid(1), uuid(2)]]]]},
                {"op": "mutate", "table": "HA_Chassis_Group", "where": [["ha_chassis", "!=", ["set", []]]],
                 "mutations": [["ha_chassis", "delete", uuid(3)]]},
                {"op": "delete", "table": "Gateway_Chassis", "where": [["chassis_name", "==", "gw1"]]},
                {"op": "delete", "table": "HA_Chassis", "where": [["chassis_name", "==", "gw1"]]},
                {"op": "comment", "comment": "ovn-chassis: evacuate gw1"},
                {"op": "select", "table": "Gateway_Chassis", "where": [["chassis_name", "==", "gw1"]], "columns": ["_uuid"]},
                {"op": "select", "table": "HA_Chassis", "where": [["chassis_name", "==", "gw1"]], "columns": ["_uuid"]},
            ])
        );
    }

    #[test]
    fn both_tables_are_deleted_and_read_back_even_if_one_held_nothing() {
        for seen in [rows(&[1], &[]), rows(&[], &[1])] {
            let plan = plan_evacuation(&seen, &[]);
            let of = |name: &str| plan.iter().filter(|operation| operation.name() == name).count();
            assert_eq!((of("mutate"), of("delete"), of("select")), (1, 2, 2));
        }
    }

    #[test]
    fn guards_come_first() {
        let guard = Operation::guard("NB_Global", vec![], &["name"], vec![]);
        let plan = plan_evacuation(&rows(&[1], &[]), std::slice::from_ref(&guard));
        assert_eq!(plan.first(), Some(&guard));
    }

    #[test]
    fn the_outcome_counts_and_refuses_survivors() {
        let chassis = SystemId::new("gw1");
        let good = [
            Outcome::Count(9),
            Outcome::Count(7),
            Outcome::Count(2),
            Outcome::Count(1),
            Outcome::Done,
            found(&[]),
            found(&[]),
        ];
        let evacuated = parse_evacuation(&chassis, &good).unwrap();
        assert_eq!(evacuated, Evacuated { gateway_chassis: 2, ha_chassis: 1 });
        let mut bad = good.to_vec();
        *bad.last_mut().unwrap() = found(&[5]);
        let error = parse_evacuation(&chassis, &bad).unwrap_err();
        assert_eq!(error.to_string(), "after the evacuation 1 Northbound rows still name chassis gw1");
        assert!(parse_evacuation(&chassis, &good[..4]).is_err());
    }
}
