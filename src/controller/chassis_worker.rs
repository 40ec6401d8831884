//! What belongs to an OVNChassis as a whole: finalizer, central, rendered objects, grants, departed nodes, its end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::jiff::SignedDuration;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::act::render_context;
use super::databases::{ATTEMPT, CentralKey, deregister};
use super::decide::central::{Central, SecretState, check_secret, resolve};
use super::decide::handover::{RollingNode, grants};
use super::decide::predecessors::{first_roll, in_the_way, without_locks};
use super::decide::view::Problem;
use super::objects::{access, daemon_sets};
use super::observe::{is_chassis_pod, is_over, pod_view};
use super::wake::{Bell, Key};
use super::world::{World, node_object};
use crate::api::{DepartedNode, OVNChassis};
use crate::cluster::events::{Happening, Severity, reference};
use crate::cluster::jobs::{JobPhase, phase};
use crate::cluster::{Cache, ClusterError, ObjectKey, call};
use crate::model::conditions::node;
use crate::model::ids::{NodeName, SystemId};
use crate::model::names::{CONTROLLER_FIELD_MANAGER, ChassisRef, FINALIZER, INSTANCE_LABEL};
use crate::ops::step;
use crate::ops::tasks::chain;
use crate::ovn::southbound;
use crate::ovsdb::TlsMaterial;

/// How soon a Secret is read again: it cannot be watched without a right to read all.
const SECRET_WRONG: Duration = Duration::from_secs(1);
const SECRET_RIGHT: Duration = Duration::from_secs(10);
/// Most attempts to remove one registration that came back.
const MOST_REMOVALS: u32 = 16;

#[derive(Default)]
struct Memory {
    /// What was applied last, by kind and name: rendered text and the generation that came of it.
    applied: BTreeMap<String, (String, Option<i64>)>,
    /// Registrations that came back, by row: how often their removal was tried.
    returned: BTreeMap<String, u32>,
}

/// Works on one OVNChassis until it is gone.
pub async fn run(world: World, bell: Bell, chassis: ChassisRef) {
    let mut memory = Memory::default();
    let mut pause = Duration::from_millis(100);
    loop {
        let rung = bell.rung();
        let Some(object) = world.chassis_of(&chassis) else {
            world.databases.forget(&chassis);
            world.drop_board(&chassis);
            if bell.retire(rung) {
                return;
            }
            continue;
        };
        let result = pass(&world, &chassis, &object, &mut memory).await;
        let wait = match result {
            Ok(wait) => {
                pause = Duration::from_millis(100);
                note_refusal(&world, &chassis, None);
                wait
            }
            Err(error) => {
                if !matches!(error, ClusterError::Conflict { .. }) {
                    tracing::warn!(%chassis, error = %chain(&error), "trying again");
                }
                if matches!(error, ClusterError::Forbidden { .. } | ClusterError::Invalid { .. }) {
                    note_refusal(&world, &chassis, Some(error.to_string()));
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(5));
                continue;
            }
        };
        let _ = tokio::time::timeout(wait, bell.rings()).await;
    }
}

/// What the API server refuses stands in the condition until a pass gets through.
fn note_refusal(world: &World, chassis: &ChassisRef, refusal: Option<String>) {
    const PASS: &str = "objects of the OVNChassis";
    let changed = world.board(chassis, |board| match refusal {
        Some(text) => board.trouble.insert(PASS.to_owned(), text.clone()).as_ref() != Some(&text),
        None => board.trouble.remove(PASS).is_some(),
    });
    if changed {
        world.wake.wake(Key::Report(chassis.clone()));
    }
}

async fn pass(
    world: &World,
    chassis: &ChassisRef,
    object: &OVNChassis,
    memory: &mut Memory,
) -> Result<Duration, ClusterError> {
    let deleting = object.metadata.deletion_timestamp.is_some();
    if !deleting && !object.finalizers().iter().any(|f| f == FINALIZER) {
        set_finalizer(world, object, true).await?;
        step("finalizer-set");
        return Ok(Duration::ZERO);
    }
    let wait = look_at_central(world, chassis, object).await;
    if deleting && is_empty(world, chassis, object) {
        remove_objects(world, chassis).await?;
        set_finalizer(world, object, false).await?;
        step("finalizer-removed");
        return Ok(Duration::from_secs(60));
    }
    apply_objects(world, chassis, object, memory).await?;
    grant(world, chassis);
    returned(world, chassis, object, memory).await;
    remove_old_jobs(world, chassis).await?;
    Ok(wait)
}

/// Whether all nodes are let go.
fn is_empty(world: &World, chassis: &ChassisRef, object: &OVNChassis) -> bool {
    let recorded = object.status.as_ref().is_some_and(|s| !s.nodes.is_empty());
    let objects = world.chassis_nodes.select_in(&chassis.namespace, |n| n.spec.chassis_name == chassis.name).is_empty();
    let label = chassis.owner_label_value();
    let labelled = world.nodes.select(|n| node_object(n).owner_label() == Some(label.as_str()));
    let unfinished = world.jobs.select_in(&chassis.namespace, |job| {
        job.labels().get(INSTANCE_LABEL) == Some(&chassis.name)
            && !phase(job).is_finished()
            && job.metadata.deletion_timestamp.is_none()
    });
    for node in &labelled {
        world.wake.wake(Key::Node(chassis.clone(), NodeName::new(node.name_any())));
    }
    !recorded && objects && labelled.is_empty() && unfinished.is_empty()
}

async fn set_finalizer(world: &World, object: &OVNChassis, wanted: bool) -> Result<(), ClusterError> {
    let mut all: Vec<String> = object.finalizers().iter().filter(|f| *f != FINALIZER).cloned().collect();
    if wanted {
        all.push(FINALIZER.to_owned());
    }
    let metadata = json!({ "resourceVersion": object.metadata.resource_version, "finalizers": all });
    let api = world.api::<OVNChassis>(&object.namespace().unwrap_or_default());
    let name = object.name_any();
    let (params, patch) = (PatchParams::default(), Patch::Merge(json!({ "metadata": metadata })));
    let write = api.patch(&name, &params, &patch);
    match world.write(format!("set finalizer of OVNChassis {}", ObjectKey::of(object)), write).await {
        Ok(written) if wanted => world.chassis.put(written),
        // Gone with its last finalizer; the watch says so.
        Ok(_) | Err(ClusterError::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Resolves the central, reads its Secret, keeps the databases' clients.
async fn look_at_central(world: &World, chassis: &ChassisRef, object: &OVNChassis) -> Duration {
    let name = object.spec.central_ref.as_ref().map(|r| r.name.clone());
    let central = name.as_ref().and_then(|name| world.centrals.get(&ObjectKey::new(&chassis.namespace, name)));
    let mut tls = None;
    let mut wait = SECRET_RIGHT;
    let result = match resolve(object, central.as_deref()) {
        Ok(central) => match check_secrets(world, chassis, &central, &mut tls).await {
            Ok(()) => Ok(central),
            Err(problem) => Err(problem),
        },
        Err(problem) => Err(problem),
    };
    match &result {
        Ok(central) => {
            let key = CentralKey {
                namespace: chassis.namespace.clone(),
                inline: name.is_none(),
                name: name.unwrap_or_else(|| chassis.name.clone()),
            };
            world.databases.use_central(chassis, &key, central, tls);
        }
        Err(_) => wait = SECRET_WRONG,
    }
    let changed = world.board(chassis, |board| {
        let changed = board.central.as_ref() != Some(&result);
        board.central = Some(result);
        changed
    });
    if changed {
        world.wake.wake_where(|key| matches!(key, Key::Node(c, _) if c == chassis));
        world.wake.wake(Key::Report(chassis.clone()));
    }
    wait
}

async fn check_secrets(
    world: &World,
    chassis: &ChassisRef,
    central: &Central,
    tls: &mut Option<TlsMaterial>,
) -> Result<(), Problem> {
    let names: BTreeSet<&String> = central.client_secret.iter().chain(central.node_secret.iter()).collect();
    for name in names {
        let (state, material) = read_secret(world, &chassis.namespace, name).await;
        check_secret(name, &state)?;
        if central.client_secret.as_ref() == Some(name) {
            *tls = material;
        }
    }
    Ok(())
}

async fn read_secret(world: &World, namespace: &str, name: &str) -> (SecretState, Option<TlsMaterial>) {
    let api = world.api::<Secret>(namespace);
    let secret = match call(format!("get Secret {namespace}/{name}"), api.get(name)).await {
        Ok(secret) => secret,
        Err(ClusterError::NotFound { .. }) => return (SecretState::Missing, None),
        Err(error) => return (SecretState::Refused(chain(&error)), None),
    };
    let data = secret.data.unwrap_or_default();
    let value = |key: &str| data.get(key).map(|v| v.0.clone()).filter(|v| !v.is_empty());
    let missing: Vec<_> = ["tls.crt", "tls.key", "ca.crt"].into_iter().filter(|k| value(k).is_none()).collect();
    let (Some(certificate), Some(key), Some(ca)) = (value("tls.crt"), value("tls.key"), value("ca.crt")) else {
        return (SecretState::Incomplete(missing), None);
    };
    let material = TlsMaterial { ca, certificate, key };
    match material.check() {
        Ok(()) => (SecretState::Usable, Some(material)),
        Err(error) => (SecretState::Unusable(error.to_string()), None),
    }
}

/// Applies what is rendered, where it differs from what was applied last or somebody changed it since.
async fn apply_objects(
    world: &World,
    chassis: &ChassisRef,
    object: &OVNChassis,
    memory: &mut Memory,
) -> Result<(), ClusterError> {
    apply(world, memory, &access::agent_service_account(object), None).await?;
    apply(world, memory, &access::agent_role_binding(object), None).await?;
    look_at_predecessors(world, chassis, object);
    // Without the Secret's name the pods would start without a certificate, only to be rolled at once.
    let known = world.board(chassis, |b| matches!(b.central, Some(Ok(_))));
    let sets = world.daemon_sets.select_in(&chassis.namespace, |d| {
        d.metadata.owner_references.iter().flatten().any(|o| Some(&o.uid) == object.metadata.uid.as_ref())
    });
    if !known {
        return Ok(());
    }
    let context = render_context(world, chassis);
    for set in [daemon_sets::ovs_daemon_set(object, &context), daemon_sets::ovn_controller_daemon_set(object, &context)]
    {
        let name = set.name_any();
        let live = sets.iter().find(|d| d.name_any() == name);
        if live.is_none() && is_taken(world, chassis, object, &set).await? {
            continue;
        }
        apply(world, memory, &set, Some((&world.daemon_sets, live.map(|d| d.metadata.generation)))).await?;
    }
    Ok(())
}

/// Notes which pods hold no locks, and says so once a roll has to stop them first.
fn look_at_predecessors(world: &World, chassis: &ChassisRef, object: &OVNChassis) {
    let pods = world.pods.select_in(&chassis.namespace, |p| is_chassis_pod(p, chassis) && !is_over(p));
    let now = without_locks(pods.iter().map(|p| &**p));
    let before = world.board(chassis, |board| std::mem::replace(&mut board.without_locks, now.clone()));
    if before == now {
        return;
    }
    world.wake.wake(Key::Report(chassis.clone()));
    if let Some(note) = first_roll(&now).filter(|_| before.is_empty()) {
        let (severity, reason) = (Severity::Warning, "FirstRollStopsFirst");
        world.events.publish_later(reference(object), Happening { severity, reason, action: "Roll", note });
    }
}

/// Whether somebody else has the DaemonSet's name; noted for the condition until it is free.
async fn is_taken(
    world: &World,
    chassis: &ChassisRef,
    object: &OVNChassis,
    wanted: &DaemonSet,
) -> Result<bool, ClusterError> {
    let name = wanted.name_any();
    let what = format!("DaemonSet {}/{name}", chassis.namespace);
    // The watch shows those that carry our labels only.
    let found = call(format!("get {what}"), world.api::<DaemonSet>(&chassis.namespace).get_opt(&name)).await?;
    let selector = wanted.spec.as_ref().and_then(|s| s.selector.match_labels.clone()).unwrap_or_default();
    let problem = found.and_then(|set| in_the_way(&set, object.metadata.uid.as_deref(), &selector));
    let changed = world.board(chassis, |board| match problem.clone() {
        Some(problem) => board.trouble.insert(what.clone(), problem.clone()).as_ref() != Some(&problem),
        None => board.trouble.remove(&what).is_some(),
    });
    if changed {
        world.wake.wake(Key::Report(chassis.clone()));
    }
    Ok(problem.is_some())
}

async fn apply<K>(
    world: &World,
    memory: &mut Memory,
    object: &K,
    watched: Option<(&Cache<K>, Option<Option<i64>>)>,
) -> Result<(), ClusterError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Serialize
        + DeserializeOwned
        + std::fmt::Debug,
{
    let key = format!("{} {}", K::kind(&()), ObjectKey::of(object));
    let rendered = serde_json::to_string(object).unwrap_or_default();
    let unchanged = memory.applied.get(&key).is_some_and(|(text, generation)| {
        *text == rendered && watched.as_ref().is_none_or(|(_, live)| live.as_ref() == Some(generation))
    });
    if unchanged {
        return Ok(());
    }
    let api = world.api::<K>(&object.meta().namespace.clone().unwrap_or_default());
    let params = PatchParams::apply(CONTROLLER_FIELD_MANAGER).force();
    let name = object.name_any();
    let patch = Patch::Apply(object);
    let written = world.write(format!("apply {key}"), api.patch(&name, &params, &patch)).await?;
    memory.applied.insert(key, (rendered, written.meta().generation));
    if let Some((cache, _)) = watched {
        cache.put(written);
    }
    step("object-applied");
    Ok(())
}

/// Lets the next standby pods take over.
fn grant(world: &World, chassis: &ChassisRef) {
    let mut pods: BTreeMap<NodeName, Vec<_>> = BTreeMap::new();
    for pod in world.pods.select_in(&chassis.namespace, |p| is_chassis_pod(p, chassis)) {
        if let Some(name) = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) {
            pods.entry(NodeName::from(name)).or_default().push(pod_view(&pod));
        }
    }
    let link = world.databases.link(chassis);
    let nodes: Vec<RollingNode> = world
        .chassis_nodes
        // One that leaves has no turn that others would have to wait for.
        .select_in(&chassis.namespace, |n| n.spec.chassis_name == chassis.name && !n.spec.leaving)
        .iter()
        .map(|object| {
            let name = NodeName::from(object.spec.node_name.as_str());
            let conditions = object.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
            let is_true = |type_: &str| conditions.iter().any(|c| c.type_ == type_ && c.status == "True");
            let id = object.spec.system_id.as_deref().and_then(|text| SystemId::parse(text).ok());
            RollingNode {
                role_is_away: link.as_ref().zip(id).is_some_and(|(link, id)| link.is_lowered(&id)),
                pods: pods.remove(&name).unwrap_or_default(),
                node: name,
                reports_ovs: is_true(node::OVS_READY),
                reports_controller: is_true(node::CONTROLLER_READY),
                reported_by: object.status.as_ref().and_then(|s| s.reported_by.clone()),
                granted: object.spec.handover.as_ref().map(|h| h.grants.clone()).unwrap_or_default(),
            }
        })
        .collect();
    let wanted = grants(&nodes);
    let stood =
        || nodes.iter().filter(|n| !n.granted.is_empty()).map(|n| (n.node.clone(), n.granted.clone())).collect();
    let before = world.board(chassis, |board| board.grants.replace(wanted.clone())).unwrap_or_else(stood);
    let changed = before.keys().chain(wanted.keys()).filter(|n| before.get(*n) != wanted.get(*n));
    for name in changed.collect::<BTreeSet<_>>() {
        world.wake.wake_existing(&Key::Node(chassis.clone(), name.clone()));
    }
}

/// Registrations of departed nodes that came back: told, counted, and removed once the node is gone for good.
async fn returned(world: &World, chassis: &ChassisRef, object: &OVNChassis, memory: &mut Memory) {
    let status = object.status.clone().unwrap_or_default();
    // A node that is back has its own worker.
    let is_back = |gone: &DepartedNode| status.nodes.iter().any(|n| n.name == gone.name);
    let departed: Vec<_> = status.departed.iter().filter(|gone| !is_back(gone)).collect();
    if departed.is_empty() {
        return;
    }
    let Some(link) = world.databases.link(chassis) else { return };
    let Some(replica) = link.southbound.replica() else { return };
    let Ok(registrations) = southbound::registrations_in(&replica) else { return };
    let in_use: BTreeSet<String> = world
        .chassis_nodes
        .all()
        .iter()
        .filter_map(|n| n.spec.system_id.clone())
        .chain(world.chassis.all().iter().flat_map(|c| {
            c.status.iter().flat_map(|s| &s.nodes).filter_map(|n| n.system_id.clone()).collect::<Vec<_>>()
        }))
        .collect();
    for gone in departed.into_iter().filter(|d| !in_use.contains(&d.system_id)) {
        let Some(row) = registrations.iter().find(|r| r.name.as_str() == gone.system_id) else { continue };
        let tries = memory.returned.entry(row.uuid.to_string()).or_insert(0);
        if *tries == 0 {
            let times = gone.returned.unwrap_or(0).saturating_add(1);
            world.board(chassis, |b| b.returned.insert(gone.system_id.clone(), times));
            world.wake.wake(Key::Report(chassis.clone()));
            let note = format!(
                "chassis {} of node {} is registered again although the node left: is its ovn-controller still running?",
                gone.system_id, gone.name
            );
            let (severity, reason) = (Severity::Warning, "DepartedChassisReturned");
            let happening = Happening { severity, reason, action: "Deregister", note };
            world.events.publish_later(reference(object), happening);
        }
        let node = NodeName::from(gone.name.as_str());
        let gone_for_good = world.nodes.get(&ObjectKey::new("", node.as_str())).is_none()
            && super::observe::pods_on(world, chassis, &node).is_empty();
        *tries = tries.saturating_add(1);
        if gone_for_good && *tries <= MOST_REMOVALS && world.claim.is_held() {
            let result = deregister(&link, &SystemId::new(&gone.system_id), ATTEMPT).await;
            match result {
                Ok(rows) => tracing::info!(node = %node, id = %gone.system_id, rows, "a returned registration removed"),
                Err(error) => tracing::warn!(node = %node, error = %chain(&error), "a returned registration stays"),
            }
        }
    }
    if memory.returned.len() > 1024 {
        memory.returned.clear();
    }
}

/// Complete Jobs go after a day; failed ones stay until somebody looked.
async fn remove_old_jobs(world: &World, chassis: &ChassisRef) -> Result<(), ClusterError> {
    let now = call::now();
    let keep = SignedDuration::try_from(world.settings.job_keep).unwrap_or(SignedDuration::from_hours(24));
    let old = world.jobs.select_in(&chassis.namespace, |job| {
        job.labels().get(INSTANCE_LABEL) == Some(&chassis.name)
            && matches!(phase(job), JobPhase::Complete(at) if now.duration_since(at) > keep)
    });
    for job in old {
        delete(world, &world.jobs, &*job).await?;
    }
    Ok(())
}

/// Everything rendered goes; Kubernetes' garbage collector would do it too, where it runs.
async fn remove_objects(world: &World, chassis: &ChassisRef) -> Result<(), ClusterError> {
    for set in [chassis.ovs_daemon_set(), chassis.ovn_controller_daemon_set()] {
        delete_named::<DaemonSet>(world, chassis, &set).await?;
    }
    let jobs = world.jobs.select_in(&chassis.namespace, |j| j.labels().get(INSTANCE_LABEL) == Some(&chassis.name));
    for job in jobs {
        delete::<Job>(world, &world.jobs, &job).await?;
    }
    delete_named::<ConfigMap>(world, chassis, &chassis.nodes_config_map()).await?;
    delete_named::<RoleBinding>(world, chassis, &chassis.agent_account()).await?;
    delete_named::<ServiceAccount>(world, chassis, &chassis.agent_account()).await?;
    step("objects-removed");
    Ok(())
}

async fn delete<K>(world: &World, cache: &Cache<K>, object: &K) -> Result<(), ClusterError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let key = ObjectKey::of(object);
    let uid = object.meta().uid.clone().unwrap_or_default();
    let mut params = DeleteParams::background();
    params.preconditions =
        Some(Preconditions { uid: Some(uid.clone()), resource_version: object.meta().resource_version.clone() });
    let api = world.api::<K>(&key.namespace);
    match world.write(format!("delete {} {key}", K::kind(&())), api.delete(&key.name, &params)).await {
        Ok(_) | Err(ClusterError::NotFound { .. }) => {
            cache.remove_deleted(&key, &uid);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Deletes by name what the caches need not know; only if it is owned by this OVNChassis.
async fn delete_named<K>(world: &World, chassis: &ChassisRef, name: &str) -> Result<(), ClusterError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api = world.api::<K>(&chassis.namespace);
    let what = format!("{} {}/{name}", K::kind(&()), chassis.namespace);
    let Some(found) = call(format!("get {what}"), api.get_opt(name)).await? else { return Ok(()) };
    if !found.meta().owner_references.iter().flatten().any(|o| o.kind == "OVNChassis" && o.name == chassis.name) {
        return Ok(());
    }
    let mut params = DeleteParams::background();
    params.preconditions =
        Some(Preconditions { uid: found.meta().uid.clone(), resource_version: found.meta().resource_version.clone() });
    match world.write(format!("delete {what}"), api.delete(name, &params)).await {
        Ok(_) | Err(ClusterError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
