//! Daemons that were there before ours: another operator's, or ones of ours from before pods could stand by.
//!
//! They hold none of the locks that a standby waits for, so a hand-over from them cannot work: the new `ovsdb-server`
//! would find its database locked. Where the DaemonSets' own roll can stop them first, it does; a DaemonSet that cannot be
//! turned into ours is left alone and named.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::wanted::{count, some_of};
use crate::model::names::{HAND_OVER, HAND_OVER_ANNOTATION};

/// Why a DaemonSet that has a name of ours cannot become ours; None if it can, or is.
pub fn in_the_way(found: &DaemonSet, owner_uid: Option<&str>, selector: &BTreeMap<String, String>) -> Option<String> {
    let controller = found.owner_references().iter().find(|o| o.controller == Some(true));
    let has = found.spec.as_ref().map(|s| &s.selector);
    let same_selector = has.is_some_and(|s| {
        s.match_expressions.as_ref().is_none_or(Vec::is_empty) && s.match_labels.as_ref() == Some(selector)
    });
    let why = match controller {
        Some(other) if Some(other.uid.as_str()) != owner_uid => {
            format!("belongs to {} {}", other.kind, other.name)
        }
        _ if !same_selector => "selects its pods by other labels, which cannot be changed".to_owned(),
        _ => return None,
    };
    let (namespace, name) = (found.namespace().unwrap_or_default(), found.name_any());
    Some(format!(
        "DaemonSet {namespace}/{name} {why}: it is left alone. Its daemons hold no locks that pods of ours could wait \
         for; stop whatever made it, delete it without its pods (kubectl -n {namespace} delete daemonset {name} \
         --cascade=orphan), then delete the pods it had node by node: ours start where they have ended"
    ))
}

/// Pods of a DaemonSet of ours whose daemons hold no locks, by name, as long as they may run.
pub fn without_locks<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Vec<String> {
    let is_old = |pod: &&Pod| pod.annotations().get(HAND_OVER_ANNOTATION).map(String::as_str) != Some(HAND_OVER);
    let mut names: Vec<_> = pods.into_iter().filter(is_old).map(ResourceExt::name_any).collect();
    names.sort();
    names
}

/// What is said while they are replaced.
pub fn first_roll(pods: &[String]) -> Option<String> {
    if pods.is_empty() {
        return None;
    }
    Some(format!(
        "the daemons of {} hold no locks ({}), so this roll stops each pod before its successor starts, and traffic of \
         its node may pause for seconds; later rolls are hand-overs",
        count(pods.len(), "pod"),
        some_of(pods)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(owner: Value, selector: Value) -> DaemonSet {
        serde_json::from_value(json!({
            "metadata": {"name": "c-ovs", "namespace": "openstack", "ownerReferences": owner},
            "spec": {"selector": selector, "template": {}},
        }))
        .unwrap()
    }

    fn owner(uid: &str) -> Value {
        json!([{"apiVersion": "v1", "kind": "Thing", "name": "theirs", "uid": uid, "controller": true}])
    }

    #[test]
    fn a_daemon_set_becomes_ours_only_with_our_selector_and_no_other_controller() {
        let selector = BTreeMap::from([("app".to_owned(), "ours".to_owned())]);
        let ours = json!({"matchLabels": {"app": "ours"}});
        let judge = |set: &DaemonSet| in_the_way(set, Some("u1"), &selector);
        assert_eq!(judge(&set(owner("u1"), ours.clone())), None);
        assert_eq!(judge(&set(json!([]), ours.clone())), None, "nobody's: taken over");
        let said = judge(&set(owner("u2"), ours)).unwrap();
        assert!(said.contains("openstack/c-ovs") && said.contains("Thing theirs"), "{said}");
        for other in [
            json!({"matchLabels": {"app": "theirs"}}),
            json!({"matchLabels": {"app": "ours", "more": "x"}}),
            json!({"matchLabels": {"app": "ours"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}),
        ] {
            let said = judge(&set(owner("u1"), other)).unwrap();
            assert!(said.contains("other labels") && said.contains("--cascade=orphan"), "{said}");
        }
    }

    #[test]
    fn pods_without_our_mark_hold_no_locks() {
        let pod = |name: &str, mark: Option<&str>| -> Pod {
            let annotations = mark.map(|m| json!({HAND_OVER_ANNOTATION: m})).unwrap_or(json!({}));
            serde_json::from_value(json!({"metadata": {"name": name, "annotations": annotations}})).unwrap()
        };
        let pods = [pod("b", None), pod("a", Some("0")), pod("new", Some(HAND_OVER))];
        let old = without_locks(&pods);
        assert_eq!(old, ["a", "b"]);
        assert!(first_roll(&old).unwrap().contains("2 pods"));
        assert_eq!(first_roll(&without_locks(&pods[2..])), None);
    }
}
