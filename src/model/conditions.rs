//! Condition types and reasons that users see, and the one way to change a condition.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Condition types of an OVNChassis.
pub mod chassis {
    pub const CENTRAL_READY: &str = "CentralReady";
    pub const NODES_READY: &str = "NodesReady";
    pub const OVS_READY: &str = "OVSReady";
    pub const CONTROLLER_READY: &str = "ControllerReady";
    pub const MAINTENANCE_READY: &str = "MaintenanceReady";
    /// All of the others together.
    pub const READY: &str = "Ready";
}

/// Condition types of an OVNChassisNode; the agent writes them.
pub mod node {
    pub const APPLIED: &str = "Applied";
    pub const OVS_READY: &str = "OVSReady";
    pub const CONTROLLER_READY: &str = "ControllerReady";
}

/// Reasons of `MaintenanceReady`.
pub mod maintenance {
    pub const IDLE: &str = "MaintenanceIdle";
    pub const RUNNING: &str = "MaintenanceRunning";
    pub const DEFERRED: &str = "MaintenanceDeferred";
    pub const JOB_FAILED: &str = "MaintenanceJobFailed";
    pub const ERROR: &str = "MaintenanceError";
}

/// A condition's desired content, without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionSpec {
    pub type_: &'static str,
    pub status: bool,
    pub reason: &'static str,
    pub message: String,
}

/// Longest message the API accepts in a condition (Kubernetes API conventions).
pub const MAX_MESSAGE: usize = 32_768;

/// Sets one condition in a list and keeps `lastTransitionTime` unless the status flips (Kubernetes API conventions).
pub fn set_condition(list: &mut Vec<Condition>, spec: &ConditionSpec, generation: Option<i64>, now: &Time) {
    let status = if spec.status { "True" } else { "False" };
    let old = list.iter().find(|c| c.type_ == spec.type_);
    let since = match old {
        Some(old) if old.status == status => old.last_transition_time.clone(),
        _ => now.clone(),
    };
    let mut message = spec.message.clone();
    if message.len() > MAX_MESSAGE {
        let mut end = MAX_MESSAGE;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
    }
    let new = Condition {
        type_: spec.type_.to_owned(),
        status: status.to_owned(),
        reason: spec.reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: since,
    };
    match list.iter_mut().find(|c| c.type_ == spec.type_) {
        Some(slot) => *slot = new,
        None => list.push(new),
    }
}
