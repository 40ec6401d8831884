//! Moving gateway duties by priority: the chassis goes below the others, its rows stay where they are.
//!
//! Deleting the active row makes the new active one start from nothing; lowering it first lets the new one take over
//! while the old one still works. What the priority was stands in the row's `external_ids`, put there by the same
//! transaction, so that whoever comes next can give it back. A chassis goes to the lowest priority there is; where the
//! best of the others is there already, that one goes up by one instead.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::ids::SystemId;
use crate::ovsdb::{Condition, Datum, Mutation, Operation, Outcome, Replica, Row, Uuid};

use super::view::{Candidate, GatewayView};
use super::{NorthboundError, tables};

/// Key of `external_ids` under which a changed row carries the priority it had.
pub const ORIGINAL: &str = "ovn-chassis-priority";
/// On the row of another chassis that was raised: for which chassis.
pub const RAISED_FOR: &str = "ovn-chassis-raised-for";
const LOWEST: i64 = 0;
const RAISED: i64 = 1;
const BOTH: [&str; 2] = [tables::GATEWAY_CHASSIS, tables::HA_CHASSIS];

fn table_of(candidate: &Candidate) -> &'static str {
    if candidate.in_group { tables::HA_CHASSIS } else { tables::GATEWAY_CHASSIS }
}

/// Which rows get which priority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lowering {
    pub chassis: SystemId,
    /// The rows of the chassis as they were seen, those that are low already too.
    pub own: Vec<Candidate>,
    /// Rows of others that go up from the lowest priority.
    pub raised: Vec<Candidate>,
    /// Rows of others that stand above it as they are.
    pub relied_on: Vec<Candidate>,
}

/// What is to change so that every port whose duties another living chassis can take goes to it; None if the order is
/// right as it is.
pub fn plan_lowering(view: &GatewayView, living: &BTreeSet<SystemId>) -> Option<Lowering> {
    let chassis = view.chassis();
    let mut raised: BTreeMap<Uuid, &Candidate> = BTreeMap::new();
    let mut relied_on: BTreeMap<Uuid, &Candidate> = BTreeMap::new();
    for list in view.ports.iter().flat_map(|port| port.lists()) {
        if !list.iter().any(|candidate| candidate.chassis == *chassis) {
            continue;
        }
        // Highest priority first, so the first that lives is the one that takes over.
        let next = list.into_iter().find(|c| c.chassis != *chassis && living.contains(&c.chassis));
        match next {
            Some(next) if next.priority == LOWEST => raised.insert(next.row, next),
            Some(next) => relied_on.insert(next.row, next),
            None => None,
        };
    }
    if relied_on.is_empty() && raised.is_empty() {
        return None;
    }
    if raised.is_empty() && view.own.iter().all(|row| row.priority == LOWEST) {
        return None;
    }
    let cloned = |rows: BTreeMap<Uuid, &Candidate>| rows.into_values().cloned().collect();
    Some(Lowering {
        chassis: chassis.clone(),
        own: view.own.clone(),
        raised: cloned(raised),
        relied_on: cloned(relied_on),
    })
}

fn of_chassis(chassis: &SystemId) -> Condition {
    Condition::equals("chassis_name", chassis.as_str())
}

fn carries(key: &str, value: &str) -> Condition {
    Condition::includes("external_ids", Datum::map([(key, value)]))
}

fn without_key(key: &str) -> Mutation {
    Mutation::delete("external_ids", Datum::set([key]))
}

fn to_priority(priority: i64) -> Row {
    Row::new().with("priority", priority)
}

impl Lowering {
    /// The transaction. It holds only for what was seen: another writer's change in between refuses it.
    pub fn operations(&self) -> Vec<Operation> {
        let mut plan = Vec::new();
        for table in BOTH {
            let own = self.own.iter().filter(|row| table_of(row) == table);
            let seen = own.map(|row| Row::new().with("_uuid", row.row).with("priority", row.priority)).collect();
            plan.push(Operation::guard(table, vec![of_chassis(&self.chassis)], &["_uuid", "priority"], seen));
        }
        for other in self.raised.iter().chain(&self.relied_on) {
            let is_row = vec![Condition::equals("_uuid", other.row)];
            let seen = Row::new().with("chassis_name", other.chassis.as_str()).with("priority", other.priority);
            plan.push(Operation::guard(table_of(other), is_row, &["chassis_name", "priority"], vec![seen]));
        }
        for table in BOTH {
            let own = self.own.iter().filter(|row| table_of(row) == table && row.priority != LOWEST);
            // By the priority, not row by row: a chassis has a thousand rows and a handful of priorities.
            for priority in own.map(|row| row.priority).collect::<BTreeSet<i64>>() {
                let rows = || vec![of_chassis(&self.chassis), Condition::equals("priority", priority)];
                let original = priority.to_string();
                let note = Mutation::insert("external_ids", Datum::map([(ORIGINAL, original.as_str())]));
                // An insert leaves an older value of the same key alone, so that one goes first.
                plan.push(Operation::mutate(table, rows(), vec![without_key(ORIGINAL), note]));
                plan.push(Operation::update(table, rows(), to_priority(LOWEST)));
            }
        }
        for other in &self.raised {
            let is_row = || vec![Condition::equals("_uuid", other.row)];
            let original = LOWEST.to_string();
            let note = Datum::map([(ORIGINAL, original.as_str()), (RAISED_FOR, self.chassis.as_str())]);
            let mutations =
                vec![without_key(ORIGINAL), without_key(RAISED_FOR), Mutation::insert("external_ids", note)];
            plan.push(Operation::mutate(table_of(other), is_row(), mutations));
            plan.push(Operation::update(table_of(other), is_row(), to_priority(RAISED)));
        }
        plan.push(Operation::Comment(format!("ovn-chassis: priority of {} goes below the others'", self.chassis)));
        plan
    }
}

/// Which originals the rows of a chassis carry, for each table.
pub fn plan_originals(chassis: &SystemId) -> Vec<Operation> {
    BOTH.map(|table| Operation::select(table, vec![of_chassis(chassis)], &["external_ids"])).to_vec()
}

/// A value that is no priority as we write it is none of ours.
fn is_original(text: &str) -> bool {
    text.parse::<i64>().is_ok_and(|number| number > LOWEST && number.to_string() == text)
}

/// The originals that a restoration has to give back, in the order of the tables asked.
pub fn parse_originals(outcomes: &[Outcome]) -> Result<[BTreeSet<i64>; 2], NorthboundError> {
    let [gateway_chassis, ha_chassis] = outcomes else {
        return Err(NorthboundError::Reply { expected: 2, found: outcomes.len() });
    };
    let read = |table: &'static str, outcome: &Outcome| {
        let mut originals = BTreeSet::new();
        for row in outcome.rows() {
            let text =
                row.map_entry("external_ids", ORIGINAL).map_err(|source| NorthboundError::Row { table, source })?;
            // A value that is no number is none of ours.
            originals.extend(text.and_then(|text| text.parse::<i64>().ok()).filter(|number| *number > LOWEST));
        }
        Ok::<_, NorthboundError>(originals)
    };
    Ok([read(tables::GATEWAY_CHASSIS, gateway_chassis)?, read(tables::HA_CHASSIS, ha_chassis)?])
}

/// Gives the priorities back that [`Lowering`] took, where a row still has the one that was set; somebody's later choice
/// stands. The notes go in either case.
pub fn plan_restoration(chassis: &SystemId, originals: &[BTreeSet<i64>; 2]) -> Vec<Operation> {
    let mut plan = Vec::new();
    for (table, originals) in BOTH.into_iter().zip(originals) {
        for original in originals {
            let text = original.to_string();
            let rows = || vec![of_chassis(chassis), carries(ORIGINAL, &text)];
            let mut untouched = rows();
            untouched.push(Condition::equals("priority", LOWEST));
            plan.push(Operation::update(table, untouched, to_priority(*original)));
            plan.push(Operation::mutate(table, rows(), vec![without_key(ORIGINAL)]));
        }
        let untouched = vec![carries(RAISED_FOR, chassis.as_str()), Condition::equals("priority", RAISED)];
        plan.push(Operation::update(table, untouched, to_priority(LOWEST)));
    }
    plan.extend(plan_forgetting(chassis));
    plan.push(Operation::Comment(format!("ovn-chassis: priority of {chassis} is what it was")));
    plan
}

/// Takes the notes off the rows of others that were raised for a chassis which is out for good: the one that took over
/// keeps what it has, so that nothing moves twice.
pub fn plan_forgetting(chassis: &SystemId) -> Vec<Operation> {
    let for_chassis = || carries(RAISED_FOR, chassis.as_str());
    BOTH.into_iter()
        .flat_map(|table| {
            // A raised row that was lowered since carries an original of its own, which stays.
            let raised = vec![for_chassis(), carries(ORIGINAL, &LOWEST.to_string())];
            [
                Operation::mutate(table, raised, vec![without_key(ORIGINAL)]),
                Operation::mutate(table, vec![for_chassis()], vec![without_key(RAISED_FOR)]),
            ]
        })
        .collect()
}

/// Every chassis for which a followed Northbound carries such notes.
pub fn chassis_lowered(replica: &Replica) -> BTreeSet<SystemId> {
    let mut lowered = BTreeSet::new();
    for row in BOTH.into_iter().flat_map(|table| replica.table(table).values()) {
        let note = |key| row.map_entry("external_ids", key).ok().flatten();
        lowered.extend(note(RAISED_FOR).map(SystemId::new));
        // What was raised stood at the lowest priority; only what was lowered did not.
        if note(ORIGINAL).is_some_and(is_original)
            && let Ok(chassis) = row.text("chassis_name")
        {
            lowered.insert(SystemId::new(chassis));
        }
    }
    lowered
}

#[cfg(test)]
mod tests {
    use super::super::view::{GatewayPort, PortKind};
    use super::super::{ChassisRows, GatewayView};
    use super::*;
    use serde_json::Value;

    fn candidate(number: u128, chassis: &str, priority: i64, in_group: bool) -> Candidate {
        Candidate { priority, chassis: chassis.into(), row: Uuid::from_u128(number), in_group }
    }

    /// A view around `gw1` of ports with these candidates.
    fn view(ports: &[&[Candidate]]) -> GatewayView {
        let mut own = BTreeMap::new();
        let ports = ports
            .iter()
            .enumerate()
            .map(|(number, candidates)| {
                let mut candidates = candidates.to_vec();
                candidates.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.chassis.cmp(&b.chassis)));
                own.extend(candidates.iter().filter(|c| c.chassis == "gw1".into()).map(|c| (c.row, c.clone())));
                let uuid = Uuid::from_u128(1000 + number as u128);
                GatewayPort { uuid, name: format!("lrp-{number}"), kind: PortKind::Router, candidates }
            })
            .collect();
        let rows = ChassisRows { chassis: "gw1".into(), gateway_chassis: vec![], ha_chassis: vec![] };
        GatewayView { rows, own: own.into_values().collect(), ports }
    }

    fn living() -> BTreeSet<SystemId> {
        ["gw1", "gw2", "gw3"].map(SystemId::from).into()
    }

    fn written(lowering: &Lowering) -> Vec<(String, String, Value)> {
        let operations: Vec<Value> = lowering.operations().iter().map(Operation::to_json).collect();
        let updates = operations.iter().filter(|o| o["op"] == "update");
        updates
            .map(|o| (o["table"].as_str().unwrap().into(), o["where"].to_string(), o["row"]["priority"].clone()))
            .collect()
    }

    #[test]
    fn a_note_that_is_no_priority_of_ours_is_none() {
        for (text, ours) in [("9", true), ("high", false), ("", false), ("0", false), ("-3", false), ("09", false)] {
            assert_eq!(is_original(text), ours, "{text:?}");
        }
    }

    #[test]
    fn the_chassis_goes_below_the_others_whatever_the_priorities_are() {
        let view = view(&[
            &[candidate(1, "gw1", 9, false), candidate(2, "gw2", 3, false)],
            &[candidate(3, "gw1", 2, false), candidate(4, "gw2", 7, false), candidate(5, "gw3", 1, false)],
        ]);
        let lowering = plan_lowering(&view, &living()).unwrap();
        assert!(lowering.raised.is_empty());
        let written = written(&lowering);
        assert_eq!(written.len(), 2, "one for each priority: {written:?}");
        assert!(
            written.iter().all(|(table, rows, to)| {
                table == "Gateway_Chassis" && rows.contains("gw1") && to.as_i64() == Some(0)
            })
        );
    }

    #[test]
    fn one_that_stands_at_the_lowest_priority_is_raised_instead() {
        let view = view(&[&[candidate(1, "gw1", 1, true), candidate(2, "gw2", 0, true), candidate(3, "gw3", 0, true)]]);
        let lowering = plan_lowering(&view, &living()).unwrap();
        let raised: Vec<&str> = lowering.raised.iter().map(|c| c.chassis.as_str()).collect();
        assert_eq!(raised, ["gw2"], "one is enough");
        let written = written(&lowering);
        let to: Vec<&Value> = written.iter().map(|(_, _, to)| to).collect();
        assert_eq!(to, [&Value::from(0), &Value::from(1)]);
    }

    #[test]
    fn a_tie_at_the_lowest_priority_is_broken_by_raising_the_other() {
        let view = view(&[&[candidate(1, "gw1", 0, false), candidate(2, "gw2", 0, false)]]);
        let lowering = plan_lowering(&view, &living()).unwrap();
        assert_eq!(written(&lowering).len(), 1, "its own row stays");
        assert_eq!(lowering.raised.len(), 1);
    }

    #[test]
    fn a_dead_one_above_does_not_count() {
        let view =
            view(&[&[candidate(1, "gw1", 5, false), candidate(2, "dead", 9, false), candidate(3, "gw3", 0, false)]]);
        let lowering = plan_lowering(&view, &living()).unwrap();
        assert_eq!(lowering.raised.first().unwrap().chassis, "gw3".into());
        let alone = [candidate(1, "gw1", 5, false), candidate(2, "dead", 9, false)];
        assert_eq!(plan_lowering(&self::view(&[&alone]), &living()), None);
    }

    #[test]
    fn the_same_group_behind_many_ports_and_both_tables_on_one_port() {
        let group = [candidate(1, "gw1", 4, true), candidate(2, "gw2", 0, true)];
        let mut both = group.to_vec();
        both.extend([candidate(3, "gw1", 4, false), candidate(4, "gw3", 6, false)]);
        let lowering = plan_lowering(&view(&[&group, &group, &both]), &living()).unwrap();
        assert_eq!(lowering.raised.len(), 1);
        let tables: BTreeSet<String> = written(&lowering).into_iter().map(|(table, ..)| table).collect();
        assert_eq!(tables.len(), 2);
    }

    #[test]
    fn an_order_that_is_right_needs_nothing() {
        let right = [candidate(1, "gw1", 0, false), candidate(2, "gw2", 3, false), candidate(3, "gw3", 0, false)];
        assert_eq!(plan_lowering(&view(&[&right]), &living()), None);
        assert_eq!(plan_lowering(&view(&[&[candidate(1, "gw1", 3, false)]]), &living()), None);
        assert_eq!(plan_lowering(&view(&[]), &living()), None);
    }

    #[test]
    fn the_transaction_holds_only_for_what_was_seen_and_notes_the_original_before_it_changes() {
        let view = view(&[&[candidate(1, "gw1", 9, false), candidate(2, "gw2", 3, false)]]);
        let operations = plan_lowering(&view, &living()).unwrap().operations();
        let names: Vec<&str> = operations.iter().map(Operation::name).collect();
        assert_eq!(names, ["wait", "wait", "wait", "mutate", "update", "comment"]);
        let note = operations[3].to_json().to_string();
        assert!(note.contains("ovn-chassis-priority") && note.contains("\"9\""), "{note}");
    }

    #[test]
    fn a_restoration_gives_back_only_what_still_has_the_priority_that_was_set() {
        let row = |text: &str| Row::new().with("external_ids", Datum::map([(ORIGINAL, text)]));
        let outcomes = [Outcome::Rows(vec![row("5"), row("5"), row("x")]), Outcome::Rows(vec![row("0"), row("7")])];
        let originals = parse_originals(&outcomes).unwrap();
        assert_eq!(originals, [BTreeSet::from([5]), BTreeSet::from([7])]);
        let plan: Vec<Value> = plan_restoration(&"gw1".into(), &originals).iter().map(Operation::to_json).collect();
        let updates: Vec<&Value> = plan.iter().filter(|o| o["op"] == "update").collect();
        assert_eq!(updates.len(), 4, "one for each original, one for each table's raised rows");
        for update in updates {
            assert!(update["where"].as_array().unwrap().iter().any(|c| c[0] == "priority"), "{update}");
        }
        assert!(parse_originals(&[]).is_err());
    }
}
