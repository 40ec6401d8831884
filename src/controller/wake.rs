//! Who has something to look at: one worker for each key, woken by name, started when first woken.
//!
//! Waking costs a lookup and never blocks; many wakes before a worker looks are one look.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::model::ids::NodeName;
use crate::model::names::ChassisRef;

/// What a worker works on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// One node of one OVNChassis.
    Node(ChassisRef, NodeName),
    /// What belongs to an OVNChassis as a whole.
    Chassis(ChassisRef),
    /// Its status and its ConfigMap.
    Report(ChassisRef),
    /// The drain reports of its nodes.
    Drains(ChassisRef),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(chassis, node) => write!(f, "node {node} of {chassis}"),
            Self::Chassis(chassis) => write!(f, "OVNChassis {chassis}"),
            Self::Report(chassis) => write!(f, "status of {chassis}"),
            Self::Drains(chassis) => write!(f, "drain reports of {chassis}"),
        }
    }
}

#[derive(Default)]
struct State {
    workers: BTreeMap<Key, (Arc<Notify>, u64)>,
    unstarted: BTreeSet<Key>,
}

/// The workers' bell board. Cheap to clone.
#[derive(Clone, Default)]
pub struct Wake {
    state: Arc<Mutex<State>>,
    unstarted: Arc<Notify>,
}

/// A worker's own bell.
pub struct Bell {
    key: Key,
    notify: Arc<Notify>,
    wake: Wake,
}

impl Wake {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the worker of a key, or has one started.
    pub fn wake(&self, key: Key) {
        let mut state = self.state();
        match state.workers.get_mut(&key) {
            Some((notify, rung)) => {
                *rung += 1;
                notify.notify_one();
            }
            None => {
                state.unstarted.insert(key);
                self.unstarted.notify_one();
            }
        }
    }

    /// Wakes a worker only if there is one.
    pub fn wake_existing(&self, key: &Key) {
        let mut state = self.state();
        if let Some((notify, rung)) = state.workers.get_mut(key) {
            *rung += 1;
            notify.notify_one();
        }
    }

    /// Wakes all workers that there are and that `wanted` picks.
    pub fn wake_where(&self, wanted: impl Fn(&Key) -> bool) {
        for (_, (notify, rung)) in self.state().workers.iter_mut().filter(|(key, _)| wanted(key)) {
            *rung += 1;
            notify.notify_one();
        }
    }

    /// The next key that has no worker yet, with the bell for its worker.
    pub async fn unstarted(&self) -> Bell {
        loop {
            let waiting = self.unstarted.notified();
            {
                let mut state = self.state();
                if let Some(key) = state.unstarted.pop_first() {
                    let notify = Arc::new(Notify::new());
                    state.workers.insert(key.clone(), (Arc::clone(&notify), 0));
                    return Bell { key, notify, wake: self.clone() };
                }
            }
            waiting.await;
        }
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.state().workers.len()
    }
}

impl Bell {
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// How often it has rung: read before looking, handed to [`Bell::retire`] after.
    pub fn rung(&self) -> u64 {
        self.wake.state().workers.get(&self.key).map_or(0, |(_, rung)| *rung)
    }

    /// Returns when there may be something new.
    pub async fn rings(&self) {
        self.notify.notified().await;
    }

    /// Takes the worker off the board, unless it was woken since `rung`.
    pub fn retire(&self, rung: u64) -> bool {
        let mut state = self.wake.state();
        if state.workers.get(&self.key).is_some_and(|(_, now)| *now != rung) {
            return false;
        }
        state.workers.remove(&self.key);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_that_was_woken_while_it_looked_does_not_retire() {
        let wake = Wake::default();
        let key = Key::Chassis(ChassisRef::new("ns", "a"));
        wake.wake(key.clone());
        let bell = wake.unstarted().await;
        let rung = bell.rung();
        wake.wake(key.clone());
        assert!(!bell.retire(rung));
        bell.rings().await;
        assert!(bell.retire(bell.rung()));
        wake.wake(key);
        assert_eq!(wake.unstarted().await.rung(), 0);
    }
}
