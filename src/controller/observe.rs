//! Gathers what a decision about one node needs, from caches and from the databases' views.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::databases::{bindings, rows_naming};
use super::decide::gateway_ports::Ports;
use super::decide::owner::{is_gateway, selects};
use super::decide::view::{
    DatabaseState, GatewayDuties, JobOwner, JobView, NodeView, Outcomes, PodView, Problem, Trouble,
};
use super::moving::Moving;
use super::objects::chassis_ref;
use super::world::{World, node_object};
use crate::api::{OVNChassis, OVNChassisNode};
use crate::cluster::{ObjectKey, jobs};
use crate::model::hash::hash8;
use crate::model::ids::{NodeName, SystemId};
use crate::model::names::{
    COMPONENT_LABEL, COMPONENT_OVN_CONTROLLER, COMPONENT_OVS, ChassisRef, INSTANCE_LABEL, JOB_MANAGED_BY, JobKind,
    NODE_ANNOTATION,
};

/// On a Job: what the node was to be when it was created.
pub const SETTINGS_ANNOTATION: &str = "ovn.openstack.c5c3.io/settings";

/// What a worker remembers between its passes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub outcomes: Outcomes,
    pub trouble: Option<Trouble>,
    /// Ports that have no other gateway, once asked for.
    pub sole: Vec<String>,
    /// Jobs of strangers under our names; the watch does not see them.
    pub strangers: BTreeMap<JobKind, JobView>,
    /// What this drain has learnt about gateway ports.
    pub moving: Moving,
    /// What is pinned to the chassis, once asked for.
    pub pins: Option<Vec<String>>,
    /// Since when the node has been healthy without a break.
    pub healthy_since: Option<k8s_openapi::jiff::Timestamp>,
}

/// A Job under a name of ours.
pub fn job_view(job: &Job, node: &NodeName) -> JobView {
    let spec = job.spec.as_ref();
    let managed = spec.and_then(|s| s.managed_by.as_deref()) == Some(JOB_MANAGED_BY);
    let named = job.annotations().get(NODE_ANNOTATION);
    JobView {
        name: job.name_any(),
        uid: job.uid().unwrap_or_default(),
        owner: match (managed, named) {
            (true, Some(name)) if name == node.as_str() => JobOwner::Us,
            (true, Some(name)) => JobOwner::OtherNode(name.clone()),
            _ => JobOwner::Stranger,
        },
        phase: jobs::phase(job),
        settings: job.annotations().get(SETTINGS_ANNOTATION).cloned().unwrap_or_default(),
        deadline_seconds: spec.and_then(|s| s.active_deadline_seconds).unwrap_or(300),
        ending: job.metadata.deletion_timestamp.is_some(),
    }
}

/// A pod of one of the DaemonSets.
pub fn pod_view(pod: &Pod) -> PodView {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    PodView {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        component: pod.labels().get(COMPONENT_LABEL).cloned().unwrap_or_default(),
        ready: conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True")),
        ending: pod.metadata.deletion_timestamp.is_some(),
        created: pod.metadata.creation_timestamp.as_ref().map(|t| t.0),
        revision: pod.labels().get("controller-revision-hash").cloned().unwrap_or_default(),
    }
}

/// Whether a pod is one of the DaemonSets' of this OVNChassis.
pub fn is_chassis_pod(pod: &Pod, chassis: &ChassisRef) -> bool {
    let labels = pod.labels();
    labels.get(INSTANCE_LABEL) == Some(&chassis.name)
        && labels.get(COMPONENT_LABEL).is_some_and(|c| c == COMPONENT_OVS || c == COMPONENT_OVN_CONTROLLER)
}

/// Whether a pod has ended for good: its processes are gone, only the object is left.
pub fn is_over(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).is_some_and(|p| p == "Succeeded" || p == "Failed")
}

/// Everything about one node; None if its OVNChassis is gone.
pub fn observe(world: &World, chassis: &ChassisRef, node: &NodeName, memory: &Memory) -> Option<NodeView> {
    let object = world.chassis_of(chassis)?;
    let node_meta = world.nodes.get(&ObjectKey::new("", node.as_str()));
    let node_view = node_meta.as_deref().map(node_object);
    let owned = world.owner_of(node, node_view.as_ref()).as_ref() == Some(chassis);
    let selected = owned && node_view.as_ref().is_some_and(|n| selects(&object, n));
    let status = object.status.clone().unwrap_or_default();
    let record = status.nodes.into_iter().find(|r| r.name == node.as_str());
    let departed = status.departed.into_iter().find(|d| d.name == node.as_str());
    let ocn = world
        .chassis_nodes
        .get(&ObjectKey::new(&chassis.namespace, node.as_str()))
        .filter(|o| o.spec.chassis_name == chassis.name);
    let map = world.config_maps.get(&ObjectKey::new(&chassis.namespace, chassis.nodes_config_map()));
    let (central, grants) = world
        .board(chassis, |b| (b.central.clone(), b.grants.as_ref().map(|g| g.get(node).cloned().unwrap_or_default())));
    let granted = || ocn.as_ref().and_then(|o| o.spec.handover.clone()).map(|h| h.grants).unwrap_or_default();
    let grants = grants.unwrap_or_else(granted);
    let ovn_remote = match central {
        Some(Ok(central)) => Ok(central.ovn_remote),
        Some(Err(problem)) => Err(problem),
        None => Err(Problem { reason: "CentralNotRead", message: "the central has not been read yet".into() }),
    };
    let id = ocn
        .as_ref()
        .and_then(|o| o.spec.system_id.as_deref())
        .or(record.as_ref().and_then(|r| r.system_id.as_deref()))
        .and_then(|t| SystemId::parse(t).ok());
    let link = world.databases.link(chassis);
    let loses_gateway = ocn.as_ref().is_some_and(|o| o.spec.gateway)
        && !(selected && node_view.as_ref().is_some_and(|n| is_gateway(&object, n)));
    // Counting is only worth it while something is taken away or was.
    let drains = loses_gateway
        || ocn.as_ref().is_some_and(|o| o.spec.evacuate || o.spec.leaving)
        || (!selected && ocn.is_some());
    let (rows, on_chassis) = match (&link, &id) {
        (Some(link), Some(id)) if drains => (rows_naming(link, id), bindings(link, id)),
        _ => (None, None),
    };
    let lowered = link.as_ref().zip(id.as_ref()).is_some_and(|(link, id)| link.is_lowered(id));
    let state = |of: fn(&super::databases::Link) -> &super::databases::Database| {
        link.as_ref().map_or(DatabaseState::Unknown, |l| of(l).state())
    };
    // All nodes' ids are only looked through where one is to be given out or its rows are to be deleted.
    let settled = ocn.as_ref().is_some_and(|o| o.spec.system_id.is_some()) && !drains;
    let ids = if settled { BTreeMap::new() } else { ids_elsewhere(world, chassis, node) };
    Some(NodeView {
        node: node.clone(),
        config_map_entry: map.as_ref().and_then(|m| m.data.as_ref()).and_then(|d| d.get(node.as_str())).cloned(),
        jobs: jobs_of(world, &object, node, memory),
        shares_hash_with: first_with_same_hash(world, chassis, node, ocn.as_deref()),
        pods: pods_on(world, chassis, node),
        ovn_remote,
        northbound: state(|l| &l.northbound),
        southbound: state(|l| &l.southbound),
        duties: GatewayDuties { rows, sole: memory.sole.clone(), lowered },
        ports: Ports::NotAsked,
        bindings: on_chassis,
        ids_elsewhere: Arc::new(ids),
        grants,
        pins: memory.pins.clone().unwrap_or_default(),
        healthy_since: memory.healthy_since,
        outcomes: memory.outcomes.clone(),
        trouble: memory.trouble.clone(),
        dead_agent_wait_seconds: world.settings.dead_agent_wait_seconds,
        chassis: object,
        object: node_view,
        selected,
        record,
        departed,
        ocn,
    })
}

fn jobs_of(world: &World, chassis: &OVNChassis, node: &NodeName, memory: &Memory) -> BTreeMap<JobKind, JobView> {
    let us = chassis_ref(chassis);
    JobKind::ALL
        .into_iter()
        .filter_map(|kind| {
            let known = world.jobs.get(&ObjectKey::new(&us.namespace, us.job(kind, node)));
            let view = known.map(|job| job_view(&job, node)).or_else(|| memory.strangers.get(&kind).cloned())?;
            Some((kind, view))
        })
        .collect()
}

/// Pods of the DaemonSets on a node whose processes may still run.
pub fn pods_on(world: &World, chassis: &ChassisRef, node: &NodeName) -> Vec<PodView> {
    world
        .pods
        .select_in(&chassis.namespace, |pod| {
            is_chassis_pod(pod, chassis)
                && !is_over(pod)
                && pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some(node.as_str())
        })
        .iter()
        .map(|pod| pod_view(pod))
        .collect()
}

/// A node of the same OVNChassis with the same eight digits that was there first.
fn first_with_same_hash(
    world: &World,
    chassis: &ChassisRef,
    node: &NodeName,
    own: Option<&OVNChassisNode>,
) -> Option<NodeName> {
    let hash = hash8(node.as_str());
    let since = |o: &OVNChassisNode| o.metadata.creation_timestamp.as_ref().map(|t| t.0);
    let own_since = own.and_then(since);
    world
        .chassis_nodes
        .select_in(&chassis.namespace, |other| {
            other.spec.chassis_name == chassis.name
                && other.spec.node_name != node.as_str()
                && hash8(&other.spec.node_name) == hash
                && (own_since.is_none() || (since(other), other.spec.node_name.as_str()) < (own_since, node.as_str()))
        })
        .first()
        .map(|other| NodeName::from(other.spec.node_name.as_str()))
}

/// All ids that other nodes have, recorded or merely reported.
fn ids_elsewhere(world: &World, chassis: &ChassisRef, node: &NodeName) -> BTreeMap<SystemId, Vec<NodeName>> {
    let mut ids: BTreeMap<SystemId, Vec<NodeName>> = BTreeMap::new();
    let mut note = |id: Option<&str>, name: &str| {
        if let Some(id) = id.and_then(|t| SystemId::parse(t).ok()) {
            let nodes = ids.entry(id).or_default();
            if !nodes.iter().any(|n| n.as_str() == name) {
                nodes.push(NodeName::from(name));
            }
        }
    };
    let is_us = |namespace: &str, name: &str| *namespace == chassis.namespace && name == node.as_str();
    for other in world.chassis_nodes.all() {
        let namespace = other.namespace().unwrap_or_default();
        if is_us(&namespace, &other.spec.node_name) {
            continue;
        }
        let observed = other.status.as_ref().and_then(|s| s.observed.as_ref()).and_then(|o| o.system_id.as_deref());
        // One that has an id of ours will get it written over what it brought along.
        note(other.spec.system_id.as_deref().or(observed), &other.spec.node_name);
    }
    for object in world.chassis.all() {
        let namespace = object.namespace().unwrap_or_default();
        for record in object.status.iter().flat_map(|s| &s.nodes) {
            if !is_us(&namespace, &record.name) {
                note(record.system_id.as_deref(), &record.name);
            }
        }
    }
    ids
}
