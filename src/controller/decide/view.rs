//! Everything that the decision about one node rests on, as plain data.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::gateway_ports::Ports;
use super::owner::is_gateway;
use crate::api::{DepartedNode, NodeRecord, OVNChassis, OVNChassisNode};
use crate::cluster::jobs::JobPhase;
use crate::model::ids::{NodeName, SystemId};
use crate::model::names::{JobKind, OWNER_LABEL, SYSTEM_ID_ANNOTATION};

/// A Node object, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeObject {
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl NodeObject {
    /// Whether the node carries all of these labels. A value counts as it stands: `false` or an empty one is no match for
    /// `true`, and the other way round.
    pub fn carries(&self, selector: &BTreeMap<String, String>) -> bool {
        selector.iter().all(|(key, value)| self.labels.get(key) == Some(value))
    }

    pub fn owner_label(&self) -> Option<&str> {
        self.labels.get(OWNER_LABEL).map(String::as_str)
    }

    pub fn system_id(&self) -> Option<&str> {
        self.annotations.get(SYSTEM_ID_ANNOTATION).map(String::as_str)
    }
}

/// Whose a Job is that has a name of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOwner {
    /// Ours, for this node.
    Us,
    /// Ours, for another node whose name has the same eight digits.
    OtherNode(String),
    /// Somebody else's.
    Stranger,
}

/// A Job under the name that the node's Job of that kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    pub name: String,
    pub uid: String,
    pub owner: JobOwner,
    pub phase: JobPhase,
    /// What the node was to be when the Job was created.
    pub settings: String,
    pub deadline_seconds: i64,
    /// Being deleted, but not gone yet.
    pub ending: bool,
}

/// A pod of one of the two DaemonSets, on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    pub name: String,
    pub uid: String,
    pub component: String,
    pub ready: bool,
    pub ending: bool,
    pub created: Option<Timestamp>,
    /// Which version of the DaemonSet's template it was made from.
    pub revision: String,
}

/// Where the databases are; or why that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub reason: &'static str,
    pub message: String,
}

/// What the databases' state says about starting work on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DatabaseState {
    /// Nothing heard yet.
    #[default]
    Unknown,
    /// Connected, to a member that is fit to act through, with a complete view.
    Synced,
    /// Somebody answers, but nobody who is fit: no leader, a member that lags.
    Unfit(String),
    /// Nobody answers.
    OutOfReach(String),
}

/// What the Northbound says about this chassis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayDuties {
    /// Rows of `Gateway_Chassis` and `HA_Chassis` that name it; None without a current view.
    pub rows: Option<usize>,
    /// Ports that nobody else can take, by name.
    pub sole: Vec<String>,
    /// Rows carry the note that this chassis' priority was lowered.
    pub lowered: bool,
}

/// What an attempt at database work brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// The Northbound confirmed that no row names this id.
    pub evacuated: Option<SystemId>,
    /// The Southbound confirmed that no row of this id is left.
    pub deregistered: Option<SystemId>,
    /// How often the work now under way was tried without success, in this process.
    pub attempts: u32,
    /// How often rows that somebody put back on an evacuated node were removed again, in this process.
    pub removals: u32,
    /// Why the last try failed.
    pub last_error: Option<String>,
    /// The last try failed in a way that no later one can mend by itself.
    pub is_final: bool,
}

/// Why steps towards the API server fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Somebody has to change something (permissions, policy).
    pub needs_help: bool,
    pub message: String,
}

/// One node, as one OVNChassis sees it.
#[derive(Clone, Debug)]
pub struct NodeView {
    pub node: NodeName,
    pub chassis: Arc<OVNChassis>,
    /// None if the Node object is gone.
    pub object: Option<NodeObject>,
    /// The node is ours and is to be a chassis.
    pub selected: bool,
    /// The entry of `status.nodes` that the API server holds.
    pub record: Option<NodeRecord>,
    /// The entry of `status.departed`.
    pub departed: Option<DepartedNode>,
    pub ocn: Option<Arc<OVNChassisNode>>,
    /// The node's lines in the ConfigMap.
    pub config_map_entry: Option<String>,
    pub jobs: BTreeMap<JobKind, JobView>,
    /// Another node of this OVNChassis has the same eight digits and came first: no Jobs for this one.
    pub shares_hash_with: Option<NodeName>,
    pub pods: Vec<PodView>,
    /// Southbound addresses for the node.
    pub ovn_remote: Result<String, Problem>,
    pub northbound: DatabaseState,
    pub southbound: DatabaseState,
    pub duties: GatewayDuties,
    /// Gateway ports around this chassis, while its role goes or moves.
    pub ports: Ports,
    /// Gateway ports that the Southbound shows on this chassis; None without a current view.
    pub bindings: Option<usize>,
    /// Nodes that have each id, this one left out. Recorded and merely reported ids alike.
    pub ids_elsewhere: Arc<BTreeMap<SystemId, Vec<NodeName>>>,
    /// Objects that keep traffic here and that no drain takes away.
    pub pins: Vec<String>,
    /// Since when the node has been healthy with one pod of each kind, as far as this process saw it.
    pub healthy_since: Option<Timestamp>,
    /// Standby pods of this node that may take over.
    pub grants: Vec<String>,
    pub outcomes: Outcomes,
    pub trouble: Option<Trouble>,
    pub dead_agent_wait_seconds: i64,
}

impl NodeView {
    pub fn job(&self, kind: JobKind) -> Option<&JobView> {
        self.jobs.get(&kind).filter(|job| job.owner == JobOwner::Us)
    }

    /// Whether the node was deregistered and comes back before its object of then is gone: what that one asks for is void.
    pub fn is_back(&self) -> bool {
        self.record.is_none() && self.departed.is_some()
    }

    /// Whether the agent reported that what its object asks for now is applied.
    pub fn is_applied(&self) -> bool {
        let Some(ocn) = &self.ocn else { return false };
        let Some(status) = &ocn.status else { return false };
        status.applied_hash.as_deref() == Some(ocn.spec.config_hash.as_str())
            && status.observed_generation.is_some()
            && status.observed_generation == ocn.metadata.generation
    }

    pub fn wants_gateway(&self) -> bool {
        self.selected && self.object.as_ref().is_some_and(|object| is_gateway(&self.chassis, object))
    }
}
