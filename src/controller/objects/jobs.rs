//! The Jobs that people wait on, and the pod that prints why one failed.
//!
//! `spec.managedBy` names us, so Kubernetes starts no pod; the template is there because the API asks for one, and only
//! prints a line should a pod of it ever run.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, Pod, PodSpec, PodTemplateSpec, SeccompProfile, SecurityContext, Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};

use super::pod::words;
use super::{RenderContext, chassis_ref, labels, metadata};
use crate::api::OVNChassis;
use crate::model::hash::hash8;
use crate::model::ids::NodeName;
use crate::model::names::{JOB_MANAGED_BY, JobKind, NODE_ANNOTATION, TRANSITION_ANNOTATION};

/// Longest cause that is put into a pod's arguments, in bytes.
const MAX_CAUSE: usize = 16 * 1024;

/// The Job of one kind for one node. `transition` is the generation of the OVNChassisNode whose change asked for it.
pub fn job(chassis: &OVNChassis, context: &RenderContext, kind: JobKind, node: &NodeName, transition: i64) -> Job {
    let mut meta = metadata(chassis, chassis_ref(chassis).job(kind, node), kind.as_str());
    meta.annotations = Some(BTreeMap::from([
        (NODE_ANNOTATION.to_owned(), node.to_string()),
        (TRANSITION_ANNOTATION.to_owned(), transition.to_string()),
    ]));
    let explanation = format!(
        "The controller of {JOB_MANAGED_BY} does this Job's work itself ({kind} of node {node}). A pod of it should \
         not exist: this API server drops spec.managedBy."
    );
    Job {
        metadata: meta,
        spec: Some(JobSpec {
            managed_by: Some(JOB_MANAGED_BY.to_owned()),
            backoff_limit: Some(0),
            active_deadline_seconds: Some(context.job_deadline_seconds),
            parallelism: Some(1),
            completions: Some(1),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels(chassis, kind.as_str())), ..ObjectMeta::default() }),
                spec: Some(speaking_pod_spec(&context.image, &explanation)),
            },
            ..JobSpec::default()
        }),
        status: None,
    }
}

/// The pod that prints why a Job failed, so that `kubectl logs job/…` tells it: it carries the labels that the Job
/// selects on, belongs to the Job, and goes with it.
///
/// `job` is the live object: the API server adds its selector when it is created. The name follows from the Job's uid,
/// so that a second pass finds the pod of the first.
pub fn cause_pod(job: &Job, image: &str, cause: &str) -> Pod {
    let spec = job.spec.clone().unwrap_or_default();
    let mut labels = spec.template.metadata.and_then(|m| m.labels).unwrap_or_default();
    labels.extend(spec.selector.and_then(|s| s.match_labels).unwrap_or_default());
    Pod {
        metadata: ObjectMeta {
            name: Some(format!("{}-{}", job.name_any(), hash8(&job.uid().unwrap_or_default()))),
            namespace: job.namespace(),
            labels: Some(labels),
            owner_references: Some(job.controller_owner_ref(&()).into_iter().collect()),
            ..ObjectMeta::default()
        },
        spec: Some(speaking_pod_spec(image, cause)),
        status: None,
    }
}

/// A pod that prints one text and ends. It fits the `restricted` Pod Security Standard and holds no credential.
fn speaking_pod_spec(image: &str, text: &str) -> PodSpec {
    let mut command = words(&["ovn-chassis", "say", "--"]);
    command.push(literal(bounded(text)));
    PodSpec {
        restart_policy: Some("Never".to_owned()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(1),
        // Clusters whose only schedulable nodes are the control plane's have a controller there, so the image is too.
        tolerations: Some(vec![Toleration {
            key: Some("node-role.kubernetes.io/control-plane".to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some("NoSchedule".to_owned()),
            ..Toleration::default()
        }]),
        containers: vec![Container {
            name: "cause".to_owned(),
            image: Some(image.to_owned()),
            image_pull_policy: Some("IfNotPresent".to_owned()),
            command: Some(command),
            security_context: Some(SecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(65_532),
                run_as_group: Some(65_532),
                privileged: Some(false),
                allow_privilege_escalation: Some(false),
                read_only_root_filesystem: Some(true),
                capabilities: Some(Capabilities { drop: Some(words(&["ALL"])), add: None }),
                seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
                ..SecurityContext::default()
            }),
            ..Container::default()
        }],
        ..PodSpec::default()
    }
}

fn bounded(text: &str) -> &str {
    let mut end = text.len().min(MAX_CAUSE);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or(text)
}

/// Kubernetes expands `$(NAME)` in arguments; a doubled dollar stands for itself.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{chassis, context};
    use super::*;
    use serde_json::json;

    fn rendered(kind: JobKind) -> Job {
        job(&chassis(json!({})), &context(), kind, &NodeName::from("node-a.example"), 7)
    }

    /// As the API server hands it back.
    fn live() -> Job {
        let mut job = rendered(JobKind::Evacuate);
        job.metadata.uid = Some("9f".to_owned());
        let generated = BTreeMap::from([("batch.kubernetes.io/controller-uid".to_owned(), "9f".to_owned())]);
        let spec = job.spec.as_mut().unwrap();
        spec.selector.get_or_insert_default().match_labels = Some(generated.clone());
        spec.template.metadata.get_or_insert_default().labels.get_or_insert_default().extend(generated);
        job
    }

    fn spoken(spec: &PodSpec) -> &str {
        spec.containers[0].command.as_ref().unwrap().last().unwrap()
    }

    #[test]
    fn kubernetes_leaves_the_job_to_us_and_gives_it_one_try() {
        let spec = rendered(JobKind::Apply).spec.unwrap();
        assert_eq!(spec.managed_by.as_deref(), Some("ovn.openstack.c5c3.io/ovn-chassis"));
        assert_eq!(spec.backoff_limit, Some(0));
        assert_eq!(spec.active_deadline_seconds, Some(300));
        assert_eq!(spec.suspend, None);
        assert_eq!(spec.ttl_seconds_after_finished, None, "a failed Job lives until somebody deletes it");
    }

    #[test]
    fn names_are_those_that_the_shell_computes() {
        // printf %s node-a.example | sha256sum | cut -c1-8
        let names: Vec<_> = JobKind::ALL.map(|kind| rendered(kind).name_any()).to_vec();
        let hash = hash8("node-a.example");
        assert_eq!(
            names,
            [
                format!("controlplane-chassis-apply-{hash}"),
                format!("controlplane-chassis-evacuate-{hash}"),
                format!("controlplane-chassis-chassis-del-{hash}"),
            ]
        );
    }

    #[test]
    fn annotations_hold_the_whole_node_name_and_the_transition() {
        let annotations = rendered(JobKind::Apply).metadata.annotations.unwrap();
        assert_eq!(annotations["ovn.openstack.c5c3.io/node"], "node-a.example");
        assert_eq!(annotations["ovn.openstack.c5c3.io/transition"], "7");
    }

    #[test]
    fn a_pod_of_the_template_would_only_speak() {
        let spec = rendered(JobKind::ChassisDel).spec.unwrap().template.spec.unwrap();
        assert_eq!(spec.containers[0].command.as_ref().unwrap()[..3], ["ovn-chassis", "say", "--"]);
        assert_eq!(spec.host_network, None);
        assert_eq!(spec.volumes, None);
        assert_eq!(spec.automount_service_account_token, Some(false));
        assert!(spoken(&spec).contains("chassis-del of node node-a.example"));
    }

    #[test]
    fn the_cause_pod_is_what_kubectl_logs_finds() {
        let job = live();
        let pod = cause_pod(&job, "image:1", "Northbound out of reach");
        let selector = job.spec.as_ref().unwrap().selector.as_ref().unwrap().match_labels.as_ref().unwrap();
        let labels = pod.metadata.labels.unwrap();
        assert!(selector.iter().all(|(key, value)| labels.get(key) == Some(value)));
        let owner = &pod.metadata.owner_references.unwrap()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("Job", "9f", Some(true)));
        assert_eq!(spoken(pod.spec.as_ref().unwrap()), "Northbound out of reach");
        let again = cause_pod(&job, "image:1", "Northbound out of reach");
        assert_eq!(again.metadata.name, pod.metadata.name);
    }

    #[test]
    fn a_cause_is_printed_as_it_is_and_bounded() {
        let pod = cause_pod(&live(), "image:1", "price $(HOME) $x");
        assert_eq!(spoken(pod.spec.as_ref().unwrap()), "price $$(HOME) $$x");
        let long = cause_pod(&live(), "image:1", &"ä".repeat(MAX_CAUSE));
        assert_eq!(spoken(long.spec.as_ref().unwrap()).len(), MAX_CAUSE);
    }
}
