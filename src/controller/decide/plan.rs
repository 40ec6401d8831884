//! What is to be done about one node next.

use std::time::Duration;

use super::view::NodeView;
use crate::api::{NodeRecord, OVNChassisNodeSpec};
use crate::cluster::events::Happening;
use crate::model::ids::SystemId;
use crate::model::names::JobKind;
use crate::ovn::northbound::Lowering;

/// A Job's next state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobChange {
    Start,
    Complete { message: String },
    Fail { reason: &'static str, message: String },
}

/// One step. Steps are done in order; one that fails ends the pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Puts our owner label, the owner annotation and the system-id on the Node.
    MarkNode {
        system_id: Option<SystemId>,
    },
    /// Takes our owner label and annotation off: the pods end.
    ReleaseNode,
    /// Creates or changes the OVNChassisNode.
    WriteNode(Box<OVNChassisNodeSpec>),
    /// Deletes the OVNChassisNode.
    DeleteNode,
    CreateJobs {
        kinds: Vec<JobKind>,
        settings: String,
    },
    DeleteJob {
        kind: JobKind,
        uid: String,
        why: &'static str,
    },
    /// Changes of several Jobs, side by side.
    ChangeJobs(Vec<(JobKind, JobChange)>),
    /// Puts the chassis below the others, so that they take its gateway ports over.
    LowerPriority(Box<Lowering>),
    /// Gives this id the priorities back that it had.
    RestorePriority {
        system_id: SystemId,
    },
    /// Takes the rows of this id out of the Northbound and reads back that none is left.
    Evacuate {
        system_id: SystemId,
    },
    /// Deletes the rows of this id from the Southbound and reads back that none is left.
    Deregister {
        system_id: SystemId,
    },
    /// Forgets outcomes of an earlier drain.
    ForgetOutcomes,
    Announce(Happening),
}

/// What becomes of the node's entry in the status.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// This is what it is to say; times are the reporter's.
    Is(Box<NodeRecord>),
    /// It goes, and the id is remembered as departed.
    Departs { system_id: Option<SystemId> },
    /// It goes without a trace.
    Goes,
}

impl Entry {
    /// Whether the status says just this already; times are the reporter's.
    pub fn is_shown(&self, view: &NodeView) -> bool {
        match self {
            Self::Is(wanted) => view.record.as_ref().is_some_and(|is| {
                let mut is = is.clone();
                is.last_transition_time = None;
                is == **wanted
            }),
            // An id that is to be remembered is not shown by an entry that is not there.
            Self::Departs { system_id: Some(id) } => {
                view.record.is_none() && view.departed.as_ref().is_some_and(|d| d.system_id == id.as_str())
            }
            Self::Departs { system_id: None } | Self::Goes => view.record.is_none(),
        }
    }

    /// Whether a node whose entry is `record` is to be judged otherwise once this one stands in the status.
    pub fn turns(&self, record: Option<&NodeRecord>) -> bool {
        let judged_by = |r: &NodeRecord| (r.gateway, r.gateway_evacuated, r.leaving);
        match self {
            Self::Is(next) => judged_by(next) != record.map(judged_by).unwrap_or_default(),
            Self::Departs { .. } | Self::Goes => record.is_some(),
        }
    }
}

/// The plan of one pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub entry: Option<Entry>,
    /// Ports to name in the drain report.
    pub ports: Vec<String>,
    pub steps: Vec<Step>,
    /// Look again after this time even if nothing changes.
    pub look_again: Option<Duration>,
    /// Nothing is left of this node: its worker may end.
    pub done: bool,
}
