//! Row 11: what an agent's token opens on a real API server, by RBAC and by our admission policy.
//!
//! Tokens are bound to a pod on a node as the kubelet's are, so the API server puts the node's name into the user. Needs no
//! controller: the objects and the binding are what it would create.
use serde_json::{Value, json};

use ovn_chassis::api::OVNChassis;
use ovn_chassis::controller::objects::access;

use crate::harness::kube_api::{self, KubeApi, NODE, OVN_CHASSIS, OVN_CHASSIS_NODE, POD, SECRET, SERVICE_ACCOUNT};
use crate::harness::scratch::Folder;
use crate::harness::world::SOON;
use crate::harness::{control_plane::Lane, until};

const ROLE_BINDING: kube_api::Kind = kube_api::Kind {
    api_version: "rbac.authorization.k8s.io/v1",
    kind: "RoleBinding",
    plural: "rolebindings",
    namespaced: true,
};
const CHASSIS: &str = "drain";

/// An API server with two nodes and, per namespace, an OVNChassis, its agents' account and objects of both nodes.
struct Scene {
    lane: Lane,
    folder: Folder,
    home: String,
    other: String,
    nodes: [String; 2],
}

impl Scene {
    fn new(test: &str) -> Self {
        let lane = Lane::take();
        let folder = Folder::new(test);
        let nodes = [format!("{test}-a"), format!("{test}-b.example")];
        for node in &nodes {
            lane.admin.create(NODE, "", json!({"metadata": {"name": node}}));
        }
        let scene = Self { lane, folder, home: format!("{test}-home"), other: format!("{test}-other"), nodes };
        for namespace in [&scene.home, &scene.other] {
            scene.admin().create(kube_api::NAMESPACE, "", json!({"metadata": {"name": namespace}}));
            scene.admin().create(SERVICE_ACCOUNT, namespace, json!({"metadata": {"name": "default"}}));
            scene.add_chassis(namespace, CHASSIS);
        }
        for (namespace, node) in [(&scene.home, 0), (&scene.home, 1)] {
            scene.add_chassis_node(namespace, &scene.nodes[node]);
        }
        scene
    }

    fn admin(&self) -> &KubeApi {
        &self.lane.admin
    }

    /// The OVNChassis, and what the controller creates for its agents, as it renders it.
    fn add_chassis(&self, namespace: &str, name: &str) {
        let spec = json!({"centralRef": {"name": "central"}, "nodeSelector": {"openstack.c5c3.io/chassis": "true"}});
        let created = self.admin().create(OVN_CHASSIS, namespace, json!({"metadata": {"name": name}, "spec": spec}));
        let chassis: OVNChassis = serde_json::from_value(created).expect("our own type");
        let account = serde_json::to_value(access::agent_service_account(&chassis)).unwrap();
        let binding = serde_json::to_value(access::agent_role_binding(&chassis)).unwrap();
        self.admin().create(SERVICE_ACCOUNT, namespace, account);
        self.admin().create(ROLE_BINDING, namespace, binding);
    }

    fn add_chassis_node(&self, namespace: &str, node: &str) {
        let spec = json!({"chassisName": CHASSIS, "nodeName": node});
        self.admin().create(OVN_CHASSIS_NODE, namespace, json!({"metadata": {"name": node}, "spec": spec}));
    }

    /// The API as a pod of `account` on `node` sees it; without a node, as somebody with a token bound to nothing.
    fn with_token(&self, namespace: &str, account: &str, node: Option<&str>) -> KubeApi {
        let mut request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600},
        });
        if let Some(node) = node {
            let spec = json!({
                "nodeName": node, "serviceAccountName": account, "containers": [{"name": "agent", "image": "none.example/agent"}],
            });
            let pod =
                self.admin().create(POD, namespace, json!({"metadata": {"generateName": "agent-"}, "spec": spec}));
            let meta = &pod["metadata"];
            request["spec"]["boundObjectRef"] =
                json!({"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]});
        }
        let path = format!("{}/token", SERVICE_ACCOUNT.path(namespace, account));
        let answer = self.admin().request("POST", &path, "application/json", Some(&request)).expect("a token");
        let token = answer["status"]["token"].as_str().expect("a token").to_owned();
        let file = self.folder.join(format!("{account}-{}.kubeconfig", node.unwrap_or("none")));
        self.lane.kubeconfig(&file, json!({"token": token}))
    }

    /// The agent of the first node, once RBAC and the admission policy are in force: both reach the API server's caches
    /// a moment after they were written.
    fn agent(&self) -> KubeApi {
        let agent = self.with_token(&self.home, &format!("{CHASSIS}-agent"), Some(&self.nodes[0]));
        until("the agent's rights to be in force", SOON, || {
            status(&agent, &self.home, &self.nodes[0], json!({"observedGeneration": 0})).map_err(|e| e.to_string())
        });
        until("the policy to be in force", SOON, || {
            match status(&agent, &self.home, &self.nodes[1], json!({"observedGeneration": 0})) {
                Err(refused) if refused.message.contains("ovn-chassis-agent-own-node") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        agent
    }

    /// All that is stored of a node's object, to see that nothing of it changed.
    fn stored(&self, namespace: &str, node: &str) -> Value {
        self.admin().get(OVN_CHASSIS_NODE, namespace, node).expect("the object is there")
    }
}

fn status(api: &KubeApi, namespace: &str, node: &str, status: Value) -> Result<Value, kube_api::Refused> {
    api.try_merge(OVN_CHASSIS_NODE, namespace, node, "status", &json!({"status": status}))
}

/// A server-side apply as the agent does it.
fn apply(
    api: &KubeApi,
    namespace: &str,
    node: &str,
    subresource: &str,
    object: Value,
) -> Result<Value, kube_api::Refused> {
    let mut object = object;
    object["apiVersion"] = json!(OVN_CHASSIS_NODE.api_version);
    object["kind"] = json!(OVN_CHASSIS_NODE.kind);
    object["metadata"] = json!({"name": node});
    let path =
        format!("{}{subresource}?fieldManager=ovn-chassis-agent&force=true", OVN_CHASSIS_NODE.path(namespace, node));
    api.request("PATCH", &path, "application/apply-patch+yaml", Some(&object))
}

#[track_caller]
fn refused(what: &str, answer: Result<Value, kube_api::Refused>, code: u16, words: &str) {
    match answer {
        Ok(value) => panic!("{what} was allowed: {value}"),
        Err(refused) => {
            assert_eq!(refused.code, code, "{what}: {refused}");
            assert!(refused.message.contains(words), "{what}: the message lacks {words:?}: {refused}");
        }
    }
}

#[test]
fn row11_an_agent_writes_the_status_of_its_own_node_and_its_own_part_of_it() {
    let scene = Scene::new("row11");
    let (home, other, [a, b]) = (&scene.home, &scene.other, &scene.nodes);
    let agent = scene.agent();

    // What it is for.
    assert_eq!(agent.try_get(OVN_CHASSIS_NODE, home, a).expect("its own object")["metadata"]["name"], a.as_str());
    let report = json!({"status": {"appliedHash": "0123456789abcdef", "observedGeneration": 1, "observed": {"systemID": "id-a"}}});
    let written = apply(&agent, home, a, "/status", report.clone()).expect("its own status");
    assert_eq!(written["status"]["observed"]["systemID"], "id-a");

    // The controller writes its part beside it, and the agent's next report leaves that alone.
    status(scene.admin(), home, a, json!({"drain": {"phase": "Evacuating", "remainingBindings": 3}})).expect("drain");
    apply(&agent, home, a, "/status", report).expect("its own status, with the controller's part there");
    assert_eq!(scene.stored(home, a)["status"]["drain"]["phase"], "Evacuating");

    // The other node's object, and the controller's part of its own: changed, taken away, taken over by force.
    let before = (scene.stored(home, a), scene.stored(home, b));
    let own = json!({"observedGeneration": 7});
    refused(
        "another node's status",
        status(&agent, home, b, own.clone()),
        422,
        "may not write the status of OVNChassisNode",
    );
    refused(
        "another node's status by apply",
        apply(&agent, home, b, "/status", json!({"status": own})),
        422,
        &format!("the agent of node {a} may not write"),
    );
    for drain in [json!({"phase": "Evacuated"}), json!({"remainingBindings": 0}), Value::Null] {
        refused(
            "drain of its own",
            status(&agent, home, a, json!({"drain": drain})),
            422,
            "status.drain is the controller's",
        );
    }
    refused(
        "drain of its own by apply",
        apply(&agent, home, a, "/status", json!({"status": {"drain": {"phase": "Evacuated"}}})),
        422,
        "status.drain is the controller's",
    );

    // Specifications, whole objects, other namespaces, other kinds: RBAC.
    let merge = |node: &str, patch: Value| agent.try_merge(OVN_CHASSIS_NODE, home, node, "", &patch);
    refused("its own specification", merge(a, json!({"spec": {"leaving": true}})), 403, "forbidden");
    refused("its own labels", merge(a, json!({"metadata": {"labels": {"x": "y"}}})), 403, "forbidden");
    refused(
        "its own object by apply",
        apply(&agent, home, a, "", json!({"spec": {"leaving": true}})),
        403,
        "forbidden",
    );
    refused("deleting its own object", agent.try_delete(OVN_CHASSIS_NODE, home, a), 403, "forbidden");
    let object = json!({"metadata": {"name": "x"}, "spec": {"chassisName": CHASSIS, "nodeName": "x"}});
    refused("creating an object", agent.try_create(OVN_CHASSIS_NODE, home, object), 403, "forbidden");
    refused("another namespace's object", agent.try_get(OVN_CHASSIS_NODE, other, a), 403, "forbidden");
    refused("another namespace's status", status(&agent, other, a, json!({"observedGeneration": 7})), 403, "forbidden");
    refused("Secrets", agent.try_get(SECRET, home, ""), 403, "forbidden");
    refused("one Secret", agent.try_get(SECRET, home, "ovn-client"), 403, "forbidden");
    refused("Nodes", agent.try_get(NODE, "", ""), 403, "forbidden");
    let label = json!({"metadata": {"labels": {"openstack.c5c3.io/gateway": "true"}}});
    refused("labelling its Node", agent.try_merge(NODE, "", a, "", &label), 403, "forbidden");
    refused("pods", agent.try_get(POD, home, ""), 403, "forbidden");
    refused("the OVNChassis", agent.try_get(OVN_CHASSIS, home, CHASSIS), 403, "forbidden");
    assert_eq!((scene.stored(home, a), scene.stored(home, b)), before, "what was refused changed something");
}

#[test]
fn row11_the_policy_holds_where_rbac_was_given_too_widely() {
    let scene = Scene::new("row11-wide");
    let (home, other, [a, b]) = (&scene.home, &scene.other, &scene.nodes);
    scene.add_chassis_node(other, a);
    scene.agent();
    // Somebody bound the agents' role once more: to this account in the other namespace, and to accounts of other names.
    let subjects = ["drain-agent", "second-agent", "monitoring"]
        .map(|name| json!({"kind": "ServiceAccount", "name": name, "namespace": home}));
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": access::AGENT_CLUSTER_ROLE});
    for namespace in [home, other] {
        let binding = json!({"metadata": {"name": "too-wide"}, "roleRef": role, "subjects": subjects});
        scene.admin().create(ROLE_BINDING, namespace, binding);
    }
    for account in ["second-agent", "monitoring"] {
        scene.admin().create(SERVICE_ACCOUNT, home, json!({"metadata": {"name": account}}));
    }
    let own = json!({"observedGeneration": 7});
    let denied = "ovn-chassis-agent-own-node";
    let agent = scene.with_token(home, "drain-agent", Some(a));
    until("the wider rights to be in force", SOON, || {
        agent.try_get(OVN_CHASSIS_NODE, other, a).map_err(|e| e.to_string())
    });
    refused("its node's object in another namespace", status(&agent, other, a, own.clone()), 422, denied);
    // Bound to no node, to another node, or of another name on the right node.
    let unbound = scene.with_token(home, "drain-agent", None);
    refused("a token bound to no node", status(&unbound, home, a, own.clone()), 422, "is bound to no node");
    let elsewhere = scene.with_token(home, "drain-agent", Some(b));
    refused("the agent of another node", status(&elsewhere, home, a, own.clone()), 422, denied);
    for account in ["second-agent", "monitoring"] {
        let api = scene.with_token(home, account, Some(a));
        refused(account, status(&api, home, a, own.clone()), 422, "only system:serviceaccount:");
    }
    status(&elsewhere, home, b, own).expect("the agent of the other node writes the other node's");
}

#[test]
fn row11_the_controller_passes_the_policy_and_has_no_rights_to_spare() {
    let scene = Scene::new("row11-controller");
    let (home, [a, _]) = (&scene.home, &scene.nodes);
    scene.agent();
    let file = scene.folder.join("controller.kubeconfig");
    let user = "system:serviceaccount:ovn-chassis-system:ovn-chassis-controller";
    scene.lane.kubeconfig_as(&file, user, &["system:serviceaccounts", "system:authenticated"]);
    let controller = KubeApi::from_kubeconfig(&file);
    status(&controller, home, a, json!({"drain": {"phase": "Evacuating"}})).expect("the controller's part");
    controller
        .try_merge(OVN_CHASSIS_NODE, home, a, "", &json!({"spec": {"gateway": true}}))
        .expect("the specification");
    controller
        .try_merge(NODE, "", a, "", &json!({"metadata": {"labels": {"ovn.openstack.c5c3.io/chassis-owner": "x"}}}))
        .expect("the ownership label");

    refused("listing Secrets", controller.try_get(SECRET, home, ""), 403, "forbidden");
    refused("creating Nodes", controller.try_create(NODE, "", json!({"metadata": {"name": "x"}})), 403, "forbidden");
    refused("deleting a Node", controller.try_delete(NODE, "", a), 403, "forbidden");
    refused("deleting an OVNChassis", controller.try_delete(OVN_CHASSIS, home, CHASSIS), 403, "forbidden");
    // It may grant the agents' role and no other.
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    let binding = json!({"metadata": {"name": "more"}, "roleRef": role, "subjects": []});
    refused("granting cluster-admin", controller.try_create(ROLE_BINDING, home, binding), 403, "forbidden");
    let chassis: OVNChassis =
        serde_json::from_value(controller.try_get(OVN_CHASSIS, home, CHASSIS).expect("the OVNChassis")).unwrap();
    let mut binding = serde_json::to_value(access::agent_role_binding(&chassis)).unwrap();
    binding["metadata"]["name"] = json!("again");
    controller
        .try_create(ROLE_BINDING, home, binding)
        .expect("granting the agents' role, with the OVNChassis as owner");
}
