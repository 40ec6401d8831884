//! Carries out the steps of a plan, each against one object or one database.
//!
//! Every answer goes into the cache at once, so that the next pass sees what this one did. `ops::step` marks the points
//! between two outward effects: tests kill the process at each of them.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::databases::{self, DatabaseError};
use super::decide::{JobChange, Step};
use super::moving::Moving;
use super::objects::jobs::cause_pod;
use super::objects::{RenderContext, chassis_ref, jobs as job_objects, metadata};
use super::observe::{Memory, SETTINGS_ANNOTATION, job_view};
use super::wake::Key;
use super::world::World;
use crate::api::{LastGateway, OVNChassis, OVNChassisNode, OVNChassisNodeSpec};
use crate::cluster::events::{Happening, Severity, reference};
use crate::cluster::{ClusterError, ObjectKey, jobs};
use crate::model::ids::{NodeName, SystemId};
use crate::model::names::{
    CONTROLLER_FIELD_MANAGER, ChassisRef, JobKind, OWNER_ANNOTATION, OWNER_LABEL, PORTS_ANNOTATION,
    SYSTEM_ID_ANNOTATION,
};
use crate::ops::step;
use crate::ops::tasks::chain;
use crate::ovn::northbound::Lowering;

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Another look will tell what to do instead.
    #[error("{0} is not there any more")]
    Gone(String),
}

/// One node of one OVNChassis.
pub struct Actor<'a> {
    pub world: &'a World,
    pub chassis: Arc<OVNChassis>,
    pub node: NodeName,
    pub memory: &'a mut Memory,
}

/// How objects are rendered.
pub fn render_context(world: &World, chassis: &ChassisRef) -> RenderContext {
    let (central, stop_first) = world.board(chassis, |b| (b.central.clone(), !b.without_locks.is_empty()));
    let node_secret = central.and_then(Result::ok).and_then(|central| central.node_secret);
    RenderContext {
        image: world.settings.image.clone(),
        node_client_secret: node_secret,
        job_deadline_seconds: world.settings.job_deadline_seconds,
        stop_first,
        api_server: world.settings.api_server.clone(),
    }
}

fn ports_on(job: &Job) -> Vec<String> {
    job.annotations().get(PORTS_ANNOTATION).map(|text| text.lines().map(str::to_owned).collect()).unwrap_or_default()
}

impl Actor<'_> {
    fn us(&self) -> ChassisRef {
        chassis_ref(&self.chassis)
    }

    fn job_key(&self, kind: JobKind) -> ObjectKey {
        let us = self.us();
        ObjectKey::new(&us.namespace, us.job(kind, &self.node))
    }

    /// Does one step.
    pub async fn act(&mut self, wanted: &Step) -> Result<(), ActError> {
        tracing::debug!(node = %self.node, step = ?wanted, "acting");
        match wanted {
            Step::MarkNode { system_id } => {
                self.mark(system_id.as_ref()).await?;
                step("node-marked");
            }
            Step::ReleaseNode => {
                self.release().await?;
                step("node-released");
            }
            Step::WriteNode(spec) => {
                self.write_object(spec).await?;
                step("node-object-written");
            }
            Step::DeleteNode => {
                self.delete_object().await?;
                step("node-object-deleted");
            }
            Step::CreateJobs { kinds, settings } => {
                self.create_jobs(kinds, settings).await?;
                step("jobs-created");
            }
            Step::DeleteJob { kind, uid, why } => {
                tracing::info!(node = %self.node, job = %self.job_key(*kind), why, "deleting a Job");
                self.delete_job(*kind, uid).await?;
                step("job-deleted");
            }
            Step::ChangeJobs(changes) => self.change_jobs(changes).await?,
            Step::LowerPriority(lowering) => {
                step("before-lowering");
                self.lower(lowering).await?;
                step("priority-lowered");
            }
            Step::RestorePriority { system_id } => {
                self.restore(system_id).await?;
                step("priority-restored");
            }
            Step::Evacuate { system_id } => {
                step("before-evacuation");
                self.evacuate(system_id).await?;
                step("evacuated");
            }
            Step::Deregister { system_id } => {
                step("before-deregistration");
                self.deregister(system_id).await?;
                step("deregistered");
            }
            Step::ForgetOutcomes => {
                self.memory.outcomes = Default::default();
            }
            Step::Announce(happening) => self.announce(happening.clone()),
        }
        Ok(())
    }

    fn announce(&self, happening: Happening) {
        self.world.events.publish_later(reference(&*self.chassis), happening);
    }

    async fn patch_node(&self, verb: &str, metadata: serde_json::Value) -> Result<(), ActError> {
        let api: Api<Node> = Api::all(self.world.client.clone());
        let params = PatchParams::default();
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let write = api.patch_metadata(self.node.as_str(), &params, &patch);
        match self.world.write(format!("{verb} Node {}", self.node), write).await {
            Ok(node) => {
                self.world.nodes.put(PartialObjectMeta { types: None, metadata: node.metadata, ..Default::default() });
                Ok(())
            }
            // The watch says so too, in a moment.
            Err(ClusterError::NotFound { .. }) => Err(ActError::Gone(format!("Node {}", self.node))),
            Err(error) => Err(error.into()),
        }
    }

    async fn mark(&self, id: Option<&SystemId>) -> Result<(), ActError> {
        let us = self.us();
        let mut annotations = json!({ OWNER_ANNOTATION: us.to_string() });
        if let (Some(id), Some(map)) = (id, annotations.as_object_mut()) {
            map.insert(SYSTEM_ID_ANNOTATION.to_owned(), json!(id.as_str()));
        }
        self.patch_node(
            "mark",
            json!({ "labels": { OWNER_LABEL: us.owner_label_value() }, "annotations": annotations }),
        )
        .await
    }

    async fn release(&self) -> Result<(), ActError> {
        // The system-id stays: a node that comes back is the same chassis.
        let nothing = serde_json::Value::Null;
        let metadata = json!({ "labels": { OWNER_LABEL: nothing }, "annotations": { OWNER_ANNOTATION: nothing } });
        match self.patch_node("release", metadata).await {
            Err(ActError::Gone(_)) => Ok(()),
            other => other,
        }
    }

    async fn write_object(&self, spec: &OVNChassisNodeSpec) -> Result<(), ActError> {
        let us = self.us();
        let api = self.world.api::<OVNChassisNode>(&us.namespace);
        let params = PostParams { field_manager: Some(CONTROLLER_FIELD_MANAGER.into()), ..PostParams::default() };
        let what = |verb: &str| format!("{verb} OVNChassisNode {}/{}", us.namespace, self.node);
        let current = self.world.chassis_nodes.get(&ObjectKey::new(&us.namespace, self.node.as_str()));
        let written = match current {
            Some(current) if current.spec.chassis_name == us.name => {
                let mut object = (*current).clone();
                object.spec = spec.clone();
                object.metadata.managed_fields = None;
                self.world.write(what("update"), api.replace(self.node.as_str(), &params, &object)).await?
            }
            _ => {
                let mut object = OVNChassisNode::new(self.node.as_str(), spec.clone());
                object.metadata = metadata(&self.chassis, self.node.to_string(), "node");
                self.world.write(what("create"), api.create(&params, &object)).await?
            }
        };
        self.world.chassis_nodes.put(written);
        Ok(())
    }

    async fn delete_object(&self) -> Result<(), ActError> {
        let us = self.us();
        let key = ObjectKey::new(&us.namespace, self.node.as_str());
        let Some(object) = self.world.chassis_nodes.get(&key) else { return Ok(()) };
        let uid = object.uid().unwrap_or_default();
        let api = self.world.api::<OVNChassisNode>(&us.namespace);
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        match self.world.write(format!("delete OVNChassisNode {key}"), api.delete(self.node.as_str(), &params)).await {
            Ok(_) | Err(ClusterError::NotFound { .. }) => {
                self.world.chassis_nodes.remove_deleted(&key, &uid);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn create_jobs(&mut self, kinds: &[JobKind], settings: &str) -> Result<(), ActError> {
        let us = self.us();
        let context = render_context(self.world, &us);
        let object = self.world.chassis_nodes.get(&ObjectKey::new(&us.namespace, self.node.as_str()));
        let transition = object.and_then(|o| o.metadata.generation).unwrap_or_default();
        let api = self.world.api::<Job>(&us.namespace);
        let create = kinds.iter().map(|kind| {
            let mut job = job_objects::job(&self.chassis, &context, *kind, &self.node, transition);
            job.metadata
                .annotations
                .get_or_insert_default()
                .insert(SETTINGS_ANNOTATION.to_owned(), settings.to_owned());
            let (api, world) = (api.clone(), self.world);
            async move {
                let name = job.name_any();
                let what = format!("create Job {}/{name}", job.namespace().unwrap_or_default());
                match world.write(what.clone(), api.create(&PostParams::default(), &job)).await {
                    Ok(created) => {
                        world.jobs.put(created);
                        Ok(None)
                    }
                    // Somebody else's, or ours from before a crash that the cache has not shown yet.
                    Err(ClusterError::AlreadyExists { .. }) => {
                        let found = crate::cluster::call(format!("get Job {name}"), api.get(&name)).await?;
                        Ok::<_, ClusterError>(Some((*kind, found)))
                    }
                    Err(error) => Err(error),
                }
            }
        });
        let found: Vec<_> = try_join_all(create).await?.into_iter().flatten().collect();
        for (kind, job) in found {
            self.found_job(kind, job);
        }
        Ok(())
    }

    fn found_job(&mut self, kind: JobKind, job: Job) {
        let view = job_view(&job, &self.node);
        if view.owner == super::decide::view::JobOwner::Stranger {
            self.memory.strangers.insert(kind, view);
        } else {
            self.world.jobs.put(job);
        }
    }

    /// Looks for strangers' Jobs under our names, which the watch does not see.
    pub async fn look_for_strangers(&mut self) -> Result<(), ActError> {
        let us = self.us();
        let api = self.world.api::<Job>(&us.namespace);
        let look = JobKind::ALL.into_iter().map(|kind| {
            let api = api.clone();
            let name = us.job(kind, &self.node);
            async move {
                let found = crate::cluster::call(format!("get Job {name}"), api.get_opt(&name)).await?;
                Ok::<_, ClusterError>((kind, found))
            }
        });
        let found = try_join_all(look).await?;
        self.memory.strangers.clear();
        for (kind, job) in found {
            if let Some(job) = job {
                self.found_job(kind, job);
            }
        }
        Ok(())
    }

    async fn delete_job(&self, kind: JobKind, uid: &str) -> Result<(), ActError> {
        let key = self.job_key(kind);
        let api = self.world.api::<Job>(&key.namespace);
        let known = self.world.jobs.get(&key).filter(|j| j.uid().as_deref() == Some(uid));
        let mut params = DeleteParams::background();
        params.preconditions = Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: known.and_then(|j| j.resource_version()),
        });
        match self.world.write(format!("delete Job {key}"), api.delete(&key.name, &params)).await {
            Ok(_) | Err(ClusterError::NotFound { .. }) => {
                self.world.jobs.remove_deleted(&key, uid);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn change_jobs(&mut self, changes: &[(JobKind, JobChange)]) -> Result<(), ActError> {
        let now = crate::cluster::call::now();
        let this = &*self;
        try_join_all(changes.iter().map(|(kind, change)| this.change_job(*kind, change, now))).await?;
        for (_, change) in changes {
            match change {
                JobChange::Start => {
                    self.memory.outcomes.attempts = 0;
                    self.memory.outcomes.last_error = None;
                    step("job-started");
                }
                JobChange::Complete { .. } => step("job-complete"),
                JobChange::Fail { .. } => {
                    self.memory.outcomes = Default::default();
                    step("job-failed");
                }
            }
        }
        Ok(())
    }

    async fn change_job(&self, kind: JobKind, change: &JobChange, now: Timestamp) -> Result<(), ActError> {
        let key = self.job_key(kind);
        let Some(job) = self.world.jobs.get(&key) else { return Err(ActError::Gone(format!("Job {key}"))) };
        let patch = match change {
            JobChange::Start => jobs::started(&job, now),
            JobChange::Complete { message } => jobs::completed(&job, now, message),
            JobChange::Fail { reason, message } => {
                self.explain(kind, &job, message).await?;
                jobs::failed(&job, now, reason, message)
            }
        };
        let api = self.world.api::<Job>(&key.namespace);
        let params = PatchParams::default();
        let patch = Patch::Merge(patch);
        let write = api.patch_status(&key.name, &params, &patch);
        match self.world.write(format!("update status of Job {key}"), write).await {
            Ok(job) => {
                self.world.jobs.put(job);
                Ok(())
            }
            // Deleted meanwhile: the watch may not have said so yet.
            Err(ClusterError::NotFound { .. }) => {
                self.world.jobs.remove_deleted(&key, &job.uid().unwrap_or_default());
                Err(ActError::Gone(format!("Job {key}")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The cause for `kubectl logs` and the event, before the Job says Failed: a crash between them repeats both.
    async fn explain(&self, kind: JobKind, job: &Job, cause: &str) -> Result<(), ActError> {
        let pod: Pod = cause_pod(job, &self.world.settings.image, cause);
        let api = self.world.api::<Pod>(&job.namespace().unwrap_or_default());
        let what = format!("create Pod {}", pod.name_any());
        match self.world.write(what, api.create(&PostParams::default(), &pod)).await {
            Ok(_) | Err(ClusterError::AlreadyExists { .. }) => {}
            // Without a pod the cause is still in the Job, the status and the event.
            Err(error @ (ClusterError::Forbidden { .. } | ClusterError::Invalid { .. })) => {
                tracing::warn!(%error, "no pod to print the cause");
            }
            Err(error) => return Err(error.into()),
        }
        step("cause-pod-created");
        let note = format!("{kind} Job {} of node {} failed: {cause}", job.name_any(), self.node);
        let happening = Happening {
            severity: Severity::Warning,
            reason: "ChassisMaintenanceJobFailed",
            action: "Maintenance",
            note,
        };
        // This one is waited for: whoever sees the Job fail looks for it next.
        self.world.events.publish(&reference(&*self.chassis), &happening).await;
        Ok(())
    }

    /// How long one attempt may take: never past the Job's own end.
    pub(super) fn attempt(&self, kind: JobKind) -> Duration {
        let job = self.world.jobs.get(&self.job_key(kind));
        let started = job.as_ref().and_then(|j| j.status.as_ref()).and_then(|s| s.start_time.as_ref()).map(|t| t.0);
        let seconds = job.as_ref().and_then(|j| j.spec.as_ref()).and_then(|s| s.active_deadline_seconds);
        let (Some(started), Some(seconds)) = (started, seconds) else { return databases::ATTEMPT };
        let left = started + SignedDuration::from_secs(seconds) - crate::cluster::call::now();
        let left = left.total(k8s_openapi::jiff::Unit::Millisecond).unwrap_or(0.0);
        Duration::from_millis(left.max(0.0) as u64).clamp(Duration::from_millis(500), databases::ATTEMPT)
    }

    pub(super) fn note_failure(&mut self, error: &DatabaseError) {
        let outcomes = &mut self.memory.outcomes;
        outcomes.attempts = outcomes.attempts.saturating_add(1);
        outcomes.last_error = Some(chain(error));
        outcomes.is_final = error.is_final();
    }

    async fn lower(&mut self, lowering: &Lowering) -> Result<(), ActError> {
        self.world.claim.check(&format!("lower the priority of {}", self.node))?;
        let result = match self.world.databases.link(&self.us()) {
            Some(link) => databases::lower(&link, lowering, self.attempt(JobKind::Evacuate)).await,
            None => Err(DatabaseError::NoCentral),
        };
        self.memory.moving.forget_reading();
        if let Err(error) = result {
            self.note_failure(&error);
            return Err(error.into());
        }
        self.memory.outcomes.last_error = None;
        tracing::info!(node = %self.node, id = %lowering.chassis, raised = lowering.raised.len(), "priority lowered");
        let note = format!("gateway ports of node {} move: its priority goes below the other chassis'", self.node);
        let (severity, reason) = (Severity::Normal, "GatewayPriorityLowered");
        self.announce(Happening { severity, reason, action: "Evacuate", note });
        Ok(())
    }

    async fn restore(&mut self, id: &SystemId) -> Result<(), ActError> {
        self.world.claim.check(&format!("restore the priority of {}", self.node))?;
        let result = match self.world.databases.link(&self.us()) {
            Some(link) => databases::restore(&link, id, databases::ATTEMPT).await,
            None => Err(DatabaseError::NoCentral),
        };
        self.memory.moving = Moving::default();
        result?;
        tracing::info!(node = %self.node, %id, "priority restored");
        // The next node's turn may begin.
        self.world.wake.wake_existing(&Key::Chassis(self.us()));
        let note = format!("the gateway priority of node {} is what it was", self.node);
        let (severity, reason) = (Severity::Normal, "GatewayPriorityRestored");
        self.announce(Happening { severity, reason, action: "Evacuate", note });
        Ok(())
    }

    /// Puts the names of the ports that will have no gateway on the Job, which lives exactly as long as the drain: once the
    /// rows are gone nothing in the databases tells them, and this process may end between that and its status.
    async fn name_ports_before(&self, link: &databases::Link, id: &SystemId) -> Result<(), ActError> {
        const MOST: usize = 1000;
        let key = self.job_key(JobKind::Evacuate);
        let Some(job) = self.world.jobs.get(&key).filter(|j| !jobs::phase(j).is_finished()) else { return Ok(()) };
        let mut ports = databases::fetch_sole_ports(link, id, self.attempt(JobKind::Evacuate)).await?;
        ports.truncate(MOST);
        if ports.is_empty() || ports == ports_on(&job) {
            return Ok(());
        }
        let api = self.world.api::<Job>(&key.namespace);
        let metadata = json!({
            "resourceVersion": job.metadata.resource_version,
            "annotations": { PORTS_ANNOTATION: ports.join("\n") },
        });
        let (params, patch) = (PatchParams::default(), Patch::Merge(json!({ "metadata": metadata })));
        let write = api.patch(&key.name, &params, &patch);
        self.world.jobs.put(self.world.write(format!("name ports on Job {key}"), write).await?);
        step("ports-named");
        Ok(())
    }

    /// What [`Self::name_ports_before`] of this drain wrote, in whichever process.
    fn ports_named(&self) -> Vec<String> {
        let job = self.world.jobs.get(&self.job_key(JobKind::Evacuate));
        job.filter(|j| !jobs::phase(j).is_finished()).map(|j| ports_on(&j)).unwrap_or_default()
    }

    async fn evacuate(&mut self, id: &SystemId) -> Result<(), ActError> {
        self.world.claim.check(&format!("evacuate {}", self.node))?;
        let us = self.us();
        let policy = self.chassis.spec.drain.as_ref().map(|d| d.last_gateway).unwrap_or_default();
        let first = self.memory.outcomes.evacuated.is_none();
        let result = match self.world.databases.link(&us) {
            Some(link) => {
                if first && let Err(error) = self.name_ports_before(&link, id).await {
                    if let ActError::Database(error) = &error {
                        self.note_failure(error);
                    }
                    return Err(error);
                }
                databases::evacuate(&link, id, policy == LastGateway::Hold, self.attempt(JobKind::Evacuate)).await
            }
            None => Err(DatabaseError::NoCentral),
        };
        match result {
            Ok(done) => {
                step("northbound-committed");
                tracing::info!(node = %self.node, %id, rows = done.rows, "evacuated");
                let outcomes = &mut self.memory.outcomes;
                outcomes.evacuated = Some(id.clone());
                outcomes.last_error = None;
                outcomes.attempts = 0;
                outcomes.removals = if first { 0 } else { outcomes.removals.saturating_add(1) };
                // Nothing was left to take away: another leader did it and may have died before it said which ports.
                let left = if first && done.rows == 0 { self.ports_named() } else { done.left_without };
                self.memory.sole = left.clone();
                if !left.is_empty() {
                    let note = format!(
                        "draining node {} leaves {} without any gateway: {}",
                        self.node,
                        super::decide::wanted::count(left.len(), "port"),
                        super::decide::wanted::some_of(&left)
                    );
                    let (severity, reason) = (Severity::Warning, "PortsWithoutGateway");
                    let happening = Happening { severity, reason, action: "Evacuate", note };
                    // Waited for: once the status says evacuated nobody would say it again.
                    self.world.events.publish(&reference(&*self.chassis), &happening).await;
                }
                if done.rows > 0 {
                    let note = format!("{} gateway rows of node {} left the Northbound database", done.rows, self.node);
                    let (severity, reason) = (Severity::Normal, "GatewayEvacuated");
                    self.announce(Happening { severity, reason, action: "Evacuate", note });
                }
                Ok(())
            }
            Err(error) => {
                self.note_failure(&error);
                Err(error.into())
            }
        }
    }

    async fn deregister(&mut self, id: &SystemId) -> Result<(), ActError> {
        self.world.claim.check(&format!("deregister {}", self.node))?;
        let result = match self.world.databases.link(&self.us()) {
            Some(link) => databases::deregister(&link, id, self.attempt(JobKind::ChassisDel)).await,
            None => Err(DatabaseError::NoCentral),
        };
        match result {
            Ok(rows) => {
                tracing::info!(node = %self.node, %id, rows, "deregistered");
                self.memory.outcomes.deregistered = Some(id.clone());
                self.memory.outcomes.last_error = None;
                let note = format!("{rows} Southbound rows of node {} ({id}) deleted", self.node);
                let (severity, reason) = (Severity::Normal, "ChassisDeregistered");
                self.announce(Happening { severity, reason, action: "ChassisDel", note });
                Ok(())
            }
            Err(error) => {
                self.note_failure(&error);
                Err(error.into())
            }
        }
    }
}
