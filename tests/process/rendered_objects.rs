//! What the controller renders, put to a real API server: taken as it is, unchanged by a second apply, and fit for the
//! Pod Security Standard that it is meant for.
use serde::Serialize;
use serde_json::{Value, json};

use ovn_chassis::api::OVNChassis;
use ovn_chassis::controller::objects::{
    RenderContext, access, daemon_sets, jobs,
    node::{self, NodeInputs},
    nodes_view,
};
use ovn_chassis::model::ids::{NodeName, SystemId};
use ovn_chassis::model::names::JobKind;

use crate::harness::control_plane::Lane;
use crate::harness::kube_api::{
    CONFIG_MAP, DAEMON_SET, JOB, Kind, KubeApi, NAMESPACE, OVN_CHASSIS, OVN_CHASSIS_NODE, POD, SERVICE_ACCOUNT,
};

const ROLE_BINDING: Kind =
    Kind { api_version: "rbac.authorization.k8s.io/v1", kind: "RoleBinding", plural: "rolebindings", namespaced: true };

fn context() -> RenderContext {
    RenderContext {
        image: "registry.example/ovn-chassis:1".to_owned(),
        node_client_secret: Some("ovn-client".to_owned()),
        job_deadline_seconds: 300,
        ..RenderContext::default()
    }
}

fn namespace(api: &KubeApi, name: &str, enforced: &str) {
    let labels = json!({"pod-security.kubernetes.io/enforce": enforced});
    api.create(NAMESPACE, "", json!({"metadata": {"name": name, "labels": labels}}));
    api.create(SERVICE_ACCOUNT, name, json!({"metadata": {"name": "default"}}));
}

fn chassis(api: &KubeApi, namespace: &str, changes: Value) -> OVNChassis {
    let mut spec = json!({"centralRef": {"name": "central"}, "nodeSelector": {"openstack.c5c3.io/chassis": "true"}});
    for (key, value) in changes.as_object().unwrap() {
        spec[key] = value.clone();
    }
    // The longest name there is: what is made of it has to fit everywhere.
    let object = json!({"metadata": {"name": "c".repeat(42)}, "spec": spec});
    serde_json::from_value(api.create(OVN_CHASSIS, namespace, object)).unwrap()
}

/// Server-side apply by the controller's field manager, strict: a field that the API does not know is an error.
#[track_caller]
fn apply(api: &KubeApi, kind: Kind, object: &impl Serialize) -> Value {
    let mut object = serde_json::to_value(object).unwrap();
    object["apiVersion"] = json!(kind.api_version);
    object["kind"] = json!(kind.kind);
    let (namespace, name) =
        (object["metadata"]["namespace"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
    let path =
        format!("{}?fieldManager=ovn-chassis-controller&force=true&fieldValidation=Strict", kind.path(namespace, name));
    api.request("PATCH", &path, "application/apply-patch+yaml", Some(&object))
        .unwrap_or_else(|refused| panic!("{} {name}: {refused}", kind.kind))
}

#[test]
fn every_rendered_object_is_taken_and_a_second_apply_changes_nothing() {
    let lane = Lane::take();
    let api = &lane.admin;
    let variants = [
        ("rendered-default", json!({})),
        ("rendered-netdev", json!({"datapathType": "netdev"})),
        ("rendered-ondelete", json!({"updateStrategy": {"type": "OnDelete"}})),
        (
            "rendered-rich",
            json!({
                "updateStrategy": {"maxUnavailable": "25%"},
                "image": {"repository": "registry.example/ovn", "tag": "24.03"},
                "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
                "ovs": {"resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "1Gi"}}},
                "bridgeMappings": [{"physicalNetwork": "physnet1", "bridge": "br-ex"}],
            }),
        ),
    ];
    for (name, changes) in variants {
        namespace(api, name, "privileged");
        let chassis = chassis(api, name, changes);
        let inputs = NodeInputs {
            node: NodeName::new(format!("{}.example", "n".repeat(200))),
            system_id: Some(SystemId::new("id-1")),
            gateway: true,
            evacuate: false,
            leaving: true,
            ovn_remote: Some("ssl:192.0.2.1:6642".to_owned()),
            grants: vec!["0c1d".to_owned()],
        };
        let node = node::chassis_node(&chassis, &inputs);
        let view = nodes_view::nodes_config_map(&chassis, [&node.spec]).unwrap();
        let jobs = JobKind::ALL.map(|kind| jobs::job(&chassis, &context(), kind, &inputs.node, 1));
        let apply_all = || {
            let mut taken = vec![
                apply(api, SERVICE_ACCOUNT, &access::agent_service_account(&chassis)),
                apply(api, ROLE_BINDING, &access::agent_role_binding(&chassis)),
                apply(api, DAEMON_SET, &daemon_sets::ovs_daemon_set(&chassis, &context())),
                apply(api, DAEMON_SET, &daemon_sets::ovn_controller_daemon_set(&chassis, &context())),
                apply(api, CONFIG_MAP, &view),
                apply(api, OVN_CHASSIS_NODE, &node),
            ];
            taken.extend(jobs.iter().map(|job| apply(api, JOB, job)));
            taken
        };
        // Nobody else writes here: an equal resourceVersion means that nothing was written the second time.
        assert_eq!(apply_all(), apply_all());
        let job = api.get(JOB, name, jobs[0].metadata.name.as_deref().unwrap()).unwrap();
        assert_eq!(job["spec"]["managedBy"], "ovn.openstack.c5c3.io/ovn-chassis", "kept by this API server");
    }
}

#[test]
fn pods_of_the_daemon_sets_are_taken_where_privileged_pods_are() {
    let lane = Lane::take();
    let api = &lane.admin;
    namespace(api, "pods-privileged", "privileged");
    for (number, changes) in [json!({}), json!({"datapathType": "netdev"})].into_iter().enumerate() {
        let chassis = chassis(api, "pods-privileged", changes);
        apply(api, SERVICE_ACCOUNT, &access::agent_service_account(&chassis));
        for set in [
            daemon_sets::ovs_daemon_set(&chassis, &context()),
            daemon_sets::ovn_controller_daemon_set(&chassis, &context()),
        ] {
            let mut pod = serde_json::to_value(set.spec.unwrap().template).unwrap();
            pod["metadata"]["generateName"] = json!(format!("pod-{number}-"));
            let pod = api.create(POD, "pods-privileged", pod);
            for container in pod["spec"]["containers"].as_array().unwrap() {
                // Automounting is off; what is mounted is what was asked for.
                let mounts = container["volumeMounts"].as_array().unwrap();
                assert!(
                    !mounts.iter().any(|m| m["name"].as_str().unwrap().starts_with("kube-api-access")),
                    "{container}"
                );
            }
        }
        api.delete(OVN_CHASSIS, "pods-privileged", &"c".repeat(42));
    }
}

/// The pod that prints a cause runs in the users' namespace and the controller in ours: both need no exception.
#[test]
fn the_cause_pod_and_the_controller_fit_a_restricted_namespace() {
    let lane = Lane::take();
    let api = &lane.admin;
    namespace(api, "pods-restricted", "restricted");
    let chassis = chassis(api, "pods-restricted", json!({}));
    let job = jobs::job(&chassis, &context(), JobKind::ChassisDel, &NodeName::from("node-a"), 1);
    let live = apply(api, JOB, &job);
    let live: k8s_openapi::api::batch::v1::Job = serde_json::from_value(live).unwrap();
    let pod = apply(api, POD, &jobs::cause_pod(&live, "registry.example/ovn-chassis:1", "no leader; $(HOME)"));

    // `kubectl logs job/…` looks for pods by the Job's selector.
    let selector = live.spec.as_ref().unwrap().selector.as_ref().unwrap().match_labels.as_ref().unwrap();
    let selector: Vec<_> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let found = api.list(POD, "pods-restricted", &selector.join(","));
    assert_eq!(found.len(), 1, "pods that {selector:?} selects");
    assert_eq!(found[0]["metadata"]["name"], pod["metadata"]["name"]);
    assert_eq!(found[0]["metadata"]["ownerReferences"][0]["name"], live.metadata.name.unwrap());

    let whole =
        lane.kubectl(&["kustomize", concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/base")]).expect("kustomize");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&whole).unwrap();
    let deployment = documents.iter().find(|d| d["kind"] == "Deployment").expect("a Deployment");
    assert_eq!(deployment["spec"]["replicas"], 2);
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["generateName"] = json!("controller-");
    // Its account lives in the namespace of its own; which one it is does not matter to the standard.
    template["spec"].as_object_mut().unwrap().remove("serviceAccountName");
    api.create(POD, "pods-restricted", template);
}

#[test]
fn the_manifests_are_taken_whole_and_a_second_time() {
    let lane = Lane::take();
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/base");
    for _ in 0..2 {
        lane.kubectl(&["apply", "--server-side", "--validate=strict", "-k", base])
            .expect("kubectl apply -k manifests/base");
    }
    lane.kubectl(&["-n", "ovn-chassis-system", "delete", "deployment", "ovn-chassis-controller"])
        .expect("deleted again");
}
