//! Restarts under which the kernel goes on forwarding: what the hooks, the entrypoints and the agent do for them, and
//! the watchdog that undoes it whatever happens.
//!
//! ```text
//! ovs-vswitchd      starts with flow-restore-wait: the kernel's flows stay until the bridge's tables are full again
//! ovn-controller    is noted as on its way until its flows are in, so that ovs-vswitchd does not restart meanwhile,
//!                   and its revalidators are paused for as long (see `revalidators`)
//! ```
//!
//! One short file for each of the two says what is in flight, so that whoever comes later can end it. The agent ends it
//! as soon as what it observes allows; process 1 of `ovs-vswitchd`'s container takes the flag away when its time is
//! over. Each step happens under one lock.

use std::fs::File;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::daemon::Daemon;
use super::lock::{LOCK_POLL, LockError, RunFolder, open, try_exclusive};
use crate::ovs::datapath::{self, FlowTable};
use crate::ovs::run::RunError;
use crate::ovs::rundir::RunDirs;
use crate::ovs::unixctl::UnixctlError;

/// `flow-restore-wait` is never on for longer.
pub const FLAG_AT_MOST: Duration = Duration::from_secs(60);
/// The flows of a started `ovn-controller` are not waited for any longer.
pub const ARRIVAL_AT_MOST: Duration = Duration::from_secs(20);
/// A successor that stands by starts within this; where none does, nobody waits for it.
const SUCCESSOR_WITHIN: Duration = Duration::from_secs(5);
/// How long one daemon's stop waits for the other's hand-over.
const PATIENCE_FOR_THE_OTHER: Duration = Duration::from_secs(20);
/// How long a step waits for another one. Each is a few short calls.
const STEP_BOUND: Duration = Duration::from_secs(10);
/// How often a stop looks whether the other daemon's hand-over is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A step could not be made.
#[derive(Debug, thiserror::Error)]
pub enum WarmRestartError {
    #[error(transparent)]
    Record(#[from] LockError),
    #[error(transparent)]
    Tool(#[from] RunError),
    #[error(transparent)]
    Control(#[from] UnixctlError),
}

/// How far a hand-over is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The old daemon is told to end; nothing has to be undone.
    Stopping,
    /// The new one starts: `flow-restore-wait` is on, or the flows of `ovn-controller` are not in yet.
    Held,
    /// It was held too long and was undone without the flows being in.
    Overdue,
}

/// One line of a hand-over's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandOver {
    pub phase: Phase,
    /// Since when, by the machine's uptime: a reboot ends every hand-over, and empties the folder as well.
    pub since: Duration,
}

impl HandOver {
    /// For how long. A time that has not come yet is one of before a reboot: over.
    pub fn age(&self, now: Duration) -> Duration {
        now.checked_sub(self.since).unwrap_or(Duration::MAX)
    }

    /// True while the other daemon should stay up.
    pub fn is_in_flight(&self, daemon: Daemon, now: Duration) -> bool {
        let bound = match (self.phase, daemon) {
            (Phase::Overdue, _) => return false,
            (Phase::Stopping, _) => SUCCESSOR_WITHIN,
            (Phase::Held, Daemon::OvnController) => ARRIVAL_AT_MOST,
            (Phase::Held, _) => FLAG_AT_MOST,
        };
        self.age(now) < bound
    }

    fn parse(text: &str) -> Option<Self> {
        let (phase, since) = text.trim().split_once(' ')?;
        let phase = match phase {
            "stopping" => Phase::Stopping,
            "held" => Phase::Held,
            "overdue" => Phase::Overdue,
            _ => return None,
        };
        Some(Self { phase, since: Duration::from_millis(since.parse().ok()?) })
    }

    fn text(self) -> String {
        let phase = match self.phase {
            Phase::Stopping => "stopping",
            Phase::Held => "held",
            Phase::Overdue => "overdue",
        };
        format!("{phase} {}\n", self.since.as_millis())
    }
}

/// The machine's uptime, which no clock change moves.
pub fn uptime() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    Duration::try_from_secs_f64(text.split_whitespace().next()?.parse().ok()?).ok()
}

/// The node as this module sees it.
#[derive(Debug, Clone)]
pub struct WarmRestart {
    pub dirs: RunDirs,
    pub folder: RunFolder,
}

impl WarmRestart {
    /// What is in flight for a daemon.
    pub fn read(&self, daemon: Daemon) -> Option<HandOver> {
        HandOver::parse(&std::fs::read_to_string(self.folder.hand_over_file(daemon)).ok()?)
    }

    fn write(&self, daemon: Daemon, hand_over: Option<HandOver>) -> Result<(), LockError> {
        if self.read(daemon) == hand_over {
            return Ok(());
        }
        let path = self.folder.hand_over_file(daemon);
        // Replaced as a whole: half a line would hide a flag that is on.
        let fresh = path.with_extension("hand-over.new");
        std::fs::write(&fresh, hand_over.map(HandOver::text).unwrap_or_default())
            .and_then(|()| std::fs::rename(&fresh, &path))
            .map_err(|source| LockError::Io { action: "write", path, source })
    }

    fn note(&self, daemon: Daemon, phase: Phase) -> Result<Duration, LockError> {
        let since = uptime().unwrap_or_default();
        self.write(daemon, Some(HandOver { phase, since }))?;
        Ok(since)
    }

    /// The lock of all steps. After its bound a step goes ahead without it: undoing must not hang on a process that
    /// is stuck.
    pub(super) async fn step(&self) -> Result<Option<File>, LockError> {
        let path = self.folder.warm_restart_lock();
        let file = open(&path)?;
        let deadline = Instant::now() + STEP_BOUND;
        while !try_exclusive(&file, &path)? {
            if Instant::now() >= deadline {
                return Ok(None);
            }
            sleep(LOCK_POLL).await;
        }
        Ok(Some(file))
    }

    /// Right before `ovs-vswitchd` starts: sets the flag, unless this is the node's first start. True when it is set.
    pub async fn hold_flows(&self) -> Result<bool, WarmRestartError> {
        let _step = self.step().await?;
        if !datapath::has_kernel_bridge(&self.dirs).await? {
            self.write(Daemon::OvsVswitchd, None)?;
            return Ok(false);
        }
        // First the note, then the deed: a note without a deed is undone as well.
        self.note(Daemon::OvsVswitchd, Phase::Held)?;
        if let Err(error) = datapath::set_flow_restore_wait(&self.dirs).await {
            // The tool may have done it and not said so.
            return Err(error.into());
        }
        Ok(true)
    }

    /// Takes the flag away. `overdue` stays in the file, for the agent to report.
    pub async fn release_flows(&self, overdue: bool) -> Result<(), WarmRestartError> {
        let _step = self.step().await?;
        let before = self.read(Daemon::OvsVswitchd);
        if overdue {
            // Before the deed: the change of the database is what makes the agent look here.
            self.note(Daemon::OvsVswitchd, Phase::Overdue)?;
        }
        // A vswitchd that is away cannot take anything up; it finds the flag gone when it starts.
        let wait = self.folder.is_running(Daemon::OvsVswitchd)?;
        if let Err(error) = datapath::remove_flow_restore_wait(&self.dirs, wait).await {
            self.write(Daemon::OvsVswitchd, before)?;
            return Err(error.into());
        }
        if !overdue {
            self.write(Daemon::OvsVswitchd, None)?;
        }
        Ok(())
    }

    /// An entrypoint that set the flag and then did not start `ovs-vswitchd`.
    pub async fn give_up_flows(&self) -> Result<(), WarmRestartError> {
        let held = self.read(Daemon::OvsVswitchd).is_some_and(|hand_over| hand_over.phase == Phase::Held);
        if held && !self.folder.is_running(Daemon::OvsVswitchd)? {
            self.release_flows(false).await?;
        }
        Ok(())
    }

    /// Right before `ovn-controller` starts. The time is the start's name.
    pub async fn expect_flows(&self) -> Result<Duration, WarmRestartError> {
        let _step = self.step().await?;
        Ok(self.note(Daemon::OvnController, Phase::Held)?)
    }

    /// Its flows are in, or are not waited for any longer.
    pub async fn flows_arrived(&self) -> Result<(), WarmRestartError> {
        let _step = self.step().await?;
        Ok(self.write(Daemon::OvnController, None)?)
    }

    /// Before a daemon is told to end: lets a hand-over of the other one finish, within a bound, and notes this one.
    /// Whoever notes first goes first, so neither waits for the other for ever.
    pub async fn before_stop(&self, daemon: Daemon, bound: Duration) -> Result<(), WarmRestartError> {
        let other = match daemon {
            Daemon::OvsdbServer => return Ok(()),
            Daemon::OvsVswitchd => Daemon::OvnController,
            Daemon::OvnController => Daemon::OvsVswitchd,
        };
        let deadline = Instant::now() + bound.mul_f64(0.5).min(PATIENCE_FOR_THE_OTHER);
        let mut said = false;
        loop {
            let step = self.step().await?;
            let now = uptime().unwrap_or_default();
            let in_flight = self.read(other).is_some_and(|hand_over| hand_over.is_in_flight(other, now));
            if !in_flight || Instant::now() >= deadline {
                self.note(daemon, Phase::Stopping)?;
                return Ok(());
            }
            drop(step);
            if !said {
                tracing::info!("{daemon}: waits for the hand-over of {other}");
                said = true;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// The flows of the integration bridge, if they can be read.
    pub async fn look_at_flows(&self) -> Result<FlowTable, RunError> {
        datapath::look_at_flows(&self.dirs).await
    }
}

/// What process 1 of `ovs-vswitchd`'s container does twice a second: nothing, until something is held for too long.
#[derive(Debug, Clone)]
pub(super) struct Watchdog {
    pub(super) node: WarmRestart,
    pub(super) flag_at_most: Duration,
}

impl Watchdog {
    /// How often.
    pub(super) const EVERY: Duration = Duration::from_millis(500);

    /// Undoes what is held for too long. What fails is tried again at the next look.
    pub(super) async fn look(&self) {
        let Some(now) = uptime() else { return };
        let held = self.node.read(Daemon::OvsVswitchd).filter(|hand_over| hand_over.phase == Phase::Held);
        if held.is_some_and(|hand_over| hand_over.age(now) >= self.flag_at_most) {
            let bound = self.flag_at_most.as_secs_f64();
            match self.node.release_flows(true).await {
                Ok(()) => tracing::warn!("flow-restore-wait was on for {bound:.0} s: the watchdog took it away"),
                Err(error) => tracing::error!("flow-restore-wait is on for {bound:.0} s and stays: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_over_is_one_line_and_anything_else_is_none() {
        for phase in [Phase::Stopping, Phase::Held, Phase::Overdue] {
            let hand_over = HandOver { phase, since: Duration::from_millis(12_345) };
            assert_eq!(HandOver::parse(&hand_over.text()), Some(hand_over));
        }
        for text in ["", "held", "held x", "other 5"] {
            assert_eq!(HandOver::parse(text), None);
        }
    }

    #[test]
    fn the_other_daemon_waits_only_as_long_as_it_makes_sense() {
        let at = |phase| HandOver { phase, since: Duration::from_secs(100) };
        let in_flight = |phase, daemon, now| at(phase).is_in_flight(daemon, Duration::from_secs(now));
        // (phase, daemon, first second in which nobody waits any more)
        for (phase, daemon, over) in [
            (Phase::Stopping, Daemon::OvsVswitchd, 105),
            (Phase::Stopping, Daemon::OvnController, 105),
            (Phase::Held, Daemon::OvnController, 120),
            (Phase::Held, Daemon::OvsVswitchd, 160),
        ] {
            assert!(in_flight(phase, daemon, over - 1) && !in_flight(phase, daemon, over), "{phase:?} {daemon}");
        }
        assert!(!in_flight(Phase::Overdue, Daemon::OvsVswitchd, 100));
        // Noted before a reboot.
        assert!(!in_flight(Phase::Held, Daemon::OvsVswitchd, 5));
    }
}
