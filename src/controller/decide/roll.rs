//! A gateway whose `ovs` pod is replaced: its role moves away before the standby takes over, and back afterwards.
//!
//! A restarted ovs-vswitchd announces its tunnels as down, so its peers would fail over and back. Two planned moves cost
//! less. Kubernetes rolls the DaemonSet; the standby's grant is what holds the roll until the role has moved. What the
//! priority was stands in the rows, so a leader that dies in the middle leaves it to the next one to give it back.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::before_gateway_off::{ASK_AGAIN, look_when_quiet};
use super::gateway_ports::Ports;
use super::handover::is_current;
use super::order::until;
use super::plan::{Plan, Step};
use super::view::{NodeView, PodView};
use super::wanted::{count, some_of};
use crate::model::names::COMPONENT_OVS;

/// How long a node has to be healthy before it gets its role back: the tunnels' BFD sessions come up meanwhile, and a
/// priority that is raised soon after it was lowered costs more than the roll.
const SETTLED: SignedDuration = SignedDuration::from_secs(15);

/// Pods of `ovs` that wait behind an older one.
fn standbys(view: &NodeView) -> impl Iterator<Item = &PodView> {
    let of = |pod: &&PodView| pod.component == COMPONENT_OVS;
    view.pods.iter().filter(of).filter(move |pod| {
        let older = |o: &PodView| (o.created, &o.uid) < (pod.created, &pod.uid);
        !pod.ending && !pod.ready && view.pods.iter().filter(of).any(older)
    })
}

fn granted_before(view: &NodeView) -> Vec<String> {
    let handover = view.ocn.as_ref().and_then(|o| o.spec.handover.as_ref());
    handover.map(|h| h.grants.clone()).unwrap_or_default()
}

/// Whether a standby of `ovs` is to get its grant on a node that has the gateway role and keeps it.
pub fn is_asked_for(view: &NodeView) -> bool {
    let before = granted_before(view);
    // A drain that has only begun is no other case: the role is here until the flag goes off.
    let has_role = view.ocn.as_ref().is_some_and(|o| o.spec.gateway);
    has_role && standbys(view).any(|pod| view.grants.contains(&pod.uid) && !before.contains(&pod.uid))
}

/// The grants that may be given now: those of `ovs` only once the role has moved.
pub fn grants(view: &NodeView, now: Timestamp) -> Vec<String> {
    if !must_wait(view, now) {
        return view.grants.clone();
    }
    let before = granted_before(view);
    let waits = |uid: &String| standbys(view).any(|pod| pod.uid == *uid) && !before.contains(uid);
    view.grants.iter().filter(|uid| !waits(uid)).cloned().collect()
}

/// Whether the grant has to wait until gateway ports have moved.
pub fn must_wait(view: &NodeView, now: Timestamp) -> bool {
    is_asked_for(view)
        && match &view.ports {
            Ports::NotAsked => false,
            Ports::Unknown(_) => true,
            Ports::Known(ports) => !ports.is_quiet(now),
        }
}

/// One pass of the move away. Says what the roll waits for.
pub fn move_away(view: &NodeView, now: Timestamp, plan: &mut Plan) -> String {
    match &view.ports {
        Ports::Known(ports) if ports.here.is_empty() => {
            look_when_quiet(ports, now, plan);
            "the pods' roll waits until the move of the gateway ports has settled".into()
        }
        Ports::Known(ports) => {
            if let Some(lowering) = &ports.lowering {
                plan.steps.push(Step::LowerPriority(Box::new(lowering.clone())));
            }
            let ports = &ports.here;
            format!(
                "the pods' roll waits until other chassis have taken over {}: {}",
                count(ports.len(), "gateway port"),
                some_of(ports)
            )
        }
        Ports::Unknown(why) => {
            plan.look_again = Some(ASK_AGAIN);
            format!("the pods' roll waits: {why}")
        }
        Ports::NotAsked => String::new(),
    }
}

/// Whether the pods of this node are being replaced.
fn is_rolling(view: &NodeView) -> bool {
    !view.grants.is_empty() || !granted_before(view).is_empty() || standbys(view).next().is_some()
}

/// When a gateway may have the priority back that was lowered: at once, or after a roll when it has been healthy for a time.
pub fn may_restore(view: &NodeView, now: Timestamp) -> Result<(), Option<Timestamp>> {
    if !is_rolling(view) {
        return Ok(());
    }
    let Some(since) = view.healthy_since else { return Err(None) };
    match since.checked_add(SETTLED) {
        Ok(then) if now < then => Err(Some(then)),
        _ => Ok(()),
    }
}

/// Whether every pod runs alone and the agent says that all is well.
pub fn is_healthy(view: &NodeView) -> bool {
    let status = view.ocn.as_ref().and_then(|o| o.status.as_ref());
    let conditions = status.map(|s| s.conditions.as_slice()).unwrap_or_default();
    let is_true = |type_: &str| conditions.iter().any(|c| c.type_ == type_ && c.status == "True");
    let current = is_current(status.and_then(|s| s.reported_by.as_deref()), &view.pods);
    let alone = |pod: &PodView| view.pods.iter().filter(|other| other.component == pod.component).count() == 1;
    use crate::model::conditions::node::{CONTROLLER_READY, OVS_READY};
    current
        && is_true(OVS_READY)
        && is_true(CONTROLLER_READY)
        && view.pods.iter().all(|p| p.ready && !p.ending && alone(p))
}

/// What to do with the priority of a gateway that keeps its role; says what is going on, if something is.
pub fn give_back(view: &NodeView, id: &crate::model::ids::SystemId, now: Timestamp, plan: &mut Plan) -> Option<String> {
    match may_restore(view, now) {
        Ok(()) => {
            plan.steps.push(Step::RestorePriority { system_id: id.clone() });
            None
        }
        Err(then) => {
            plan.look_again = then.map(|then| until(now, then));
            Some("its pods are being replaced; the gateway priority comes back when it has settled".into())
        }
    }
}
