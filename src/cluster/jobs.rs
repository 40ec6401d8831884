//! Jobs that Kubernetes keeps as handles only: `managedBy` is ours, so their status is ours to write, by the Job API's
//! rules: `startTime` first; `SuccessCriteriaMet` with `Complete`, `FailureTarget` with `Failed`; finished stays finished.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::call::{ClusterError, call};
use crate::model::names::JOB_MANAGED_BY;

/// How far a Job is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobPhase {
    /// Its work has not begun; no deadline runs.
    Waiting,
    Started(Timestamp),
    Complete(Timestamp),
    Failed {
        at: Timestamp,
        message: String,
    },
}

impl JobPhase {
    pub fn is_finished(&self) -> bool {
        matches!(self, Self::Complete(_) | Self::Failed { .. })
    }
}

/// Reads a Job's status.
pub fn phase(job: &Job) -> JobPhase {
    let Some(status) = &job.status else { return JobPhase::Waiting };
    let condition = |type_: &str| {
        let mut all = status.conditions.iter().flatten();
        all.find(|c| c.type_ == type_ && c.status == "True")
    };
    let at = |time: &Option<Time>| time.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    if let Some(failed) = condition("Failed") {
        let message = failed.message.clone().unwrap_or_default();
        return JobPhase::Failed { at: at(&failed.last_transition_time), message };
    }
    if let Some(complete) = condition("Complete") {
        return JobPhase::Complete(at(&complete.last_transition_time));
    }
    match &status.start_time {
        Some(time) => JobPhase::Started(time.0),
        None => JobPhase::Waiting,
    }
}

/// What a Job is created from.
#[derive(Clone, Debug)]
pub struct JobRequest {
    pub namespace: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub owner: OwnerReference,
    pub deadline_seconds: i64,
    /// Image of the pod template, which is never started; a Job needs one.
    pub image: String,
    /// What the Job does, for whoever reads the template.
    pub purpose: String,
}

/// Renders a Job.
pub fn render(request: &JobRequest) -> Job {
    let container = Container {
        name: "handle".into(),
        image: Some(request.image.clone()),
        command: Some(vec!["/bin/true".into()]),
        ..Container::default()
    };
    let template_annotations = BTreeMap::from([("ovn.openstack.c5c3.io/purpose".to_owned(), request.purpose.clone())]);
    Job {
        metadata: ObjectMeta {
            namespace: Some(request.namespace.clone()),
            name: Some(request.name.clone()),
            labels: Some(request.labels.clone()),
            annotations: Some(request.annotations.clone()),
            owner_references: Some(vec![request.owner.clone()]),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            managed_by: Some(JOB_MANAGED_BY.into()),
            backoff_limit: Some(0),
            active_deadline_seconds: Some(request.deadline_seconds),
            completions: Some(1),
            parallelism: Some(1),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(request.labels.clone()),
                    annotations: Some(template_annotations),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec {
                    restart_policy: Some("Never".into()),
                    automount_service_account_token: Some(false),
                    containers: vec![container],
                    ..PodSpec::default()
                }),
            },
            ..JobSpec::default()
        }),
        status: None,
    }
}

/// A change of a Job's status that fails if the Job is another one by now or changed meanwhile.
fn guarded(job: &Job, status: Value) -> Value {
    json!({
        "metadata": { "uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version },
        "status": status,
    })
}

/// The patch that says that the work begins.
pub fn started(job: &Job, now: Timestamp) -> Value {
    guarded(job, json!({ "startTime": Time(now) }))
}

/// The patch that says that the work is done.
pub fn completed(job: &Job, now: Timestamp, message: &str) -> Value {
    let conditions = [("SuccessCriteriaMet", "CompletionsReached"), ("Complete", "CompletionsReached")]
        .map(|(type_, reason)| condition(type_, reason, message, now));
    guarded(
        job,
        json!({
            "startTime": start_time(job, now),
            "completionTime": Time(now),
            "succeeded": 1,
            "conditions": conditions,
        }),
    )
}

/// The patch that says that the work failed, and why.
pub fn failed(job: &Job, now: Timestamp, reason: &str, message: &str) -> Value {
    let conditions = ["FailureTarget", "Failed"].map(|type_| condition(type_, reason, message, now));
    guarded(job, json!({ "startTime": start_time(job, now), "failed": 1, "conditions": conditions }))
}

fn start_time(job: &Job, now: Timestamp) -> Time {
    job.status.as_ref().and_then(|s| s.start_time.clone()).unwrap_or(Time(now))
}

fn condition(type_: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    json!({
        "type": type_,
        "status": "True",
        "reason": reason,
        "message": message.chars().take(4096).collect::<String>(),
        "lastProbeTime": Time(now),
        "lastTransitionTime": Time(now),
    })
}

/// Asks the API server, by a dry run, whether it keeps `spec.managedBy`.
///
/// One that drops it (before Kubernetes 1.32) would start a real pod for each of our Jobs.
pub async fn keeps_managed_by(client: &Client, namespace: &str, image: &str) -> Result<bool, ClusterError> {
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Namespace".into(),
        name: namespace.into(),
        uid: "00000000-0000-0000-0000-000000000000".into(),
        ..OwnerReference::default()
    };
    let mut job = render(&JobRequest {
        namespace: namespace.into(),
        name: "ovn-chassis-managed-by-check".into(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        owner,
        deadline_seconds: 1,
        image: image.into(),
        purpose: "asks whether spec.managedBy is kept; never stored".into(),
    });
    job.metadata.owner_references = None;
    let api: Api<Job> = Api::namespaced(client.clone(), namespace);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let answer = call(format!("create Job (dry run) in {namespace}"), api.create(&params, &job)).await?;
    Ok(answer.spec.and_then(|s| s.managed_by).as_deref() == Some(JOB_MANAGED_BY))
}
