//! The one writer of an OVNChassis' status and of its ConfigMap.
//!
//! Entries that nodes' workers hand in while a write is under way go into the next one together. A write is acknowledged
//! by what the API server answers: that goes into the cache, and workers decide on what the cache holds.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::decide::Entry;
use super::decide::predecessors::first_roll;
use super::decide::status::{ChassisFacts, conditions};
use super::objects::nodes_view::{NodesViewError, node_entry, nodes_config_map};
use super::observe::is_chassis_pod;
use super::wake::{Bell, Key};
use super::world::{Pending, World};
use crate::api::{DepartedNode, DrainReport, NodePhase, NodeRecord, OVNChassis, OVNChassisNode, OVNChassisStatus};
use crate::cluster::{ClusterError, ObjectKey, call};
use crate::model::conditions::set_condition;
use crate::model::ids::NodeName;
use crate::model::names::{CONTROLLER_FIELD_MANAGER, ChassisRef};
use crate::ops::step;
use crate::ops::tasks::chain;

/// How long a departed node is remembered.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);
/// Most of them.
const MOST_DEPARTED: usize = 256;

/// Reports until the OVNChassis is gone.
pub async fn run(world: World, bell: Bell, chassis: ChassisRef) {
    let mut pause = Duration::from_millis(50);
    // A status was sent and nobody knows what became of it.
    let mut unanswered = false;
    loop {
        let rung = bell.rung();
        let Some(object) = world.chassis_of(&chassis) else {
            if bell.retire(rung) {
                return;
            }
            continue;
        };
        match report(&world, &chassis, &object, &mut unanswered).await {
            Ok(()) => {
                pause = Duration::from_millis(50);
                landed(&world, &chassis);
                bell.rings().await;
            }
            Err(error) => {
                if matches!(error, ClusterError::Conflict { .. }) {
                    // What the last try wrote, if it did, is seen before anybody decides again.
                    if refetch(&world, &chassis).await {
                        unanswered = false;
                        landed(&world, &chassis);
                    }
                } else {
                    if !unanswered {
                        landed(&world, &chassis);
                    }
                    tracing::warn!(%chassis, error = %chain(&error), "status not written; trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
            }
        }
    }
}

/// Nothing is being written any more: workers that waited for it look again.
fn landed(world: &World, chassis: &ChassisRef) {
    for node in world.board(chassis, |board| std::mem::take(&mut board.in_flight)).into_keys() {
        world.wake.wake_existing(&Key::Node(chassis.clone(), node));
    }
}

/// Somebody else changed the object: a fresh copy, so that the next try is about that one.
async fn refetch(world: &World, chassis: &ChassisRef) -> bool {
    let api = world.api::<OVNChassis>(&chassis.namespace);
    match call(format!("get OVNChassis {chassis}"), api.get(&chassis.name)).await {
        Ok(object) => {
            world.chassis.put(object);
            true
        }
        Err(error) => {
            tracing::debug!(%chassis, %error, "not read again");
            tokio::time::sleep(Duration::from_millis(50)).await;
            false
        }
    }
}

async fn report(
    world: &World,
    chassis: &ChassisRef,
    object: &OVNChassis,
    unanswered: &mut bool,
) -> Result<(), ClusterError> {
    let (mut pending, returned) = world.board(chassis, |board| {
        board.in_flight.extend(board.pending.iter().map(|(node, p)| (node.clone(), p.entry.clone())));
        (board.pending.clone(), board.returned.clone())
    });
    // Decided on a status that another write replaced meanwhile: written now, it would bring back what that one took
    // away (`gatewayEvacuated` of a role that comes back). Its node decides again.
    for node in outdated(object.status.as_ref(), &pending) {
        let dropped = pending.remove(&node);
        world.board(chassis, |board| {
            if board.pending.get(&node) == dropped.as_ref() {
                board.pending.remove(&node);
            }
            board.in_flight.remove(&node);
        });
        world.wake.wake(Key::Node(chassis.clone(), node));
    }
    let nodes = world.chassis_nodes.select_in(&chassis.namespace, |n| n.spec.chassis_name == chassis.name);
    let specs: Vec<&OVNChassisNode> = nodes
        .iter()
        .map(|n| &**n)
        // One that departs leaves the ConfigMap in the same go as the status.
        .filter(|n| {
            let name = NodeName::from(n.spec.node_name.as_str());
            !matches!(pending.get(&name).map(|p| &p.entry), Some(Entry::Departs { .. } | Entry::Goes))
        })
        .collect();
    let deleting = object.metadata.deletion_timestamp.is_some();
    let view_too_large = if deleting && specs.is_empty() { None } else { write_view(world, object, &specs).await? };
    let now = call::now();
    let mut status = object.status.clone().unwrap_or_default();
    merge(&mut status, &pending, &returned, now);
    let (central, trouble, without_locks) =
        world.board(chassis, |b| (b.central.clone(), b.trouble.values().next().cloned(), b.without_locks.clone()));
    let Some(central) = central else {
        // The chassis' worker has not looked at the central yet and wakes us when it has; only entries cannot wait.
        if pending.is_empty() {
            return Ok(());
        }
        return write(world, chassis, object, status, pending, returned, unanswered).await;
    };
    let facts = ChassisFacts {
        records: &status.nodes,
        nodes: specs,
        central: central.map(|_| ()),
        owned_elsewhere: world.owned_elsewhere(object),
        view_too_large,
        trouble,
        first_roll: first_roll(&without_locks),
    };
    let (conditions, ready) = conditions(&facts);
    for condition in &conditions {
        set_condition(&mut status.conditions, condition, object.metadata.generation, &Time(now));
    }
    status.number_ready = ready;
    status.observed_generation = object.metadata.generation;
    if let Some(image) = installed_image(world, chassis) {
        status.installed_image = Some(image);
    }
    write(world, chassis, object, status, pending, returned, unanswered).await
}

async fn write(
    world: &World,
    chassis: &ChassisRef,
    object: &OVNChassis,
    mut status: OVNChassisStatus,
    pending: BTreeMap<NodeName, Pending>,
    returned: BTreeMap<String, i32>,
    unanswered: &mut bool,
) -> Result<(), ClusterError> {
    let staying = status.nodes.iter().filter(|n| !n.leaving).count();
    status.desired_number_scheduled = i32::try_from(staying).unwrap_or(i32::MAX);
    if object.status.as_ref() != Some(&status) {
        let mut next = object.clone();
        next.metadata.managed_fields = None;
        next.status = Some(status);
        let api = world.api::<OVNChassis>(&chassis.namespace);
        let params = PostParams { field_manager: Some(CONTROLLER_FIELD_MANAGER.into()), ..PostParams::default() };
        step("before-status");
        let write = api.replace_status(&chassis.name, &params, &next);
        let written = world.write(format!("update status of OVNChassis {chassis}"), write).await;
        *unanswered |= matches!(
            written,
            Err(ClusterError::Timeout { .. } | ClusterError::Unreachable { .. } | ClusterError::Status { .. })
        );
        match written {
            Ok(written) => {
                *unanswered = false;
                world.chassis.put(written);
            }
            // Gone: nothing is to be reported any more.
            Err(ClusterError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
        step("status-written");
    }
    let drains: Vec<_> = pending.iter().map(|(node, p)| (node.clone(), drain_report(p))).collect();
    let has_drains = !drains.is_empty();
    world.board(chassis, |board| {
        // What was handed in meanwhile stays for the next write.
        board.pending.retain(|node, entry| pending.get(node) != Some(entry));
        board.returned.retain(|id, n| returned.get(id) != Some(n));
        for (node, drain) in drains {
            if let Some(drain) = drain {
                board.drains.insert(node, drain);
            }
        }
    });
    for node in pending.keys() {
        world.wake.wake_existing(&Key::Node(chassis.clone(), node.clone()));
    }
    if has_drains {
        world.wake.wake(Key::Drains(chassis.clone()));
    }
    Ok(())
}

/// Nodes whose entry rests on another one than the status holds.
fn outdated(status: Option<&OVNChassisStatus>, pending: &BTreeMap<NodeName, Pending>) -> Vec<NodeName> {
    let holds = |node: &NodeName| status.and_then(|s| s.nodes.iter().find(|r| r.name == node.as_str()));
    pending.iter().filter(|(node, p)| p.base.as_ref() != holds(node)).map(|(node, _)| node.clone()).collect()
}

/// Puts entries into a status.
pub fn merge(
    status: &mut OVNChassisStatus,
    pending: &BTreeMap<NodeName, Pending>,
    returned: &BTreeMap<String, i32>,
    now: Timestamp,
) {
    for (node, pending) in pending {
        let at = status.nodes.iter().position(|n| n.name == node.as_str());
        match &pending.entry {
            Entry::Is(record) => {
                let mut record: NodeRecord = (**record).clone();
                let old = at.and_then(|i| status.nodes.get(i));
                let since = old.filter(|o| o.phase == record.phase && o.reason == record.reason);
                record.last_transition_time = match since.and_then(|o| o.last_transition_time.clone()) {
                    Some(time) => Some(time),
                    None => Some(Time(now)),
                };
                // Until it is known under which id a node is back, the last one may be the one that it registers under.
                if record.system_id.is_some() {
                    status.departed.retain(|d| d.name != record.name);
                }
                match at.and_then(|i| status.nodes.get_mut(i)) {
                    Some(slot) => *slot = record,
                    None => status.nodes.push(record),
                }
            }
            gone => {
                if let Some(at) = at {
                    status.nodes.remove(at);
                }
                if let Entry::Departs { system_id: Some(id) } = gone {
                    status.departed.retain(|d| d.name != node.as_str());
                    status.departed.push(DepartedNode {
                        name: node.to_string(),
                        system_id: id.to_string(),
                        time: Time(now),
                        returned: None,
                    });
                }
            }
        }
    }
    for departed in &mut status.departed {
        if let Some(times) = returned.get(&departed.system_id) {
            departed.returned = Some(*times);
        }
    }
    status.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    status.departed.retain(|d| now.duration_since(d.time.0) < REMEMBERED);
    let excess = status.departed.len().saturating_sub(MOST_DEPARTED);
    status.departed.drain(..excess);
}

fn drain_report(pending: &Pending) -> Option<DrainReport> {
    let Entry::Is(record) = &pending.entry else { return None };
    Some(DrainReport {
        phase: record.phase,
        reason: record.reason.clone(),
        message: record.message.clone(),
        remaining_bindings: record.remaining_bindings,
        ports: pending.ports.iter().take(64).cloned().collect(),
        last_transition_time: None,
    })
}

/// Brings the ConfigMap to what it is to hold: changed keys only. Says why if it cannot hold all nodes.
async fn write_view(
    world: &World,
    object: &OVNChassis,
    nodes: &[&OVNChassisNode],
) -> Result<Option<String>, ClusterError> {
    let wanted = match nodes_config_map(object, nodes.iter().map(|n| &n.spec)) {
        Ok(map) => map,
        Err(error @ NodesViewError::TooLarge { .. }) => return Ok(Some(error.to_string())),
    };
    let namespace = object.namespace().unwrap_or_default();
    let name = wanted.name_any();
    let api = world.api::<ConfigMap>(&namespace);
    let what = |verb: &str| format!("{verb} ConfigMap {namespace}/{name}");
    let Some(current) = world.config_maps.get(&ObjectKey::new(&namespace, &name)) else {
        let created = match world.write(what("create"), api.create(&PostParams::default(), &wanted)).await {
            // There, but without our labels, so that the watch does not show it.
            Err(ClusterError::AlreadyExists { .. }) => {
                let mut apply = wanted.clone();
                apply.metadata.managed_fields = None;
                let params = PatchParams::apply(CONTROLLER_FIELD_MANAGER).force();
                let patch = Patch::Apply(&apply);
                world.write(what("apply"), api.patch(&name, &params, &patch)).await?
            }
            other => other?,
        };
        world.config_maps.put(created);
        return Ok(None);
    };
    let have = current.data.clone().unwrap_or_default();
    let want: BTreeMap<String, String> =
        nodes.iter().map(|n| (n.spec.node_name.clone(), node_entry(&n.spec))).collect();
    let mut changes = serde_json::Map::new();
    for (key, text) in &want {
        if have.get(key) != Some(text) {
            changes.insert(key.clone(), json!(text));
        }
    }
    for key in have.keys().filter(|k| !want.contains_key(*k)) {
        changes.insert(key.clone(), Value::Null);
    }
    if changes.is_empty() {
        return Ok(None);
    }
    let (params, patch) = (PatchParams::default(), Patch::Merge(json!({ "data": changes })));
    match world.write(what("patch"), api.patch(&name, &params, &patch)).await {
        Ok(written) => world.config_maps.put(written),
        // Deleted by hand meanwhile; the next pass creates it.
        Err(ClusterError::NotFound { what }) => {
            world.config_maps.remove(&current);
            return Err(ClusterError::Conflict { what });
        }
        Err(error) => return Err(error),
    }
    step("nodes-view-written");
    Ok(None)
}

/// The image that every ready pod runs, if it is the same one.
fn installed_image(world: &World, chassis: &ChassisRef) -> Option<String> {
    let pods = world.pods.select_in(&chassis.namespace, |p| is_chassis_pod(p, chassis));
    let mut images = pods
        .iter()
        .filter(|p| super::observe::pod_view(p).ready && p.metadata.deletion_timestamp.is_none())
        .filter_map(|p| p.spec.as_ref()?.containers.first()?.image.clone());
    let first = images.next()?;
    images.all(|i| i == first).then_some(first)
}

/// Keeps `status.drain` of the OVNChassisNodes: the live view of `kubectl get ocn -w`. Nothing waits for it.
pub async fn run_drains(world: World, bell: Bell, chassis: ChassisRef) {
    let mut shown: BTreeMap<NodeName, DrainReport> = BTreeMap::new();
    loop {
        let rung = bell.rung();
        let drains = world.board(&chassis, |b| std::mem::take(&mut b.drains));
        if drains.is_empty() {
            if world.chassis_of(&chassis).is_none() && bell.retire(rung) {
                return;
            }
            let _ = tokio::time::timeout(Duration::from_secs(60), bell.rings()).await;
            continue;
        }
        for (node, mut drain) in drains {
            let key = ObjectKey::new(&chassis.namespace, node.as_str());
            if world.chassis_nodes.get(&key).is_none() {
                continue;
            }
            let same_phase = shown.get(&node).filter(|s| s.phase == drain.phase).cloned();
            drain.last_transition_time =
                same_phase.and_then(|s| s.last_transition_time).or_else(|| Some(Time(call::now())));
            if shown.get(&node) == Some(&drain) {
                continue;
            }
            if let Err(error) = write_drain(&world, &chassis, &node, &drain).await {
                tracing::debug!(%node, %error, "drain report not written");
                continue;
            }
            shown.insert(node, drain);
        }
        shown.retain(|node, _| world.chassis_nodes.get(&ObjectKey::new(&chassis.namespace, node.as_str())).is_some());
    }
}

async fn write_drain(
    world: &World,
    chassis: &ChassisRef,
    node: &NodeName,
    drain: &DrainReport,
) -> Result<(), ClusterError> {
    let api = world.api::<OVNChassisNode>(&chassis.namespace);
    let patch = Patch::Apply(json!({
        "apiVersion": "ovn.openstack.c5c3.io/v1alpha1",
        "kind": "OVNChassisNode",
        "metadata": { "name": node.as_str() },
        "status": { "drain": drain },
    }));
    let params = PatchParams::apply(CONTROLLER_FIELD_MANAGER).force();
    let write = api.patch_status(node.as_str(), &params, &patch);
    let written =
        world.write(format!("apply drain report of OVNChassisNode {}/{node}", chassis.namespace), write).await?;
    world.chassis_nodes.put(written);
    Ok(())
}

/// Whether a node is being drained, for metrics.
pub fn is_draining(record: &NodeRecord) -> bool {
    matches!(
        record.phase,
        Some(NodePhase::Evacuating | NodePhase::Held | NodePhase::Stopping | NodePhase::Deregistering)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_decided_on_a_replaced_one_is_not_written() {
        let evacuated = NodeRecord { name: "a".into(), gateway_evacuated: true, ..NodeRecord::default() };
        let reset = NodeRecord { gateway_evacuated: false, ..evacuated.clone() };
        let status = OVNChassisStatus { nodes: vec![reset.clone()], ..OVNChassisStatus::default() };
        let pending = |base: Option<&NodeRecord>| {
            let entry = Entry::Is(Box::new(evacuated.clone()));
            BTreeMap::from([(NodeName::from("a"), Pending { entry, ports: Vec::new(), base: base.cloned() })])
        };
        assert_eq!(outdated(Some(&status), &pending(Some(&evacuated))), [NodeName::from("a")]);
        assert_eq!(outdated(Some(&status), &pending(None)), [NodeName::from("a")]);
        assert!(outdated(Some(&status), &pending(Some(&reset))).is_empty());
        assert!(outdated(None, &pending(None)).is_empty());
    }
}
