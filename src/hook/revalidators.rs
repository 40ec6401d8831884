//! The revalidators of `ovs-vswitchd`, paused while `ovn-controller` restarts: a new `ovn-controller` empties the tables
//! and fills them again, and what the revalidators see in between costs the kernel its flows.
//!
//! Only process 1 of `ovs-vswitchd`'s container pauses and resumes. It cannot die without its daemon, so what it
//! remembers is true for exactly as long as the pause lasts, and no crash leaves a pause that nobody knows of, or a
//! record of one that is gone.
//!
//! ```text
//! ovn-controller's entrypoint   notes its start (`ovn-controller.hand-over`), waits for the answer, starts the daemon
//! ovs-vswitchd's entrypoint     sees the note, locks `revalidators.pause`, pauses, answers in it
//! agent                         the flows are in: empties the note
//! ovs-vswitchd's entrypoint     resumes, and frees the lock
//! ```
//!
//! It also resumes when the pause has lasted too long and before `ovs-vswitchd` is told to end. A daemon that does not
//! come back from the resume is killed, which leaves the kernel's flows, and kubelet starts its container again.

use std::fs::File;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::daemon::Daemon;
use super::lock::{LOCK_POLL, LockError, open, try_exclusive};
use super::warm_restart::{HandOver, Phase, WarmRestart, WarmRestartError, uptime};
use crate::ovs::revalidators::{self, Fitness};
use crate::ovs::unixctl::UnixctlError;

/// The revalidators are never paused for longer: nothing expires meanwhile, and a new connection may have met a table
/// that was half full.
pub(super) const PAUSE_AT_MOST: Duration = Duration::from_secs(15);
/// An older note is not answered: its daemon has started, and the tables may be empty by now.
const REQUEST_IS_FRESH_FOR: Duration = Duration::from_secs(4);
/// How long the start of `ovn-controller` waits for the answer. Nothing is lost while it is away, and a busy machine takes
/// seconds for the three short calls behind it.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long the stop of `ovs-vswitchd` waits for the resume: as long as that takes at most, and a look before it.
const RESUMED_WITHIN: Duration = Duration::from_secs(12);
/// A pod ends within this; a note of a stop that is older belongs to one that is gone.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// Between two tries of a resume that could not be delivered.
const DELIVER_AGAIN: Duration = Duration::from_millis(100);
/// A resume that could not be delivered for this long never will be.
const DELIVERED_WITHIN: Duration = Duration::from_secs(5);

/// After a pause that lasted too long nothing is paused for this long, so that an `ovn-controller` that crashes again
/// and again does not keep the kernel's flows for ever.
const REST_AFTER_TOO_LONG: Duration = Duration::from_secs(60);

/// What was answered to the start of an `ovn-controller`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Paused,
    /// Nothing was paused, and nothing will be.
    Left,
}

impl Answer {
    fn line(self, request: Duration) -> String {
        let word = match self {
            Answer::Paused => "paused",
            Answer::Left => "left",
        };
        format!("{word} {}\n", request.as_millis())
    }

    fn parse(text: &str, request: Duration) -> Option<Self> {
        // Half a line is no answer: it is written in place, because it is the lock's file.
        let (word, since) = text.strip_suffix('\n')?.split_once(' ')?;
        if since.parse() != Ok(request.as_millis()) {
            return None;
        }
        match word {
            "paused" => Some(Answer::Paused),
            "left" => Some(Answer::Left),
            _ => None,
        }
    }
}

/// Why the revalidators run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// The note is gone: the flows are in, or are not waited for any longer.
    NotAwaited,
    TooLong,
    /// `ovs-vswitchd` is about to be told to end.
    Ending,
    /// The pause itself did not answer in time; it may be in force.
    Unclear,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Nothing,
    Pause {
        request: Duration,
    },
    /// Another start while paused: the pause goes on, its bound as well.
    GoOn {
        request: Duration,
    },
    /// Nothing will be paused for it.
    Leave {
        request: Duration,
    },
    Resume(Why),
}

/// What is remembered between two looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Memory {
    /// Since when the revalidators are paused.
    paused_since: Option<Duration>,
    /// The last start that was answered.
    answered: Option<Duration>,
    /// After a pause that lasted too long nothing is paused until then.
    rests_until: Duration,
}

/// True while `ovs-vswitchd` is told to end.
fn is_ending(vswitchd: Option<HandOver>, now: Duration) -> bool {
    vswitchd.is_some_and(|note| note.phase == Phase::Stopping && note.age(now) < ENDS_WITHIN)
}

fn is_starting(vswitchd: Option<HandOver>) -> bool {
    vswitchd.is_some_and(|note| note.phase == Phase::Held)
}

/// Decides from the two notes. Pure.
fn decide(
    memory: &Memory,
    now: Duration,
    controller: Option<HandOver>,
    vswitchd: Option<HandOver>,
    at_most: Duration,
) -> Step {
    let ending = is_ending(vswitchd, now);
    let request = controller
        .filter(|note| note.phase == Phase::Held && note.age(now) < REQUEST_IS_FRESH_FOR)
        .map(|note| note.since)
        .filter(|request| memory.answered != Some(*request));
    if let Some(since) = memory.paused_since {
        // A note of a stop is no end: the tables may be half full, and its successor is about to start.
        let awaited = controller.is_some_and(|note| note.phase != Phase::Overdue);
        return if ending {
            Step::Resume(Why::Ending)
        } else if now.saturating_sub(since) >= at_most {
            Step::Resume(Why::TooLong)
        } else if !awaited {
            Step::Resume(Why::NotAwaited)
        } else {
            request.map_or(Step::Nothing, |request| Step::GoOn { request })
        };
    }
    match request {
        // `ovs-vswitchd` that starts has no threads to pause; asking it would only take its time.
        Some(request) if ending || is_starting(vswitchd) => Step::Leave { request },
        Some(request) if now < memory.rests_until => Step::Leave { request },
        Some(request) => Step::Pause { request },
        None => Step::Nothing,
    }
}

/// How the daemon is after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Fine,
    /// It did not come back from a resume and never will: it has to be killed.
    Hangs,
}

/// The pauses of one `ovs-vswitchd`, kept by its parent.
#[derive(Debug)]
pub(super) struct Revalidators {
    node: WarmRestart,
    at_most: Duration,
    memory: Memory,
    /// Locked for as long as a pause is or may be in force.
    lock: Option<File>,
    /// False where this process can die without its daemon.
    may_pause: bool,
}

impl Revalidators {
    /// How often to look. It is part of what a start of `ovn-controller` waits, and of how long a pause outlasts the
    /// flows; a look reads two short files in memory.
    pub(super) const EVERY: Duration = Duration::from_millis(50);

    pub(super) fn new(node: WarmRestart, at_most: Duration) -> Self {
        // The death of process 1 ends everything in its pid namespace. Any other parent could die and leave a daemon
        // behind whose pause nobody ends.
        let may_pause = std::process::id() == 1;
        Self { node, at_most, memory: Memory::default(), lock: None, may_pause }
    }

    /// Does what is to be done now.
    pub(super) async fn look(&mut self) -> Health {
        let Some(now) = uptime() else { return Health::Fine };
        let [controller, vswitchd] = [Daemon::OvnController, Daemon::OvsVswitchd].map(|daemon| self.node.read(daemon));
        match decide(&self.memory, now, controller, vswitchd, self.at_most) {
            Step::Nothing => Health::Fine,
            Step::Leave { request } => {
                self.answer(Answer::Left, request);
                Health::Fine
            }
            Step::GoOn { request } => {
                self.answer(Answer::Paused, request);
                Health::Fine
            }
            Step::Pause { request } => self.pause(request).await,
            Step::Resume(why) => self.resume(why).await,
        }
    }

    /// Before the daemon is told to end.
    pub(super) async fn before_end(&mut self) -> Health {
        match self.memory.paused_since {
            Some(_) => self.resume(Why::Ending).await,
            None => Health::Fine,
        }
    }

    async fn pause(&mut self, request: Duration) -> Health {
        match self.try_pause().await {
            Ok(Pause::InForce) => {
                tracing::info!("revalidators are paused while ovn-controller starts");
                self.answer(Answer::Paused, request);
                Health::Fine
            }
            Ok(Pause::Left(why)) => {
                tracing::info!("revalidators are not paused while ovn-controller starts: {why}");
                self.answer(Answer::Left, request);
                Health::Fine
            }
            Ok(Pause::Unclear(error)) => {
                tracing::warn!("revalidators may be paused or not: {error}");
                self.answer(Answer::Left, request);
                // The daemon answers in order: once this is answered, the pause was as well.
                self.resume(Why::Unclear).await
            }
            Err(error) => {
                tracing::warn!("revalidators are not paused while ovn-controller starts: {error}");
                self.answer(Answer::Left, request);
                Health::Fine
            }
        }
    }

    async fn try_pause(&mut self) -> Result<Pause, WarmRestartError> {
        if self.at_most.is_zero() {
            return Ok(Pause::Left("it is switched off"));
        }
        if !self.may_pause {
            return Ok(Pause::Left("this entrypoint is not process 1 of its container"));
        }
        let socket = Daemon::OvsVswitchd.control_socket(&self.node.dirs);
        // A stop is noted under the same lock: it comes before this and is seen here, or it comes after and waits for
        // the resume.
        let Some(_step) = self.node.step().await? else { return Ok(Pause::Left("another step does not end")) };
        let vswitchd = self.node.read(Daemon::OvsVswitchd);
        if is_ending(vswitchd, uptime().unwrap_or_default()) || is_starting(vswitchd) {
            return Ok(Pause::Left("ovs-vswitchd restarts itself"));
        }
        match revalidators::look(&socket).await? {
            Fitness::Fit => {}
            Fitness::NoThreads => return Ok(Pause::Left("they do not run")),
            Fitness::NotTheKernels => return Ok(Pause::Left("not all of the datapath is the kernel's")),
        }
        let path = self.node.folder.pause_file();
        let lock = open(&path)?;
        if !try_exclusive(&lock, &path)? {
            return Ok(Pause::Left("another ovs-vswitchd's pause is not over"));
        }
        let asked = uptime().unwrap_or_default();
        let outcome = match revalidators::pause(&socket).await {
            Ok(()) => Pause::InForce,
            Err(error) if error.is_without_effect() => return Err(error.into()),
            Err(error) => Pause::Unclear(error),
        };
        self.memory.paused_since = Some(asked);
        self.lock = Some(lock);
        Ok(outcome)
    }

    /// Ends a pause that is or may be in force.
    async fn resume(&mut self, why: Why) -> Health {
        let socket = Daemon::OvsVswitchd.control_socket(&self.node.dirs);
        let deadline = Instant::now() + DELIVERED_WITHIN;
        let resumed = loop {
            match revalidators::resume(&socket).await {
                // Not delivered. A daemon that took it and died of it is not there to be asked again.
                Err(error) if error.is_without_effect() && Instant::now() < deadline => {
                    sleep(DELIVER_AGAIN).await;
                }
                resumed => break resumed,
            }
        };
        let now = uptime().unwrap_or_default();
        let lasted = now.saturating_sub(self.memory.paused_since.unwrap_or(now)).as_secs_f64();
        match resumed {
            Ok(()) => {
                self.memory.paused_since = None;
                self.lock = None;
                if why == Why::TooLong {
                    self.memory.rests_until = now + REST_AFTER_TOO_LONG;
                    tracing::warn!("revalidators were paused for {lasted:.2} s: the watchdog resumed them");
                } else {
                    tracing::info!("revalidators run again ({why:?}), paused for {lasted:.2} s");
                }
                Health::Fine
            }
            Err(error) => {
                tracing::error!(
                    "ovs-vswitchd hangs under a pause of its revalidators ({why:?}, {lasted:.2} s): {error}"
                );
                Health::Hangs
            }
        }
    }

    fn answer(&mut self, answer: Answer, request: Duration) {
        self.memory.answered = Some(request);
        if let Err(error) = self.node.answer(answer, request) {
            tracing::warn!("ovn-controller's start is not answered: {error}");
        }
    }
}

/// How a try went.
enum Pause {
    InForce,
    Left(&'static str),
    Unclear(UnixctlError),
}

impl WarmRestart {
    fn answer(&self, answer: Answer, request: Duration) -> Result<(), LockError> {
        let path = self.folder.pause_file();
        // In place, for the lock is on this very file.
        std::fs::write(&path, answer.line(request)).map_err(|source| LockError::Io { action: "write", path, source })
    }

    /// Waits for what `ovs-vswitchd`'s entrypoint says to the start noted at `request`. None: it said nothing in time,
    /// or is away.
    pub(super) async fn wait_for_answer(&self, request: Duration) -> Result<Option<Answer>, LockError> {
        let deadline = Instant::now() + ANSWER_WITHIN;
        loop {
            let text = std::fs::read_to_string(self.folder.pause_file()).unwrap_or_default();
            if let Some(answer) = Answer::parse(&text, request) {
                return Ok(Some(answer));
            }
            if Instant::now() >= deadline || !self.folder.is_running(Daemon::OvsVswitchd)? {
                return Ok(None);
            }
            sleep(LOCK_POLL).await;
        }
    }

    /// Waits until no pause is in force any more: `exit` under one never returns. False when the time is over.
    pub(super) async fn wait_until_resumed(&self, deadline: Instant) -> Result<bool, LockError> {
        let deadline = deadline.min(Instant::now() + RESUMED_WITHIN);
        while self.folder.is_paused()? {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            sleep(LOCK_POLL).await;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(phase: Phase, since: u64) -> Option<HandOver> {
        Some(HandOver { phase, since: seconds(since) })
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn paused() -> Memory {
        Memory { paused_since: Some(seconds(100)), answered: Some(seconds(100)), rests_until: Duration::ZERO }
    }

    #[test]
    fn an_answer_is_one_whole_line_for_one_start() {
        for answer in [Answer::Paused, Answer::Left] {
            let line = answer.line(seconds(7));
            assert_eq!(Answer::parse(&line, seconds(7)), Some(answer));
            assert_eq!(Answer::parse(&line, seconds(8)), None);
            for end in 0..line.len() {
                assert_eq!(Answer::parse(&line[..end], seconds(7)), None);
            }
        }
    }

    #[test]
    fn a_start_is_answered_once_and_only_while_it_is_fresh() {
        let step = |memory: &Memory, now, vswitchd| {
            decide(memory, seconds(now), at(Phase::Held, 100), vswitchd, PAUSE_AT_MOST)
        };
        let request = seconds(100);
        let idle = Memory::default();
        assert_eq!(step(&idle, 100, None), Step::Pause { request });
        assert_eq!(step(&idle, 100, at(Phase::Overdue, 50)), Step::Pause { request });
        assert_eq!(step(&idle, 100, at(Phase::Held, 99)), Step::Leave { request });
        assert_eq!(step(&idle, 100, at(Phase::Stopping, 99)), Step::Leave { request });
        assert_eq!(step(&idle, 104, None), Step::Nothing);
        let answered = Memory { answered: Some(request), ..idle };
        assert_eq!(step(&answered, 100, None), Step::Nothing);
        // Noted before a reboot.
        assert_eq!(step(&idle, 5, None), Step::Nothing);
        assert_eq!(decide(&idle, seconds(100), at(Phase::Stopping, 100), None, PAUSE_AT_MOST), Step::Nothing);
    }

    #[test]
    fn a_pause_ends_with_its_cause_its_time_or_its_daemon() {
        let step = |now, controller, vswitchd| decide(&paused(), seconds(now), controller, vswitchd, PAUSE_AT_MOST);
        assert_eq!(step(114, at(Phase::Held, 100), None), Step::Nothing);
        assert_eq!(step(115, at(Phase::Held, 100), None), Step::Resume(Why::TooLong));
        assert_eq!(step(101, None, None), Step::Resume(Why::NotAwaited));
        assert_eq!(step(101, at(Phase::Overdue, 100), None), Step::Resume(Why::NotAwaited));
        assert_eq!(step(101, at(Phase::Held, 100), at(Phase::Stopping, 101)), Step::Resume(Why::Ending));
        // It stops again, and another one starts: the same pause, with the same end.
        assert_eq!(step(104, at(Phase::Stopping, 104), None), Step::Nothing);
        assert_eq!(step(105, at(Phase::Held, 105), None), Step::GoOn { request: seconds(105) });
        assert_eq!(step(115, at(Phase::Held, 114), None), Step::Resume(Why::TooLong));
    }

    #[test]
    fn after_a_pause_that_was_too_long_the_revalidators_get_their_time() {
        let rests = Memory { rests_until: seconds(130), ..Memory::default() };
        let step = |now| decide(&rests, seconds(now), at(Phase::Held, now), None, PAUSE_AT_MOST);
        assert_eq!(step(129), Step::Leave { request: seconds(129) });
        assert_eq!(step(130), Step::Pause { request: seconds(130) });
    }
}
