//! The three kinds whose changes decide who has work: Nodes, OVNChassis and OVNChassisNodes.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::core::PartialObjectMeta;

use super::decide::owner::owner;
use super::objects::chassis_ref;
use super::wake::{Key, Wake};
use super::world::node_object;
use crate::api::{OVNChassis, OVNChassisNode};
use crate::cluster::Cache;
use crate::model::ids::NodeName;
use crate::model::names::ChassisRef;

/// Their caches, and who is woken by a change.
#[derive(Clone)]
pub struct Watched {
    caches: Arc<OnceLock<Caches>>,
    wake: Wake,
}

type Caches = (Cache<PartialObjectMeta<Node>>, Cache<OVNChassis>, Cache<OVNChassisNode>);

impl Watched {
    pub fn new(wake: Wake) -> Self {
        Self { caches: Arc::default(), wake }
    }

    /// The caches, made at the first call.
    pub fn caches(&self) -> Caches {
        let (on_node, on_chassis, on_object) = (self.clone(), self.clone(), self.clone());
        self.caches
            .get_or_init(move || {
                (
                    Cache::new(move |old, new| on_node.node_changed(old, new)),
                    Cache::new(move |old, new| on_chassis.chassis_changed(old, new)),
                    Cache::new(move |old, new| on_object.object_changed(old, new)),
                )
            })
            .clone()
    }

    fn all_chassis(&self) -> Vec<Arc<OVNChassis>> {
        self.caches.get().map(|(_, chassis, _)| chassis.all()).unwrap_or_default()
    }

    fn node_changed(&self, old: Option<&PartialObjectMeta<Node>>, new: Option<&PartialObjectMeta<Node>>) {
        let Some(node) = new.or(old) else { return };
        let same = old.zip(new).is_some_and(|(a, b)| {
            a.metadata.labels == b.metadata.labels
                && a.metadata.annotations == b.metadata.annotations
                && a.metadata.uid == b.metadata.uid
        });
        if same {
            return;
        }
        let name = NodeName::new(node.name_any());
        self.wake_owner(&name, new);
        self.wake.wake_where(|key| matches!(key, Key::Node(_, n) if *n == name));
        let labels = |n: Option<&PartialObjectMeta<Node>>| n.and_then(|n| n.metadata.labels.clone());
        // Two OVNChassis may select the node: the one that does not own it says so.
        if labels(old) != labels(new) {
            self.wake.wake_where(|key| matches!(key, Key::Report(_)));
        }
    }

    fn wake_owner(&self, name: &NodeName, node: Option<&PartialObjectMeta<Node>>) {
        let all = self.all_chassis();
        let object = node.map(node_object);
        if let Some(owner) = owner(all.iter().map(|c| &**c), name, object.as_ref()) {
            self.wake.wake(Key::Node(owner, name.clone()));
        }
    }

    fn chassis_changed(&self, old: Option<&OVNChassis>, new: Option<&OVNChassis>) {
        let Some(chassis) = new.or(old) else { return };
        let us = chassis_ref(chassis);
        self.wake.wake(Key::Chassis(us.clone()));
        self.wake.wake_existing(&Key::Report(us.clone()));
        match (old, new) {
            (Some(old), Some(new))
                if old.metadata.generation == new.metadata.generation
                    && old.metadata.uid == new.metadata.uid
                    && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp =>
            {
                self.records_changed(&us, old, new);
            }
            // Ownership may be another now, for every node there is.
            _ => self.all_nodes(),
        }
    }

    fn records_changed(&self, us: &ChassisRef, old: &OVNChassis, new: &OVNChassis) {
        let records = |c: &OVNChassis| c.status.as_ref().map(|s| s.nodes.clone()).unwrap_or_default();
        let (before, after) = (records(old), records(new));
        if before == after {
            return;
        }
        let mut changed = BTreeSet::new();
        for (one, other) in [(&before, &after), (&after, &before)] {
            // Sorted by name, both: a lookup instead of a search in a search.
            for record in one {
                let same = other.binary_search_by(|o| o.name.cmp(&record.name)).ok().and_then(|i| other.get(i));
                if same != Some(record) {
                    changed.insert(record.name.clone());
                }
            }
        }
        for name in changed {
            let name = NodeName::new(name);
            self.wake.wake(Key::Node(us.clone(), name.clone()));
            // Forgotten here, the node may be another one's now.
            if let Some((nodes, _, _)) = self.caches.get() {
                let node = nodes.get(&crate::cluster::ObjectKey::new("", name.as_str()));
                self.wake_owner(&name, node.as_deref());
            }
        }
    }

    fn all_nodes(&self) {
        let Some((nodes, _, _)) = self.caches.get() else { return };
        self.wake.wake_where(|key| matches!(key, Key::Node(..) | Key::Report(_)));
        let all = self.all_chassis();
        for node in nodes.all() {
            let name = NodeName::new(node.name_any());
            if let Some(owner) = owner(all.iter().map(|c| &**c), &name, Some(&node_object(&node))) {
                self.wake.wake(Key::Node(owner, name));
            }
        }
        for chassis in &all {
            let us = chassis_ref(chassis);
            for record in chassis.status.iter().flat_map(|s| &s.nodes) {
                self.wake.wake(Key::Node(us.clone(), NodeName::from(record.name.as_str())));
            }
        }
    }

    fn object_changed(&self, old: Option<&OVNChassisNode>, new: Option<&OVNChassisNode>) {
        let Some(object) = new.or(old) else { return };
        let chassis = ChassisRef::new(object.namespace().unwrap_or_default(), &object.spec.chassis_name);
        self.wake.wake(Key::Node(chassis.clone(), NodeName::from(object.spec.node_name.as_str())));
        self.wake.wake_existing(&Key::Report(chassis.clone()));
        let conditions = |o: Option<&OVNChassisNode>| {
            o.map(|o| {
                (o.spec.handover.clone(), o.status.as_ref().map(|s| (s.conditions.clone(), s.reported_by.clone())))
            })
        };
        if conditions(old) != conditions(new) {
            self.wake.wake_existing(&Key::Chassis(chassis));
        }
        // A node that waits for an id that this one has may go on now.
        let ids = |o: Option<&OVNChassisNode>| {
            o.map(|o| {
                (o.spec.system_id.clone(), o.status.as_ref().and_then(|s| s.observed.clone()).and_then(|o| o.system_id))
            })
        };
        if ids(old) != ids(new) && old.is_some() {
            self.wake.wake_where(|key| matches!(key, Key::Chassis(_)));
        }
    }
}
