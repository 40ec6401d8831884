//! The agent while its pod is the active one: observe, decide, act, report, whenever something changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::{Notify, watch};

use super::AgentError;
use super::act::{Pace, Written, write};
use super::decide::{DatabaseState, Decision, Inputs, Memory, Report, decide};
use super::handover::Handover;
use super::metrics::{AgentMetrics, Outcome};
use super::observe::{LocalDatabase, Probes, follow_database, probe_daemons, read_system_id_file};
use super::report::keep_status;
use super::settings::Settings;
use super::warm_restart::keep;
use crate::api::OVNChassisNode;
use crate::cluster::watch::{Absent, follow};
use crate::cluster::{Cache, ObjectKey};
use crate::hook::lock::LockError;
use crate::ops::Health;
use crate::ovs::vsctl::DatabaseChange;
use crate::ovsdb::View;

/// A database that is away for less than this is a restart and no news.
const AWAY_IS_NEWS: Duration = Duration::from_secs(5);
/// How long the database may take to show what was written, before it is written again.
const CONFIRM_WITHIN: Duration = Duration::from_secs(2);

/// Runs for as long as the caller lets it.
pub async fn work(
    settings: &Settings,
    client: Client,
    handover: &Handover,
    health: &Health,
    metrics: &AgentMetrics,
) -> Result<(), AgentError> {
    let (_database, view) = follow_database(&settings.dirs).await?;
    let api: Api<OVNChassisNode> = Api::namespaced(client, &settings.namespace);
    let key = ObjectKey::new(&settings.namespace, &settings.node_name);
    let (object_changes, object_changed) = watch::channel(0_u64);
    let cache = Cache::new(move |_: Option<&OVNChassisNode>, _: Option<&OVNChassisNode>| {
        object_changes.send_modify(|count| *count = count.wrapping_add(1));
    });
    let (publish_probes, probes) = watch::channel(Probes::unknown());
    let (publish_report, reports) = watch::channel(None);
    let look = Arc::new(Notify::new());
    let worker = Worker {
        settings,
        handover,
        health,
        metrics,
        key: key.clone(),
        cache: cache.clone(),
        system_id_file: settings.system_id_file.clone(),
        memory: Memory::default(),
        pace: Pace::default(),
        fault: None,
        written: None,
        last_seen: None,
        away_since: None,
        publish_report,
    };
    let restarts = handover.warm_restart(&settings.dirs);
    let only_this_node =
        watcher::Config::default().fields(&format!("metadata.name={}", settings.node_name)).page_size(1);
    tokio::select! {
        never = follow(api.clone(), only_this_node, cache.clone(), Absent::Wait) => match never {},
        never = keep_status(api, key, settings.pod.clone(), cache, object_changed.clone(), reports, metrics.clone()) => match never {},
        () = probe_daemons(settings.dirs.clone(), look.clone(), publish_probes) => Err(AgentError::Ended("the probes")),
        never = keep(restarts, view.clone(), handover, look.clone()) => match never {},
        result = worker.run(view.clone(), object_changed, probes, look) => result,
    }
}

struct Worker<'a> {
    settings: &'a Settings,
    handover: &'a Handover,
    health: &'a Health,
    metrics: &'a AgentMetrics,
    key: ObjectKey,
    cache: Cache<OVNChassisNode>,
    system_id_file: Option<PathBuf>,
    memory: Memory,
    pace: Pace,
    /// Why the last write failed.
    fault: Option<String>,
    /// What was written last and until when the database may take to show it.
    written: Option<(DatabaseChange, Instant)>,
    last_seen: Option<Arc<LocalDatabase>>,
    away_since: Option<Instant>,
    publish_report: watch::Sender<Option<Report>>,
}

/// What one look at the database gave.
struct Look {
    database: Option<Arc<LocalDatabase>>,
    fault: String,
    last_seen: Option<Arc<LocalDatabase>>,
}

impl Worker<'_> {
    async fn run(
        mut self,
        mut view: View,
        mut object_changed: watch::Receiver<u64>,
        mut probes: watch::Receiver<Probes>,
        look: Arc<Notify>,
    ) -> Result<(), AgentError> {
        loop {
            object_changed.mark_unchanged();
            let answers = probes.borrow_and_update().clone();
            let wake = self.turn(&view, &answers).await?;
            tokio::select! {
                alive = view.changed() => {
                    if !alive {
                        return Err(AgentError::Ended("the database client"));
                    }
                    // ovs-vswitchd writes its version when it starts, and a restart of the server takes it away for a
                    // moment.
                    look.notify_one();
                }
                changed = object_changed.changed() => changed.map_err(|_| AgentError::Ended("the watch"))?,
                changed = probes.changed() => changed.map_err(|_| AgentError::Ended("the probes"))?,
                () = sleep_until(wake) => {}
            }
        }
    }

    /// One pass. Returns when to make the next one even if nothing changes.
    async fn turn(&mut self, view: &View, probes: &Probes) -> Result<Option<Instant>, AgentError> {
        let now = Instant::now();
        let look = self.look(view, now);
        let Some(object) = self.cache.get(&self.key) else {
            let state =
                if self.cache.is_synced() { "there is no OVNChassisNode for this node" } else { "not read yet" };
            self.health.set("specification", Err(state.to_owned()));
            return Ok(None);
        };
        self.health.set("specification", Ok(()));
        self.mirror_grants(&object)?;
        let generation = object.metadata.generation.unwrap_or_default();
        let system_id_file = match &look.database {
            Some(database) if !database.external_ids.contains_key("system-id") => {
                self.system_id_file.as_deref().and_then(read_system_id_file)
            }
            _ => None,
        };
        let flow_restore_overdue = self.handover.is_flow_restore_overdue(&self.settings.dirs);
        let decide_now = |memory: &Memory, fault: Option<&str>| {
            decide(&Inputs {
                generation,
                spec: &object.spec,
                database: match &look.database {
                    Some(database) => DatabaseState::Known(database),
                    None => DatabaseState::Away { fault: &look.fault, last: look.last_seen.as_deref() },
                },
                system_id_file: system_id_file.as_deref(),
                encap_ip: &self.settings.encap_ip,
                probes,
                flow_restore_overdue,
                fault,
                memory,
            })
        };
        let decision = decide_now(&self.memory, self.fault.as_deref());
        if decision.change.is_empty() {
            self.fault = None;
            self.written = None;
            self.memory = self.memory.after(&decision, false);
            let wake = self.report_after_a_restart(&look, decision.report, now);
            return Ok(wake);
        }
        if let Some(wait) = self.too_early(&decision, now) {
            return Ok(Some(wait));
        }
        let begun = Instant::now();
        match write(&self.settings.dirs, &decision.change, self.handover).await {
            Written::Done => {
                self.note_success(&decision, begun);
                Ok(Some(begun + CONFIRM_WITHIN))
            }
            // The caller notices the loss of the claim by itself and ends this work.
            Written::NotOurs => Ok(None),
            Written::Failed(error) => {
                tracing::warn!("cannot write {}: {error}", decision.change);
                self.metrics.wrote(Outcome::Failed);
                self.pace.note(Instant::now(), false, decision.is_repair);
                self.written = None;
                let fault = error.to_string();
                let report = decide_now(&self.memory, Some(&fault)).report;
                self.fault = Some(fault);
                self.send(report);
                Ok(self.pace.wait_until(Instant::now()))
            }
        }
    }

    /// Reads the view and remembers when it was last there.
    fn look(&mut self, view: &View, now: Instant) -> Look {
        let (database, fault) = match view.current().map(|replica| LocalDatabase::parse(&replica)) {
            Some(Ok(database)) => (Some(Arc::new(database)), String::new()),
            Some(Err(error)) => (None, format!("its contents make no sense: {error}")),
            None => (None, format!("no connection to {}", self.settings.dirs.db_socket().display())),
        };
        match &database {
            Some(database) => {
                self.last_seen = Some(database.clone());
                self.away_since = None;
                self.health.set("database", Ok(()));
            }
            None => {
                self.away_since.get_or_insert(now);
                self.health.set("database", Err(fault.clone()));
            }
        }
        Look { database, fault, last_seen: self.last_seen.clone() }
    }

    fn mirror_grants(&self, object: &OVNChassisNode) -> Result<(), LockError> {
        let grants = object.spec.handover.as_ref().map(|handover| handover.grants.as_slice()).unwrap_or_default();
        if self.handover.may_act()? && self.handover.mirror_grants(grants)? {
            tracing::info!(
                "pods that may take over: {}",
                if grants.is_empty() { "none".into() } else { grants.join(", ") }
            );
        }
        Ok(())
    }

    /// Reports, unless the database is away for so short a time that it is only being restarted.
    fn report_after_a_restart(&self, look: &Look, report: Report, now: Instant) -> Option<Instant> {
        let news_at = self.away_since.map(|since| since + AWAY_IS_NEWS);
        match (&look.database, news_at) {
            (None, Some(at)) if now < at => Some(at),
            _ => {
                self.send(report);
                None
            }
        }
    }

    /// When this change may be written, if not now.
    fn too_early(&mut self, decision: &Decision, now: Instant) -> Option<Instant> {
        if let Some((change, until)) = &self.written {
            if *change == decision.change && now < *until {
                return Some(*until);
            }
            if *change == decision.change {
                // Done by the tool's word, and not there: somebody else writes against us.
                self.pace.note(now, false, decision.is_repair);
                self.written = None;
            }
        }
        let wait = self.pace.wait_until(now)?;
        if decision.is_repair || self.fault.is_some() {
            self.send(decision.report.clone());
            return Some(wait);
        }
        self.pace.forget();
        None
    }

    fn note_success(&mut self, decision: &Decision, begun: Instant) {
        let milliseconds = begun.elapsed().as_millis();
        if decision.is_repair {
            tracing::warn!(
                "drift repaired, set back after a change on the node: {} ({milliseconds} ms)",
                decision.change
            );
            self.metrics.repaired();
        } else {
            tracing::info!("written: {} ({milliseconds} ms)", decision.change);
        }
        self.metrics.wrote(Outcome::Done);
        self.memory = self.memory.after(decision, true);
        self.pace.note(Instant::now(), true, decision.is_repair);
        self.fault = None;
        self.written = Some((decision.change.clone(), Instant::now() + CONFIRM_WITHIN));
    }

    fn send(&self, report: Report) {
        self.metrics.show(&report);
        self.publish_report.send_if_modified(|current| {
            let differs = current.as_ref() != Some(&report);
            *current = Some(report);
            differs
        });
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake.into()).await,
        None => std::future::pending().await,
    }
}
