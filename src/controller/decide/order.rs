//! One node: who has the word, in the order that keeps it safe.
//!
//! Marks on the Node and the specification of its OVNChassisNode first; then gateway duties; then leaving. Evacuation
//! and deregistration are plans of separate passes, so that a crash between them loses nothing.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::identity::{Identity, identity};
use super::plan::{Entry, Plan, Step};
use super::reason::Reason;
use super::view::{JobOwner, JobView, NodeView};
use super::wanted::{Wanted, wanted};
use super::{before_gateway_off, gateway, leaving, roll};
use crate::api::{DeletionPolicy, NodeRecord, OVNChassisNodeSpec};
use crate::controller::objects::chassis_ref;
use crate::model::ids::SystemId;
use crate::model::names::JobKind;

/// Decides about one node.
pub fn decide(view: &NodeView, now: Timestamp) -> Plan {
    let deleting = view.chassis.metadata.deletion_timestamp.is_some();
    if deleting && view.chassis.spec.deletion_policy == DeletionPolicy::Orphan {
        return leaving::orphan(view);
    }
    if leaving::is_forgotten(view) {
        return leaving::remains(view);
    }
    if let Some(id) = leaving::departing(view).filter(|_| view.selected) {
        return Plan { entry: Some(Entry::Departs { system_id: Some(id.clone()) }), ..Plan::default() };
    }
    let identity = identity(view);
    let wanted = wanted(view, &identity, now);
    let id = identity.id().cloned();
    let mut plan = Plan::default();
    if view.outcomes.deregistered.is_some() && leaving::may_register(view) {
        // A deregistration counts as long as nothing can register again. Forgotten as soon as that is seen: the Node may
        // be gone the next moment, and with it what tells.
        plan.steps.push(Step::ForgetOutcomes);
    }
    let is_new = view.ocn.is_none();
    if !is_new {
        mark_node(view, id.as_ref(), &mut plan);
    }
    if let Some(trouble) = view.trouble.as_ref().filter(|t| t.needs_help) {
        plan.entry = Some(entry(view, id.as_ref(), Reason::NotAllowed, trouble.message.clone()));
    }
    if wanted.reset_first {
        // Before the agent may announce the flag again: otherwise a reader would see a gateway that is "evacuated".
        let reason = Reason::SettingsChanged;
        let mut record = record(view, id.as_ref(), reason, "the gateway role comes back".into());
        record.gateway_evacuated = false;
        plan.entry = Some(Entry::Is(Box::new(record)));
        return plan;
    }
    stale_jobs(view, wanted.after_move.as_ref().unwrap_or(&wanted.spec), &mut plan);
    if wanted.spec.leaving && view.record.is_none() {
        // Until the status has it (again), nothing would tell it from a node that left already.
        plan.entry = plan.entry.or_else(|| Some(steady(view, &identity, &wanted)));
        return plan;
    }
    let before = view.ocn.as_ref().map(|o| &o.spec);
    if before != Some(&wanted.spec) {
        // What an earlier drain brought says nothing about this one.
        let turns = before.is_none_or(|b| b.evacuate != wanted.spec.evacuate || b.leaving != wanted.spec.leaving);
        if turns || !wanted.spec.evacuate {
            plan.steps.push(Step::ForgetOutcomes);
        }
        // A role that is on its way out first loses the Jobs of an earlier drain, so that a wait never meets them.
        let begins = wanted.spec.evacuate && !before.is_some_and(|b| b.evacuate);
        if begins {
            delete_finished(view, &[JobKind::Apply, JobKind::Evacuate], &mut plan);
            before_gateway_off::name_stranded(view, &mut plan);
            before_gateway_off::name_pins(view, &mut plan);
        }
        if wanted.spec.leaving && !before.is_some_and(|b| b.leaving) {
            delete_finished(view, &[JobKind::ChassisDel], &mut plan);
        }
        plan.steps.push(Step::WriteNode(Box::new(wanted.spec.clone())));
        if is_new {
            // The mark starts the pods: by then something stands that tells that the node is in use, whatever ends here.
            mark_node(view, id.as_ref(), &mut plan);
        }
        if plan.entry.is_none() {
            plan.entry = Some(steady(view, &identity, &wanted));
        }
        return plan;
    }
    if let (Some(target), Some(id)) = (&wanted.after_move, &id) {
        before_gateway_off::move_traffic(view, target, id, now, &mut plan);
        return plan;
    }
    if wanted.hold.is_none() && wanted.spec.evacuate && !is_evacuated(view) {
        if let Some(id) = &id {
            gateway::evacuate(view, &wanted.spec, id, now, &mut plan);
            if plan.ports.is_empty() {
                plan.ports = view.duties.sole.clone();
            }
        }
        return plan;
    }
    gateway::finish_jobs(view, &wanted.spec, now, &mut plan);
    if wanted.spec.leaving {
        leaving::deregister(view, &wanted.spec, id.as_ref(), now, &mut plan);
        return plan;
    }
    if plan.entry.is_none() {
        plan.entry = Some(steady(view, &identity, &wanted));
    }
    if let Some(hold) = &wanted.hold {
        plan.ports = hold.ports.clone();
    } else if wanted.spec.gateway
        && view.duties.lowered
        && let Some(id) = &id
    {
        if roll::must_wait(view, now) {
            let message = roll::move_away(view, now, &mut plan);
            plan.entry = Some(entry(view, Some(id), Reason::RollingGateway, message));
        } else if let Some(message) = roll::give_back(view, id, now, &mut plan) {
            plan.entry = Some(entry(view, Some(id), Reason::RollingGateway, message));
        }
    } else if wanted.spec.gateway
        && roll::must_wait(view, now)
        && let Some(id) = &id
    {
        let message = roll::move_away(view, now, &mut plan);
        plan.entry = Some(entry(view, Some(id), Reason::RollingGateway, message));
    } else if is_evacuated(view)
        && let Some(id) = &id
    {
        gateway::keep_evacuated(view, id, &mut plan);
    }
    plan
}

/// Whether the API server's status says that the Northbound confirmed.
pub fn is_evacuated(view: &NodeView) -> bool {
    view.record.as_ref().is_some_and(|r| r.gateway_evacuated)
}

/// The owner's marks, as long as the node is a chassis or its pods are still needed.
fn mark_node(view: &NodeView, id: Option<&SystemId>, plan: &mut Plan) {
    let Some(object) = &view.object else { return };
    let label = chassis_ref(&view.chassis).owner_label_value();
    let marked = object.owner_label() == Some(label.as_str());
    let known = id.is_none_or(|id| object.system_id() == Some(id.as_str()));
    if view.selected && !(marked && known) {
        plan.steps.push(Step::MarkNode { system_id: id.cloned() });
    }
}

/// Jobs that belong to a role that the node has again, or never had.
fn stale_jobs(view: &NodeView, spec: &OVNChassisNodeSpec, plan: &mut Plan) {
    if !spec.evacuate {
        delete_jobs(view, &[JobKind::Apply, JobKind::Evacuate], plan);
    }
    if !spec.leaving {
        delete_jobs(view, &[JobKind::ChassisDel], plan);
    }
}

fn delete_jobs(view: &NodeView, kinds: &[JobKind], plan: &mut Plan) {
    delete_jobs_that(view, kinds, |_| true, plan);
}

/// Those that are finished: what has not ended yet was made for the transition that begins.
fn delete_finished(view: &NodeView, kinds: &[JobKind], plan: &mut Plan) {
    delete_jobs_that(view, kinds, |job| job.phase.is_finished(), plan);
}

fn delete_jobs_that(view: &NodeView, kinds: &[JobKind], picked: impl Fn(&JobView) -> bool, plan: &mut Plan) {
    for kind in kinds {
        if let Some(job) = view.jobs.get(kind)
            && job.owner == JobOwner::Us
            && !job.ending
            && picked(job)
            && !plan.steps.iter().any(|s| matches!(s, Step::DeleteJob { uid, .. } if *uid == job.uid))
        {
            plan.steps.push(Step::DeleteJob {
                kind: *kind,
                uid: job.uid.clone(),
                why: "it belongs to an earlier transition",
            });
        }
    }
}

/// The entry as it follows from what is applied, with a reason and a message.
pub fn record(view: &NodeView, id: Option<&SystemId>, reason: Reason, message: String) -> NodeRecord {
    let ocn = view.ocn.as_ref();
    let base = view.record.clone().unwrap_or_default();
    let applied = view.is_applied();
    let applied_gateway = applied && ocn.is_some_and(|o| o.spec.gateway);
    // Held at true until the evacuation is confirmed, also where the status never got to say it before (or was lost).
    // A role that comes back is none until it is applied again.
    let held_gateway =
        !base.gateway_evacuated && !view.is_back() && !view.wants_gateway() && ocn.is_some_and(|o| o.spec.evacuate);
    let message = match &view.shares_hash_with {
        Some(other) => {
            let note = format!("served without Jobs: node {other} has the same eight digits in their names");
            if message.is_empty() { note } else { format!("{message}; {note}") }
        }
        None => message,
    };
    let shown = matches!(
        reason,
        Reason::MovingTraffic
            | Reason::GatewayFlag
            | Reason::MovingGateways
            | Reason::BindingsLeft
            | Reason::NorthboundConfirmed
            | Reason::LastGateway
    );
    let shown = shown || (reason == Reason::JobFailed && !base.gateway_evacuated);
    NodeRecord {
        name: view.node.to_string(),
        system_id: id.map(SystemId::to_string).or(base.system_id),
        gateway: base.gateway || applied_gateway || held_gateway,
        config_hash: ocn.filter(|_| applied).map(|o| o.spec.config_hash.clone()).or(base.config_hash),
        gateway_evacuated: base.gateway_evacuated,
        leaving: ocn.is_some_and(|o| o.spec.leaving),
        phase: Some(reason.phase()),
        reason: Some(reason.as_str().to_owned()),
        message: (!message.is_empty()).then_some(message),
        remaining_bindings: view.bindings.filter(|_| shown).map(|n| i32::try_from(n).unwrap_or(i32::MAX)),
        last_transition_time: None,
    }
}

/// [`record`] as an entry.
pub fn entry(view: &NodeView, id: Option<&SystemId>, reason: Reason, message: String) -> Entry {
    Entry::Is(Box::new(record(view, id, reason, message)))
}

/// The entry of a node on which nothing is being taken away.
fn steady(view: &NodeView, identity: &Identity, wanted: &Wanted) -> Entry {
    let id = identity.id();
    if let Some(hold) = &wanted.hold {
        return entry(view, id, hold.reason, hold.message.clone());
    }
    let (reason, message) = match identity {
        Identity::Waiting => (Reason::WaitingForAgent, "the node's agent has not reported yet".to_owned()),
        Identity::Duplicate { id, node } => (
            Reason::DuplicateSystemId,
            format!(
                "nodes {} and {node} both have the system-id {id}; give one of them another one (ovs-vsctl set \
                 Open_vSwitch . external_ids:system-id=…, or remove the key to get a new one)",
                view.node
            ),
        ),
        Identity::Invalid(error) => (
            Reason::InvalidSystemId,
            format!("Open_vSwitch.external_ids of node {}: {error}; correct or remove it", view.node),
        ),
        _ if view.ocn.as_ref().map(|o| &o.spec) != Some(&wanted.spec) || !view.is_applied() => {
            let reported = view.ocn.as_ref().and_then(|o| o.status.as_ref()).is_some_and(|s| s.observed.is_some());
            if reported {
                (Reason::SettingsChanged, "the agent has not applied the settings yet".to_owned())
            } else {
                (Reason::WaitingForAgent, "the node's agent has not reported yet".to_owned())
            }
        }
        // What the drain left behind stays said.
        _ if is_evacuated(view) && !wanted.spec.gateway => (Reason::NorthboundConfirmed, said_before(view)),
        _ => (Reason::AsDesired, String::new()),
    };
    entry(view, id, reason, message)
}

/// What the entry says, if the reason has not changed since.
fn said_before(view: &NodeView) -> String {
    let confirmed = Some(Reason::NorthboundConfirmed.as_str());
    let record = view.record.as_ref().filter(|r| r.reason.as_deref() == confirmed);
    record.and_then(|r| r.message.clone()).unwrap_or_default()
}

/// Time from now until then, for looking again.
pub fn until(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO) + Duration::from_millis(10)
}
