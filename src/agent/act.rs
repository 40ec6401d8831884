//! Writing to the local database: one `ovs-vsctl`, and a pace that never turns a disagreement into a storm.

use std::time::{Duration, Instant};

use crate::ovs::run::RunError;
use crate::ovs::rundir::RunDirs;
use crate::ovs::vsctl::{DatabaseChange, apply_change};

use super::handover::Handover;

/// Pause after a first failure or repair.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause between two tries, and between two repairs of something that somebody else keeps changing.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A repair after this long without one is a first one again.
const CALM: Duration = Duration::from_secs(60);

/// When the next write may happen.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    pause: Option<Duration>,
    not_before: Option<Instant>,
    last_repair: Option<Instant>,
}

impl Pace {
    /// The time to wait for, if it is too early for a write.
    pub fn wait_until(&self, now: Instant) -> Option<Instant> {
        self.not_before.filter(|until| *until > now)
    }

    /// A write for new settings never waits for the pause that an old disagreement earned.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Notes a write.
    pub fn note(&mut self, now: Instant, succeeded: bool, is_repair: bool) {
        let again = !succeeded || (is_repair && self.last_repair.is_some_and(|last| now.duration_since(last) < CALM));
        if is_repair {
            self.last_repair = Some(now);
        }
        if !again {
            self.pause = None;
            self.not_before = None;
            return;
        }
        let pause = self.pause.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE));
        self.pause = Some(pause);
        self.not_before = Some(now + pause);
    }
}

/// How a write went.
#[derive(Debug)]
pub enum Written {
    Done,
    /// This pod holds the claim no more: nothing was written.
    NotOurs,
    Failed(RunError),
}

/// Writes the change, if this pod may.
pub async fn write(dirs: &RunDirs, change: &DatabaseChange, handover: &Handover) -> Written {
    // A claim that cannot be read is not ours to act on.
    if !handover.may_act().unwrap_or(false) {
        return Written::NotOurs;
    }
    match apply_change(dirs, change).await {
        Ok(()) => Written::Done,
        Err(error) => Written::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_wait_longer_and_longer_and_a_success_forgets_them() {
        let mut pace = Pace::default();
        let now = Instant::now();
        assert_eq!(pace.wait_until(now), None);
        pace.note(now, false, false);
        assert_eq!(pace.wait_until(now), Some(now + FIRST_PAUSE));
        pace.note(now, false, false);
        assert_eq!(pace.wait_until(now), Some(now + FIRST_PAUSE * 2));
        for _ in 0..20 {
            pace.note(now, false, false);
        }
        assert_eq!(pace.wait_until(now), Some(now + LONGEST_PAUSE));
        assert_eq!(pace.wait_until(now + LONGEST_PAUSE), None);
        pace.note(now, true, false);
        assert_eq!(pace.wait_until(now), None);
    }

    #[test]
    fn the_first_repair_is_free_and_a_fight_slows_down() {
        let mut pace = Pace::default();
        let now = Instant::now();
        pace.note(now, true, true);
        assert_eq!(pace.wait_until(now), None);
        pace.note(now, true, true);
        assert_eq!(pace.wait_until(now), Some(now + FIRST_PAUSE));
        pace.note(now, true, true);
        assert_eq!(pace.wait_until(now), Some(now + FIRST_PAUSE * 2));
        pace.note(now + CALM, true, true);
        assert_eq!(pace.wait_until(now + CALM), None);
    }
}
