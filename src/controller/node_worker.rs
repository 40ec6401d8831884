//! One node's worker: observe, decide, act, report, and wait for the bell.
//!
//! Nodes never wait for each other: each has its own worker, and what fails on one is tried again by it alone.

use std::time::Duration;

use super::act::{ActError, Actor};
use super::decide::before_gateway_off::ASK_AGAIN;
use super::decide::gateway_ports::Ports;
use super::decide::order::is_evacuated;
use super::decide::view::{NodeView, Trouble};
use super::decide::{Plan, decide, reason::Reason, roll};
use super::moving::Moving;
use super::objects::chassis_ref;
use super::observe::{Memory, observe};
use super::wake::{Bell, Key};
use super::world::{Board, Pending, World};
use crate::api::NodePhase;
use crate::cluster::{ClusterError, call};
use crate::model::ids::{NodeName, SystemId};
use crate::model::names::{ChassisRef, JobKind};
use crate::ops::tasks::chain;

/// Passes without a pause; a plan that never settles must not take the processor.
const MOST_PASSES: u32 = 50;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Pins are told only: nobody waits long for them.
const LONGEST_PINS: Duration = Duration::from_secs(1);
/// One look at the gateway ports reads all of the cloud's once.
const LONGEST_LOOK: Duration = Duration::from_secs(5);

/// Works on one node until nothing is left of it.
pub async fn run(world: World, bell: Bell, chassis: ChassisRef, node: NodeName) {
    let mut memory = Memory::default();
    let mut pause = FIRST_PAUSE;
    let mut passes = 0;
    loop {
        let rung = bell.rung();
        let next = pass(&world, &chassis, &node, &mut memory).await;
        match next {
            Next::Again if passes < MOST_PASSES => {
                passes += 1;
                pause = FIRST_PAUSE;
            }
            Next::Again => {
                tracing::warn!(%node, "the plan does not settle");
                passes = 0;
                tokio::time::sleep(LONGEST_PAUSE).await;
            }
            Next::Wait(None) => {
                (pause, passes) = (FIRST_PAUSE, 0);
                bell.rings().await;
            }
            Next::Wait(Some(time)) => {
                (pause, passes) = (FIRST_PAUSE, 0);
                let _ = tokio::time::timeout(time, bell.rings()).await;
            }
            Next::Failed => {
                passes = 0;
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Next::Done => {
                if bell.retire(rung) {
                    return;
                }
            }
        }
    }
}

enum Next {
    Again,
    Wait(Option<Duration>),
    Failed,
    Done,
}

async fn pass(world: &World, chassis: &ChassisRef, node: &NodeName, memory: &mut Memory) -> Next {
    let Some(mut view) = observe(world, chassis, node, memory) else { return Next::Done };
    let looked = look_further(world, &mut view, memory).await;
    if let Err(error) = &looked {
        tracing::warn!(%node, error = %chain(error), "cannot look further");
        note_trouble(error, memory);
        if view.ports == Ports::NotAsked {
            // What could not be asked is not known: nothing is taken away on the ground of it.
            view.ports = Ports::Unknown(chain(error));
        }
    }
    let plan = decide(&view, call::now());
    tracing::debug!(%node, ?plan, "decided");
    let Ok(reported) = report(world, chassis, &view, &plan) else {
        tracing::debug!(%node, "waits for its entry to be written");
        return Next::Wait(None);
    };
    let mut actor = Actor { world, chassis: view.chassis.clone(), node: node.clone(), memory };
    for step in &plan.steps {
        if let Err(error) = actor.act(step).await {
            let quiet = matches!(error, ActError::Gone(_) | ActError::Cluster(ClusterError::Conflict { .. }));
            if quiet {
                tracing::debug!(%node, ?step, %error, "looking again");
            } else {
                tracing::warn!(%node, error = %chain(&error), "a step failed; trying again");
            }
            note_trouble(&error, memory);
            // What failed in a database may be told in the entry at once.
            if matches!(error, ActError::Database(_))
                && let Some(fresh) = observe(world, chassis, node, memory)
            {
                // What this pass looked at stands; nobody has asked since.
                let NodeView { ports, pins, healthy_since, .. } = view;
                let view = NodeView { ports, pins, healthy_since, ..fresh };
                let _ = report(world, chassis, &view, &decide(&view, call::now()));
            }
            return Next::Failed;
        }
    }
    if looked.is_ok() {
        memory.trouble = None;
    }
    if plan.done {
        return Next::Done;
    }
    if !plan.steps.is_empty() {
        return Next::Again;
    }
    let held = view.ocn.is_some() && is_held_by_name(&plan);
    let look_again = match plan.look_again {
        // Nothing tells when a stranger's Job goes.
        None if held => Some(Duration::from_secs(2)),
        // Nor when a question can be answered again.
        other if matches!(view.ports, Ports::Unknown(_)) => {
            Some(other.map_or(ASK_AGAIN, |sooner| sooner.min(ASK_AGAIN)))
        }
        other => other,
    };
    if reported { Next::Wait(look_again.or(Some(Duration::from_secs(30)))) } else { Next::Wait(look_again) }
}

fn is_held_by_name(plan: &Plan) -> bool {
    matches!(&plan.entry, Some(super::decide::Entry::Is(r)) if r.reason.as_deref() == Some(Reason::JobNameTaken.as_str()))
}

fn note_trouble(error: &ActError, memory: &mut Memory) {
    if let ActError::Cluster(error @ (ClusterError::Forbidden { .. } | ClusterError::Invalid { .. })) = error {
        memory.trouble = Some(Trouble { needs_help: true, message: error.to_string() });
    }
}

/// What the caches cannot tell, asked for only when a role is about to be taken away.
async fn look_further(world: &World, view: &mut NodeView, memory: &mut Memory) -> Result<(), ActError> {
    let Some(ocn) = view.ocn.clone() else { return Ok(()) };
    let spec = &ocn.spec;
    let takes_gateway = spec.gateway && !view.wants_gateway();
    let takes_chassis = !spec.leaving && !view.selected;
    let chassis = view.chassis.clone();
    let us = chassis_ref(&chassis);
    if takes_gateway || takes_chassis || !memory.strangers.is_empty() {
        let mut actor = Actor { world, chassis: chassis.clone(), node: view.node.clone(), memory };
        actor.look_for_strangers().await?;
    }
    if let Some(fresh) = observe(world, &us, &view.node, memory) {
        *view = fresh;
    }
    let healthy = view.duties.lowered && roll::is_healthy(view);
    memory.healthy_since = healthy.then(|| memory.healthy_since.unwrap_or_else(call::now));
    view.healthy_since = memory.healthy_since;
    let takes_rows = takes_chassis && !spec.evacuate && view.duties.rows.is_some_and(|rows| rows > 0);
    let evacuating = spec.evacuate && !is_evacuated(view);
    let rolls = roll::is_asked_for(view);
    if takes_gateway || takes_rows || rolls || (evacuating && memory.outcomes.evacuated.is_some()) {
        view.ports = look_at_ports(world, view, evacuating, memory).await;
        if let (false, false, Ports::Known(ports)) = (evacuating, rolls && !takes_gateway, &view.ports) {
            memory.sole = ports.stranded_names();
            view.duties.sole.clone_from(&memory.sole);
        }
        view.outcomes = memory.outcomes.clone();
    } else if !evacuating {
        memory.moving = Moving::default();
    }
    if takes_gateway || takes_chassis {
        // Where the ports cannot be read, pins cannot be either.
        if !matches!(view.ports, Ports::Unknown(_)) {
            find_pins(world, view, memory).await;
        }
        view.pins = memory.pins.clone().unwrap_or_default();
    } else if !spec.evacuate && !spec.leaving {
        memory.pins = None;
    }
    Ok(())
}

/// What else names the chassis, asked once for each drain. That it cannot be read stops no drain: it is told only.
async fn find_pins(world: &World, view: &NodeView, memory: &mut Memory) {
    if memory.pins.is_none()
        && let Some(ocn) = &view.ocn
        && let Some(id) = ocn.spec.system_id.as_deref().and_then(|text| SystemId::parse(text).ok())
        && let Some(link) = world.databases.link(&chassis_ref(&view.chassis))
    {
        let observed = ocn.status.as_ref().and_then(|s| s.observed.as_ref());
        let hostname = observed.and_then(|o| o.hostname.as_deref());
        match super::databases::fetch_pins(&link, &id, hostname, LONGEST_PINS).await {
            Ok(pins) => memory.pins = Some(pins),
            Err(error) => tracing::warn!(node = %view.node, error = %chain(&error), "pins cannot be read"),
        }
    }
}

/// Which gateway ports have to move, or still have to after their rows have gone.
async fn look_at_ports(world: &World, view: &NodeView, rows_are_gone: bool, memory: &mut Memory) -> Ports {
    let id = view.ocn.as_ref().and_then(|o| o.spec.system_id.as_deref()).and_then(|text| SystemId::parse(text).ok());
    // Without an id nothing was ever registered.
    let Some(id) = id else { return Ports::NotAsked };
    let us = chassis_ref(&view.chassis);
    let Some(link) = world.databases.link(&us) else {
        return Ports::Unknown("the databases' addresses are not known".into());
    };
    let mut moving = std::mem::take(&mut memory.moving);
    let mut actor = Actor { world, chassis: view.chassis.clone(), node: view.node.clone(), memory };
    let attempt = actor.attempt(JobKind::Evacuate).min(LONGEST_LOOK);
    let look = moving.look(&link, &id, rows_are_gone, attempt, call::now()).await;
    if let Some(error) = &look.failure {
        tracing::warn!(node = %view.node, error = %chain(error), "gateway ports cannot be read");
        actor.note_failure(error);
    }
    memory.moving = moving;
    look.ports
}

/// An entry of this node is being written that will have it judged otherwise.
struct InFlight;

/// Hands the entry to the reporter if it says something else than the status does. Says whether it did.
///
/// What was decided on an entry that is just being replaced is void: acted upon, it would take a node for one that its status
/// calls another a moment later (an evacuated gateway that has its role again).
fn report(world: &World, chassis: &ChassisRef, view: &NodeView, plan: &Plan) -> Result<bool, InFlight> {
    let is_in_flight = |board: &Board| board.in_flight.get(&view.node).is_some_and(|e| e.turns(view.record.as_ref()));
    let Some(entry) = &plan.entry else {
        return world.board(chassis, |board| if is_in_flight(board) { Err(InFlight) } else { Ok(false) });
    };
    let pending = Pending { entry: entry.clone(), ports: plan.ports.clone(), base: view.record.clone() };
    let shown = pending.entry.is_shown(view);
    let changed = world.board(chassis, |board| {
        if is_in_flight(board) {
            return Err(InFlight);
        }
        if shown {
            board.pending.remove(&view.node);
            return Ok(false);
        }
        Ok(board.pending.insert(view.node.clone(), pending.clone()) != Some(pending))
    })?;
    if changed {
        let failed = matches!(&plan.entry, Some(super::decide::Entry::Is(r)) if r.phase == Some(NodePhase::Failed));
        if failed {
            tracing::warn!(node = %view.node, "a Job of this node failed");
        }
        world.wake.wake(Key::Report(chassis.clone()));
    }
    Ok(changed)
}
