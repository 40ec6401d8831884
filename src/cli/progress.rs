//! What a drain still waits for, decided from the node's record: pure.

use std::collections::BTreeMap;

use crate::api::{NodePhase, NodeRecord, OVNChassis};

/// What the person at the terminal asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// No gateway duty is left on the node.
    Evacuated,
    /// The node is forgotten.
    Gone,
    /// The node's settings are applied; `gateway` says whether it is to be a gateway.
    Active { gateway: bool },
}

/// How far the goal is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    Waiting(String),
    Done,
    Failed(String),
}

/// Judges a node's record; `None` is a node that has no record.
pub fn judge(goal: Goal, record: Option<&NodeRecord>) -> Progress {
    let Some(record) = record else {
        return match goal {
            // A node without a record holds no duty that anybody knows of.
            Goal::Evacuated | Goal::Gone => Progress::Done,
            Goal::Active { .. } => Progress::Waiting("waiting for the controller to take the node".into()),
        };
    };
    let done = match goal {
        Goal::Evacuated => record.gateway_evacuated && !record.gateway,
        Goal::Gone => false,
        Goal::Active { gateway } => {
            record.phase == Some(NodePhase::Active) && record.gateway == gateway && !record.leaving
        }
    };
    if done {
        return Progress::Done;
    }
    let line = describe(record);
    match record.phase {
        Some(NodePhase::Failed) => Progress::Failed(line),
        _ => Progress::Waiting(line),
    }
}

/// One line about a node: phase, bindings left, message.
pub fn describe(record: &NodeRecord) -> String {
    let mut line = record.phase.map_or("Pending", NodePhase::as_str).to_owned();
    if let Some(bindings) = record.remaining_bindings.filter(|n| *n > 0) {
        line.push_str(&format!(", {bindings} gateway bindings left"));
    }
    if let Some(message) = record.message.as_deref().filter(|m| !m.is_empty()) {
        line.push_str(": ");
        line.push_str(message);
    }
    line
}

/// The record of a node, if there is one.
pub fn record_of<'a>(chassis: &'a OVNChassis, node: &str) -> Option<&'a NodeRecord> {
    chassis.status.as_ref()?.nodes.iter().find(|r| r.name == node)
}

/// A label that cannot be chosen without the user's word.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    #[error("OVNChassis {chassis} has no spec.gateway.nodeSelector, so no node of it is a gateway")]
    NoGateway { chassis: String },
    #[error(
        "{role} selector of OVNChassis {chassis} holds several labels ({labels}): say which one to remove with --label"
    )]
    Several { role: &'static str, chassis: String, labels: String },
    #[error("label {label} is not in the {role} selector of OVNChassis {chassis} ({labels})")]
    Unknown { role: &'static str, chassis: String, label: String, labels: String },
}

/// Which label has to go so that the selector no longer matches.
///
/// Labels that the node also needs for `keep` are not candidates: taking one of those away would take two roles at once.
pub fn label_to_remove(
    role: &'static str,
    chassis: &str,
    selector: &BTreeMap<String, String>,
    keep: Option<&BTreeMap<String, String>>,
    wanted: Option<&str>,
) -> Result<String, LabelError> {
    let candidates: Vec<&String> = selector.keys().filter(|k| keep.is_none_or(|keep| !keep.contains_key(*k))).collect();
    let labels = selector.keys().cloned().collect::<Vec<_>>().join(", ");
    match (wanted, candidates.as_slice()) {
        (Some(label), _) if candidates.iter().any(|k| *k == label) => Ok(label.to_owned()),
        (Some(label), _) => Err(LabelError::Unknown { role, chassis: chassis.into(), label: label.into(), labels }),
        (None, [only]) => Ok((*only).clone()),
        (None, _) => Err(LabelError::Several { role, chassis: chassis.into(), labels }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> NodeRecord {
        NodeRecord { name: "n".into(), gateway: true, phase: Some(NodePhase::Active), ..NodeRecord::default() }
    }

    fn labels(keys: &[&str]) -> BTreeMap<String, String> {
        keys.iter().map(|k| (k.to_string(), "true".to_string())).collect()
    }

    #[test]
    fn a_drain_is_done_only_when_both_fields_have_flipped() {
        let mut r = record();
        assert!(matches!(judge(Goal::Evacuated, Some(&r)), Progress::Waiting(_)));
        r.gateway_evacuated = true;
        assert!(matches!(judge(Goal::Evacuated, Some(&r)), Progress::Waiting(_)));
        r.gateway = false;
        assert_eq!(judge(Goal::Evacuated, Some(&r)), Progress::Done);
        assert!(matches!(judge(Goal::Gone, Some(&r)), Progress::Waiting(_)));
        assert_eq!(judge(Goal::Gone, None), Progress::Done);
    }

    #[test]
    fn a_failed_node_ends_the_wait_with_its_message() {
        let mut r = record();
        r.phase = Some(NodePhase::Failed);
        r.message = Some("Northbound out of reach".into());
        assert_eq!(judge(Goal::Evacuated, Some(&r)), Progress::Failed("Failed: Northbound out of reach".into()));
    }

    #[test]
    fn the_label_to_remove_is_never_guessed() {
        assert_eq!(label_to_remove("gateway", "c", &labels(&["g"]), None, None), Ok("g".into()));
        assert!(matches!(
            label_to_remove("gateway", "c", &labels(&["g", "h"]), None, None),
            Err(LabelError::Several { .. })
        ));
        assert_eq!(label_to_remove("gateway", "c", &labels(&["g", "h"]), None, Some("h")), Ok("h".into()));
        assert_eq!(label_to_remove("gateway", "c", &labels(&["g", "n"]), Some(&labels(&["n"])), None), Ok("g".into()));
        let error = label_to_remove("gateway", "c", &labels(&["g"]), None, Some("x")).unwrap_err();
        assert_eq!(error.to_string(), "label x is not in the gateway selector of OVNChassis c (g)");
    }
}
