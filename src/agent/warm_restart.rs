//! Ends warm restarts as soon as what is observed allows it. While nothing is in flight this reads two short files
//! four times a second and asks nobody.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::sleep;

use super::decide::warm_restart::{Facts, Memory, Plan, WATCHED, Why, decide, is_time_for_flows, is_worth_a_look};
use super::handover::Handover;
use super::observe::LocalDatabase;
use crate::hook::daemon::Daemon;
use crate::hook::warm_restart::{FLAG_AT_MOST, WarmRestart, uptime};
use crate::ovs::appctl;
use crate::ovsdb::View;

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Longest wait for one answer of a daemon.
const ANSWER_BOUND: Duration = Duration::from_secs(2);

/// Runs for as long as the pod is the active one.
pub async fn keep(node: WarmRestart, view: View, handover: &Handover, probe: Arc<Notify>) -> Infallible {
    let mut memory = Memory::default();
    let mut notes = WATCHED.map(|daemon| node.read(daemon));
    loop {
        let begun = Instant::now();
        let now = WATCHED.map(|daemon| node.read(daemon));
        if now != notes {
            // A daemon ends or starts: what the one before last answered is no word about the next one.
            probe.notify_one();
            notes = now;
        }
        memory = turn(&node, &view, handover, memory).await;
        // A machine on which looks take long is not to do nothing else.
        sleep(LOOK_EVERY.max(begun.elapsed())).await;
    }
}

async fn turn(node: &WarmRestart, view: &View, handover: &Handover, memory: Memory) -> Memory {
    let Some(mut facts) = look(node, view) else { return memory };
    if !is_worth_a_look(&facts) || !handover.may_act().unwrap_or(false) {
        return Memory::default();
    }
    ask(node, &mut facts).await;
    let mut memory = memory.after(&facts);
    if is_time_for_flows(&facts, &memory) {
        facts.flows = node.look_at_flows().await.ok();
        // The ages are those of now: on a busy machine that is not the time at which this turn began.
        facts.now = uptime().unwrap_or(facts.now);
        memory = memory.after_flows(&facts);
    }
    act(node, decide(&facts, &memory), &facts).await;
    memory
}

/// What is known without asking anybody.
fn look(node: &WarmRestart, view: &View) -> Option<Facts> {
    let [vswitchd, controller] = WATCHED.map(|daemon| node.read(daemon));
    let database = view.current().and_then(|replica| LocalDatabase::parse(&replica).ok());
    Some(Facts {
        now: uptime()?,
        flag: database.map(|database| database.flow_restore_wait),
        vswitchd,
        controller,
        controller_runs: false,
        connected: false,
        rules: None,
        flows: None,
    })
}

async fn ask(node: &WarmRestart, facts: &mut Facts) {
    facts.controller_runs = node.folder.is_running(Daemon::OvnController).unwrap_or(false);
    let [vswitchd, controller] = WATCHED.map(|daemon| daemon.control_socket(&node.dirs));
    let (status, rules) = tokio::join!(
        appctl::connection_status(&controller, ANSWER_BOUND),
        appctl::count_rules(&vswitchd, ANSWER_BOUND)
    );
    facts.connected = status.is_ok_and(|status| status == "connected");
    facts.rules = rules.ok().flatten();
}

async fn act(node: &WarmRestart, plan: Plan, facts: &Facts) {
    let flows = match facts.flows {
        Some(flows) => format!("br-int has {} flows", flows.count),
        None => "br-int's flows were not looked at".to_owned(),
    };
    if let Some(why) = plan.release_flows {
        match node.release_flows(why == Why::Overdue).await {
            Ok(()) if why == Why::Overdue => {
                tracing::warn!("flow-restore-wait was on for {} s: taken away; {flows}", FLAG_AT_MOST.as_secs())
            }
            Ok(()) => tracing::info!("flow-restore-wait is over ({why:?}); {flows}"),
            Err(error) => tracing::error!("flow-restore-wait stays on: {error}"),
        }
    }
    if let Some(why) = plan.flows_arrived {
        match node.flows_arrived().await {
            Ok(()) => tracing::info!("ovn-controller's start is over ({why:?}); {flows}"),
            Err(error) => tracing::error!("ovn-controller's start cannot be noted as over: {error}"),
        }
    }
}
