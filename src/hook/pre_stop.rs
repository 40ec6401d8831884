//! The pre-stop hook of one daemon.

use std::process::ExitCode;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::claim::Holder;
use super::daemon::Daemon;
use super::lock::{LOCK_POLL, StopMark};
use super::stop::{Stopped, stop_daemon};
use super::{HookError, NodeArgs, Pod};

/// All of the hook. The pod has 60 seconds; the rest is for SIGTERM and for the agent, which ends last.
const HOOK_BOUND: Duration = Duration::from_secs(40);
/// How much of it `ovsdb-server` spends on letting `ovs-vswitchd` go first.
const PATIENCE_FOR_VSWITCHD: Duration = Duration::from_secs(25);

/// `ovn-chassis hook pre-stop`.
#[derive(Debug, Clone, clap::Args)]
pub struct PreStopArgs {
    /// The daemon of this container
    daemon: Daemon,
    /// Upper bound of the whole hook, in seconds
    #[arg(long, default_value_t = HOOK_BOUND.as_secs(), value_parser = clap::value_parser!(u64).range(1..=600), value_name = "SECONDS")]
    within: u64,
    #[command(flatten)]
    node: NodeArgs,
}

/// Runs the hook.
pub(super) async fn run(args: PreStopArgs) -> Result<ExitCode, HookError> {
    let PreStopArgs { daemon, within, node } = args;
    let bound = Duration::from_secs(within);
    let begun = Instant::now();
    let pod = Pod::open(node)?;
    // A standby leaves without a trace: it has nothing to stop, and the sockets it can see are another pod's.
    if pod.claim(daemon).look()? != Holder::Own {
        tracing::info!("{daemon}: another pod holds the claim; nothing to stop");
        return Ok(ExitCode::SUCCESS);
    }
    // The hook is a process of the pod: as long as it works, the pod's claim is no orphan.
    let _member = pod.folder.join(&pod.uid)?;
    let mut mark = pod.folder.stop_mark(daemon)?;
    if !lock_mark(&mark, begun + bound).await? {
        return Err(HookError::StillRunning {
            daemon,
            waited: begun.elapsed(),
            last: "another run of this hook works on it".to_owned(),
        });
    }
    {
        // Under the claim's lock, so that the entrypoint has either started the daemon already or will see the mark
        // and not start it.
        let mut locked = pod.lock_claim(daemon).await?;
        if locked.holder()? != Holder::Own {
            return Ok(ExitCode::SUCCESS);
        }
        mark.set(Some(&pod.uid))?;
    }
    let left = bound.saturating_sub(begun.elapsed());
    match stop_daemon(&pod, daemon, PATIENCE_FOR_VSWITCHD.min(left.mul_f64(0.6)), left).await? {
        Stopped::Gone { released } => {
            let claim = if released { "; the claim is given up" } else { "" };
            tracing::info!("{daemon}: gone after {:.2} s{claim}", begun.elapsed().as_secs_f64());
        }
        Stopped::NotOurs => tracing::info!("{daemon}: the claim has passed on; nothing to stop"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for another run of the same hook to end.
async fn lock_mark(mark: &StopMark, deadline: Instant) -> Result<bool, HookError> {
    loop {
        if mark.try_lock()? {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        sleep(LOCK_POLL).await;
    }
}
