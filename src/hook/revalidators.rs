//! Rest for the revalidators of `ovs-vswitchd` while `ovn-controller` starts.
//!
//! A starting `ovn-controller` empties the tables of `br-int` and fills them again. Revalidators that look in between
//! take the kernel's flows away, and established traffic stops. While they rest, the kernel keeps its flows.
//!
//! Only process 1 of `ovs-vswitchd`'s container pauses and resumes. It lives and dies with its `ovs-vswitchd`, so what
//! it remembers is true for exactly as long as the pause can last, and no record on disk has to survive a crash. It
//! must be exact: a `revalidator/resume` without a pause stops `ovs-vswitchd` for ever, and so do a pause where no
//! revalidator runs (under flow-restore-wait) and an `exit` under a pause.
//!
//! The question is the note that `ovn-controller` starts (`ovn-controller.hand-over`); the answer stands in the file
//! `revalidators`: `resting` or `working`, with the time of the note.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::daemon::Daemon;
use super::lock::{LOCK_POLL, LockError, RunFolder};
use super::warm_restart::{ARRIVAL_AT_MOST, HandOver, Phase, WarmRestart, uptime};
use crate::ovs::appctl::{self, revalidators_run};
use crate::ovs::run::RunError;

/// A command to `ovs-vswitchd` that takes longer has met one that hangs.
const COMMAND: Duration = Duration::from_secs(3);
/// How long a starting `ovn-controller` waits for the answer. Nothing is lost while it is away.
const ANSWER_WITHIN: Duration = Duration::from_secs(6);
/// How long a stop of `ovs-vswitchd` waits for the end of the rest: longer than one command.
const RESUMED_WITHIN: Duration = Duration::from_secs(5);
/// After a rest that only its bound ended, an `ovn-controller` that starts over and over gets no other one for this
/// long: new connections suffer under it.
const AFTER_AN_OVERDUE_REST: Duration = Duration::from_secs(60);

/// The answer in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answer {
    resting: bool,
    /// `since` of the note that is answered.
    note: Duration,
}

impl Answer {
    fn read(folder: &RunFolder) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(folder.revalidators_file()).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let (word, note) = text.trim().split_once(' ')?;
        let resting = match word {
            "resting" => true,
            "working" => false,
            _ => return None,
        };
        Some(Self { resting, note: Duration::from_millis(note.parse().ok()?) })
    }

    fn write(self, folder: &RunFolder) -> Result<(), LockError> {
        let word = if self.resting { "resting" } else { "working" };
        let path = folder.revalidators_file();
        let fresh = path.with_extension("new");
        std::fs::write(&fresh, format!("{word} {}\n", self.note.as_millis()))
            .and_then(|()| std::fs::rename(&fresh, &path))
            .map_err(|source| LockError::Io { action: "write", path, source })
    }
}

/// What to do at one look. Pure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    Stay,
    Rest { note: Duration },
    Refuse { note: Duration },
    Work { overdue: bool },
}

/// What is remembered from one look to the next, as long as this process lives.
#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    /// Since when they rest, by the machine's uptime.
    resting_since: Option<Duration>,
    /// The last note that was answered.
    answered: Option<Duration>,
    /// When a rest was last ended by its bound.
    overdue_at: Option<Duration>,
}

fn decide(
    vswitchd: Option<HandOver>,
    controller: Option<HandOver>,
    memory: &Memory,
    bound: Duration,
    now: Duration,
) -> Move {
    let held = controller.filter(|note| note.phase == Phase::Held && note.age(now) < ARRIVAL_AT_MOST);
    // A stop must not meet a pause, and a fresh ovs-vswitchd keeps the kernel's flows by itself.
    let in_the_way = vswitchd.is_some_and(|note| matches!(note.phase, Phase::Stopping | Phase::Held));
    if let Some(since) = memory.resting_since {
        let overdue = now.saturating_sub(since) >= bound;
        return if held.is_none() || in_the_way || overdue { Move::Work { overdue } } else { Move::Stay };
    }
    let Some(note) = held.map(|note| note.since).filter(|note| memory.answered != Some(*note)) else {
        return Move::Stay;
    };
    let tired = memory.overdue_at.is_some_and(|at| now.saturating_sub(at) < AFTER_AN_OVERDUE_REST);
    if in_the_way || tired { Move::Refuse { note } } else { Move::Rest { note } }
}

/// `ovs-vswitchd` answers no command any more: its container has to start it again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hangs;

/// What process 1 of `ovs-vswitchd`'s container knows.
#[derive(Debug)]
pub(super) struct Revalidators {
    node: WarmRestart,
    bound: Duration,
    memory: Memory,
}

impl Revalidators {
    /// How often to look: this is what the start of an `ovn-controller` waits.
    pub(super) const EVERY: Duration = Duration::from_millis(50);

    /// For an `ovs-vswitchd` that was just started: its revalidators work, whatever an earlier one's did.
    pub(super) fn of_a_new_daemon(node: WarmRestart, bound: Duration) -> Self {
        let this = Self { node, bound, memory: Memory::default() };
        this.answer(false, Duration::ZERO);
        this
    }

    /// One look, and what follows from it.
    pub(super) async fn look(&mut self) -> Result<(), Hangs> {
        let Some(now) = uptime() else { return Ok(()) };
        let notes = (self.node.read(Daemon::OvsVswitchd), self.node.read(Daemon::OvnController));
        match decide(notes.0, notes.1, &self.memory, self.bound, now) {
            Move::Stay => Ok(()),
            Move::Refuse { note } => {
                self.refuse(note);
                Ok(())
            }
            Move::Rest { note } => self.rest(note, now).await,
            Move::Work { overdue } => {
                if overdue {
                    let bound = self.bound.as_secs_f64();
                    tracing::warn!("ovn-controller's flows are not in after {bound:.0} s: the revalidators go on");
                    self.memory.overdue_at = Some(now);
                }
                self.work().await
            }
        }
    }

    fn refuse(&mut self, note: Duration) {
        self.memory.answered = Some(note);
        self.answer(false, note);
    }

    async fn rest(&mut self, note: Duration, now: Duration) -> Result<(), Hangs> {
        // Under the lock of all steps: a stop that begins now sees the answer below.
        let _step = self.node.step().await;
        if self.node.read(Daemon::OvsVswitchd).is_some_and(|vswitchd| vswitchd.phase == Phase::Stopping) {
            self.refuse(note);
            return Ok(());
        }
        let socket = Daemon::OvsVswitchd.control_socket(&self.node.dirs);
        if !revalidators_run(&socket, COMMAND).await.unwrap_or(false) {
            self.refuse(note);
            return Ok(());
        }
        self.memory.answered = Some(note);
        self.answer(true, note);
        match appctl::pause_revalidators(&socket, COMMAND).await {
            Ok(()) => {
                self.memory.resting_since = Some(now);
                tracing::info!("the revalidators rest while ovn-controller starts");
                Ok(())
            }
            // Whether the command arrived cannot be known, so neither can what is owed.
            Err(error @ RunError::Deadline { .. }) => {
                tracing::error!("{error}");
                Err(Hangs)
            }
            Err(error) => {
                tracing::warn!("the revalidators do not rest: {error}");
                self.answer(false, note);
                Ok(())
            }
        }
    }

    /// Ends a rest, if there is one.
    pub(super) async fn work(&mut self) -> Result<(), Hangs> {
        let Some(since) = self.memory.resting_since else { return Ok(()) };
        let socket = Daemon::OvsVswitchd.control_socket(&self.node.dirs);
        if let Err(error) = appctl::resume_revalidators(&socket, COMMAND).await {
            tracing::error!("{error}");
            return Err(Hangs);
        }
        self.memory.resting_since = None;
        self.answer(false, self.memory.answered.unwrap_or_default());
        let rested = uptime().unwrap_or(since).saturating_sub(since);
        tracing::info!("the revalidators go on after {:.2} s", rested.as_secs_f64());
        Ok(())
    }

    fn answer(&self, resting: bool, note: Duration) {
        if let Err(error) = (Answer { resting, note }).write(&self.node.folder) {
            // Whoever waits for it goes on after its bound.
            tracing::warn!("{error}");
        }
    }
}

impl WarmRestart {
    /// Waits until `ovs-vswitchd`'s side has answered the note that `ovn-controller` starts. True when the revalidators
    /// rest.
    pub(super) async fn until_answered(&self, note: Duration) -> Result<bool, LockError> {
        let deadline = Instant::now() + ANSWER_WITHIN;
        while self.folder.is_running(Daemon::OvsVswitchd)? && Instant::now() < deadline {
            if let Some(answer) = Answer::read(&self.folder)
                && answer.note == note
            {
                return Ok(answer.resting);
            }
            sleep(LOCK_POLL).await;
        }
        Ok(false)
    }

    /// Waits until the revalidators work, after a stop of `ovs-vswitchd` was noted.
    pub(super) async fn until_working(&self) -> Result<(), LockError> {
        let deadline = Instant::now() + RESUMED_WITHIN;
        while self.folder.is_running(Daemon::OvsVswitchd)?
            && Answer::read(&self.folder).is_some_and(|answer| answer.resting)
            && Instant::now() < deadline
        {
            sleep(LOCK_POLL).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = ARRIVAL_AT_MOST;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn note(phase: Phase, since: u64) -> Option<HandOver> {
        Some(HandOver { phase, since: at(since) })
    }

    #[test]
    fn a_starting_ovn_controller_is_answered_once() {
        let mut memory = Memory::default();
        let starts = note(Phase::Held, 100);
        assert_eq!(decide(None, starts, &memory, BOUND, at(101)), Move::Rest { note: at(100) });
        memory.answered = Some(at(100));
        assert_eq!(decide(None, starts, &memory, BOUND, at(101)), Move::Stay);
        assert_eq!(decide(None, note(Phase::Held, 105), &memory, BOUND, at(106)), Move::Rest { note: at(105) });
    }

    #[test]
    fn nothing_rests_while_vswitchd_stops_or_starts_or_when_it_is_too_late() {
        let memory = Memory::default();
        let starts = note(Phase::Held, 100);
        for phase in [Phase::Stopping, Phase::Held] {
            assert_eq!(decide(note(phase, 99), starts, &memory, BOUND, at(101)), Move::Refuse { note: at(100) });
        }
        assert_eq!(decide(note(Phase::Overdue, 30), starts, &memory, BOUND, at(101)), Move::Rest { note: at(100) });
        for controller in [None, note(Phase::Stopping, 100), note(Phase::Held, 50), note(Phase::Held, 200)] {
            assert_eq!(decide(None, controller, &memory, BOUND, at(101)), Move::Stay, "{controller:?}");
        }
    }

    #[test]
    fn a_rest_ends_with_the_flows_with_a_stop_and_with_its_bound() {
        let memory = Memory { resting_since: Some(at(100)), answered: Some(at(100)), overdue_at: None };
        let starts = note(Phase::Held, 100);
        assert_eq!(decide(None, starts, &memory, BOUND, at(105)), Move::Stay);
        assert_eq!(decide(None, None, &memory, BOUND, at(105)), Move::Work { overdue: false });
        let stops = note(Phase::Stopping, 104);
        assert_eq!(decide(stops, starts, &memory, BOUND, at(105)), Move::Work { overdue: false });
        // One that starts again and again does not prolong it.
        let again = note(Phase::Held, 119);
        assert_eq!(decide(None, again, &memory, BOUND, at(120)), Move::Work { overdue: true });
    }

    #[test]
    fn after_an_overdue_rest_there_is_none_for_a_minute() {
        let memory = Memory { overdue_at: Some(at(120)), ..Memory::default() };
        let move_at = |now| decide(None, note(Phase::Held, now - 1), &memory, BOUND, at(now));
        assert_eq!(move_at(179), Move::Refuse { note: at(178) });
        assert_eq!(move_at(180), Move::Rest { note: at(179) });
    }

    #[test]
    fn an_answer_is_one_line_and_anything_else_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::open(folder.path()).unwrap();
        assert_eq!(Answer::read(&run), None);
        for resting in [true, false] {
            let answer = Answer { resting, note: Duration::from_millis(12_340) };
            answer.write(&run).unwrap();
            assert_eq!(Answer::read(&run), Some(answer));
        }
        for text in ["", "resting", "resting x", "asleep 3"] {
            assert_eq!(Answer::parse(text), None);
        }
    }
}
