//! The two DaemonSets.
//!
//! Their pods roll by hand-over: the successor stands by (`maxSurge: 1, maxUnavailable: 0`) and starts its daemons when
//! the old ones end. Host-network pods declare no container ports here, because a declared port is a host port and would
//! keep the standby from being scheduled.

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet};
use k8s_openapi::api::core::v1::{
    ConfigMapProjection, Container, DownwardAPIProjection, DownwardAPIVolumeFile, KeyToPath, ObjectFieldSelector,
    PodSpec, PodTemplateSpec, ProjectedVolumeSource, ResourceRequirements, SecurityContext,
    ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::pod::{
    BINARY, agent_resources, base_spec, daemon_container, daemon_image, environment, mount, mounts, security,
    tls_mount, tls_volume, value_of, with_readiness, words,
};
use super::{RenderContext, chassis_ref, labels, metadata, selector_labels};
use crate::api::{DaemonResources, DatapathType, OVNChassis, UpdateStrategyType};
use crate::model::names::{COMPONENT_OVN_CONTROLLER, COMPONENT_OVS, HAND_OVER, HAND_OVER_ANNOTATION};

/// What `ovs-vswitchd` keeps itself when it drops root, and DAC_OVERRIDE for databases and sockets that another user's
/// daemons left behind. The kernel loads `openvswitch` and the tunnel modules on demand, so SYS_MODULE is not among them.
const VSWITCHD_CAPABILITIES: [&str; 6] =
    ["DAC_OVERRIDE", "IPC_LOCK", "NET_ADMIN", "NET_BROADCAST", "NET_RAW", "SYS_NICE"];
/// A database file and unix sockets.
const OVSDB_CAPABILITIES: [&str; 1] = ["DAC_OVERRIDE"];
/// Sockets; NET_ADMIN for the routes that it exchanges with the host from OVN 25.03 on.
const OVN_CONTROLLER_CAPABILITIES: [&str; 2] = ["DAC_OVERRIDE", "NET_ADMIN"];
/// Runs `ovs-vsctl` and the `appctl` tools on unix sockets, and moves grants and claims in the run folder.
const AGENT_CAPABILITIES: [&str; 1] = ["DAC_OVERRIDE"];

const AGENT_ACCESS_VOLUME: &str = "agent-access";
/// Where a client library looks for the credentials of its pod.
const AGENT_ACCESS_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The kubelet renews a token at 80 % of its life.
const TOKEN_SECONDS: i64 = 3607;

/// `{chassis}-ovs`: the agent as a native sidecar, so that it starts before the daemons and gets its SIGTERM after
/// them, then ovsdb-server and ovs-vswitchd.
pub fn ovs_daemon_set(chassis: &OVNChassis, context: &RenderContext) -> DaemonSet {
    let mut spec = base_spec(chassis, context);
    spec.service_account_name = Some(chassis_ref(chassis).agent_account());
    spec.init_containers.get_or_insert_default().push(agent_container(chassis, context));
    spec.volumes.get_or_insert_default().push(agent_access_volume());
    let resources = resources(&chassis.spec.ovs);
    spec.containers = vec![
        daemon_container("ovsdb-server", chassis, context, security(&OVSDB_CAPABILITIES), resources.clone()),
        with_readiness(daemon_container("ovs-vswitchd", chassis, context, vswitchd_security(chassis), resources)),
    ];
    let name = chassis_ref(chassis).ovs_daemon_set();
    daemon_set(chassis, context, name, COMPONENT_OVS, "ovs-vswitchd", spec)
}

/// `{chassis}-ovn-controller`: the only pod that holds a database credential, and none of the Kubernetes API.
pub fn ovn_controller_daemon_set(chassis: &OVNChassis, context: &RenderContext) -> DaemonSet {
    let mut spec = base_spec(chassis, context);
    let mut container = with_readiness(daemon_container(
        "ovn-controller",
        chassis,
        context,
        security(&OVN_CONTROLLER_CAPABILITIES),
        resources(&chassis.spec.controller),
    ));
    if let Some(secret) = &context.node_client_secret {
        spec.volumes.get_or_insert_default().push(tls_volume(secret));
        container.volume_mounts.get_or_insert_default().push(tls_mount());
    }
    spec.containers = vec![container];
    let name = chassis_ref(chassis).ovn_controller_daemon_set();
    daemon_set(chassis, context, name, COMPONENT_OVN_CONTROLLER, "ovn-controller", spec)
}

/// Whether pods are replaced by hand-over; otherwise the old pod stops first.
pub fn rolls_by_hand_over(chassis: &OVNChassis, context: &RenderContext) -> bool {
    let asked_otherwise =
        chassis.spec.update_strategy.as_ref().is_some_and(|strategy| {
            strategy.type_ == UpdateStrategyType::OnDelete || strategy.max_unavailable.is_some()
        });
    // Two netdev datapaths would need their huge pages and their cards twice.
    !(asked_otherwise || context.stop_first || chassis.spec.datapath_type == DatapathType::Netdev)
}

fn update_strategy(chassis: &OVNChassis, context: &RenderContext) -> DaemonSetUpdateStrategy {
    let strategy = chassis.spec.update_strategy.clone().unwrap_or_default();
    if strategy.type_ == UpdateStrategyType::OnDelete {
        return DaemonSetUpdateStrategy { type_: Some("OnDelete".to_owned()), rolling_update: None };
    }
    let (max_surge, max_unavailable) = match strategy.max_unavailable {
        _ if rolls_by_hand_over(chassis, context) => (IntOrString::Int(1), IntOrString::Int(0)),
        Some(count) => (IntOrString::Int(0), count),
        None => (IntOrString::Int(0), IntOrString::Int(1)),
    };
    DaemonSetUpdateStrategy {
        type_: Some("RollingUpdate".to_owned()),
        rolling_update: Some(RollingUpdateDaemonSet {
            max_surge: Some(max_surge),
            max_unavailable: Some(max_unavailable),
        }),
    }
}

fn daemon_set(
    chassis: &OVNChassis,
    context: &RenderContext,
    name: String,
    component: &str,
    default_container: &str,
    spec: PodSpec,
) -> DaemonSet {
    DaemonSet {
        metadata: metadata(chassis, name, component),
        spec: Some(DaemonSetSpec {
            selector: LabelSelector {
                match_labels: Some(selector_labels(chassis, component)),
                ..LabelSelector::default()
            },
            update_strategy: Some(update_strategy(chassis, context)),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels(chassis, component)),
                    annotations: Some(
                        [
                            ("kubectl.kubernetes.io/default-container".to_owned(), default_container.to_owned()),
                            (HAND_OVER_ANNOTATION.to_owned(), HAND_OVER.to_owned()),
                        ]
                        .into(),
                    ),
                    ..ObjectMeta::default()
                }),
                spec: Some(spec),
            },
            ..DaemonSetSpec::default()
        }),
        status: None,
    }
}

fn agent_container(chassis: &OVNChassis, context: &RenderContext) -> Container {
    let mut env = environment();
    if let Some(server) = &context.api_server {
        env.push(value_of("KUBERNETES_SERVICE_HOST", &server.host));
        env.push(value_of("KUBERNETES_SERVICE_PORT", &server.port.to_string()));
    }
    let mut volume_mounts = mounts();
    volume_mounts.push(VolumeMount { read_only: Some(true), ..mount(AGENT_ACCESS_VOLUME, AGENT_ACCESS_FOLDER) });
    Container {
        name: "agent".to_owned(),
        image: Some(daemon_image(chassis, context)),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        restart_policy: Some("Always".to_owned()),
        command: Some(words(&[BINARY, "agent"])),
        env: Some(env),
        resources: Some(agent_resources()),
        security_context: Some(SecurityContext {
            read_only_root_filesystem: Some(true),
            ..security(&AGENT_CAPABILITIES)
        }),
        volume_mounts: Some(volume_mounts),
        ..Container::default()
    }
}

/// What the kubelet would mount into every container, for the agent alone: the daemons have no business with the API.
fn agent_access_volume() -> Volume {
    let token = ServiceAccountTokenProjection {
        path: "token".to_owned(),
        expiration_seconds: Some(TOKEN_SECONDS),
        audience: None,
    };
    let authority = ConfigMapProjection {
        name: "kube-root-ca.crt".to_owned(),
        items: Some(vec![KeyToPath { key: "ca.crt".to_owned(), path: "ca.crt".to_owned(), mode: None }]),
        optional: None,
    };
    let namespace = DownwardAPIProjection {
        items: Some(vec![DownwardAPIVolumeFile {
            path: "namespace".to_owned(),
            field_ref: Some(ObjectFieldSelector {
                api_version: Some("v1".to_owned()),
                field_path: "metadata.namespace".to_owned(),
            }),
            ..DownwardAPIVolumeFile::default()
        }]),
    };
    Volume {
        name: AGENT_ACCESS_VOLUME.to_owned(),
        projected: Some(ProjectedVolumeSource {
            default_mode: Some(0o400),
            sources: Some(vec![
                VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() },
                VolumeProjection { config_map: Some(authority), ..VolumeProjection::default() },
                VolumeProjection { downward_api: Some(namespace), ..VolumeProjection::default() },
            ]),
        }),
        ..Volume::default()
    }
}

/// A kernel datapath is driven through netlink; a userspace one opens devices (`/dev/net/tun`, `/dev/vfio`) that only a
/// privileged container may open.
fn vswitchd_security(chassis: &OVNChassis) -> SecurityContext {
    match chassis.spec.datapath_type {
        DatapathType::System => security(&VSWITCHD_CAPABILITIES),
        DatapathType::Netdev => SecurityContext {
            run_as_user: Some(0),
            run_as_group: Some(0),
            privileged: Some(true),
            ..SecurityContext::default()
        },
    }
}

fn resources(daemon: &Option<DaemonResources>) -> Option<ResourceRequirements> {
    daemon.as_ref().and_then(|d| d.resources.clone())
}

#[cfg(test)]
mod tests {
    use super::super::ApiServer;
    use super::super::tests::{chassis, context};
    use super::*;
    use serde_json::{Value, json};

    fn both(spec: Value, context: &RenderContext) -> [DaemonSet; 2] {
        let chassis = chassis(spec);
        [ovs_daemon_set(&chassis, context), ovn_controller_daemon_set(&chassis, context)]
    }

    fn pod(set: &DaemonSet) -> &PodSpec {
        set.spec.as_ref().unwrap().template.spec.as_ref().unwrap()
    }

    fn containers(set: &DaemonSet) -> Vec<&Container> {
        let pod = pod(set);
        pod.init_containers.iter().flatten().chain(&pod.containers).collect()
    }

    fn find<'a>(set: &'a DaemonSet, name: &str) -> &'a Container {
        containers(set).into_iter().find(|c| c.name == name).unwrap()
    }

    fn rolling(spec: Value, context: &RenderContext) -> Value {
        let [ovs, ovn] =
            both(spec, context).map(|set| serde_json::to_value(&set.spec.unwrap().update_strategy).unwrap());
        assert_eq!(ovs, ovn);
        ovs
    }

    #[test]
    fn a_roll_is_a_hand_over_unless_something_forbids_it() {
        let surge = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
        let stop_first = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
        assert_eq!(rolling(json!({}), &context()), surge);
        assert_eq!(rolling(json!({"updateStrategy": {"type": "RollingUpdate"}}), &context()), surge);
        assert_eq!(
            rolling(json!({"updateStrategy": {"maxUnavailable": "20%"}}), &context()),
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "20%"}})
        );
        assert_eq!(rolling(json!({"updateStrategy": {"type": "OnDelete"}}), &context()), json!({"type": "OnDelete"}));
        assert_eq!(rolling(json!({"datapathType": "netdev"}), &context()), stop_first);
        assert_eq!(rolling(json!({}), &RenderContext { stop_first: true, ..context() }), stop_first);
        let netdev = json!({"datapathType": "netdev", "updateStrategy": {"maxUnavailable": 2}});
        assert_eq!(
            rolling(netdev, &context()),
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 2}})
        );
    }

    #[test]
    fn only_the_owner_label_selects_nodes() {
        for set in both(json!({}), &context()) {
            let selector = pod(&set).node_selector.clone().unwrap();
            let owner = chassis_ref(&chassis(json!({}))).owner_label_value();
            assert_eq!(
                selector.into_iter().collect::<Vec<_>>(),
                [("ovn.openstack.c5c3.io/chassis-owner".to_owned(), owner)]
            );
        }
    }

    #[test]
    fn no_container_declares_a_port_or_a_liveness_probe() {
        for set in both(json!({}), &context()) {
            for container in containers(&set) {
                assert_eq!(
                    container.ports, None,
                    "{}: a host port keeps the standby from being scheduled",
                    container.name
                );
                assert_eq!(container.liveness_probe, None, "{}", container.name);
                assert_eq!(container.startup_probe, None, "{}", container.name);
            }
        }
    }

    #[test]
    fn the_agent_is_a_native_sidecar_of_ovs_that_starts_after_the_binary_is_there() {
        let [ovs, ovn] = both(json!({}), &context());
        let order = |set: &DaemonSet| containers(set).iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        assert_eq!(order(&ovs), ["binary", "agent", "ovsdb-server", "ovs-vswitchd"]);
        assert_eq!(order(&ovn), ["binary", "ovn-controller"]);
        let agent = find(&ovs, "agent");
        assert_eq!(agent.restart_policy.as_deref(), Some("Always"));
        // Pod readiness is the daemons' health; and its SIGTERM comes after theirs, which a preStop's would not.
        assert_eq!((&agent.readiness_probe, &agent.lifecycle), (&None, &None));
        assert_eq!(find(&ovs, "binary").restart_policy, None);
    }

    #[test]
    fn each_daemon_has_its_three_hooks() {
        let [ovs, ovn] = both(json!({}), &context());
        for (set, name) in [(&ovs, "ovsdb-server"), (&ovs, "ovs-vswitchd"), (&ovn, "ovn-controller")] {
            let container = find(set, name);
            let hook = |verb: &str| Some(words(&["/opt/ovn-chassis/ovn-chassis", "hook", verb, name]));
            assert_eq!(container.command, hook("start"));
            let pre_stop = container.lifecycle.as_ref().unwrap().pre_stop.as_ref().unwrap();
            assert_eq!(pre_stop.exec.as_ref().unwrap().command, hook("pre-stop"));
            // The probe of ovs-vswitchd asks ovsdb-server as well: kubelet starts one process for both.
            let probe = container.readiness_probe.as_ref().map(|probe| probe.exec.as_ref().unwrap().command.clone());
            assert_eq!(probe, (name != "ovsdb-server").then(|| hook("ready")));
        }
    }

    #[test]
    fn the_certificate_is_in_ovn_controllers_container_alone() {
        let [ovs, ovn] = both(json!({}), &context());
        let secrets = |set: &DaemonSet| {
            pod(set).volumes.iter().flatten().filter(|v| v.secret.is_some()).map(|v| v.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(secrets(&ovs), Vec::<String>::new());
        let [volume] = secrets(&ovn).try_into().unwrap();
        for container in containers(&ovn) {
            let mounted = container.volume_mounts.iter().flatten().any(|m| m.name == volume);
            assert_eq!(mounted, container.name == "ovn-controller", "{}", container.name);
        }
        let plain = both(json!({}), &RenderContext { node_client_secret: None, ..context() });
        assert_eq!(secrets(&plain[1]), Vec::<String>::new());
    }

    #[test]
    fn the_api_token_is_in_the_agents_container_alone() {
        let [ovs, ovn] = both(json!({}), &context());
        for set in [&ovs, &ovn] {
            assert_eq!(pod(set).automount_service_account_token, Some(false));
        }
        assert_eq!(pod(&ovs).service_account_name.as_deref(), Some("controlplane-chassis-agent"));
        assert_eq!(pod(&ovn).service_account_name, None);
        for container in containers(&ovs) {
            let mounted = container.volume_mounts.iter().flatten().any(|m| m.name == AGENT_ACCESS_VOLUME);
            assert_eq!(mounted, container.name == "agent", "{}", container.name);
        }
    }

    #[test]
    fn every_mount_has_its_volume_and_every_volume_is_used() {
        for set in both(json!({}), &context()) {
            let volumes: Vec<_> = pod(&set).volumes.iter().flatten().map(|v| v.name.clone()).collect();
            let mounts: Vec<_> = containers(&set)
                .iter()
                .flat_map(|c| c.volume_mounts.iter().flatten())
                .map(|m| m.name.clone())
                .collect();
            assert!(mounts.iter().all(|m| volumes.contains(m)), "{mounts:?} {volumes:?}");
            assert!(volumes.iter().all(|v| mounts.contains(v)), "{mounts:?} {volumes:?}");
        }
    }

    #[test]
    fn an_image_of_the_users_runs_everything_but_the_init_container() {
        let spec = json!({"image": {"repository": "registry.example/ovn", "tag": "24.03"}});
        for set in both(spec, &context()) {
            for container in containers(&set) {
                let expected = match container.name.as_str() {
                    "binary" => "registry.example/ovn-chassis:1",
                    _ => "registry.example/ovn:24.03",
                };
                assert_eq!(container.image.as_deref(), Some(expected), "{}", container.name);
                assert_eq!(container.image_pull_policy.as_deref(), Some("IfNotPresent"));
            }
        }
    }

    #[test]
    fn privileges_are_listed_one_by_one_with_a_kernel_datapath() {
        let added = |c: &Container| {
            let security = c.security_context.clone().unwrap();
            assert_eq!(security.privileged, Some(false), "{}", c.name);
            let capabilities = security.capabilities.unwrap();
            assert_eq!(capabilities.drop, Some(vec!["ALL".to_owned()]), "{}", c.name);
            capabilities.add.unwrap_or_default()
        };
        let [ovs, ovn] = both(json!({}), &context());
        assert_eq!(added(find(&ovs, "binary")), Vec::<String>::new());
        assert_eq!(added(find(&ovs, "agent")), ["DAC_OVERRIDE"]);
        assert_eq!(added(find(&ovs, "ovsdb-server")), ["DAC_OVERRIDE"]);
        assert!(added(find(&ovs, "ovs-vswitchd")).contains(&"NET_ADMIN".to_owned()));
        assert!(!added(find(&ovs, "ovs-vswitchd")).contains(&"SYS_ADMIN".to_owned()));
        assert_eq!(added(find(&ovn, "ovn-controller")), ["DAC_OVERRIDE", "NET_ADMIN"]);
        let [netdev, _] = both(json!({"datapathType": "netdev"}), &context());
        let security = find(&netdev, "ovs-vswitchd").security_context.clone().unwrap();
        assert_eq!(security.privileged, Some(true));
        // The API refuses a privileged container that must not gain privileges.
        assert_eq!(security.allow_privilege_escalation, None);
    }

    #[test]
    fn resources_and_tolerations_are_the_users() {
        let resources = json!({"limits": {"memory": "1Gi"}});
        let spec = json!({
            "ovs": {"resources": resources},
            "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
        });
        let [ovs, ovn] = both(spec, &context());
        for name in ["ovsdb-server", "ovs-vswitchd"] {
            assert_eq!(serde_json::to_value(&find(&ovs, name).resources).unwrap(), resources);
        }
        assert_eq!(find(&ovn, "ovn-controller").resources, None);
        let tolerations = pod(&ovs).tolerations.clone().unwrap();
        assert_eq!(tolerations[0].key.as_deref(), Some("dedicated"));
        assert_eq!(tolerations[1].effect.as_deref(), Some("NoExecute"));
    }

    #[test]
    fn an_own_api_server_address_reaches_the_agent_alone() {
        let server = ApiServer { host: "10.0.2.2".to_owned(), port: 6443 };
        let [ovs, _] = both(json!({}), &RenderContext { api_server: Some(server), ..context() });
        for container in containers(&ovs) {
            let set = container.env.iter().flatten().any(|e| e.name == "KUBERNETES_SERVICE_HOST");
            assert_eq!(set, container.name == "agent", "{}", container.name);
        }
    }

    #[test]
    fn the_same_input_renders_the_same_object() {
        assert_eq!(both(json!({}), &context()), both(json!({}), &context()));
    }
}
