//! Ends warm restarts as soon as what is observed allows it. While nothing is in flight this reads two short files
//! four times a second and asks nobody.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::decide::warm_restart::{Facts, Memory, Plan, WATCHED, Why, decide, is_worth_a_look};
use super::handover::Handover;
use super::observe::LocalDatabase;
use crate::hook::daemon::Daemon;
use crate::hook::warm_restart::{FLAG_AT_MOST, WarmRestart, uptime};
use crate::ovs::appctl;
use crate::ovsdb::View;

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Longest wait for one answer of `ovn-controller`.
const ANSWER_BOUND: Duration = Duration::from_secs(2);
/// After a look that took long, this many times as long is rested. Traffic of new connections waits meanwhile, so a
/// machine on which each look takes seconds must not rest for longer than it looks.
const REST: u32 = 1;

/// Runs for as long as the pod is the active one.
pub async fn keep(node: WarmRestart, view: View, handover: &Handover) -> Infallible {
    let mut memory = Memory::default();
    loop {
        let begun = Instant::now();
        memory = turn(&node, &view, handover, memory).await;
        sleep(LOOK_EVERY.max(begun.elapsed() * REST)).await;
    }
}

async fn turn(node: &WarmRestart, view: &View, handover: &Handover, memory: Memory) -> Memory {
    let Some(mut facts) = look(node, view) else { return memory };
    if !is_worth_a_look(&facts) || !handover.may_act().unwrap_or(false) {
        return Memory::default();
    }
    ask(node, &mut facts).await;
    let memory = memory.after(&facts);
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
        flows: None,
    })
}

async fn ask(node: &WarmRestart, facts: &mut Facts) {
    facts.controller_runs = node.folder.is_running(Daemon::OvnController).unwrap_or(false);
    let socket = Daemon::OvnController.control_socket(&node.dirs);
    let (status, flows) = tokio::join!(appctl::connection_status(&socket, ANSWER_BOUND), node.look_at_flows());
    facts.connected = status.is_ok_and(|status| status == "connected");
    facts.flows = flows.ok();
}

async fn act(node: &WarmRestart, plan: Plan, facts: &Facts) {
    let count = facts.flows.map_or(0, |flows| flows.count);
    if let Some(why) = plan.release_flows {
        match node.release_flows(why == Why::Overdue).await {
            Ok(()) if why == Why::Overdue => tracing::warn!(
                "flow-restore-wait was on for {} s: taken away; br-int has {count} flows",
                FLAG_AT_MOST.as_secs()
            ),
            Ok(()) => tracing::info!("flow-restore-wait is over ({why:?}); br-int has {count} flows"),
            Err(error) => tracing::error!("flow-restore-wait stays on: {error}"),
        }
    }
    if let Some(why) = plan.flows_arrived {
        match node.flows_arrived().await {
            Ok(()) => tracing::info!("ovn-controller's start is over ({why:?}); br-int has {count} flows"),
            Err(error) => tracing::error!("ovn-controller's start cannot be noted as over: {error}"),
        }
    }
}
