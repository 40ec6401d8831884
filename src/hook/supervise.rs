//! Process 1 while its daemon runs: reaps, turns SIGTERM into a gentle stop, and stays until the hook has done its
//! work.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};

use super::daemon::Daemon;
use super::lock::LOCK_POLL;
use super::revalidators::{Health, Revalidators};
use super::stop::{release_if_last, stop_daemon};
use super::tunnels::Tunnels;
use super::warm_restart::Watchdog;
use super::{HookError, Pod};

/// How long a daemon that nobody stopped before SIGTERM gets. After a hook that used up its 40 seconds the pod has 20
/// left; this leaves room for the agent.
const AFTER_SIGTERM: Duration = Duration::from_secs(10);
/// How long to stay for a hook that runs. The hook has a shorter bound of its own.
const LINGER_FOR_HOOK: Duration = Duration::from_secs(45);
/// How long to stay for a hook that may be about to begin, after the daemon was told to end by somebody else.
const PATIENCE_FOR_HOOK: Duration = Duration::from_secs(5);
/// How long to stay for kubelet's SIGTERM after the hook has ended.
const LINGER_FOR_SIGTERM: Duration = Duration::from_secs(5);

/// The signals that an entrypoint answers to.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    child: Signal,
    _hangup: Signal,
}

impl Signals {
    /// Installs the handlers. SIGHUP is caught and ignored: it means nothing here and would end a process that is not
    /// process 1.
    pub(super) fn install() -> Result<Self, HookError> {
        let install = |kind| signal(kind).map_err(|source| HookError::Setup { what: "a signal handler", source });
        Ok(Self {
            terminate: install(SignalKind::terminate())?,
            interrupt: install(SignalKind::interrupt())?,
            quit: install(SignalKind::quit())?,
            child: install(SignalKind::child())?,
            _hangup: install(SignalKind::hangup())?,
        })
    }

    /// Returns when somebody asks this container to end.
    pub(super) async fn asked_to_end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.quit.recv() => {}
        }
    }
}

/// What is looked at while `ovs-vswitchd` runs. In the loop of process 1 and not beside it: nobody may reap its tools
/// meanwhile, and nothing may come between a pause and what is remembered of it.
pub(super) struct Watch {
    flag: Watchdog,
    next_look_at_flag: Instant,
    revalidators: Revalidators,
    tunnels: Tunnels,
}

impl Watch {
    pub(super) fn new(flag: Watchdog, revalidators: Revalidators, tunnels: Tunnels) -> Self {
        Self { flag, next_look_at_flag: Instant::now(), revalidators, tunnels }
    }

    async fn look(&mut self) -> Health {
        if Instant::now() >= self.next_look_at_flag {
            self.flag.look().await;
            self.next_look_at_flag = Instant::now() + Watchdog::EVERY;
        }
        self.tunnels.look().await;
        self.revalidators.look().await
    }
}

/// Runs until the daemon has ended and nobody needs this process any more.
pub(super) async fn supervise(
    pod: &Pod,
    daemon: Daemon,
    mut child: Child,
    mut signals: Signals,
    mut watch: Option<Watch>,
) -> Result<ExitCode, HookError> {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let status = loop {
        enum Event {
            Ended(std::io::Result<ExitStatus>),
            AskedToEnd,
            ChildChanged,
            Look,
        }
        let event = tokio::select! {
            status = child.wait() => Event::Ended(status),
            _ = signals.child.recv() => Event::ChildChanged,
            () = async {
                tokio::select! {
                    _ = signals.terminate.recv() => {}
                    _ = signals.interrupt.recv() => {}
                    _ = signals.quit.recv() => {}
                }
            } => Event::AskedToEnd,
            () = sleep(Revalidators::EVERY), if watch.is_some() => Event::Look,
        };
        match event {
            Event::Ended(status) => break status.map_err(|source| HookError::Wait { daemon, source })?,
            Event::ChildChanged => reap_orphans(pid),
            Event::Look => {
                if let Some(watch) = &mut watch
                    && watch.look().await == Health::Hangs
                {
                    kill_hung(daemon, &mut child);
                }
            }
            Event::AskedToEnd => {
                if let Some(watch) = &mut watch
                    && watch.revalidators.before_end().await == Health::Hangs
                {
                    kill_hung(daemon, &mut child);
                }
                end_on_signal(pod, daemon, &mut child).await?;
                return Ok(ExitCode::SUCCESS);
            }
        }
    };
    // The pause went with the daemon, and nobody has to wait for its end any more.
    drop(watch);
    if has_mark(pod, daemon, patience_after(status)).await? {
        tracing::info!("{daemon}: ended ({status}) on its hook's word");
        linger(pod, daemon, &mut signals).await?;
        return Ok(ExitCode::SUCCESS);
    }
    // The claim stays: kubelet starts this container again, in this pod.
    tracing::error!("{daemon}: ended by itself: {status}");
    Ok(exit_code(status))
}

/// Nothing else ends a daemon that is stuck in a resume. The kernel's flows stay, and so they do for its successor,
/// which starts with flow-restore-wait.
fn kill_hung(daemon: Daemon, child: &mut Child) {
    tracing::error!("{daemon}: killed, because it hangs; its container starts again");
    // Err: it has ended already, which is what is wanted.
    let _ = child.start_kill();
}

/// A daemon that crashed or was killed is started again at once. One that was told to end may belong to a pod that is
/// being deleted, whose hook kubelet is just starting in this container.
fn patience_after(status: ExitStatus) -> Duration {
    let told = status.success() || status.signal() == Some(nix::libc::SIGTERM);
    if told { PATIENCE_FOR_HOOK } else { Duration::ZERO }
}

/// Whether a pre-stop hook of this pod has begun, or begins within `patience`.
async fn has_mark(pod: &Pod, daemon: Daemon, patience: Duration) -> Result<bool, HookError> {
    let deadline = Instant::now() + patience;
    let mut mark = pod.folder.stop_mark(daemon)?;
    loop {
        if mark.is_of(&pod.uid)? {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        sleep(LOCK_POLL).await;
    }
}

/// SIGTERM with the daemon still running: no hook ran, or it did not succeed. The signal is never passed on, because
/// daemons of some versions take it for a final goodbye (flows wiped, Chassis row deleted). It becomes the same
/// gentle stop that the hook makes, and, should that fail, a SIGKILL, which leaves flows and row alone as well.
async fn end_on_signal(pod: &Pod, daemon: Daemon, child: &mut Child) -> Result<(), HookError> {
    tracing::info!("{daemon}: asked to end while the daemon runs");
    {
        let mut stop = std::pin::pin!(stop_daemon(pod, daemon, AFTER_SIGTERM.mul_f64(0.6), AFTER_SIGTERM));
        // A child that nobody waits for is a zombie, not a running daemon: its lock is free, so the stop does not
        // depend on this wait.
        if let Err(error) = (&mut stop).await {
            tracing::error!("{daemon}: {error}; it is killed");
        }
    }
    // Err: it has ended already, which is what is wanted.
    let _ = child.start_kill();
    let status = timeout(AFTER_SIGTERM, child.wait()).await;
    if let Ok(Ok(status)) = status {
        tracing::info!("{daemon}: ended ({status})");
    }
    let mut locked = pod.lock_claim(daemon).await?;
    release_if_last(pod, daemon, &mut locked)?;
    Ok(())
}

/// Stays until the pre-stop hook has ended and SIGTERM has come: a container whose process 1 leaves takes its running
/// hook with it, and kubelet calls that a failed hook.
pub(super) async fn linger(pod: &Pod, daemon: Daemon, signals: &mut Signals) -> Result<(), HookError> {
    let mark = pod.folder.stop_mark(daemon)?;
    let deadline = Instant::now() + LINGER_FOR_HOOK;
    while mark.hook_runs()? && Instant::now() < deadline {
        reap_orphans(None);
        sleep(LOCK_POLL).await;
    }
    // Kubelet sends SIGTERM right after the hook; one that came during the hook counts too.
    let _ = timeout(LINGER_FOR_SIGTERM, signals.asked_to_end()).await;
    Ok(())
}

/// Collects the processes that lost their parents, which process 1 inherits, and leaves the daemon to whoever waits
/// for it.
///
/// Only called while no tool of our own runs, so that nobody's exit status is taken away.
fn reap_orphans(daemon: Option<i32>) {
    loop {
        let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let pid = match waitid(Id::All, peek) {
            Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) => pid,
            Err(Errno::EINTR) => continue,
            _ => return,
        };
        if Some(pid.as_raw()) == daemon || waitpid(Pid::from_raw(pid.as_raw()), Some(WaitPidFlag::WNOHANG)).is_err() {
            return;
        }
    }
}

/// The daemon's own code, or 128 + the signal, as a shell says it. Never 0: a daemon that ends unasked is a failure.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    match u8::try_from(code) {
        Ok(0) | Err(_) => ExitCode::FAILURE,
        Ok(code) => ExitCode::from(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_daemon_that_was_told_to_end_is_waited_for_its_hook() {
        let after = |raw| patience_after(ExitStatus::from_raw(raw));
        assert_eq!(after(0), PATIENCE_FOR_HOOK);
        assert_eq!(after(nix::libc::SIGTERM), PATIENCE_FOR_HOOK);
        assert_eq!(after(nix::libc::SIGKILL), Duration::ZERO);
        assert_eq!(after(nix::libc::SIGSEGV), Duration::ZERO);
        assert_eq!(after(1 << 8), Duration::ZERO);
    }

    #[test]
    fn the_exit_code_is_the_daemons() {
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), ExitCode::from(3));
        assert_eq!(exit_code(ExitStatus::from_raw(9)), ExitCode::from(137));
        assert_eq!(exit_code(ExitStatus::from_raw(0)), ExitCode::FAILURE);
    }
}
