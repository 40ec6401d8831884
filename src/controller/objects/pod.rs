//! What the pods of both DaemonSets have in common: paths, volumes, environment, the binary's init container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource, ExecAction, HostPathVolumeSource, KeyToPath,
    Lifecycle, LifecycleHandler, ObjectFieldSelector, PodSpec, Probe, ResourceRequirements, SecretVolumeSource,
    SecurityContext, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{RenderContext, chassis_ref};
use crate::api::OVNChassis;
use crate::model::names::OWNER_LABEL;

/// Where the init container puts our binary: `spec.image` need not hold it.
pub const BINARY_FOLDER: &str = "/opt/ovn-chassis";
/// Our binary in every container but the one that brings it.
pub const BINARY: &str = "/opt/ovn-chassis/ovn-chassis";
/// Where ovn-controller's container finds `tls.crt`, `tls.key` and `ca.crt`.
pub const TLS_FOLDER: &str = "/etc/ovn-chassis/tls";
/// Longest time that ending a pod may take; the preStop hooks are bounded well below it.
pub const GRACE_PERIOD_SECONDS: i64 = 60;

const BINARY_VOLUME: &str = "binary";
const TLS_VOLUME: &str = "node-client-tls";

/// Folders of the node that outlive a pod: name of the volume and path, the same inside and outside.
const HOST_FOLDERS: [(&str, &str); 4] = [
    ("run-openvswitch", "/run/openvswitch"),
    ("run-ovn", "/run/ovn"),
    ("etc-openvswitch", "/etc/openvswitch"),
    ("run-ovn-chassis", "/run/ovn-chassis"),
];

/// Image of everything but the init container that brings the binary.
pub fn daemon_image(chassis: &OVNChassis, context: &RenderContext) -> String {
    match &chassis.spec.image {
        Some(image) => image.reference(),
        None => context.image.clone(),
    }
}

/// The specification that both kinds of pods share; containers and own volumes are the caller's.
pub fn base_spec(chassis: &OVNChassis, context: &RenderContext) -> PodSpec {
    PodSpec {
        host_network: Some(true),
        // The node's resolver: cluster DNS may sit behind this very datapath, and a node that boots while the API
        // server is away has no route to it.
        dns_policy: Some("Default".to_owned()),
        priority_class_name: Some("system-node-critical".to_owned()),
        node_selector: Some(BTreeMap::from([(OWNER_LABEL.to_owned(), chassis_ref(chassis).owner_label_value())])),
        tolerations: Some(tolerations(chassis)),
        termination_grace_period_seconds: Some(GRACE_PERIOD_SECONDS),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        restart_policy: Some("Always".to_owned()),
        init_containers: Some(vec![binary_container(context)]),
        volumes: Some(volumes()),
        ..PodSpec::default()
    }
}

/// The user's, and every `NoExecute` taint: the way off a node is its label, which drains first. An eviction would
/// take the datapath from under workloads that stay.
fn tolerations(chassis: &OVNChassis) -> Vec<Toleration> {
    let mut all = chassis.spec.tolerations.clone();
    let no_execute = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    if !all.contains(&no_execute) {
        all.push(no_execute);
    }
    all
}

fn volumes() -> Vec<Volume> {
    let mut volumes = vec![Volume {
        name: BINARY_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    }];
    volumes.extend(HOST_FOLDERS.map(|(name, path)| Volume {
        name: name.to_owned(),
        host_path: Some(HostPathVolumeSource { path: path.to_owned(), type_: Some("DirectoryOrCreate".to_owned()) }),
        ..Volume::default()
    }));
    volumes
}

/// Mounts of every container but the one that brings the binary.
pub fn mounts() -> Vec<VolumeMount> {
    let mut mounts = vec![VolumeMount { read_only: Some(true), ..mount(BINARY_VOLUME, BINARY_FOLDER) }];
    mounts.extend(HOST_FOLDERS.map(|(name, path)| mount(name, path)));
    mounts
}

pub fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

/// The Secret with the nodes' client certificate. Keys are named, so that one without them is an event of the pod
/// ("references non-existent secret key") and a standby never gets Ready with half a certificate.
pub fn tls_volume(secret: &str) -> Volume {
    let items = ["tls.crt", "tls.key", "ca.crt"]
        .map(|key| KeyToPath { key: key.to_owned(), path: key.to_owned(), mode: None })
        .to_vec();
    Volume {
        name: TLS_VOLUME.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            default_mode: Some(0o400),
            items: Some(items),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }
}

pub fn tls_mount() -> VolumeMount {
    VolumeMount { read_only: Some(true), ..mount(TLS_VOLUME, TLS_FOLDER) }
}

/// Environment of every container: who and where it is, and where the OVS and OVN tools look.
pub fn environment() -> Vec<EnvVar> {
    let mut all = [
        ("NODE_NAME", "spec.nodeName"),
        ("POD_NAME", "metadata.name"),
        ("POD_NAMESPACE", "metadata.namespace"),
        ("POD_UID", "metadata.uid"),
        ("HOST_IP", "status.hostIP"),
    ]
    .map(|(name, path)| EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { api_version: Some("v1".to_owned()), field_path: path.to_owned() }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    })
    .to_vec();
    // Images built from source look below /usr/local by default.
    all.extend(
        [("OVS_RUNDIR", "/run/openvswitch"), ("OVN_RUNDIR", "/run/ovn"), ("OVS_DBDIR", "/etc/openvswitch")]
            .map(|(name, value)| value_of(name, value)),
    );
    all
}

pub fn value_of(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None }
}

/// Copies our binary to where the other containers run it from.
fn binary_container(context: &RenderContext) -> Container {
    Container {
        name: "binary".to_owned(),
        image: Some(context.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(words(&["ovn-chassis", "install", BINARY_FOLDER])),
        security_context: Some(SecurityContext { read_only_root_filesystem: Some(true), ..security(&[]) }),
        volume_mounts: Some(vec![mount(BINARY_VOLUME, BINARY_FOLDER)]),
        ..Container::default()
    }
}

/// A daemon's container: our binary is process 1 and has the daemon as its child.
pub fn daemon_container(
    name: &str,
    chassis: &OVNChassis,
    context: &RenderContext,
    security_context: SecurityContext,
    resources: Option<ResourceRequirements>,
) -> Container {
    let run = |verb: &str| words(&[BINARY, "hook", verb, name]);
    Container {
        name: name.to_owned(),
        image: Some(daemon_image(chassis, context)),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(run("start")),
        env: Some(environment()),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler { exec: Some(exec(run("pre-stop"))), ..LifecycleHandler::default() }),
            ..Lifecycle::default()
        }),
        resources,
        security_context: Some(security_context),
        volume_mounts: Some(mounts()),
        ..Container::default()
    }
}

/// The container whose probe tells the readiness of all daemons of its pod.
pub fn with_readiness(mut container: Container) -> Container {
    container.readiness_probe = Some(Probe {
        exec: Some(exec(words(&[BINARY, "hook", "ready", &container.name]))),
        period_seconds: Some(10),
        timeout_seconds: Some(10),
        // A DaemonSet with surge deletes an old pod that is not Ready at once, whatever was granted. A machine that is
        // busy for a minute must not look like a daemon that is gone: a daemon that ends makes its container not Ready
        // without any probe.
        failure_threshold: Some(9),
        success_threshold: Some(1),
        ..Probe::default()
    });
    container
}

/// Root, because the run folders and sockets are root's, with these capabilities and no others.
pub fn security(capabilities: &[&str]) -> SecurityContext {
    SecurityContext {
        run_as_user: Some(0),
        run_as_group: Some(0),
        run_as_non_root: Some(false),
        privileged: Some(false),
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(words(&["ALL"])),
            add: (!capabilities.is_empty()).then(|| words(capabilities)),
        }),
        ..SecurityContext::default()
    }
}

/// The agent's: it is ours, so we know what it takes.
pub fn agent_resources() -> ResourceRequirements {
    let quantities =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), Quantity((*v).to_owned()))).collect();
    ResourceRequirements {
        requests: Some(quantities(&[("cpu", "10m"), ("memory", "16Mi")])),
        limits: Some(quantities(&[("memory", "128Mi")])),
        claims: None,
    }
}

fn exec(command: Vec<String>) -> ExecAction {
    ExecAction { command: Some(command) }
}

pub fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}
