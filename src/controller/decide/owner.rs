//! Which OVNChassis a node belongs to: one at most, cluster-wide.

use crate::api::OVNChassis;
use crate::controller::objects::chassis_ref;
use crate::model::ids::NodeName;
use crate::model::names::ChassisRef;

use super::view::NodeObject;

/// Whether an OVNChassis wants this node now.
pub fn selects(chassis: &OVNChassis, object: &NodeObject) -> bool {
    chassis.metadata.deletion_timestamp.is_none()
        && !chassis.spec.node_selector.is_empty()
        && object.carries(&chassis.spec.node_selector)
}

/// Whether the labels give a node the gateway role.
pub fn is_gateway(chassis: &OVNChassis, object: &NodeObject) -> bool {
    chassis.spec.gateway.as_ref().is_some_and(|role| object.carries(&role.node_selector))
}

/// Whether an OVNChassis has this node in its books, so that it stays its owner until the node is forgotten.
fn holds(chassis: &OVNChassis, node: &NodeName, object: Option<&NodeObject>) -> bool {
    let labelled =
        object.and_then(NodeObject::owner_label).is_some_and(|value| value == chassis_ref(chassis).owner_label_value());
    labelled || chassis.status.as_ref().is_some_and(|s| s.nodes.iter().any(|n| n.name == node.as_str()))
}

/// The oldest of some; ties go by namespace and name.
fn oldest<'a>(all: impl Iterator<Item = &'a OVNChassis>) -> Option<&'a OVNChassis> {
    all.min_by_key(|c| (c.metadata.creation_timestamp.as_ref().map(|t| t.0), chassis_ref(c)))
}

/// The owner of a node: who has it in the books (while it leaves too), else the oldest that selects it.
pub fn owner<'a>(
    all: impl Iterator<Item = &'a OVNChassis> + Clone,
    node: &NodeName,
    object: Option<&NodeObject>,
) -> Option<ChassisRef> {
    oldest(all.clone().filter(|c| holds(c, node, object)))
        .or_else(|| oldest(all.filter(|c| object.is_some_and(|o| selects(c, o)))))
        .map(chassis_ref)
}
