//! What all workers share: the caches, the bell board, the databases, and the one way to write.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};

use super::databases::Databases;
use super::decide::central::Central;
use super::decide::owner::owner;
use super::decide::view::{NodeObject, Problem};
use super::decide::{Entry, owner};
use super::objects::chassis_ref;
use super::settings::Settings;
use super::wake::{Key, Wake};
use super::watched::Watched;
use crate::api::{NodeRecord, OVNCentral, OVNChassis, OVNChassisNode};
use crate::cluster::events::Events;
use crate::cluster::lease::Claim;
use crate::cluster::{Cache, ClusterError, ObjectKey, call};
use crate::model::ids::NodeName;
use crate::model::names::{ChassisRef, INSTANCE_LABEL, NODE_ANNOTATION};

/// An entry on its way into the status.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending {
    pub entry: Entry,
    pub ports: Vec<String>,
    /// The entry in the status that it was decided on.
    pub base: Option<NodeRecord>,
}

/// What the workers of one OVNChassis tell each other.
#[derive(Clone, Debug, Default)]
pub struct Board {
    pub central: Option<Result<Central, Problem>>,
    /// None until they were counted: a new leader takes none away before.
    pub grants: Option<BTreeMap<NodeName, Vec<String>>>,
    pub pending: BTreeMap<NodeName, Pending>,
    /// Those of them that are on their way into the status: what it says may already be over.
    pub in_flight: BTreeMap<NodeName, Entry>,
    /// Drain reports that are to be written.
    pub drains: BTreeMap<NodeName, crate::api::DrainReport>,
    /// Registrations of departed nodes that came back, to be counted.
    pub returned: BTreeMap<String, i32>,
    /// What the API server refuses or somebody else has taken, by what was asked for.
    pub trouble: BTreeMap<String, String>,
    /// Pods whose daemons hold no locks: they are stopped before their successors start.
    pub without_locks: Vec<String>,
}

/// Shared by all workers. Cheap to clone.
#[derive(Clone)]
pub struct World {
    pub client: Client,
    pub settings: Arc<Settings>,
    pub claim: Claim,
    pub events: Events,
    pub wake: Wake,
    pub databases: Databases,
    pub watched: Watched,
    pub nodes: Cache<PartialObjectMeta<Node>>,
    pub chassis: Cache<OVNChassis>,
    pub chassis_nodes: Cache<OVNChassisNode>,
    pub jobs: Cache<Job>,
    pub pods: Cache<Pod>,
    pub config_maps: Cache<ConfigMap>,
    pub daemon_sets: Cache<DaemonSet>,
    pub centrals: Cache<OVNCentral>,
    boards: Arc<Mutex<BTreeMap<ChassisRef, Board>>>,
}

/// A Node's metadata, as far as decisions need it.
pub fn node_object(node: &PartialObjectMeta<Node>) -> NodeObject {
    NodeObject {
        uid: node.metadata.uid.clone().unwrap_or_default(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        annotations: node.metadata.annotations.clone().unwrap_or_default(),
    }
}

/// Which OVNChassis a labelled object belongs to.
fn instance<K: ResourceExt>(object: &K) -> Option<ChassisRef> {
    Some(ChassisRef::new(object.namespace()?, object.labels().get(INSTANCE_LABEL)?))
}

impl World {
    /// Waits for the first list of every kind that each cluster has; an OVNCentral's kind may be absent.
    pub async fn listed(&self) {
        self.chassis.synced().await;
        self.nodes.synced().await;
        self.chassis_nodes.synced().await;
        self.jobs.synced().await;
        self.pods.synced().await;
        self.config_maps.synced().await;
        self.daemon_sets.synced().await;
    }

    /// Whether [`World::listed`] would return at once.
    pub fn is_listed(&self) -> bool {
        self.chassis.is_synced()
            && self.nodes.is_synced()
            && self.chassis_nodes.is_synced()
            && self.jobs.is_synced()
            && self.pods.is_synced()
            && self.config_maps.is_synced()
            && self.daemon_sets.is_synced()
    }

    pub fn new(client: Client, settings: Settings, claim: Claim, events: Events) -> Self {
        let wake = Wake::default();
        let settings = Arc::new(settings);
        let by_instance = |wake: &Wake| {
            let wake = wake.clone();
            move |chassis: ChassisRef| wake.wake_existing(&Key::Chassis(chassis))
        };
        let (wake_map, wake_set) = (wake.clone(), by_instance(&wake));
        let (wake_pod, wake_job, wake_central) = (wake.clone(), wake.clone(), wake.clone());
        let watched = Watched::new(wake.clone());
        let (nodes, chassis, chassis_nodes) = watched.caches();
        Self {
            databases: Databases::new(settings.server_names, wake.clone()),
            events,
            client,
            claim,
            nodes,
            chassis,
            chassis_nodes,
            jobs: Cache::new(move |old: Option<&Job>, new: Option<&Job>| {
                let Some(job) = new.or(old) else { return };
                let node = job.annotations().get(NODE_ANNOTATION).cloned();
                if let (Some(chassis), Some(node)) = (instance(job), node) {
                    // Started if there is none: an unfinished Job of a forgotten node still wants its end.
                    wake_job.wake(Key::Node(chassis, NodeName::new(node)));
                }
            }),
            pods: Cache::new(move |old: Option<&Pod>, new: Option<&Pod>| {
                let Some(pod) = new.or(old) else { return };
                let node = pod.spec.as_ref().and_then(|s| s.node_name.clone());
                let Some(chassis) = instance(pod) else { return };
                if let Some(node) = node {
                    wake_pod.wake_existing(&Key::Node(chassis.clone(), NodeName::new(node)));
                }
                wake_pod.wake_existing(&Key::Chassis(chassis));
            }),
            config_maps: Cache::new(move |old: Option<&ConfigMap>, new: Option<&ConfigMap>| {
                if let Some(chassis) = new.or(old).and_then(instance) {
                    wake_map.wake_existing(&Key::Report(chassis));
                }
            }),
            daemon_sets: Cache::new(move |old: Option<&DaemonSet>, new: Option<&DaemonSet>| {
                if let Some(chassis) = new.or(old).and_then(instance) {
                    wake_set(chassis);
                }
            }),
            centrals: Cache::new(move |old: Option<&OVNCentral>, new: Option<&OVNCentral>| {
                let namespace = new.or(old).and_then(ResourceExt::namespace);
                wake_central.wake_where(|k| matches!(k, Key::Chassis(c) if Some(&c.namespace) == namespace.as_ref()));
            }),
            settings,
            wake,
            watched,
            boards: Arc::default(),
        }
    }

    fn boards(&self) -> MutexGuard<'_, BTreeMap<ChassisRef, Board>> {
        self.boards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads or writes the board of an OVNChassis. Must not block.
    pub fn board<T>(&self, chassis: &ChassisRef, with: impl FnOnce(&mut Board) -> T) -> T {
        with(self.boards().entry(chassis.clone()).or_default())
    }

    pub fn drop_board(&self, chassis: &ChassisRef) {
        self.boards().remove(chassis);
    }

    pub fn chassis_of(&self, chassis: &ChassisRef) -> Option<Arc<OVNChassis>> {
        self.chassis.get(&ObjectKey::new(&chassis.namespace, &chassis.name))
    }

    /// The owner of a node.
    pub fn owner_of(&self, node: &NodeName, object: Option<&NodeObject>) -> Option<ChassisRef> {
        let all = self.chassis.all();
        owner(all.iter().map(|c| &**c), node, object)
    }

    /// Nodes that an OVNChassis selects and another one owns.
    pub fn owned_elsewhere(&self, chassis: &OVNChassis) -> Vec<(String, ChassisRef)> {
        let us = chassis_ref(chassis);
        let all = self.chassis.all();
        if all.len() < 2 {
            return Vec::new();
        }
        let nodes = self.nodes.all();
        let selected = nodes.iter().map(|n| (NodeName::new(n.name_any()), node_object(n)));
        selected
            .filter(|(_, object)| owner::selects(chassis, object))
            .filter_map(|(node, object)| {
                let owner = owner(all.iter().map(|c| &**c), &node, Some(&object))?;
                (owner != us).then(|| (node.to_string(), owner))
            })
            .collect()
    }

    /// Sends a write, if this process still leads.
    pub async fn write<T>(
        &self,
        what: String,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ClusterError> {
        self.claim.check(&what)?;
        call(what, request).await
    }

    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), namespace)
    }
}
