//! Who leads: a Lease, claimed, renewed, and given up before it lapses.
//!
//! A candidate takes a lease over when it has not changed for its whole duration by the candidate's own clock, so clocks
//! need not agree. The holder counts its claim from *before* the renewal was sent and for two thirds of the duration:
//! with the API server out of reach it stops working well before another one may start. [`Claim::check`] stands before
//! each write.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;

use super::call::{ClusterError, call_within, now};

/// Which lease, and who asks.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    pub namespace: String,
    pub name: String,
    pub identity: String,
    pub duration: Duration,
}

impl LeaseSettings {
    /// How long a renewal counts for the holder itself.
    fn own_trust(&self) -> Duration {
        self.duration * 2 / 3
    }

    fn retry(&self) -> Duration {
        (self.duration / 8).clamp(Duration::from_millis(100), Duration::from_secs(2))
    }

    fn what(&self, verb: &str) -> String {
        format!("{verb} Lease {}/{}", self.namespace, self.name)
    }
}

/// Proof of leadership, with an end. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Claim {
    until: Arc<Mutex<Option<Instant>>>,
    held: Arc<watch::Sender<bool>>,
}

impl Default for Claim {
    fn default() -> Self {
        Self { until: Arc::default(), held: Arc::new(watch::Sender::new(false)) }
    }
}

impl Claim {
    fn set(&self, until: Option<Instant>) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        let held = until.is_some();
        self.held.send_if_modified(|old| std::mem::replace(old, held) != held);
    }

    /// Whether the claim still stands.
    pub fn is_held(&self) -> bool {
        self.until.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| Instant::now() < until)
    }

    /// Refuses a write without a claim.
    pub fn check(&self, what: &str) -> Result<(), ClusterError> {
        if self.is_held() { Ok(()) } else { Err(ClusterError::NotLeading { what: what.to_owned() }) }
    }

    /// Returns once the claim is won.
    pub async fn won(&self) {
        let mut receiver = self.held.subscribe();
        // The sender lives as long as self.
        let _ = receiver.wait_for(|held| *held).await;
    }

    /// A claim for tools and tests that work without a lease.
    pub fn without_lease() -> Self {
        let claim = Self::default();
        claim.set(Some(Instant::now() + Duration::from_secs(365 * 24 * 3600)));
        claim
    }
}

/// The claim was lost.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("the lease {lease} is held by {holder:?} now")]
    Taken { lease: String, holder: String },
    #[error("the lease {lease} could not be renewed in time and is given up")]
    NotRenewed { lease: String, source: ClusterError },
}

/// What was last seen of the lease, and since when it has not changed.
struct Seen {
    version: Option<String>,
    since: Instant,
}

/// Waits for the lease, holds it, and returns only when it is lost.
pub async fn lead(client: Client, settings: LeaseSettings, claim: Claim) -> LeaseError {
    let api: Api<Lease> = Api::namespaced(client, &settings.namespace);
    let mut seen = Seen { version: None, since: Instant::now() };
    let mut reported = String::new();
    let mut held = loop {
        let asked = Instant::now();
        match try_acquire(&api, &settings, &mut seen).await {
            Ok(Attempt::Won(lease)) => {
                claim.set(Some(asked + settings.own_trust()));
                tracing::info!(lease = %settings.name, identity = %settings.identity, "this process leads");
                break *lease;
            }
            Ok(Attempt::HeldBy(holder)) => {
                if reported != holder {
                    tracing::info!(lease = %settings.name, %holder, "another process leads; standing by");
                    reported = holder;
                }
            }
            Err(error) => tracing::warn!(%error, "cannot claim the lease; trying again"),
        }
        tokio::time::sleep(settings.retry()).await;
    };
    let mut trusted_until = Instant::now() + settings.own_trust();
    loop {
        tokio::time::sleep(settings.retry()).await;
        let asked = Instant::now();
        match renew(&api, &settings, &held).await {
            Ok(lease) => {
                held = lease;
                trusted_until = asked + settings.own_trust();
                claim.set(Some(trusted_until));
            }
            // Somebody else wrote: either it was taken, or an edit that a fresh read makes good.
            Err(ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => {
                match try_acquire(&api, &settings, &mut seen).await {
                    Ok(Attempt::Won(lease)) => {
                        held = *lease;
                        trusted_until = asked + settings.own_trust();
                        claim.set(Some(trusted_until));
                    }
                    Ok(Attempt::HeldBy(holder)) => {
                        claim.set(None);
                        return LeaseError::Taken { lease: settings.name, holder };
                    }
                    Err(error) => tracing::warn!(%error, "cannot renew the lease; trying again"),
                }
            }
            Err(error) if Instant::now() + settings.retry() >= trusted_until => {
                claim.set(None);
                return LeaseError::NotRenewed { lease: settings.name, source: error };
            }
            Err(error) => tracing::warn!(%error, "cannot renew the lease; trying again"),
        }
    }
}

/// Lets go of the lease, so that a standby need not wait for it to lapse. Call it when all work has stopped.
pub async fn release(client: Client, settings: &LeaseSettings, claim: &Claim) {
    if !claim.is_held() {
        return;
    }
    claim.set(None);
    let api: Api<Lease> = Api::namespaced(client, &settings.namespace);
    let released = async {
        let mut lease = call_within(Duration::from_secs(2), settings.what("get"), api.get(&settings.name)).await?;
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(settings.identity.as_str()) {
            return Ok(());
        }
        spec.holder_identity = None;
        let params = PostParams::default();
        let write = api.replace(&settings.name, &params, &lease);
        call_within(Duration::from_secs(2), settings.what("release"), write).await.map(|_| ())
    };
    if let Err::<(), ClusterError>(error) = released.await {
        tracing::warn!(%error, "the lease lapses by itself");
    }
}

enum Attempt {
    Won(Box<Lease>),
    HeldBy(String),
}

async fn try_acquire(api: &Api<Lease>, settings: &LeaseSettings, seen: &mut Seen) -> Result<Attempt, ClusterError> {
    let deadline = settings.own_trust() / 2;
    let current = match call_within(deadline, settings.what("get"), api.get(&settings.name)).await {
        Ok(lease) => lease,
        Err(ClusterError::NotFound { .. }) => {
            let metadata = ObjectMeta { name: Some(settings.name.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(claimed(settings, None)) };
            let params = PostParams::default();
            return match call_within(deadline, settings.what("create"), api.create(&params, &lease)).await {
                Ok(lease) => Ok(Attempt::Won(Box::new(lease))),
                Err(ClusterError::AlreadyExists { .. }) => Ok(Attempt::HeldBy("another process".into())),
                Err(error) => Err(error),
            };
        }
        Err(error) => return Err(error),
    };
    let version = current.metadata.resource_version.clone();
    if seen.version != version {
        *seen = Seen { version, since: Instant::now() };
    }
    let spec = current.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.clone().unwrap_or_default();
    let lasts = Duration::from_secs(u64::try_from(spec.lease_duration_seconds.unwrap_or(15)).unwrap_or(15));
    let free = holder.is_empty() || holder == settings.identity || seen.since.elapsed() >= lasts;
    if !free {
        return Ok(Attempt::HeldBy(holder));
    }
    let mut lease = current;
    lease.spec = Some(claimed(settings, Some(&spec)));
    let params = PostParams::default();
    match call_within(deadline, settings.what("claim"), api.replace(&settings.name, &params, &lease)).await {
        Ok(lease) => Ok(Attempt::Won(Box::new(lease))),
        Err(ClusterError::Conflict { .. }) => Ok(Attempt::HeldBy("another process".into())),
        Err(error) => Err(error),
    }
}

fn claimed(settings: &LeaseSettings, before: Option<&LeaseSpec>) -> LeaseSpec {
    let own = before.is_some_and(|b| b.holder_identity.as_deref() == Some(settings.identity.as_str()));
    let time = MicroTime(now());
    let transitions = before.and_then(|b| b.lease_transitions).unwrap_or(0);
    LeaseSpec {
        holder_identity: Some(settings.identity.clone()),
        lease_duration_seconds: Some(i32::try_from(settings.duration.as_secs()).unwrap_or(15).max(1)),
        acquire_time: before.filter(|_| own).and_then(|b| b.acquire_time.clone()).or_else(|| Some(time.clone())),
        renew_time: Some(time),
        lease_transitions: Some(if own { transitions } else { transitions.saturating_add(1) }),
        ..LeaseSpec::default()
    }
}

async fn renew(api: &Api<Lease>, settings: &LeaseSettings, held: &Lease) -> Result<Lease, ClusterError> {
    let mut lease = held.clone();
    if let Some(spec) = &mut lease.spec {
        spec.renew_time = Some(MicroTime(now()));
    }
    let deadline = settings.own_trust() / 3;
    let params = PostParams::default();
    call_within(deadline, settings.what("renew"), api.replace(&settings.name, &params, &lease)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_ends_by_itself_and_refuses_writes_after_that() {
        let claim = Claim::default();
        assert!(claim.check("patch Node a").is_err());
        claim.set(Some(Instant::now() + Duration::from_secs(60)));
        assert!(claim.check("patch Node a").is_ok());
        claim.set(Some(Instant::now()));
        let error = claim.check("patch Node a").unwrap_err();
        assert_eq!(error.to_string(), "patch Node a: not sent, because this process does not lead (any more)");
    }

    #[test]
    fn the_holder_trusts_its_claim_for_less_than_others_wait() {
        let settings = LeaseSettings {
            namespace: "ns".into(),
            name: "l".into(),
            identity: "a".into(),
            duration: Duration::from_secs(15),
        };
        assert!(settings.own_trust() + settings.retry() < settings.duration);
    }
}
