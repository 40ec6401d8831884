//! Feeds a cache from a watch, for ever.

use std::convert::Infallible;
use std::fmt::Debug;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::cache::Cache;

/// What a kind whose definition is not installed means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// It has to be there: the cache stays unsynced until it is.
    Wait,
    /// No objects: the cache counts as synced and the watch goes on asking.
    IsEmpty,
}

/// First pause after a failed list or watch; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Follows full objects of one kind.
pub async fn follow<K>(api: Api<K>, config: watcher::Config, cache: Cache<K>, absent: Absent) -> Infallible
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default,
{
    let kind = K::kind(&K::DynamicType::default()).into_owned();
    feed(kind, watcher(api, config), cache, absent).await
}

/// Feeds a cache from any stream of watch events.
async fn feed<K: Resource>(
    kind: String,
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    cache: Cache<K>,
    absent: Absent,
) -> Infallible {
    let mut events = std::pin::pin!(events);
    let mut pause = FIRST_PAUSE;
    loop {
        match events.next().await {
            Some(Ok(event)) => {
                pause = FIRST_PAUSE;
                match event {
                    Event::Init => cache.list_begins(),
                    Event::InitApply(object) | Event::Apply(object) => cache.put(object),
                    Event::InitDone => cache.list_ends(),
                    Event::Delete(object) => cache.remove(&object),
                }
            }
            Some(Err(error)) => {
                if absent == Absent::IsEmpty && is_absent(&error) {
                    tracing::debug!(%kind, "this kind is not installed");
                    cache.list_begins();
                    cache.list_ends();
                } else if is_expired(&error) {
                    tracing::debug!(%kind, "the watch is too old and starts over");
                } else {
                    tracing::warn!(%kind, %error, "watch failed; trying again in {pause:?}");
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            // kube's watcher never ends; should it, waiting is all that is left, and the caller's health check says so.
            None => std::future::pending::<()>().await,
        }
    }
}

fn code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => Some(status.code),
        watcher::Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}

fn is_absent(error: &watcher::Error) -> bool {
    code(error) == Some(404)
}

fn is_expired(error: &watcher::Error) -> bool {
    code(error) == Some(410)
}
