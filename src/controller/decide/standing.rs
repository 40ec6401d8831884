//! How a node's Job of one kind stands.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::view::{JobOwner, NodeView};
use crate::cluster::jobs::JobPhase;
use crate::model::names::JobKind;

/// The states that make a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The node is served without Jobs.
    Jobless,
    Missing,
    /// Somebody else's Job has the name.
    Taken {
        name: String,
    },
    /// Being deleted; its successor has to wait.
    Ending,
    Waiting,
    Started {
        expires: Timestamp,
    },
    Complete,
    Failed {
        message: String,
    },
    /// Failed, and the node was to be something else then.
    FailedBefore {
        uid: String,
    },
}

/// Reads it.
pub fn standing(view: &NodeView, kind: JobKind, settings: &str) -> Standing {
    if view.shares_hash_with.is_some() {
        return Standing::Jobless;
    }
    let Some(job) = view.jobs.get(&kind) else { return Standing::Missing };
    match &job.owner {
        JobOwner::Us => {}
        JobOwner::OtherNode(_) => return Standing::Jobless,
        JobOwner::Stranger => return Standing::Taken { name: job.name.clone() },
    }
    if job.ending {
        return Standing::Ending;
    }
    match &job.phase {
        JobPhase::Waiting => Standing::Waiting,
        JobPhase::Started(at) => {
            let expires = at.checked_add(SignedDuration::from_secs(job.deadline_seconds)).unwrap_or(Timestamp::MAX);
            Standing::Started { expires }
        }
        JobPhase::Complete(_) => Standing::Complete,
        JobPhase::Failed { .. } if job.settings != settings => Standing::FailedBefore { uid: job.uid.clone() },
        JobPhase::Failed { message, .. } => Standing::Failed { message: message.clone() },
    }
}
