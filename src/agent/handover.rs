//! The agent's part in a hand-over: it acts only while its pod holds the claim of the `ovs` daemons, and it leaves
//! the controller's grants where the probes of standby pods read them.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::hook::claim::{Claim, ClaimWait, Holder, Turn};
use crate::hook::daemon::{ClaimName, Daemon};
use crate::hook::lock::{LockError, PodUid, RunFolder};
use crate::hook::warm_restart::{Phase, WarmRestart};
use crate::ovs::rundir::RunDirs;

/// How often a waiting agent asks, and how often a working one looks whether it still may.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// As the entrypoints': a container that was killed comes back within this.
const ORPHAN_GRACE: Duration = Duration::from_secs(3);

/// One agent's view of the claim. An agent outside a pod has none and always acts.
#[derive(Debug)]
pub struct Handover {
    folder: RunFolder,
    pod: Option<Membership>,
}

#[derive(Debug)]
struct Membership {
    uid: PodUid,
    claim: Claim,
    /// The pod's member lock: as long as the agent lives, so does its pod.
    _lock: File,
}

impl Handover {
    /// Joins the pod.
    pub fn join(run_dir: &Path, pod: Option<PodUid>) -> Result<Self, LockError> {
        let folder = RunFolder::open(run_dir)?;
        let pod = match pod {
            None => None,
            Some(uid) => {
                let claim = Claim::new(folder.clone(), ClaimName::Ovs, uid.clone());
                Some(Membership { _lock: folder.join(&uid)?, claim, uid })
            }
        };
        Ok(Self { folder, pod })
    }

    /// Waits until this pod holds the claim, taking it if it is free.
    ///
    /// A pod whose pre-stop hook ran is on its way out: its agent takes nothing back.
    pub async fn active(&self) -> Result<(), LockError> {
        let Some(pod) = &self.pod else { return Ok(()) };
        let mut wait = ClaimWait::new(pod.claim.clone(), ORPHAN_GRACE);
        let mut said = false;
        loop {
            let stopping = self.folder.stop_mark(Daemon::OvsdbServer)?.is_of(&pod.uid)?;
            if !stopping && let Some(turn) = wait.ask(Instant::now())? {
                match turn {
                    Turn::Holds => return Ok(()),
                    Turn::StandBy { holder } if !said => {
                        tracing::info!("standing by; pod {holder} holds the claim");
                        said = true;
                    }
                    Turn::StandBy { .. } => {}
                }
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Returns once this pod does not hold the claim any more.
    pub async fn lost(&self) -> Result<(), LockError> {
        while self.may_act()? {
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Asked right before each write: only the holder acts.
    pub fn may_act(&self) -> Result<bool, LockError> {
        match &self.pod {
            None => Ok(true),
            Some(pod) => Ok(pod.claim.look()? == Holder::Own),
        }
    }

    /// The restarts of this node.
    pub fn warm_restart(&self, dirs: &RunDirs) -> WarmRestart {
        WarmRestart { dirs: dirs.clone(), folder: self.folder.clone() }
    }

    /// True when the last warm restart of `ovs-vswitchd` ended by the watchdog, or by the bound.
    pub fn is_flow_restore_overdue(&self, dirs: &RunDirs) -> bool {
        let last = self.warm_restart(dirs).read(Daemon::OvsVswitchd);
        last.is_some_and(|hand_over| hand_over.phase == Phase::Overdue)
    }

    /// Leaves the grants where the probes read them. Says whether anything changed.
    pub fn mirror_grants(&self, grants: &[String]) -> Result<bool, LockError> {
        let mut pods = Vec::with_capacity(grants.len());
        for grant in grants {
            match grant.parse() {
                Ok(uid) => pods.push(uid),
                Err(error) => tracing::warn!("a grant in the OVNChassisNode is no pod's uid: {error}"),
            }
        }
        self.folder.write_grants(&pods)
    }
}
