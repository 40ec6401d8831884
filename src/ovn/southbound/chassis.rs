//! A chassis' registration: the rows `Chassis`, `Chassis_Private` and `Encap` that belong together by the chassis' name,
//! and that can be left half-deleted by others.

use crate::model::ids::SystemId;
use crate::ovsdb::{Condition, Operation, Outcome, Replica, Row, Uuid, ValueError};

use super::{SouthboundError, tables};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encap {
    pub uuid: Uuid,
    pub kind: String,
    pub ip: String,
}

/// A row of `Chassis`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    pub uuid: Uuid,
    pub name: SystemId,
    /// What OVN calls the host: often an FQDN, not the Kubernetes node's name. For people; it selects nothing.
    pub hostname: String,
}

/// All that the Southbound holds of one chassis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChassisView {
    pub name: SystemId,
    pub registration: Option<Registration>,
    /// The row of `Chassis_Private`; it may be the half that others left behind.
    pub private: Option<Uuid>,
    pub encaps: Vec<Encap>,
}

impl ChassisView {
    pub fn is_gone(&self) -> bool {
        self.registration.is_none() && self.private.is_none() && self.encaps.is_empty()
    }
}

/// Gateway ports (`chassisredirect`) that the Southbound shows on a chassis now, by their `cr-` names, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bindings {
    pub ports: Vec<String>,
}

impl Bindings {
    pub fn count(&self) -> usize {
        self.ports.len()
    }
}

/// What a deletion took away. All zeros: there was nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deleted {
    pub chassis: u64,
    pub private: u64,
    pub encaps: u64,
}

pub(super) fn in_table<T>(table: &'static str, parsed: Result<T, ValueError>) -> Result<T, SouthboundError> {
    parsed.map_err(|source| SouthboundError::Row { table, source })
}

fn named(name: &SystemId) -> Vec<Condition> {
    vec![Condition::equals("name", name.as_str())]
}

fn encaps_of(name: &SystemId) -> Vec<Condition> {
    vec![Condition::equals("chassis_name", name.as_str())]
}

pub fn plan_chassis(name: &SystemId) -> Vec<Operation> {
    vec![
        Operation::select(tables::CHASSIS, named(name), &["_uuid", "name", "hostname"]),
        Operation::select(tables::PRIVATE, named(name), &["_uuid"]),
        Operation::select(tables::ENCAP, encaps_of(name), &["_uuid", "type", "ip"]),
    ]
}

fn parse_registration(row: &Row, uuid: Uuid) -> Result<Registration, SouthboundError> {
    Ok(Registration {
        uuid,
        name: SystemId::new(in_table(tables::CHASSIS, row.text("name"))?),
        hostname: in_table(tables::CHASSIS, row.text("hostname"))?.to_owned(),
    })
}

pub fn parse_chassis(name: &SystemId, outcomes: &[Outcome]) -> Result<ChassisView, SouthboundError> {
    let [chassis, private, encaps] = outcomes else {
        return Err(SouthboundError::Reply { expected: 3, found: outcomes.len() });
    };
    let registration = match chassis.rows().first() {
        Some(row) => Some(parse_registration(row, in_table(tables::CHASSIS, row.own_uuid())?)?),
        None => None,
    };
    let private = match private.rows().first() {
        Some(row) => Some(in_table(tables::PRIVATE, row.own_uuid())?),
        None => None,
    };
    let encaps = encaps
        .rows()
        .iter()
        .map(|row| {
            Ok(Encap {
                uuid: in_table(tables::ENCAP, row.own_uuid())?,
                kind: in_table(tables::ENCAP, row.text("type"))?.to_owned(),
                ip: in_table(tables::ENCAP, row.text("ip"))?.to_owned(),
            })
        })
        .collect::<Result<Vec<Encap>, SouthboundError>>()?;
    Ok(ChassisView { name: name.clone(), registration, private, encaps })
}

pub fn plan_registrations() -> Vec<Operation> {
    vec![Operation::select(tables::CHASSIS, vec![], &["_uuid", "name", "hostname"])]
}

pub fn parse_registrations(outcomes: &[Outcome]) -> Result<Vec<Registration>, SouthboundError> {
    let [chassis] = outcomes else {
        return Err(SouthboundError::Reply { expected: 1, found: outcomes.len() });
    };
    let mut found = Vec::new();
    for row in chassis.rows() {
        found.push(parse_registration(row, in_table(tables::CHASSIS, row.own_uuid())?)?);
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Every registered chassis in a followed Southbound, sorted by name.
pub fn registrations_in(replica: &Replica) -> Result<Vec<Registration>, SouthboundError> {
    let mut found = Vec::new();
    for (uuid, row) in replica.table(tables::CHASSIS) {
        found.push(parse_registration(row, *uuid)?);
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

pub(super) fn bound_to(chassis: Uuid) -> Vec<Condition> {
    vec![Condition::equals("type", "chassisredirect"), Condition::equals("chassis", chassis)]
}

pub fn plan_requested(chassis: Uuid) -> Vec<Operation> {
    let requested = |column: &str| {
        let names = vec![Condition::includes(column, chassis)];
        Operation::select(tables::PORT_BINDING, names, &["logical_port"])
    };
    vec![requested("requested_chassis"), requested("requested_additional_chassis")]
}

pub fn parse_requested(outcomes: &[Outcome]) -> Result<Vec<String>, SouthboundError> {
    let mut ports = Vec::new();
    for row in outcomes.iter().flat_map(Outcome::rows) {
        ports.push(in_table(tables::PORT_BINDING, row.text("logical_port"))?.to_owned());
    }
    ports.sort();
    ports.dedup();
    Ok(ports)
}

pub fn plan_bindings(chassis: Uuid) -> Vec<Operation> {
    vec![Operation::select(tables::PORT_BINDING, bound_to(chassis), &["logical_port"])]
}

pub fn parse_bindings(outcomes: &[Outcome]) -> Result<Bindings, SouthboundError> {
    let [bindings] = outcomes else {
        return Err(SouthboundError::Reply { expected: 1, found: outcomes.len() });
    };
    let mut ports = Vec::new();
    for row in bindings.rows() {
        ports.push(in_table(tables::PORT_BINDING, row.text("logical_port"))?.to_owned());
    }
    ports.sort();
    Ok(Bindings { ports })
}

/// Whether a binding is one that a gateway carries: of a router's gateway port, or of an external switch port.
pub(super) fn has_gateway(row: &Row) -> Result<bool, SouthboundError> {
    Ok(matches!(in_table(tables::PORT_BINDING, row.text("type"))?, "chassisredirect" | "external"))
}

impl Bindings {
    /// The same from a followed Southbound.
    pub fn in_replica(replica: &Replica, chassis: &SystemId) -> Result<Self, SouthboundError> {
        let mut uuid = None;
        for (candidate, row) in replica.table(tables::CHASSIS) {
            if in_table(tables::CHASSIS, row.text("name"))? == chassis.as_str() {
                uuid = Some(*candidate);
            }
        }
        let Some(uuid) = uuid else { return Ok(Self::default()) };
        let mut ports = Vec::new();
        for row in replica.table(tables::PORT_BINDING).values() {
            if in_table(tables::PORT_BINDING, row.optional_uuid("chassis"))? == Some(uuid) && has_gateway(row)? {
                ports.push(in_table(tables::PORT_BINDING, row.text("logical_port"))?.to_owned());
            }
        }
        ports.sort();
        Ok(Self { ports })
    }
}

/// The transaction that takes a registration away; empty if there is nothing. It holds only for the very rows that were
/// seen: a chassis that has registered again since is another row, and alive.
pub fn plan_chassis_del(seen: &ChassisView) -> Vec<Operation> {
    if seen.is_gone() {
        return Vec::new();
    }
    let name = &seen.name;
    let rows = |uuid: Option<Uuid>| uuid.map(|uuid| Row::new().with("_uuid", uuid)).into_iter().collect::<Vec<Row>>();
    let chassis = seen.registration.as_ref().map(|registration| registration.uuid);
    let mut plan = vec![
        Operation::guard(tables::CHASSIS, named(name), &["_uuid"], rows(chassis)),
        Operation::guard(tables::PRIVATE, named(name), &["_uuid"], rows(seen.private)),
        // The chassis first: it holds the encapsulations by reference.
        Operation::delete(tables::CHASSIS, named(name)),
        Operation::delete(tables::PRIVATE, named(name)),
        Operation::delete(tables::ENCAP, encaps_of(name)),
        Operation::Comment(format!("ovn-chassis: delete chassis {name}")),
    ];
    plan.extend(plan_chassis(name));
    plan
}

pub fn parse_chassis_del(name: &SystemId, outcomes: &[Outcome]) -> Result<Deleted, SouthboundError> {
    let [_, _, chassis, private, encaps, _, left @ ..] = outcomes else {
        return Err(SouthboundError::Reply { expected: 9, found: outcomes.len() });
    };
    let left = parse_chassis(name, left)?;
    if !left.is_gone() {
        let rows = usize::from(left.registration.is_some()) + usize::from(left.private.is_some()) + left.encaps.len();
        return Err(SouthboundError::Survivors { chassis: name.clone(), rows });
    }
    Ok(Deleted { chassis: chassis.count(), private: private.count(), encaps: encaps.count() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn uuid(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn found() -> Vec<Outcome> {
        vec![
            Outcome::Rows(vec![Row::new().with("_uuid", uuid(1)).with("name", "gw1").with("hostname", "gw1.example")]),
            Outcome::Rows(vec![Row::new().with("_uuid", uuid(2))]),
            Outcome::Rows(vec![Row::new().with("_uuid", uuid(3)).with("type", "geneve").with("ip", "10.0.0.1")]),
        ]
    }

    fn none() -> Vec<Outcome> {
        vec![Outcome::Rows(vec![]); 3]
    }

    #[test]
    fn a_registration_is_read() {
        let view = parse_chassis(&"gw1".into(), &found()).unwrap();
        assert_eq!(view.registration.as_ref().unwrap().hostname, "gw1.example");
        assert_eq!(view.private, Some(uuid(2)));
        assert_eq!(view.encaps.first().unwrap().ip, "10.0.0.1");
        assert!(parse_chassis(&"gw1".into(), &none()).unwrap().is_gone());
        assert!(parse_chassis(&"gw1".into(), &[]).is_err());
    }

    #[test]
    fn the_deletion_is_guarded_by_what_was_seen() {
        let view = parse_chassis(&"gw1".into(), &found()).unwrap();
        let plan: Vec<Value> = plan_chassis_del(&view).iter().map(Operation::to_json).collect();
        assert_eq!(
            plan.first().unwrap(),
            &json!({"op": "wait", "table": "Chassis", "where": [["name", "==", "gw1"]], "columns": ["_uuid"],
                    "until": "==", "rows": [{"_uuid": ["uuid", uuid(1).to_string()]}], "timeout": 0})
        );
        let deleted: Vec<&Value> = plan.iter().filter(|operation| operation["op"] == "delete").collect();
        assert_eq!(
            deleted,
            [
                &json!({"op": "delete", "table": "Chassis", "where": [["name", "==", "gw1"]]}),
                &json!({"op": "delete", "table": "Chassis_Private", "where": [["name", "==", "gw1"]]}),
                &json!({"op": "delete", "table": "Encap", "where": [["chassis_name", "==", "gw1"]]}),
            ]
        );
    }

    #[test]
    fn field_17_each_half_of_a_pair_is_deleted() {
        for half in [0_usize, 1, 2] {
            let mut outcomes = none();
            outcomes[half] = found()[half].clone();
            let view = parse_chassis(&"gw1".into(), &outcomes).unwrap();
            let plan = plan_chassis_del(&view);
            assert_eq!(plan.iter().filter(|operation| operation.name() == "delete").count(), 3);
        }
        let gone = parse_chassis(&"gw1".into(), &none()).unwrap();
        assert!(plan_chassis_del(&gone).is_empty());
    }

    #[test]
    fn the_outcome_counts_and_refuses_survivors() {
        let mut outcomes = vec![Outcome::Done, Outcome::Done, Outcome::Count(1), Outcome::Count(0), Outcome::Count(2)];
        outcomes.push(Outcome::Done);
        let deleted = parse_chassis_del(&"gw1".into(), &[outcomes.clone(), none()].concat()).unwrap();
        assert_eq!(deleted, Deleted { chassis: 1, private: 0, encaps: 2 });
        let error = parse_chassis_del(&"gw1".into(), &[outcomes, found()].concat()).unwrap_err();
        assert!(matches!(error, SouthboundError::Survivors { rows: 3, .. }));
    }
}
