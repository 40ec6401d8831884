//! Which pod runs the daemons of a node: one claim per set of daemons, passed from pod to pod.
//!
//! A claim is free when nobody ever took it, when its holder's pre-stop hook gave it up, or when no process of its
//! holder is left. Each change happens under the lock of the claim's file, and so does everything that must not
//! overlap with a change: the start of a daemon, and telling a daemon to exit.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::daemon::ClaimName;
use super::lock::{LockError, PodUid, RunFolder, open, read_uid, try_exclusive, write_uid};

/// How a claim stands from one pod's point of view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// Nobody has it.
    Free,
    /// This pod has it.
    Own,
    /// Another pod has it.
    Other(PodUid),
}

/// A claim whose file is locked: nobody else reads it to act on it, or changes it, until this is dropped.
#[derive(Debug)]
pub struct LockedClaim {
    file: File,
    path: PathBuf,
    pod: PodUid,
}

impl LockedClaim {
    /// Who has the claim.
    pub fn holder(&mut self) -> Result<Holder, LockError> {
        Ok(match read_uid(&mut self.file, &self.path)? {
            None => Holder::Free,
            Some(uid) if uid == self.pod => Holder::Own,
            Some(uid) => Holder::Other(uid),
        })
    }

    /// Makes this pod the holder.
    pub fn take(&mut self) -> Result<(), LockError> {
        write_uid(&mut self.file, &self.path, Some(&self.pod))
    }

    /// Gives the claim up, if it is this pod's.
    pub fn give_up(&mut self) -> Result<bool, LockError> {
        if self.holder()? != Holder::Own {
            return Ok(false);
        }
        write_uid(&mut self.file, &self.path, None)?;
        Ok(true)
    }
}

/// One claim as seen by one pod.
#[derive(Debug, Clone)]
pub struct Claim {
    folder: RunFolder,
    name: ClaimName,
    pod: PodUid,
}

impl Claim {
    /// The claim `name` in `folder`, for `pod`.
    pub fn new(folder: RunFolder, name: ClaimName, pod: PodUid) -> Self {
        Self { folder, name, pod }
    }

    /// Locks the claim if nobody else has it locked.
    pub fn try_lock(&self) -> Result<Option<LockedClaim>, LockError> {
        let path = self.folder.claim_file(self.name);
        let file = open(&path)?;
        Ok(try_exclusive(&file, &path)?.then_some(LockedClaim { file, path, pod: self.pod.clone() }))
    }

    /// Who has the claim, without locking it: good for a look, not for acting on it.
    pub fn look(&self) -> Result<Holder, LockError> {
        let path = self.folder.claim_file(self.name);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(Holder::Free),
            Err(source) => return Err(LockError::Io { action: "open", path, source }),
        };
        Ok(match read_uid(&mut file, &path)? {
            None => Holder::Free,
            Some(uid) if uid == self.pod => Holder::Own,
            Some(uid) => Holder::Other(uid),
        })
    }
}

/// What a pod that wants a claim has to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// The claim is this pod's.
    Holds,
    /// Wait; that pod has it.
    StandBy { holder: PodUid },
}

/// A pod's wait for a claim.
///
/// A holder without a living process is given `orphan_grace` to come back: kubelet restarts a killed container of the
/// same pod within a second or two, and a standby that was never granted must not use that moment to take over.
#[derive(Debug)]
pub struct ClaimWait {
    claim: Claim,
    orphan_grace: Duration,
    orphan_since: Option<(PodUid, Instant)>,
}

impl ClaimWait {
    /// Starts waiting.
    pub fn new(claim: Claim, orphan_grace: Duration) -> Self {
        Self { claim, orphan_grace, orphan_since: None }
    }

    /// Takes the claim if it is free or orphaned for long enough. `None` means that somebody works on the claim at
    /// this moment: ask again.
    pub fn ask(&mut self, now: Instant) -> Result<Option<Turn>, LockError> {
        let Some(mut locked) = self.claim.try_lock()? else { return Ok(None) };
        let holder = match locked.holder()? {
            Holder::Own => return Ok(Some(Turn::Holds)),
            Holder::Free => {
                locked.take()?;
                return Ok(Some(Turn::Holds));
            }
            Holder::Other(holder) => holder,
        };
        if self.claim.folder.is_alive(&holder)? {
            self.orphan_since = None;
            return Ok(Some(Turn::StandBy { holder }));
        }
        let since = match &self.orphan_since {
            Some((pod, since)) if *pod == holder => *since,
            _ => {
                self.orphan_since = Some((holder.clone(), now));
                now
            }
        };
        if now.duration_since(since) < self.orphan_grace {
            return Ok(Some(Turn::StandBy { holder }));
        }
        locked.take()?;
        Ok(Some(Turn::Holds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(3);

    struct Node {
        folder: RunFolder,
        _keep: tempfile::TempDir,
    }

    impl Node {
        fn new() -> Self {
            let keep = tempfile::tempdir().unwrap();
            Self { folder: RunFolder::open(keep.path()).unwrap(), _keep: keep }
        }

        fn pod(&self, uid: &str) -> (Claim, ClaimWait) {
            let claim = Claim::new(self.folder.clone(), ClaimName::Ovs, uid.parse().unwrap());
            (claim.clone(), ClaimWait::new(claim, GRACE))
        }
    }

    fn stand_by(uid: &str) -> Option<Turn> {
        Some(Turn::StandBy { holder: uid.parse().unwrap() })
    }

    #[test]
    fn without_a_predecessor_the_claim_is_taken_at_once_and_stays() {
        let node = Node::new();
        let now = Instant::now();
        let (claim, mut wait) = node.pod("a");
        assert_eq!(claim.look().unwrap(), Holder::Free);
        assert_eq!(wait.ask(now).unwrap(), Some(Turn::Holds));
        assert_eq!(wait.ask(now).unwrap(), Some(Turn::Holds));
        assert_eq!(claim.look().unwrap(), Holder::Own);
    }

    #[test]
    fn a_living_holder_keeps_it_for_ever() {
        let node = Node::new();
        let now = Instant::now();
        let _alive = node.folder.join(&"a".parse().unwrap()).unwrap();
        node.pod("a").1.ask(now).unwrap();
        let (_, mut wait) = node.pod("b");
        assert_eq!(wait.ask(now).unwrap(), stand_by("a"));
        assert_eq!(wait.ask(now + Duration::from_secs(86_400)).unwrap(), stand_by("a"));
    }

    #[test]
    fn a_claim_given_up_passes_while_its_old_holder_still_lives() {
        let node = Node::new();
        let now = Instant::now();
        let _alive = node.folder.join(&"a".parse().unwrap()).unwrap();
        let (claim, mut wait) = node.pod("a");
        wait.ask(now).unwrap();
        assert!(claim.try_lock().unwrap().unwrap().give_up().unwrap());
        assert!(!claim.try_lock().unwrap().unwrap().give_up().unwrap());
        assert_eq!(node.pod("b").1.ask(now).unwrap(), Some(Turn::Holds));
    }

    #[test]
    fn a_standby_cannot_give_up_what_it_does_not_hold() {
        let node = Node::new();
        node.pod("a").1.ask(Instant::now()).unwrap();
        let (standby, _) = node.pod("b");
        assert!(!standby.try_lock().unwrap().unwrap().give_up().unwrap());
        assert_eq!(node.pod("a").0.look().unwrap(), Holder::Own);
    }

    #[test]
    fn an_orphan_passes_after_the_grace_and_not_before() {
        let node = Node::new();
        let now = Instant::now();
        node.pod("a").1.ask(now).unwrap();
        let (_, mut wait) = node.pod("b");
        assert_eq!(wait.ask(now).unwrap(), stand_by("a"));
        assert_eq!(wait.ask(now + GRACE - Duration::from_millis(1)).unwrap(), stand_by("a"));
        assert_eq!(wait.ask(now + GRACE).unwrap(), Some(Turn::Holds));
    }

    #[test]
    fn case_9_a_container_restarted_in_its_own_pod_starts_the_grace_again() {
        let node = Node::new();
        let now = Instant::now();
        node.pod("a").1.ask(now).unwrap();
        let (_, mut wait) = node.pod("b");
        wait.ask(now).unwrap();
        let back = node.folder.join(&"a".parse().unwrap()).unwrap();
        assert_eq!(wait.ask(now + GRACE).unwrap(), stand_by("a"));
        drop(back);
        assert_eq!(wait.ask(now + GRACE).unwrap(), stand_by("a"));
        assert_eq!(wait.ask(now + GRACE + GRACE).unwrap(), Some(Turn::Holds));
    }

    #[test]
    fn nobody_takes_a_claim_that_is_being_worked_on() {
        let node = Node::new();
        let (claim, _) = node.pod("a");
        let locked = claim.try_lock().unwrap().unwrap();
        assert_eq!(node.pod("b").1.ask(Instant::now()).unwrap(), None);
        drop(locked);
        assert_eq!(node.pod("b").1.ask(Instant::now()).unwrap(), Some(Turn::Holds));
    }
}
