//! How gateway duties go away: the flag first, then the rows, then the confirmation, then the Jobs' ends.
//!
//! The flag goes before the rows because a CMS hands rows back to a chassis that still announces itself. The status says
//! `gatewayEvacuated` before the Job is `Complete`, because who waits for the Job reads the status next.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::before_gateway_off;
use super::gateway_ports::Ports;
use super::order::{entry, is_evacuated, record, until};
use super::plan::{Entry, JobChange, Plan, Step};
use super::reason::Reason;
use super::standing::{Standing, standing};
use super::view::{DatabaseState, NodeView};
use super::wanted::{count, name_taken, some_of};
use crate::api::{NodePhase, OVNChassisNodeSpec};
use crate::cluster::events::{Happening, Severity};
use crate::model::ids::SystemId;
use crate::model::names::JobKind;

/// How often rows that somebody puts back are removed.
const MOST_REMOVALS: u32 = 16;

/// What a Job was created for: a failed one is in the way only as long as this stays the same.
pub fn settings_key(spec: &OVNChassisNodeSpec) -> String {
    format!("{}{}", spec.config_hash, if spec.leaving { "-leaving" } else { "" })
}

/// A Job's end by failure, after the status says so.
#[derive(Clone, Debug)]
pub struct Failure {
    pub kind: JobKind,
    pub reason: &'static str,
    pub cause: String,
}

/// The message of a failed Job, the same before and after the Job says so itself.
pub fn failure_message(view: &NodeView, kind: JobKind, cause: &str) -> String {
    format!("{}{cause}{WAY_OUT}", what_failed(view, kind))
}

const WAY_OUT: &str = "; mend it, then delete the Job to try again";

fn what_failed(view: &NodeView, kind: JobKind) -> String {
    let job = crate::controller::objects::chassis_ref(&view.chassis).job(kind, &view.node);
    format!("{kind} Job {job} of node {} failed: ", view.node)
}

/// The cause that the status gives already.
pub fn cause_told(view: &NodeView, kind: JobKind) -> Option<String> {
    let record = view.record.as_ref().filter(|r| r.phase == Some(NodePhase::Failed))?;
    let cause = record.message.as_deref()?.strip_prefix(&what_failed(view, kind))?.strip_suffix(WAY_OUT)?;
    Some(cause.to_owned())
}

/// Writes the failure into the status and, once it stands there, into the Job. What is told stays: the next try of the same
/// kind fails in other words (another address, another time), and would be written again and again.
pub fn fail(view: &NodeView, id: Option<&SystemId>, failure: Failure, plan: &mut Plan) {
    let told = cause_told(view, failure.kind);
    let message = failure_message(view, failure.kind, told.as_ref().unwrap_or(&failure.cause));
    plan.entry = Some(entry(view, id, Reason::JobFailed, message));
    if let Some(message) = told {
        let change = JobChange::Fail { reason: failure.reason, message };
        plan.steps.push(Step::ChangeJobs(vec![(failure.kind, change)]));
    }
}

/// Whether the agent is not waited for any longer: the node leaves and nobody answers.
fn is_agent_given_up(view: &NodeView, spec: &OVNChassisNodeSpec, now: Timestamp) -> Result<bool, Timestamp> {
    if !spec.leaving {
        return Ok(false);
    }
    let reason = view.record.as_ref().and_then(|r| r.reason.as_deref()).and_then(Reason::parse);
    let past = matches!(
        reason,
        Some(Reason::MovingGateways | Reason::BindingsLeft | Reason::CentralNotReady | Reason::DatabaseNotSynced)
    );
    if past && view.record.as_ref().is_some_and(|r| r.leaving) {
        // It got past this point before, so it stays past it: the entry remembers what no Job can.
        return Ok(true);
    }
    let since = view.record.as_ref().filter(|_| reason == Some(Reason::GatewayFlag));
    let Some(since) = since.and_then(|r| r.last_transition_time.as_ref()) else { return Ok(false) };
    let wait = SignedDuration::from_secs(view.dead_agent_wait_seconds);
    let then = since.0.checked_add(wait).unwrap_or(Timestamp::MAX);
    if now >= then { Ok(true) } else { Err(then) }
}

/// One pass of an evacuation that the Northbound has not confirmed yet.
pub fn evacuate(view: &NodeView, spec: &OVNChassisNodeSpec, id: &SystemId, now: Timestamp, plan: &mut Plan) {
    let settings = settings_key(spec);
    let apply = standing(view, JobKind::Apply, &settings);
    let work = standing(view, JobKind::Evacuate, &settings);
    let leave = standing(view, JobKind::ChassisDel, &settings);
    for (kind, state) in [(JobKind::Apply, &apply), (JobKind::Evacuate, &work), (JobKind::ChassisDel, &leave)] {
        match state {
            Standing::Taken { name } if kind != JobKind::ChassisDel || spec.leaving => {
                plan.entry = Some(entry(view, Some(id), Reason::JobNameTaken, name_taken(name)));
                return;
            }
            Standing::FailedBefore { uid } => {
                let why = "the node is to be something else since it failed";
                plan.steps.push(Step::DeleteJob { kind, uid: uid.clone(), why });
                return;
            }
            _ => {}
        }
    }
    let given_up = is_agent_given_up(view, spec, now);
    let skip_apply = given_up == Ok(true) && !view.is_applied();
    create_missing(view, spec, [&apply, &work, &leave], skip_apply, settings, plan);
    if matches!(work, Standing::Complete) {
        // Complete comes after the status, so this one is of an earlier drain.
        if let Some(job) = view.job(JobKind::Evacuate) {
            let why = "the status does not show its result";
            plan.steps.push(Step::DeleteJob { kind: JobKind::Evacuate, uid: job.uid.clone(), why });
        }
        return;
    }
    let applied = view.is_applied() || apply == Standing::Complete;
    if !applied && !skip_apply {
        if let Err(then) = given_up {
            plan.look_again = Some(until(now, then));
        }
        wait_for_agent(view, id, &apply, now, plan);
        return;
    }
    if skip_apply && let Some(job) = view.job(JobKind::Apply).filter(|j| !j.phase.is_finished() && !j.ending) {
        let note = format!(
            "node {} leaves and its agent has not answered for {} s: its settings are not waited for",
            view.node, view.dead_agent_wait_seconds
        );
        plan.steps.push(Step::Announce(Happening {
            severity: Severity::Warning,
            reason: "AgentGivenUp",
            action: "Apply",
            note,
        }));
        let why = "the node leaves and its agent does not answer";
        plan.steps.push(Step::DeleteJob { kind: JobKind::Apply, uid: job.uid.clone(), why });
    }
    move_gateways(view, spec, id, &apply, &work, now, plan);
}

/// Creates the Jobs of a transition that are not there yet, together.
pub fn create_missing(
    view: &NodeView,
    spec: &OVNChassisNodeSpec,
    [apply, work, leave]: [&Standing; 3],
    skip_apply: bool,
    settings: String,
    plan: &mut Plan,
) {
    let mut kinds = Vec::new();
    if *apply == Standing::Missing && !skip_apply {
        kinds.push(JobKind::Apply);
    }
    if *work == Standing::Missing {
        kinds.push(JobKind::Evacuate);
    }
    if *leave == Standing::Missing && spec.leaving {
        kinds.push(JobKind::ChassisDel);
    }
    // A Job that failed and was deleted is told no more before the next one is there: its cause is not that one's.
    let is_told = kinds.iter().any(|kind| cause_told(view, *kind).is_some());
    if !kinds.is_empty() && !is_told {
        plan.steps.push(Step::CreateJobs { kinds, settings });
    }
}

fn wait_for_agent(view: &NodeView, id: &SystemId, apply: &Standing, now: Timestamp, plan: &mut Plan) {
    let waiting = "waits for the node's agent to take the gateway flag off";
    match apply {
        Standing::Failed { message } => {
            let message = failure_message(view, JobKind::Apply, message);
            plan.entry = Some(entry(view, Some(id), Reason::JobFailed, message));
            return;
        }
        Standing::Waiting => plan.steps.push(Step::ChangeJobs(vec![(JobKind::Apply, JobChange::Start)])),
        Standing::Started { expires } if now >= *expires => {
            let cause = why_not_applied(view);
            fail(view, Some(id), Failure { kind: JobKind::Apply, reason: "DeadlineExceeded", cause }, plan);
            return;
        }
        Standing::Started { expires } => {
            let look = until(now, *expires);
            plan.look_again = Some(plan.look_again.map_or(look, |sooner| sooner.min(look)));
        }
        _ => {}
    }
    plan.entry = Some(entry(view, Some(id), Reason::GatewayFlag, waiting.into()));
}

/// What the agent last said.
fn why_not_applied(view: &NodeView) -> String {
    let status = view.ocn.as_ref().and_then(|o| o.status.as_ref());
    let said = status.and_then(|s| {
        s.conditions.iter().find(|c| c.type_ == crate::model::conditions::node::APPLIED && c.status != "True")
    });
    let said = match said {
        Some(condition) => format!("it last said {}: {}", condition.reason, condition.message),
        None if status.is_none_or(|s| s.observed.is_none()) => "it has never reported".to_owned(),
        None => "its last report is about earlier settings".to_owned(),
    };
    format!("the agent of node {} did not report the settings as applied in time; {said}", view.node)
}

fn move_gateways(
    view: &NodeView,
    spec: &OVNChassisNodeSpec,
    id: &SystemId,
    apply: &Standing,
    work: &Standing,
    now: Timestamp,
    plan: &mut Plan,
) {
    if view.outcomes.evacuated.as_ref() == Some(id) && is_elsewhere(view, id, work, now, plan) {
        if !view.record.as_ref().is_some_and(|r| r.gateway) {
            // The role went before the status ever showed it: shown first, so that both flip in one write.
            plan.entry = Some(entry(view, Some(id), Reason::MovingGateways, String::new()));
            return;
        }
        let mut record = record(view, Some(id), Reason::NorthboundConfirmed, left_without(view));
        record.gateway = false;
        record.gateway_evacuated = true;
        plan.entry = Some(Entry::Is(Box::new(record)));
        return;
    }
    if view.outcomes.evacuated.as_ref() == Some(id) {
        return;
    }
    let failed = |cause: String, reason| Failure { kind: JobKind::Evacuate, reason, cause };
    let mut changes = Vec::new();
    // The entry shows the hash that the agent applied before the Job says Complete.
    let shown = view.record.as_ref().and_then(|r| r.config_hash.as_deref()) == Some(spec.config_hash.as_str());
    if shown && view.is_applied() && matches!(apply, Standing::Waiting | Standing::Started { .. }) {
        let message = format!("node {} reported {}", view.node, spec.config_hash);
        changes.push((JobKind::Apply, JobChange::Complete { message }));
    }
    match work {
        Standing::Failed { message } => {
            let message = failure_message(view, JobKind::Evacuate, message);
            plan.entry = Some(entry(view, Some(id), Reason::JobFailed, message));
        }
        Standing::Missing | Standing::Ending => {
            plan.entry = Some(entry(view, Some(id), Reason::MovingGateways, String::new()));
        }
        Standing::Waiting if let Some((reason, message)) = not_ready(view) => {
            plan.entry = Some(entry(view, Some(id), reason, message));
        }
        Standing::Started { expires }
            if now >= *expires && (view.outcomes.attempts > 0 || view.ovn_remote.is_err()) =>
        {
            let problem = view.ovn_remote.as_ref().err().map(|p| p.message.clone());
            let cause = view.outcomes.last_error.clone().or(problem).unwrap_or_else(|| "it took too long".into());
            fail(view, Some(id), failed(cause, "DeadlineExceeded"), plan);
        }
        _ if view.outcomes.is_final && !matches!(work, Standing::Jobless) => {
            let cause = view.outcomes.last_error.clone().unwrap_or_default();
            fail(view, Some(id), failed(cause, "EvacuationFailed"), plan);
        }
        _ => {
            if *work == Standing::Waiting {
                changes.push((JobKind::Evacuate, JobChange::Start));
            }
            if let Standing::Started { expires } = work {
                plan.look_again = Some(until(now, *expires));
            }
            let tried = view.outcomes.last_error.clone().map(|e| format!("last try: {e}"));
            plan.entry = Some(entry(view, Some(id), Reason::MovingGateways, tried.unwrap_or_default()));
            if !changes.is_empty() {
                plan.steps.push(Step::ChangeJobs(std::mem::take(&mut changes)));
            }
            if view.ovn_remote.is_ok() {
                plan.steps.push(Step::Evacuate { system_id: id.clone() });
            }
        }
    }
    if !changes.is_empty() {
        plan.steps.push(Step::ChangeJobs(changes));
    }
}

/// What the work waits for before its Job may start.
pub fn not_ready(view: &NodeView) -> Option<(Reason, String)> {
    match (&view.ovn_remote, &view.northbound) {
        (Err(problem), _) => Some((Reason::CentralNotReady, problem.message.clone())),
        (Ok(_), DatabaseState::Unfit(why)) => Some((Reason::DatabaseNotSynced, format!("Northbound database: {why}"))),
        _ => None,
    }
}

/// Whether the Southbound, too, shows none of the ports here that somebody else could have. Until it does, says so.
fn is_elsewhere(view: &NodeView, id: &SystemId, work: &Standing, now: Timestamp, plan: &mut Plan) -> bool {
    let left = match &view.ports {
        Ports::Known(ports) if ports.is_quiet(now) => return true,
        Ports::Known(ports) => {
            plan.ports = ports.here.clone();
            before_gateway_off::look_when_quiet(ports, now, plan);
            some_of(&ports.here)
        }
        Ports::Unknown(why) => {
            plan.look_again = Some(before_gateway_off::ASK_AGAIN);
            why.clone()
        }
        Ports::NotAsked => {
            plan.look_again = Some(before_gateway_off::ASK_AGAIN);
            "it has not been asked yet".to_owned()
        }
    };
    match work {
        Standing::Failed { message } => {
            let message = failure_message(view, JobKind::Evacuate, message);
            plan.entry = Some(entry(view, Some(id), Reason::JobFailed, message));
            return false;
        }
        Standing::Started { expires } if now >= *expires => {
            let cause = before_gateway_off::why_not_moved(view);
            let failure = Failure { kind: JobKind::Evacuate, reason: "DeadlineExceeded", cause };
            fail(view, Some(id), failure, plan);
            return false;
        }
        Standing::Started { expires } => {
            let look = until(now, *expires);
            plan.look_again = Some(plan.look_again.map_or(look, |sooner| sooner.min(look)));
        }
        Standing::Waiting => plan.steps.push(Step::ChangeJobs(vec![(JobKind::Evacuate, JobChange::Start)])),
        _ => {}
    }
    if view.duties.rows.is_some_and(|rows| rows > 0) && view.outcomes.removals < MOST_REMOVALS {
        // Somebody put rows back meanwhile.
        plan.steps.push(Step::Evacuate { system_id: id.clone() });
    }
    let message = format!("the Northbound database confirmed; waits for the Southbound: {left}");
    plan.entry = Some(entry(view, Some(id), Reason::BindingsLeft, message));
    false
}

/// Which ports the drain leaves without any gateway.
fn left_without(view: &NodeView) -> String {
    let sole = &view.duties.sole;
    let mut said = Vec::new();
    if !sole.is_empty() {
        said.push(format!("{} without any gateway now: {}", count(sole.len(), "port"), some_of(sole)));
    }
    if !view.pins.is_empty() {
        said.push(before_gateway_off::say_pins(&view.pins));
    }
    said.join("; ")
}

/// Ends Jobs whose result the status shows: after a crash, or because the last pass wrote it.
pub fn finish_jobs(view: &NodeView, spec: &OVNChassisNodeSpec, now: Timestamp, plan: &mut Plan) {
    if !spec.evacuate || !is_evacuated(view) {
        return;
    }
    let settings = settings_key(spec);
    let mut changes = Vec::new();
    if let Standing::Waiting | Standing::Started { .. } = standing(view, JobKind::Evacuate, &settings) {
        let message = format!("the Northbound database holds no gateway row of node {} any more", view.node);
        changes.push((JobKind::Evacuate, JobChange::Complete { message }));
    }
    if let Standing::Waiting | Standing::Started { .. } = standing(view, JobKind::Apply, &settings)
        && let Some(job) = view.job(JobKind::Apply)
    {
        let shown = view.record.as_ref().and_then(|r| r.config_hash.as_deref()) == Some(spec.config_hash.as_str());
        if view.is_applied() && shown {
            let message = format!("node {} reported {}", view.node, spec.config_hash);
            changes.push((JobKind::Apply, JobChange::Complete { message }));
        } else if is_agent_given_up(view, spec, now) == Ok(true) {
            let why = "the node leaves and its agent does not answer";
            plan.steps.push(Step::DeleteJob { kind: JobKind::Apply, uid: job.uid.clone(), why });
        }
    }
    if !changes.is_empty() {
        plan.steps.push(Step::ChangeJobs(changes));
    }
}

/// Rows that somebody put back on an evacuated node are removed again, a bounded number of times; then it is said who has
/// to give in.
pub fn keep_evacuated(view: &NodeView, id: &SystemId, plan: &mut Plan) {
    let is_named = view.duties.rows.is_some_and(|rows| rows > 0) || view.duties.lowered;
    if !is_named {
        return;
    }
    if view.outcomes.removals >= MOST_REMOVALS {
        let message = format!(
            "gateway rows of this node were removed {MOST_REMOVALS} times and are back in the Northbound database: they are \
             left now; stop what puts them there, then give the node its gateway label and take it away again"
        );
        plan.entry = Some(entry(view, Some(id), Reason::RowsComeBack, message));
    } else if view.ovn_remote.is_ok() {
        plan.steps.push(Step::Evacuate { system_id: id.clone() });
    }
}
