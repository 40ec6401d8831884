//! What a node is to be: the specification of its OVNChassisNode.
//!
//! `gateway` goes off and `evacuate` on in one write; a drain that has begun goes on whatever else happens, until the
//! role comes back. What a policy or a taken name forbids is held *before* anything is taken away.

use k8s_openapi::jiff::Timestamp;

use super::before_gateway_off;
use super::gateway_ports::{Ports, say_stranded};
use super::identity::Identity;
use super::reason::Reason;
use super::roll;
use super::view::{JobOwner, NodeView};
use crate::api::{LastGateway, OVNChassisNodeSpec};
use crate::controller::objects::node::{NodeInputs, node_spec};
use crate::model::names::JobKind;

/// Why the wish of the labels is not followed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub reason: Reason,
    pub message: String,
    pub ports: Vec<String>,
}

/// What a node is to be, and what stands in the way of what its labels ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub spec: OVNChassisNodeSpec,
    pub hold: Option<Hold>,
    /// What it is to be once its gateway ports have moved; until then `spec` leaves the role as it is.
    pub after_move: Option<OVNChassisNodeSpec>,
    /// The role comes back: the entry must stop saying `gatewayEvacuated` before the agent may announce the flag.
    pub reset_first: bool,
}

/// Decides it.
pub fn wanted(view: &NodeView, identity: &Identity, now: Timestamp) -> Wanted {
    let before = view.ocn.as_ref().map(|o| o.spec.clone()).unwrap_or_default();
    let record = view.record.clone().unwrap_or_default();
    let id = identity.id().cloned();
    let gateway = view.wants_gateway();
    let leaving = !view.selected;
    let holds_duties = before.gateway || record.gateway || (leaving && view.duties.rows.is_some_and(|rows| rows > 0));
    // Without an id nothing was ever registered, so there is nothing to evacuate.
    let evacuate = !gateway && id.is_some() && ((before.evacuate && !view.is_back()) || holds_duties);
    let mut inputs = NodeInputs {
        node: view.node.clone(),
        system_id: id,
        gateway,
        evacuate,
        leaving,
        // The last known address stays: a central that is away for a while is no reason to touch nodes.
        ovn_remote: view.ovn_remote.clone().ok().or_else(|| before.ovn_remote.clone()),
        grants: roll::grants(view, now),
    };
    let begins_evacuation = evacuate && !before.evacuate;
    let begins_leaving = leaving && !before.leaving && view.ocn.is_some();
    let hold = if begins_evacuation || begins_leaving { hold(view, begins_evacuation, leaving) } else { None };
    let mut after_move = None;
    if hold.is_none() && begins_evacuation && view.ocn.is_some() {
        let spec = node_spec(&view.chassis, &inputs);
        after_move = before_gateway_off::must_move_first(view, &spec, now).then_some(spec);
    }
    if hold.is_some() || after_move.is_some() {
        inputs.gateway = before.gateway;
        inputs.evacuate = before.evacuate;
        inputs.leaving = before.leaving;
    }
    let reset_first = inputs.gateway && record.gateway_evacuated;
    Wanted { spec: node_spec(&view.chassis, &inputs), hold, after_move, reset_first }
}

fn hold(view: &NodeView, begins_evacuation: bool, leaving: bool) -> Option<Hold> {
    let kinds: &[JobKind] = match (begins_evacuation, leaving) {
        (true, true) => &JobKind::ALL,
        (true, false) => &[JobKind::Apply, JobKind::Evacuate],
        (false, _) => &[JobKind::ChassisDel],
    };
    let taken = kinds.iter().filter_map(|kind| view.jobs.get(kind)).find(|job| job.owner == JobOwner::Stranger);
    if let Some(job) = taken {
        return Some(Hold { reason: Reason::JobNameTaken, message: name_taken(&job.name), ports: Vec::new() });
    }
    let policy = view.chassis.spec.drain.as_ref().map(|d| d.last_gateway).unwrap_or_default();
    // A Node that is gone forwards nothing: there is nothing to hold on to.
    if policy != LastGateway::Hold || !begins_evacuation || view.object.is_none() {
        return None;
    }
    let unknown = match &view.ports {
        Ports::Unknown(why) => Some(format!(": {why}")),
        _ => view.duties.rows.is_none().then(String::new),
    };
    if let Some(why) = unknown {
        let message = format!(
            "spec.drain.lastGateway is Hold, and whether ports would be left without a gateway is not known until both \
             databases can be read{why}"
        );
        return Some(Hold { reason: Reason::DatabaseNotSynced, message, ports: Vec::new() });
    }
    let Ports::Known(ports) = &view.ports else { return None };
    if ports.stranded.is_empty() {
        return None;
    }
    let message = format!(
        "spec.drain.lastGateway is Hold, and {}; add a gateway to them or set Proceed",
        say_stranded(&ports.stranded, "would be left "),
    );
    Some(Hold { reason: Reason::LastGateway, message, ports: ports.stranded_names() })
}

/// What to say about a name that is taken.
pub fn name_taken(job: &str) -> String {
    format!("Job {job} exists and is not ours (spec.managedBy is another): rename or delete it; it is left untouched")
}

/// `1 port`, `2 ports`.
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// The first few names of a list.
pub fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let mut text = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}
