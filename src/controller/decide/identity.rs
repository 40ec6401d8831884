//! Under which id a node registers.
//!
//! Recorded ids win, wherever they are recorded; then one that the node brings along, if it can be one and nobody else
//! has it; then a new one. A node that has none recorded waits for its agent's first report: only that says whether it
//! brings one.

use super::view::NodeView;
use crate::model::ids::{NodeName, SystemId};

/// What is known of a node's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    Recorded(SystemId),
    /// The node brought it along.
    Adopted(SystemId),
    New(SystemId),
    /// The agent has not reported yet.
    Waiting,
    /// Another node has it.
    Duplicate {
        id: SystemId,
        node: NodeName,
    },
    /// The node brought along something that cannot be one.
    Invalid(String),
}

impl Identity {
    pub fn id(&self) -> Option<&SystemId> {
        match self {
            Self::Recorded(id) | Self::Adopted(id) | Self::New(id) => Some(id),
            _ => None,
        }
    }
}

/// The id in the lines of the ConfigMap.
pub fn config_map_id(lines: &str) -> Option<SystemId> {
    let text = lines.lines().find_map(|line| line.strip_prefix("SYSTEM_ID="))?;
    SystemId::parse(text).ok()
}

/// Where the id is recorded, if it is anywhere: first source that holds a usable one.
fn recorded(view: &NodeView) -> Option<SystemId> {
    let usable = |text: Option<&str>| text.and_then(|t| SystemId::parse(t).ok());
    usable(view.ocn.as_ref().and_then(|o| o.spec.system_id.as_deref()))
        .or_else(|| usable(view.record.as_ref().and_then(|r| r.system_id.as_deref())))
        .or_else(|| view.config_map_entry.as_deref().and_then(config_map_id))
        .or_else(|| usable(view.object.as_ref().and_then(|o| o.system_id())))
}

/// The id that a node had when it left the last time, if it leaves again before anybody knows which one it has: its
/// daemons register under what its own disk holds.
fn left_with(view: &NodeView) -> Option<SystemId> {
    let departed = view.departed.as_ref().filter(|_| !view.selected)?;
    let id = SystemId::parse(&departed.system_id).ok()?;
    (!view.ids_elsewhere.contains_key(&id)).then_some(id)
}

/// Decides a node's id.
pub fn identity(view: &NodeView) -> Identity {
    let taken_by = |id: &SystemId| view.ids_elsewhere.get(id).and_then(|nodes| nodes.first()).cloned();
    let in_use = view.ocn.as_ref().is_some_and(|o| o.spec.system_id.is_some());
    if let Some(id) = recorded(view) {
        // One that is in use stays: taking it away would leave rows that nobody knows. Elsewhere it is only a note, and
        // a note that speaks of another node's id (copied by hand) is no record.
        return match taken_by(&id) {
            Some(node) if !in_use => Identity::Duplicate { id, node },
            _ => Identity::Recorded(id),
        };
    }
    let observed = view.ocn.as_ref().and_then(|o| o.status.as_ref()).and_then(|s| s.observed.as_ref());
    let Some(observed) = observed else { return left_with(view).map_or(Identity::Waiting, Identity::Recorded) };
    match observed.system_id.as_deref() {
        Some(text) => match SystemId::parse(text) {
            Ok(id) => match taken_by(&id) {
                Some(node) => Identity::Duplicate { id, node },
                None => Identity::Adopted(id),
            },
            Err(error) => Identity::Invalid(error.to_string()),
        },
        None => match (left_with(view), &view.object) {
            (Some(id), _) => Identity::Recorded(id),
            (None, Some(object)) => Identity::New(SystemId::from_node_uid(&object.uid)),
            (None, None) => Identity::Waiting,
        },
    }
}
