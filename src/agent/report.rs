//! The node's status: written by server-side apply, under the agent's own name, and only when it says something new.

use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde_json::json;
use tokio::sync::watch;

use super::decide::{Report, Settled};
use super::metrics::{AgentMetrics, Outcome};
use crate::api::{OVNChassisNode, OVNChassisNodeStatus};
use crate::cluster::call::now;
use crate::cluster::{Cache, ClusterError, ObjectKey, call};
use crate::hook::lock::PodUid;
use crate::model::conditions::set_condition;
use crate::model::names::AGENT_FIELD_MANAGER;

/// First pause after a failed report; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause. A node whose API server is back is not to wait for long.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The status that the object should have, as far as it is the agent's: `None` when it has it already.
///
/// Times are not compared: a condition keeps its time unless its status flips.
pub fn plan_status(
    report: &Report,
    pod: Option<&PodUid>,
    found: Option<&OVNChassisNodeStatus>,
    now: &Time,
) -> Option<OVNChassisNodeStatus> {
    let empty = OVNChassisNodeStatus::default();
    let found = found.unwrap_or(&empty);
    let mut conditions: Vec<Condition> = found
        .conditions
        .iter()
        .filter(|old| report.conditions.iter().any(|new| new.type_ == old.type_))
        .cloned()
        .collect();
    for condition in &report.conditions {
        set_condition(&mut conditions, condition, Some(report.generation), now);
    }
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    let (applied_hash, observed_generation) = match report.applied.clone() {
        Some(Settled { hash, generation }) => (Some(hash), Some(generation)),
        None => (None, None),
    };
    let status = OVNChassisNodeStatus {
        applied_hash,
        observed_generation,
        observed: report.observed.clone(),
        conditions,
        versions: Some(report.versions.clone()),
        reported_by: pod.map(ToString::to_string),
        drain: None,
    };
    let mut agents_part = found.clone();
    agents_part.drain = None;
    agents_part.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    (agents_part != status).then_some(status)
}

/// Keeps the object's status as the last report says, for ever.
pub async fn keep_status(
    api: Api<OVNChassisNode>,
    key: ObjectKey,
    pod: Option<PodUid>,
    cache: Cache<OVNChassisNode>,
    mut changed: watch::Receiver<u64>,
    mut reports: watch::Receiver<Option<Report>>,
    metrics: AgentMetrics,
) -> Infallible {
    let mut pause = FIRST_PAUSE;
    loop {
        let report = reports.borrow_and_update().clone();
        changed.mark_unchanged();
        // A report about an older specification than the one that is there now is about to be replaced.
        let object = cache.get(&key).filter(|object| {
            report.as_ref().is_some_and(|report| object.metadata.generation.unwrap_or_default() <= report.generation)
        });
        let plan = match (&report, &object) {
            (Some(report), Some(object)) => plan_status(report, pod.as_ref(), object.status.as_ref(), &Time(now())),
            _ => None,
        };
        let mut retry = None;
        if let Some(status) = plan {
            match write_status(&api, &key, &status).await {
                Ok(answer) => {
                    metrics.reported(Outcome::Done);
                    pause = FIRST_PAUSE;
                    cache.put(answer);
                }
                Err(error) if error.is_not_found() => tracing::debug!("{error}"),
                Err(error) => {
                    metrics.reported(Outcome::Failed);
                    tracing::warn!("cannot report: {}; trying again in {pause:?}", crate::ops::tasks::chain(&error));
                    retry = Some(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        tokio::select! {
            news = reports.changed() => if news.is_err() { std::future::pending::<()>().await },
            news = changed.changed() => if news.is_err() { std::future::pending::<()>().await },
            () = sleep_or_never(retry) => {}
        }
    }
}

async fn sleep_or_never(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

async fn write_status(
    api: &Api<OVNChassisNode>,
    key: &ObjectKey,
    status: &OVNChassisNodeStatus,
) -> Result<OVNChassisNode, ClusterError> {
    match apply_status(api, key, status).await {
        // A CRD of before this field refuses the whole report: one without it is better than none.
        Err(ClusterError::Status { message, .. } | ClusterError::Invalid { message, .. })
            if status.reported_by.is_some() && message.contains("reportedBy") =>
        {
            apply_status(api, key, &OVNChassisNodeStatus { reported_by: None, ..status.clone() }).await
        }
        other => other,
    }
}

async fn apply_status(
    api: &Api<OVNChassisNode>,
    key: &ObjectKey,
    status: &OVNChassisNodeStatus,
) -> Result<OVNChassisNode, ClusterError> {
    let body = json!({
        "apiVersion": OVNChassisNode::api_version(&()),
        "kind": OVNChassisNode::kind(&()),
        "metadata": {"name": key.name},
        "status": status,
    });
    let parameters = PatchParams::apply(AGENT_FIELD_MANAGER).force();
    let what = format!("status of OVNChassisNode {key}");
    call(what, api.patch_status(&key.name, &parameters, &Patch::Apply(&body))).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{DrainReport, NodeVersions};
    use crate::model::conditions::ConditionSpec;
    use k8s_openapi::jiff::Timestamp;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn report(status: bool, message: &str) -> Report {
        Report {
            applied: status.then(|| Settled { hash: "h".into(), generation: 3 }),
            generation: 3,
            observed: None,
            conditions: vec![ConditionSpec { type_: "Applied", status, reason: "Applied", message: message.into() }],
            versions: NodeVersions::default(),
        }
    }

    #[test]
    fn the_same_report_later_is_no_write() {
        let first = plan_status(&report(true, "m"), None, None, &at(10)).unwrap();
        assert_eq!(plan_status(&report(true, "m"), None, Some(&first), &at(20)), None);
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_flips() {
        let first = plan_status(&report(true, "m"), None, None, &at(10)).unwrap();
        let second = plan_status(&report(true, "other"), None, Some(&first), &at(20)).unwrap();
        assert_eq!(second.conditions[0].last_transition_time, at(10));
        let third = plan_status(&report(false, "other"), None, Some(&second), &at(30)).unwrap();
        assert_eq!(third.conditions[0].last_transition_time, at(30));
        assert_eq!(third.applied_hash, None);
    }

    #[test]
    fn another_pod_that_says_the_same_says_it_anew() {
        let pod: PodUid = "pod-b".parse().unwrap();
        let first = plan_status(&report(true, "m"), None, None, &at(10)).unwrap();
        let second = plan_status(&report(true, "m"), Some(&pod), Some(&first), &at(20)).unwrap();
        assert_eq!(second.reported_by.as_deref(), Some("pod-b"));
        assert_eq!(plan_status(&report(true, "m"), Some(&pod), Some(&second), &at(30)), None);
    }

    #[test]
    fn the_controllers_part_is_neither_compared_nor_written() {
        let mut found = plan_status(&report(true, "m"), None, None, &at(10)).unwrap();
        found.drain = Some(DrainReport::default());
        assert_eq!(plan_status(&report(true, "m"), None, Some(&found), &at(20)), None);
        assert_eq!(plan_status(&report(false, "m"), None, Some(&found), &at(20)).unwrap().drain, None);
    }

    #[test]
    fn what_somebody_else_wrote_into_our_part_is_put_right() {
        let mut found = plan_status(&report(true, "m"), None, None, &at(10)).unwrap();
        found.applied_hash = Some("forged".into());
        assert_eq!(
            plan_status(&report(true, "m"), None, Some(&found), &at(20)).unwrap().applied_hash.as_deref(),
            Some("h")
        );
    }
}
