//! From what the node is to be and what it is: what to write, and what to report. Pure.

pub mod change;
pub mod cms_options;
pub mod wanted;
pub mod warm_restart;

use crate::api::{NodeVersions, OVNChassisNodeSpec, ObservedSettings};
use crate::model::conditions::{ConditionSpec, node};
use crate::ovs::vsctl::DatabaseChange;

use super::observe::{LocalDatabase, Probes};
use change::{find_overrides, find_wrong_datapaths, plan_change};
use cms_options::has_gateway;
use wanted::{dns_names, read_spec};

/// Reasons of the three conditions.
pub mod reason {
    pub const APPLIED: &str = "Applied";
    pub const DRIFT_REPAIRED: &str = "DriftRepaired";
    pub const WAITING_FOR_SYSTEM_ID: &str = "WaitingForSystemID";
    pub const WAITING_FOR_CENTRAL: &str = "WaitingForCentral";
    pub const INVALID_SETTINGS: &str = "InvalidSettings";
    pub const APPLYING: &str = "Applying";
    pub const APPLY_FAILED: &str = "ApplyFailed";
    pub const OVERRIDDEN: &str = "Overridden";
    pub const BRIDGE_MISMATCH: &str = "BridgeMismatch";
    pub const DATABASE_AWAY: &str = "DatabaseAway";
    pub const RUNNING: &str = "Running";
    pub const SCHEMA_DIFFERS: &str = "SchemaDiffers";
    pub const FLOW_RESTORE_WAIT: &str = "FlowRestoreWait";
    pub const FLOW_RESTORE_OVERDUE: &str = "FlowRestoreOverdue";
    pub const NOT_ANSWERING: &str = "NotAnswering";
    pub const CONNECTED: &str = "Connected";
    pub const NOT_CONNECTED: &str = "NotConnected";
}

/// What is known of the local database.
#[derive(Debug, Clone, Copy)]
pub enum DatabaseState<'a> {
    /// This is what it holds now.
    Known(&'a LocalDatabase),
    /// It is away, why, and what it held when it was last seen. Nothing is written on the ground of that.
    Away { fault: &'a str, last: Option<&'a LocalDatabase> },
}

/// Settings that were seen in the database, and the generation they came with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    pub hash: String,
    pub generation: i64,
}

/// What a decision remembers of those before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// The last settings that were complete in the database.
    pub settled: Option<Settled>,
    /// How often these settings were put back after somebody changed them.
    pub repairs: u32,
    /// What was put back last.
    pub repaired: Vec<String>,
}

/// Everything a decision rests on.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    pub generation: i64,
    pub spec: &'a OVNChassisNodeSpec,
    pub database: DatabaseState<'a>,
    /// The id in `system-id.conf`, for a node whose database has none.
    pub system_id_file: Option<&'a str>,
    pub encap_ip: &'a str,
    pub probes: &'a Probes,
    /// The last restart of `ovs-vswitchd` held its flows until its time was over.
    pub flow_restore_overdue: bool,
    /// Why the last write of this change failed, if it did.
    pub fault: Option<&'a str>,
    pub memory: &'a Memory,
}

/// What the node's status should say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub applied: Option<Settled>,
    /// Generation that the conditions speak of.
    pub generation: i64,
    pub observed: Option<ObservedSettings>,
    pub conditions: Vec<ConditionSpec>,
    pub versions: NodeVersions,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// To be written; empty when the database holds what it should.
    pub change: DatabaseChange,
    /// The change puts back what had been in place before.
    pub is_repair: bool,
    pub report: Report,
}

/// Decides.
pub fn decide(inputs: &Inputs<'_>) -> Decision {
    let verdict = judge_settings(inputs);
    let settled = inputs.memory.settled.as_ref();
    let is_repair =
        !verdict.change.is_empty() && settled.is_some_and(|settled| settled.hash == inputs.spec.config_hash);
    let applied = match (verdict.condition.status, inputs.database) {
        (true, _) => Some(Settled { hash: inputs.spec.config_hash.clone(), generation: inputs.generation }),
        // What was complete when the database went away is not undone by its absence.
        (false, DatabaseState::Away { .. }) => settled.cloned(),
        (false, DatabaseState::Known(_)) => None,
    };
    let seen = match inputs.database {
        DatabaseState::Known(database) => Some(database),
        DatabaseState::Away { last, .. } => last,
    };
    let report = Report {
        applied,
        generation: inputs.generation,
        observed: seen.map(|database| observed_settings(database, inputs.system_id_file)),
        conditions: vec![verdict.condition, judge_ovs(inputs), judge_controller(inputs)],
        versions: NodeVersions {
            // The daemon's own answer: the database holds what some script last wrote there, or nothing.
            ovs: inputs.probes.vswitchd.clone().ok().or_else(|| seen.and_then(|database| database.ovs_version.clone())),
            ovn: inputs.probes.ovn_version.clone(),
            agent: Some(env!("CARGO_PKG_VERSION").to_owned()),
        },
    };
    Decision { change: verdict.change, is_repair, report }
}

impl Memory {
    /// What to remember after a decision whose change, if any, was carried out.
    #[must_use]
    pub fn after(&self, decision: &Decision, written: bool) -> Self {
        let mut next = self.clone();
        if let Some(applied) = &decision.report.applied {
            if self.settled.as_ref().is_some_and(|settled| settled.hash != applied.hash) {
                // New settings: what happened to the old ones is history.
                next.repairs = 0;
                next.repaired.clear();
            }
            next.settled = Some(applied.clone());
        }
        if written && decision.is_repair {
            next.repairs = next.repairs.saturating_add(1);
            next.repaired = decision.change.names();
        }
        next
    }
}

struct Verdict {
    change: DatabaseChange,
    condition: ConditionSpec,
}

fn judge_settings(inputs: &Inputs<'_>) -> Verdict {
    let nothing = DatabaseChange::default;
    let verdict = |change: DatabaseChange, status: bool, reason: &'static str, message: String| Verdict {
        change,
        condition: ConditionSpec { type_: node::APPLIED, status, reason, message },
    };
    let database = match inputs.database {
        DatabaseState::Known(database) => database,
        DatabaseState::Away { fault, .. } => {
            return verdict(
                nothing(),
                false,
                reason::DATABASE_AWAY,
                format!("the local database does not answer: {fault}"),
            );
        }
    };
    let wanted = match read_spec(inputs.spec, inputs.encap_ip) {
        Ok(Some(wanted)) => wanted,
        Ok(None) => {
            let message = "no system-id is decided for this node yet; the controller does so after this report";
            return verdict(nothing(), false, reason::WAITING_FOR_SYSTEM_ID, message.to_owned());
        }
        Err(error) => {
            let message = format!("{error}; nothing was written, the node keeps its settings");
            return verdict(nothing(), false, reason::INVALID_SETTINGS, message);
        }
    };
    let change = plan_change(&wanted, database);
    if !change.is_empty() {
        return match inputs.fault {
            Some(fault) => verdict(change, false, reason::APPLY_FAILED, fault.to_owned()),
            None => {
                let message = format!("being written: {change}");
                verdict(change, false, reason::APPLYING, message)
            }
        };
    }
    let overrides = find_overrides(&wanted, database);
    if !overrides.is_empty() {
        let message = format!(
            "ovn-controller prefers these keys of Open_vSwitch.external_ids to ours: {}; remove them with `ovs-vsctl remove open_vswitch . external_ids KEY`",
            overrides.join(", ")
        );
        return verdict(change, false, reason::OVERRIDDEN, message);
    }
    let mismatches = find_wrong_datapaths(&wanted, database);
    if !mismatches.is_empty() {
        let message = format!("{}; a change tears the bridge down, so it is left to a person", mismatches.join("; "));
        return verdict(change, false, reason::BRIDGE_MISMATCH, message);
    }
    if inputs.spec.ovn_remote.is_none() {
        let message = "the central's address is not known yet; ovn-remote stays as it is, everything else is applied";
        return verdict(change, false, reason::WAITING_FOR_CENTRAL, message.to_owned());
    }
    match inputs.memory.repairs {
        0 => verdict(change, true, reason::APPLIED, "the local database holds the settings".to_owned()),
        times => {
            let what = inputs.memory.repaired.join(", ");
            let message = format!("changed on the node and set back {times} times, last: {what}");
            verdict(change, true, reason::DRIFT_REPAIRED, message)
        }
    }
}

fn judge_ovs(inputs: &Inputs<'_>) -> ConditionSpec {
    let condition = |status, reason, message| ConditionSpec { type_: node::OVS_READY, status, reason, message };
    let database = match inputs.database {
        DatabaseState::Known(database) => database,
        DatabaseState::Away { fault, .. } => {
            return condition(false, reason::DATABASE_AWAY, format!("ovsdb-server does not answer: {fault}"));
        }
    };
    let version = match &inputs.probes.vswitchd {
        Ok(version) => version,
        Err(fault) => {
            return condition(false, reason::NOT_ANSWERING, format!("ovs-vswitchd does not answer: {fault}"));
        }
    };
    if database.flow_restore_wait {
        let message =
            "other_config:flow-restore-wait is set: ovs-vswitchd forwards what the kernel knows and learns nothing new";
        return condition(false, reason::FLOW_RESTORE_WAIT, message.to_owned());
    }
    if inputs.flow_restore_overdue {
        let message = format!(
            "Open vSwitch {version} runs; other_config:flow-restore-wait was on for too long and was taken away before ovn-controller's flows were in: see ControllerReady, and the logs of this pod"
        );
        return condition(true, reason::FLOW_RESTORE_OVERDUE, message);
    }
    match &inputs.probes.schemas {
        Some(schemas) if schemas.database != schemas.image => {
            let message = format!(
                "Open vSwitch {version} runs; the database has schema {}, this image brings {}",
                schemas.database, schemas.image
            );
            condition(true, reason::SCHEMA_DIFFERS, message)
        }
        _ => condition(true, reason::RUNNING, format!("Open vSwitch {version} runs")),
    }
}

fn judge_controller(inputs: &Inputs<'_>) -> ConditionSpec {
    let condition = |status, reason, message| ConditionSpec { type_: node::CONTROLLER_READY, status, reason, message };
    match &inputs.probes.ovn_controller {
        Ok(status) if status == "connected" => {
            condition(true, reason::CONNECTED, "ovn-controller is connected to the Southbound database".to_owned())
        }
        Ok(status) => {
            let names = inputs.spec.ovn_remote.as_deref().map(dns_names).unwrap_or_default();
            let hint = if names.is_empty() {
                String::new()
            } else {
                format!(
                    "; ovn-remote names {}: an ovn-controller built without libunbound cannot look up names",
                    names.join(", ")
                )
            };
            let message = format!("ovn-controller says about the Southbound database: {status}{hint}");
            condition(false, reason::NOT_CONNECTED, message)
        }
        Err(fault) => condition(false, reason::NOT_ANSWERING, format!("ovn-controller does not answer: {fault}")),
    }
}

fn observed_settings(database: &LocalDatabase, system_id_file: Option<&str>) -> ObservedSettings {
    let get = |key: &str| database.external_ids.get(key).cloned();
    let cms_options = get("ovn-cms-options");
    ObservedSettings {
        system_id: get("system-id").filter(|id| !id.is_empty()).or_else(|| system_id_file.map(str::to_owned)),
        gateway: cms_options.as_deref().is_some_and(has_gateway),
        hostname: get("hostname"),
        ovn_remote: get("ovn-remote"),
        encap_type: get("ovn-encap-type"),
        encap_ip: get("ovn-encap-ip"),
        bridge_mappings: get("ovn-bridge-mappings"),
        cms_options,
    }
}

#[cfg(test)]
mod tests;
