//! How a node is deregistered and forgotten, and how it is let go when its OVNChassis is.

use k8s_openapi::jiff::Timestamp;

use super::gateway::{self, Failure, fail, failure_message, settings_key};
use super::order::{entry, until};
use super::plan::{Entry, JobChange, Plan, Step};
use super::reason::Reason;
use super::standing::{Standing, standing};
use super::view::{DatabaseState, NodeView};
use super::wanted::name_taken;
use crate::api::OVNChassisNodeSpec;
use crate::controller::objects::chassis_ref;
use crate::model::ids::SystemId;
use crate::model::names::JobKind;

/// Whether the node left, so that only remains are to be cleared.
pub fn is_forgotten(view: &NodeView) -> bool {
    if view.record.is_some() {
        return false;
    }
    match (&view.ocn, &view.departed) {
        // It began anew, if no further than this: it leaves as any other does, for its daemons may have registered.
        (_, Some(_)) if is_marked(view) => false,
        (Some(ocn), Some(departed)) => {
            let id = ocn.spec.system_id.as_deref();
            ocn.spec.leaving && id.is_none_or(|id| id == departed.system_id)
        }
        (Some(ocn), None) => ocn.spec.leaving && ocn.spec.system_id.is_none(),
        (None, Some(_)) => !view.selected || has_unfinished_deletion(view),
        (None, None) => !view.selected,
    }
}

fn has_unfinished_deletion(view: &NodeView) -> bool {
    view.job(JobKind::ChassisDel).is_some_and(|job| !job.phase.is_finished() && !job.ending)
}

/// Whether the node's daemons run or may start at any moment, and register with them.
pub fn may_register(view: &NodeView) -> bool {
    is_marked(view) || !view.pods.is_empty()
}

fn is_marked(view: &NodeView) -> bool {
    let label = chassis_ref(&view.chassis).owner_label_value();
    view.object.as_ref().and_then(|o| o.owner_label()) == Some(label.as_str())
}

/// The id of a node whose rows are confirmed to be gone and which the status does not call departed yet. That comes
/// first, also if its labels are back: a node that begins anew before would be forgotten while it registers.
pub fn departing(view: &NodeView) -> Option<&SystemId> {
    let id = view.outcomes.deregistered.as_ref()?;
    let spec = view.ocn.as_ref().map(|o| &o.spec).filter(|spec| spec.leaving)?;
    let of_this_life = view.record.is_some() && spec.system_id.as_deref() == Some(id.as_str());
    (of_this_life && !may_register(view)).then_some(id)
}

/// Clears what a forgotten node leaves behind: its object, then its Jobs' ends.
pub fn remains(view: &NodeView) -> Plan {
    let mut plan = Plan::default();
    release(view, &mut plan);
    if view.ocn.is_some() {
        plan.steps.push(Step::DeleteNode);
    }
    if has_unfinished_deletion(view) {
        let message = format!("no row of node {} is left in the Southbound database", view.node);
        plan.steps.push(Step::ChangeJobs(vec![(JobKind::ChassisDel, JobChange::Complete { message })]));
    }
    for kind in [JobKind::Apply, JobKind::Evacuate] {
        // Of a node that was back for a moment and left for good before its agent answered: nobody ends it any more.
        if let Some(job) = view.job(kind).filter(|job| !job.phase.is_finished() && !job.ending) {
            let why = "the node left, and nobody is there to answer";
            plan.steps.push(Step::DeleteJob { kind, uid: job.uid.clone(), why });
        }
    }
    plan.done = plan.steps.is_empty() && !view.selected;
    plan
}

/// Takes our marks off the Node.
fn release(view: &NodeView, plan: &mut Plan) {
    if is_marked(view) {
        plan.steps.push(Step::ReleaseNode);
    }
}

/// The OVNChassis goes and the rows stay: marks, Jobs and object go, the entry with them.
pub fn orphan(view: &NodeView) -> Plan {
    let mut plan = Plan::default();
    let id = view.ocn.as_ref().and_then(|o| o.spec.system_id.as_deref()).and_then(|text| SystemId::parse(text).ok());
    if let Some(system_id) = id.filter(|_| view.duties.lowered) {
        // The rows stay, as they were before we touched them.
        plan.steps.push(Step::RestorePriority { system_id });
    }
    release(view, &mut plan);
    for kind in JobKind::ALL {
        if let Some(job) = view.job(kind).filter(|j| !j.ending) {
            let why = "its OVNChassis is deleted";
            plan.steps.push(Step::DeleteJob { kind, uid: job.uid.clone(), why });
        }
    }
    if view.ocn.is_some() {
        plan.steps.push(Step::DeleteNode);
    }
    if view.record.is_some() {
        plan.entry = Some(Entry::Goes);
    }
    plan.done = plan.steps.is_empty() && plan.entry.is_none();
    plan
}

/// One pass of a node that leaves and holds no gateway duties (any more).
pub fn deregister(view: &NodeView, spec: &OVNChassisNodeSpec, id: Option<&SystemId>, now: Timestamp, plan: &mut Plan) {
    let settings = settings_key(spec);
    let work = standing(view, JobKind::ChassisDel, &settings);
    match &work {
        Standing::Missing if gateway::cause_told(view, JobKind::ChassisDel).is_none() => {
            plan.steps.push(Step::CreateJobs { kinds: vec![JobKind::ChassisDel], settings });
        }
        Standing::Taken { name } => {
            plan.entry = Some(entry(view, id, Reason::JobNameTaken, name_taken(name)));
            return;
        }
        Standing::FailedBefore { uid } => {
            let why = "the node is to be something else since it failed";
            plan.steps.push(Step::DeleteJob { kind: JobKind::ChassisDel, uid: uid.clone(), why });
            return;
        }
        _ => {}
    }
    // The daemons end first: a row that is deleted while ovn-controller runs is back within milliseconds.
    release(view, plan);
    let released = !plan.steps.contains(&Step::ReleaseNode);
    if !released || !view.pods.is_empty() {
        let names: Vec<_> = view.pods.iter().map(|p| p.name.clone()).collect();
        let message = format!("waits for the node's pods to end: {}", super::wanted::some_of(&names));
        plan.entry = Some(entry(view, id, Reason::PodsEnding, message));
        return;
    }
    let Some(id) = id else {
        // Never registered under an id of ours.
        plan.entry = Some(Entry::Departs { system_id: None });
        return;
    };
    if view.outcomes.deregistered.as_ref() == Some(id) {
        plan.entry = Some(Entry::Departs { system_id: Some(id.clone()) });
        return;
    }
    if let Some(node) = view.ids_elsewhere.get(id).and_then(|nodes| nodes.first()) {
        let message = format!(
            "nodes {} and {node} both have the system-id {id}: its rows are not deleted as long as {node} is there",
            view.node
        );
        plan.entry = Some(entry(view, Some(id), Reason::DuplicateSystemId, message));
        return;
    }
    delete_rows(view, spec, id, &work, now, plan);
}

fn delete_rows(
    view: &NodeView,
    spec: &OVNChassisNodeSpec,
    id: &SystemId,
    work: &Standing,
    now: Timestamp,
    plan: &mut Plan,
) {
    let failed = |cause: String, reason| Failure { kind: JobKind::ChassisDel, reason, cause };
    let not_ready = match (&view.ovn_remote, &view.southbound) {
        (Err(problem), _) => Some((Reason::CentralNotReady, problem.message.clone())),
        (Ok(_), DatabaseState::Unfit(why)) => Some((Reason::DatabaseNotSynced, format!("Southbound database: {why}"))),
        _ if spec.evacuate => gateway::not_ready(view),
        _ => None,
    };
    match work {
        Standing::Failed { message } => {
            let message = failure_message(view, JobKind::ChassisDel, message);
            plan.entry = Some(entry(view, Some(id), Reason::JobFailed, message));
            return;
        }
        Standing::Missing | Standing::Ending => {
            plan.entry = Some(entry(view, Some(id), Reason::DeletingRows, String::new()));
            return;
        }
        Standing::Waiting if let Some((reason, message)) = not_ready => {
            plan.entry = Some(entry(view, Some(id), reason, message));
            return;
        }
        Standing::Started { expires }
            if now >= *expires && (view.outcomes.attempts > 0 || view.ovn_remote.is_err()) =>
        {
            let problem = view.ovn_remote.as_ref().err().map(|p| p.message.clone());
            let cause = view.outcomes.last_error.clone().or(problem).unwrap_or_else(|| "it took too long".into());
            fail(view, Some(id), failed(cause, "DeadlineExceeded"), plan);
            return;
        }
        _ if view.outcomes.is_final && !matches!(work, Standing::Jobless) => {
            let cause = view.outcomes.last_error.clone().unwrap_or_default();
            fail(view, Some(id), failed(cause, "DeletionFailed"), plan);
            return;
        }
        _ => {}
    }
    if *work == Standing::Waiting {
        plan.steps.push(Step::ChangeJobs(vec![(JobKind::ChassisDel, JobChange::Start)]));
    }
    if let Standing::Started { expires } = work {
        plan.look_again = Some(until(now, *expires));
    }
    let tried = view.outcomes.last_error.clone().map(|e| format!("last try: {e}"));
    plan.entry = Some(entry(view, Some(id), Reason::DeletingRows, tried.unwrap_or_default()));
    if view.ovn_remote.is_ok() {
        // Rows that somebody put back since the evacuation go before the registration does. Whether there are any is
        // asked where a gateway leaves and the Northbound is not followed now: nobody would look again later.
        if view.duties.rows.map_or(spec.evacuate, |rows| rows > 0) {
            plan.steps.push(Step::Evacuate { system_id: id.clone() });
        }
        plan.steps.push(Step::Deregister { system_id: id.clone() });
    }
}
