//! Before a chassis loses its gateway role, its traffic goes: make before break.
//!
//! A CMS answers the flag's end by deleting the rows of the active gateway, which stops the traffic until another one has
//! started from nothing. So the priority goes down first, the others take over while this one still works, and only when
//! the Southbound shows that it stays so does the flag go off. Until then the node's object asks for what it did before:
//! a label that comes back finds everything in place.
//!
//! The evacuation's Job bounds it: it starts here, its start is what a new leader counts from, and past its deadline it
//! fails with the ports that are left.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::gateway::{Failure, create_missing, fail, failure_message, not_ready, settings_key};
use super::gateway_ports::{Ports, PortsAround, say_stranded};
use super::order::{entry, until};
use super::plan::{JobChange, Plan, Step};
use super::reason::Reason;
use super::standing::{Standing, standing};
use super::view::{DatabaseState, NodeView};
use super::wanted::{count, some_of};
use crate::api::OVNChassisNodeSpec;
use crate::cluster::events::{Happening, Severity};
use crate::model::ids::SystemId;
use crate::model::names::JobKind;

/// How soon databases that could not be read are asked again.
pub const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Whether the role has to stay a while, until the ports have moved.
pub fn must_move_first(view: &NodeView, target: &OVNChassisNodeSpec, now: Timestamp) -> bool {
    let is_quiet = match &view.ports {
        // Asked about where the role is announced under an id: what could not be asked there is not known.
        Ports::NotAsked => target.system_id.is_none() || !view.ocn.as_ref().is_some_and(|o| o.spec.gateway),
        Ports::Unknown(_) => false,
        Ports::Known(ports) => ports.is_quiet(now),
    };
    // A failed drain waits for somebody, also when its cause has gone.
    let work = standing(view, JobKind::Evacuate, &settings_key(target));
    !is_quiet || matches!(work, Standing::Failed { .. })
}

/// Ports that nobody else can take are named before anything is taken away.
pub fn name_stranded(view: &NodeView, plan: &mut Plan) {
    let Ports::Known(ports) = &view.ports else { return };
    if ports.stranded.is_empty() {
        return;
    }
    let note = format!("draining node {}: {}", view.node, say_stranded(&ports.stranded, "will be left "));
    let (severity, reason) = (Severity::Warning, "PortsWithoutGateway");
    plan.ports = ports.stranded_names();
    plan.steps.push(Step::Announce(Happening { severity, reason, action: "Evacuate", note }));
}

/// What else keeps traffic here is named and left to whoever put it there.
pub fn name_pins(view: &NodeView, plan: &mut Plan) {
    if view.pins.is_empty() {
        return;
    }
    let note = format!("draining node {}: {}", view.node, say_pins(&view.pins));
    let (severity, reason) = (Severity::Warning, "ChassisPinned");
    plan.steps.push(Step::Announce(Happening { severity, reason, action: "Evacuate", note }));
}

pub fn say_pins(pins: &[String]) -> String {
    format!("{} pinned to it and left alone: {}", count(pins.len(), "object"), some_of(pins))
}

/// One pass of the move. `target` is what the node is to be afterwards.
pub fn move_traffic(view: &NodeView, target: &OVNChassisNodeSpec, id: &SystemId, now: Timestamp, plan: &mut Plan) {
    let settings = settings_key(target);
    let stands = |kind| standing(view, kind, &settings);
    let (apply, work, leave) = (stands(JobKind::Apply), stands(JobKind::Evacuate), stands(JobKind::ChassisDel));
    for (kind, state) in [(JobKind::Apply, &apply), (JobKind::Evacuate, &work), (JobKind::ChassisDel, &leave)] {
        // Finished Jobs are an earlier transition's: a wait must not meet them.
        let earlier = matches!(state, Standing::FailedBefore { .. } | Standing::Complete);
        if let Some(job) = view.job(kind).filter(|_| earlier) {
            let why = "it belongs to an earlier transition";
            plan.steps.push(Step::DeleteJob { kind, uid: job.uid.clone(), why });
            return;
        }
    }
    create_missing(view, target, [&apply, &work, &leave], false, settings, plan);
    plan.ports = match &view.ports {
        Ports::Known(ports) => ports.here.clone(),
        _ => Vec::new(),
    };
    let waiting = say_waiting(view);
    match work {
        Standing::Failed { message } => {
            let message = failure_message(view, JobKind::Evacuate, &message);
            plan.entry = Some(entry(view, Some(id), Reason::JobFailed, message));
            return;
        }
        Standing::Waiting if let Some((reason, message)) = not_ready(view) => {
            plan.entry = Some(entry(view, Some(id), reason, message));
            return;
        }
        Standing::Missing | Standing::Ending => {
            plan.entry = Some(entry(view, Some(id), Reason::MovingTraffic, waiting));
            return;
        }
        Standing::Started { expires } if now >= expires && is_hopeless(view) => {
            let cause = why_not_moved(view);
            fail(view, Some(id), Failure { kind: JobKind::Evacuate, reason: "DeadlineExceeded", cause }, plan);
            return;
        }
        Standing::Started { .. } if view.outcomes.is_final => {
            let cause = why_not_moved(view);
            fail(view, Some(id), Failure { kind: JobKind::Evacuate, reason: "EvacuationFailed", cause }, plan);
            return;
        }
        Standing::Started { expires } => plan.look_again = Some(until(now, expires)),
        Standing::Waiting => plan.steps.push(Step::ChangeJobs(vec![(JobKind::Evacuate, JobChange::Start)])),
        _ => {}
    }
    if let Ports::Unknown(_) = &view.ports {
        plan.look_again = Some(plan.look_again.map_or(ASK_AGAIN, |sooner| sooner.min(ASK_AGAIN)));
    }
    if let Ports::Known(ports) = &view.ports {
        if let Some(lowering) = ports.lowering.as_ref().filter(|_| !ports.here.is_empty()) {
            plan.steps.push(Step::LowerPriority(Box::new(lowering.clone())));
        }
        look_when_quiet(ports, now, plan);
    }
    plan.entry = Some(entry(view, Some(id), Reason::MovingTraffic, waiting));
}

/// Looks again when the quiet will have lasted.
pub fn look_when_quiet(ports: &PortsAround, now: Timestamp, plan: &mut Plan) {
    if let Some(then) = ports.quiet_at().filter(|then| *then > now) {
        let look = until(now, then);
        plan.look_again = Some(plan.look_again.map_or(look, |sooner| sooner.min(look)));
    }
}

/// Past the deadline: ports are still here, or there is nobody to ask.
fn is_hopeless(view: &NodeView) -> bool {
    match &view.ports {
        Ports::Known(ports) => !ports.here.is_empty(),
        _ => {
            let away = |state: &DatabaseState| matches!(state, DatabaseState::Unfit(_) | DatabaseState::OutOfReach(_));
            // A new leader looks once before it gives up.
            view.outcomes.attempts > 0 || view.ovn_remote.is_err() || away(&view.northbound) || away(&view.southbound)
        }
    }
}

fn say_waiting(view: &NodeView) -> String {
    match &view.ports {
        Ports::Known(ports) if ports.here.is_empty() => "waits until the move of the gateway ports has settled".into(),
        Ports::Known(ports) => {
            let tried = view.outcomes.last_error.as_ref().map(|e| format!("; last try: {e}")).unwrap_or_default();
            format!("waits until other chassis have taken over {}{tried}", said(ports))
        }
        Ports::Unknown(why) => format!("cannot tell yet which gateway ports have to move: {why}"),
        Ports::NotAsked => String::new(),
    }
}

fn said(ports: &PortsAround) -> String {
    format!("{}: {}", count(ports.here.len(), "gateway port"), some_of(&ports.here))
}

/// What is left past the deadline, port by port, and why.
pub fn why_not_moved(view: &NodeView) -> String {
    let tried = view.outcomes.last_error.clone();
    match &view.ports {
        Ports::Known(ports) if !ports.here.is_empty() => {
            // All of them, not only the first few: this is the list to work through.
            const MOST: usize = 64;
            let mut names = ports.here.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
            if ports.here.len() > MOST {
                names.push_str(&format!(" and {} more", ports.here.len() - MOST));
            }
            let tried = tried.map(|e| format!("; last try: {e}")).unwrap_or_default();
            format!(
                "the Southbound database still shows {} on node {} although other chassis could have them: {names}; see \
                 whether those run and are reached over their tunnels{tried}",
                count(ports.here.len(), "gateway port"),
                view.node
            )
        }
        Ports::Unknown(why) => tried.unwrap_or_else(|| why.clone()),
        _ => tried
            .or(view.ovn_remote.as_ref().err().map(|p| p.message.clone()))
            .unwrap_or_else(|| "it took too long".into()),
    }
}
