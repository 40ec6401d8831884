//! What an OVNChassis says about itself: conditions and counters.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::reason::Reason;
use super::view::Problem;
use super::wanted::{count, some_of};
use crate::api::{NodeRecord, OVNChassisNode};
use crate::model::conditions::{ConditionSpec, chassis, maintenance, node};
use crate::model::names::ChassisRef;

/// What conditions are made of.
#[derive(Clone, Debug)]
pub struct ChassisFacts<'a> {
    pub records: &'a [NodeRecord],
    pub nodes: Vec<&'a OVNChassisNode>,
    pub central: Result<(), Problem>,
    /// Nodes that this OVNChassis selects and another one owns.
    pub owned_elsewhere: Vec<(String, ChassisRef)>,
    /// The ConfigMap cannot hold all nodes.
    pub view_too_large: Option<String>,
    /// What the API server refuses.
    pub trouble: Option<String>,
    /// Pods whose daemons hold no locks are being replaced.
    pub first_roll: Option<String>,
}

/// Conditions and the number of nodes that are ready.
pub fn conditions(facts: &ChassisFacts<'_>) -> (Vec<ConditionSpec>, i32) {
    let central = match &facts.central {
        Ok(()) => yes(chassis::CENTRAL_READY, "CentralReady", String::new()),
        Err(problem) => no(chassis::CENTRAL_READY, problem.reason, problem.message.clone()),
    };
    let ovs = reported(facts, chassis::OVS_READY, node::OVS_READY);
    let controller = reported(facts, chassis::CONTROLLER_READY, node::CONTROLLER_READY);
    let mut all = vec![central, nodes_ready(facts), ovs, controller, maintenance_ready(facts)];
    let faults: Vec<_> = all.iter().filter(|c| !c.status).map(|c| c.type_.to_owned()).collect();
    all.push(if faults.is_empty() {
        yes(chassis::READY, "Ready", String::new())
    } else {
        no(chassis::READY, "NotReady", format!("not true: {}", faults.join(", ")))
    });
    (all, number_ready(facts))
}

fn yes(type_: &'static str, reason: &'static str, message: String) -> ConditionSpec {
    ConditionSpec { type_, status: true, reason, message }
}

fn no(type_: &'static str, reason: &'static str, message: String) -> ConditionSpec {
    ConditionSpec { type_, status: false, reason, message }
}

fn reason_of(record: &NodeRecord) -> Option<Reason> {
    record.reason.as_deref().and_then(Reason::parse)
}

fn nodes_ready(facts: &ChassisFacts<'_>) -> ConditionSpec {
    if !facts.owned_elsewhere.is_empty() {
        let list: Vec<_> =
            facts.owned_elsewhere.iter().map(|(node, owner)| format!("{node} (OVNChassis {owner})")).collect();
        let message = format!(
            "owned by an older OVNChassis and left alone: {}; narrow spec.nodeSelector or delete the other",
            some_of(&list)
        );
        return no(chassis::NODES_READY, "NodeOwnedElsewhere", message);
    }
    let with = |reason: Reason| facts.records.iter().filter(move |r| reason_of(r) == Some(reason));
    for reason in [Reason::DuplicateSystemId, Reason::InvalidSystemId] {
        if let Some(record) = with(reason).next() {
            return no(chassis::NODES_READY, reason.as_str(), record.message.clone().unwrap_or_default());
        }
    }
    let waiting: Vec<_> = facts
        .records
        .iter()
        .filter(|r| matches!(reason_of(r), Some(Reason::WaitingForAgent | Reason::SettingsChanged)))
        .map(|r| r.name.clone())
        .collect();
    if !waiting.is_empty() {
        let message = format!("settings are not applied on {}: {}", count(waiting.len(), "node"), some_of(&waiting));
        return no(chassis::NODES_READY, "NodesNotApplied", message);
    }
    match &facts.view_too_large {
        Some(message) => yes(chassis::NODES_READY, "NodesViewTooLarge", message.clone()),
        None => yes(chassis::NODES_READY, "NodesApplied", count(facts.records.len(), "node")),
    }
}

fn is_true(conditions: &[Condition], type_: &str) -> bool {
    conditions.iter().any(|c| c.type_ == type_ && c.status == "True")
}

fn staying<'a>(facts: &'a ChassisFacts<'_>) -> impl Iterator<Item = &'a &'a OVNChassisNode> {
    facts.nodes.iter().filter(|n| !n.spec.leaving)
}

fn reported(facts: &ChassisFacts<'_>, type_: &'static str, of_node: &str) -> ConditionSpec {
    let mut total = 0;
    let mut faults = Vec::new();
    for object in staying(facts) {
        total += 1;
        let conditions = object.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        match conditions.iter().find(|c| c.type_ == of_node) {
            Some(condition) if condition.status == "True" => {}
            Some(condition) => faults.push(format!("{}: {}", object.spec.node_name, condition.message)),
            None => faults.push(format!("{}: not reported yet", object.spec.node_name)),
        }
    }
    if faults.is_empty() {
        return yes(type_, "AllNodes", count(total, "node"));
    }
    let message = format!("not on {} of {}: {}", faults.len(), count(total, "node"), some_of(&faults));
    no(type_, "NotOnAllNodes", message)
}

/// The worst of all nodes' states; work in flight is no outage, so it stays true.
fn maintenance_ready(facts: &ChassisFacts<'_>) -> ConditionSpec {
    if let Some(trouble) = &facts.trouble {
        return no(chassis::MAINTENANCE_READY, maintenance::ERROR, trouble.clone());
    }
    const WORST_FIRST: [(&str, bool); 4] = [
        (maintenance::ERROR, false),
        (maintenance::JOB_FAILED, false),
        (maintenance::RUNNING, true),
        (maintenance::DEFERRED, true),
    ];
    for (reason, status) in WORST_FIRST {
        let first_roll = facts.first_roll.as_ref().filter(|_| reason == maintenance::RUNNING);
        let said: Vec<_> = facts
            .records
            .iter()
            .filter(|r| reason_of(r).is_some_and(|of| of.maintenance() == reason))
            .map(|r| match r.message.as_deref().filter(|m| !m.is_empty()) {
                Some(message) => format!("{}: {message}", r.name),
                None => r.name.clone(),
            })
            .chain(first_roll.cloned())
            .collect();
        if !said.is_empty() {
            return ConditionSpec { type_: chassis::MAINTENANCE_READY, status, reason, message: some_of(&said) };
        }
    }
    yes(chassis::MAINTENANCE_READY, maintenance::IDLE, String::new())
}

fn number_ready(facts: &ChassisFacts<'_>) -> i32 {
    let ready = staying(facts).filter(|object| {
        object.status.as_ref().is_some_and(|s| {
            s.applied_hash.as_deref() == Some(object.spec.config_hash.as_str())
                && is_true(&s.conditions, node::OVS_READY)
                && is_true(&s.conditions, node::CONTROLLER_READY)
        })
    });
    i32::try_from(ready.count()).unwrap_or(i32::MAX)
}
