//! Ending one daemon the gentle way: shared by the pre-stop hook and by the entrypoint that is sent SIGTERM.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::claim::{Holder, LockedClaim};
use super::daemon::Daemon;
use super::lock::LOCK_POLL;
use super::{HookError, Pod};
use crate::ovs::run::run;

/// How long a daemon may take to accept the command. The claim is locked meanwhile, so this also bounds how long the
/// other hook waits.
const EXIT_CALL: Duration = Duration::from_secs(3);
/// How long to wait for the end before the command is sent once more. A daemon that was still starting has not heard
/// the first one.
const BEFORE_ASKING_AGAIN: Duration = Duration::from_secs(5);
/// A daemon that refuses connections is still starting, or just ending: ask again soon.
const BEFORE_ASKING_A_DEAF_ONE: Duration = Duration::from_millis(100);

/// How a stop went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The daemon is gone; `released` says that it was the last one and the claim was given up.
    Gone { released: bool },
    /// Another pod holds the claim: nothing was touched.
    NotOurs,
}

/// Ends `daemon`, if this pod holds its claim, and gives up the claim when no daemon of it is left.
///
/// `patience_for_vswitchd` is how long `ovsdb-server` lets `ovs-vswitchd` go first. The second call finds the daemon
/// gone and changes nothing.
pub(super) async fn stop_daemon(
    pod: &Pod,
    daemon: Daemon,
    patience_for_vswitchd: Duration,
    bound: Duration,
) -> Result<Stopped, HookError> {
    let begun = Instant::now();
    let deadline = begun + bound;
    if daemon == Daemon::OvsdbServer
        && !wait_until_gone(pod, Daemon::OvsVswitchd, deadline.min(begun + patience_for_vswitchd)).await?
    {
        // A vswitchd that hangs is the other hook's business; without this bound it would take ovsdb-server's time as
        // well.
        tracing::warn!(
            "ovs-vswitchd is still there after {:.0} s; ovsdb-server goes first",
            begun.elapsed().as_secs_f64()
        );
    }
    if pod.folder.is_running(daemon)?
        && pod.claim(daemon).look()? == Holder::Own
        && let Err(error) = pod.warm_restart().before_stop(daemon, deadline.saturating_duration_since(begun)).await
    {
        // A stop that costs packets is better than none.
        tracing::warn!("{daemon}: its hand-over is not in order: {error}");
    }
    if daemon == Daemon::OvsVswitchd
        && pod.claim(daemon).look()? == Holder::Own
        && !pod.warm_restart().wait_until_resumed(deadline).await?
    {
        // Its entrypoint kills a daemon that cannot be resumed; whatever happens, a stop is asked for.
        tracing::warn!("{daemon}: its revalidators are still paused; it may not hear the command to exit");
    }
    if daemon == Daemon::OvsVswitchd
        && pod.folder.is_running(daemon)?
        && pod.claim(daemon).look()? == Holder::Own
        && let Err(error) = pod.warm_restart().note_tunnels().await
    {
        tracing::warn!(
            "{daemon}: it is not known which tunnels forward; its successor waits for their sessions: {error}"
        );
    }
    let mut last = "it was never asked".to_owned();
    loop {
        // What is sent under the claim's lock cannot reach a successor: the successor starts nothing before it has
        // taken the claim.
        let Ok(locked) = timeout_at(deadline, pod.lock_claim(daemon)).await else {
            return Err(HookError::StillRunning { daemon, waited: begun.elapsed(), last });
        };
        let mut locked = locked?;
        if locked.holder()? != Holder::Own {
            return Ok(Stopped::NotOurs);
        }
        if !pod.folder.is_running(daemon)? {
            return Ok(Stopped::Gone { released: release_if_last(pod, daemon, &mut locked)? });
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = run(&daemon.exit_call(&pod.dirs, EXIT_CALL.min(left))).await;
        drop(locked);
        let ask_again = match answer {
            Ok(_) => {
                last = "it accepted the command to exit".to_owned();
                BEFORE_ASKING_AGAIN
            }
            Err(error) => {
                last = error.to_string();
                BEFORE_ASKING_A_DEAF_ONE
            }
        };
        let gone = wait_until_gone(pod, daemon, deadline.min(Instant::now() + ask_again)).await?;
        if !gone && Instant::now() >= deadline {
            return Err(HookError::StillRunning { daemon, waited: begun.elapsed(), last });
        }
    }
}

/// Gives up the claim when the daemon that ended was the last one beneath it.
pub(super) fn release_if_last(pod: &Pod, daemon: Daemon, locked: &mut LockedClaim) -> Result<bool, HookError> {
    for other in daemon.claim().daemons() {
        if pod.folder.is_running(*other)? {
            return Ok(false);
        }
    }
    Ok(locked.give_up()?)
}

/// Waits for the daemon's lock, which the daemon's own process holds to its very end. A vanished socket file would
/// prove nothing: the successor's may be there already.
async fn wait_until_gone(pod: &Pod, daemon: Daemon, deadline: Instant) -> Result<bool, HookError> {
    loop {
        if !pod.folder.is_running(daemon)? {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        sleep(LOCK_POLL).await;
    }
}
