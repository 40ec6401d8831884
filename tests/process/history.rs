//! What must hold in every version of every object that was ever written, whatever happened: checked on the recorder's whole history.
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::kube_api::{JOB, OVN_CHASSIS, OVN_CHASSIS_NODE};
use crate::harness::monitor::RowMonitor;
use crate::harness::recorder::Version;
use crate::harness::world::{World, job_has, record_in};

const NODE_ANNOTATION: &str = "ovn.openstack.c5c3.io/node";

fn is_true(value: &Value) -> bool {
    *value == json!(true)
}

fn kind_of(job: &Value, chassis: &str) -> String {
    let name = job["metadata"]["name"].as_str().unwrap_or_default();
    let rest = name.strip_prefix(&format!("{chassis}-")).unwrap_or(name);
    rest.rsplit_once('-').map_or(rest, |(kind, _)| kind).to_owned()
}

fn annotation(object: &Value, key: &str) -> String {
    object["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned()
}

/// The state of the cluster as the history is walked from its first version on.
#[derive(Default)]
struct Walk {
    chassis: Value,
    /// All versions of the OVNChassis so far.
    reports: Vec<(u64, Value)>,
    nodes: BTreeMap<String, Value>,
    /// The settings under which each node was to be drained so far.
    drains: BTreeMap<String, Vec<Value>>,
    jobs: BTreeMap<String, Value>,
    /// resourceVersion of a Job's first version, by uid.
    created: BTreeMap<String, u64>,
    broken: Vec<String>,
    /// The place in the history of the first of them.
    first_broken: Option<u64>,
}

impl Walk {
    fn complain(&mut self, version: &Version, what: String) {
        self.broken.push(format!("at version {}: {what}", version.resource_version()));
        self.first_broken.get_or_insert(version.resource_version());
    }

    fn report(&mut self, version: &Version) {
        let before = std::mem::replace(&mut self.chassis, version.object.clone());
        self.reports.push((version.resource_version(), version.object.clone()));
        let names = [&before, &version.object]
            .into_iter()
            .flat_map(|o| o["status"]["nodes"].as_array().cloned().unwrap_or_default())
            .map(|n| n["name"].as_str().unwrap_or_default().to_owned());
        for node in names.collect::<std::collections::BTreeSet<_>>() {
            let (old, new) = (
                record_in(&before, &node).unwrap_or(&Value::Null).clone(),
                record_in(&version.object, &node).unwrap_or(&Value::Null).clone(),
            );
            if is_true(&new["gateway"]) && is_true(&new["gatewayEvacuated"]) {
                self.complain(version, format!("{node} is a gateway and evacuated at once"));
            }
            if is_true(&old["gateway"]) && !is_true(&new["gateway"]) && !is_true(&new["gatewayEvacuated"]) {
                self.complain(version, format!("gateway of {node} went away without gatewayEvacuated: {old} -> {new}"));
            }
            if !is_true(&old["gatewayEvacuated"]) && is_true(&new["gatewayEvacuated"]) && !is_true(&old["gateway"]) {
                self.complain(version, format!("gatewayEvacuated of {node} appeared alone: {old} -> {new}"));
            }
        }
    }

    fn settings(&mut self, version: &Version) {
        let name = version.name().to_owned();
        if version.deleted {
            self.nodes.remove(&name);
            return;
        }
        let new = &version.object;
        let old = self.nodes.insert(name.clone(), new.clone()).unwrap_or(Value::Null);
        if is_true(&new["spec"]["evacuate"]) {
            self.drains.entry(name.clone()).or_default().push(new["spec"]["configHash"].clone());
        }
        if is_true(&new["spec"]["evacuate"]) && !is_true(&old["spec"]["evacuate"]) {
            let earlier =
                self.jobs.values().filter(|j| annotation(j, NODE_ANNOTATION) == name && job_has(j, "Complete"));
            let met: Vec<String> =
                earlier.map(|j| kind_of(j, &self.chassis_name())).filter(|k| k == "evacuate").collect();
            if !met.is_empty() {
                self.complain(
                    version,
                    format!("a new drain of {name} began while the Complete Job of an earlier one was there"),
                );
            }
        }
    }

    fn chassis_name(&self) -> String {
        self.chassis["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    }

    fn job(&mut self, version: &Version) {
        let job = &version.object;
        let (uid, node) =
            (job["metadata"]["uid"].as_str().unwrap_or_default().to_owned(), annotation(job, NODE_ANNOTATION));
        if version.deleted {
            self.jobs.remove(&uid);
            return;
        }
        let first = *self.created.entry(uid.clone()).or_insert(version.resource_version());
        let old = self.jobs.insert(uid, job.clone()).unwrap_or(Value::Null);
        let kind = kind_of(job, &self.chassis_name());
        let started = |j: &Value| j["status"]["startTime"].is_string();
        let record = record_in(&self.chassis, &node).cloned().unwrap_or(Value::Null);
        if kind == "chassis-del" && started(job) && !started(&old) && is_true(&record["gateway"]) {
            self.complain(version, format!("chassis-del of {node} started before its evacuation: {record}"));
        }
        if !job_has(job, "Complete") || job_has(&old, "Complete") {
            return;
        }
        // A Job that was there before its gateway's ports had moved began with the settings of before: it names its own.
        let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
        let complete = conditions.into_iter().find(|c| c["type"] == "Complete");
        let hash = complete.and_then(|c| c["message"].as_str()?.rsplit(' ').next()).map(str::to_owned);
        let is_of_a_drain = |h: &str| self.drains.get(&node).is_some_and(|all| all.iter().any(|one| one == h));
        if kind == "apply" && !hash.as_deref().is_some_and(is_of_a_drain) {
            self.complain(version, format!("Job apply of {node} is Complete with the settings of no drain: {hash:?}"));
        }
        let shows_result = |report: &Value| {
            let record = record_in(report, &node).unwrap_or(&Value::Null);
            match kind.as_str() {
                "evacuate" => is_true(&record["gatewayEvacuated"]),
                "chassis-del" => record.is_null(),
                _ => hash.as_deref().is_some_and(|h| record["configHash"] == h),
            }
        };
        // Another transition may have come in between, so any report since the Job's creation (or the one that stood then) counts.
        let standing = self.reports.iter().rposition(|(at, _)| *at < first).unwrap_or(0);
        if !self.reports[standing.min(self.reports.len())..].iter().any(|(_, report)| shows_result(report)) {
            self.complain(
                version,
                format!("Job {kind} of {node} is Complete and no status shows its result; record {record}"),
            );
        }
    }
}

/// Panics with every rule that any version of the history breaks.
#[track_caller]
pub fn assert_holds(world: &World) {
    let chassis = world.chassis_object();
    if let Some(version) = chassis["metadata"]["resourceVersion"].as_str() {
        world.recorder.catch_up(OVN_CHASSIS, &world.chassis, version);
    }
    let mut walk = Walk::default();
    let history = world.recorder.history();
    for version in &history {
        match version.kind {
            OVN_CHASSIS if version.name() == world.chassis && !version.deleted => walk.report(version),
            OVN_CHASSIS_NODE => walk.settings(version),
            JOB => walk.job(version),
            _ => {}
        }
    }
    if let Some(first) = walk.first_broken {
        show_what_led_to(&history, first);
    }
    assert!(
        walk.broken.is_empty(),
        "{} of {} versions break a rule:\n{}",
        walk.broken.len(),
        history.len(),
        walk.broken.join("\n")
    );
}

/// The versions before the first broken rule, a line each.
fn show_what_led_to(history: &[Version], first: u64) {
    const SHOWN: usize = 40;
    let at = history.iter().position(|v| v.resource_version() == first).unwrap_or_default();
    for version in &history[at.saturating_sub(SHOWN)..=at] {
        let object = &version.object;
        let what = match version.kind {
            OVN_CHASSIS => &object["status"]["nodes"],
            OVN_CHASSIS_NODE => &object["spec"],
            JOB => &object["status"]["conditions"],
            _ => &object["metadata"]["labels"],
        };
        let gone = if version.deleted { " deleted" } else { "" };
        eprintln!("{} {} {}{gone}: {what}", version.resource_version(), version.kind.kind, version.name());
    }
}

/// `gatewayEvacuated` is never seen before the Northbound holds no row of the chassis: compares the recorder's moments with those of monitors on the two tables.
#[track_caller]
pub fn assert_confirmed_first(world: &World, monitors: &[&RowMonitor]) -> usize {
    let (mut before, mut confirmed) = (Value::Null, 0);
    for version in world.recorder.of(OVN_CHASSIS, &world.chassis) {
        for record in version.object["status"]["nodes"].as_array().into_iter().flatten() {
            let was = record_in(&before, record["name"].as_str().unwrap_or_default())
                .is_some_and(|r| is_true(&r["gatewayEvacuated"]));
            if was || !is_true(&record["gatewayEvacuated"]) {
                continue;
            }
            confirmed += 1;
            // Since the drain began the table must have been without its rows at some moment: a writer that puts rows back
            // after that moment and before the status is no fault of the order, and is found and removed again.
            let node = record["name"].as_str().unwrap_or_default();
            let begun = drain_began(world, node, version.at);
            for monitor in monitors {
                // The two watches arrive by different ways and their lag on a loaded machine is the test's own, so an emptied table may be seen this much later.
                // That the order is no accident is shown where the Northbound stands still and nothing is ever confirmed (row 5).
                let seen = version.at + Duration::from_millis(500);
                let held = |at: Instant| monitor.values_at(at).iter().filter(|v| **v == record["systemID"]).count();
                let mut moments: Vec<Instant> = monitor.changes().iter().map(|c| c.at).collect();
                moments.retain(|at| *at > begun && *at <= seen);
                let confirmed = std::iter::once(version.at).chain(moments).any(|at| held(at) == 0);
                assert!(
                    confirmed,
                    "the status of {} says evacuated while the Northbound still holds its rows",
                    record["name"]
                );
            }
        }
        before = version.object;
    }
    confirmed
}

/// When the drain that was on its way at `moment` was asked for: the first of the last versions in a row that ask for it.
fn drain_began(world: &World, node: &str, moment: Instant) -> Instant {
    let versions = world.recorder.of(OVN_CHASSIS_NODE, node);
    let before: Vec<_> = versions.iter().filter(|v| v.at <= moment).collect();
    let asking = before.iter().rev().take_while(|v| is_true(&v.object["spec"]["evacuate"]));
    asking.last().map_or(moment, |v| v.at)
}
