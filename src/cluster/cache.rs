//! What a watch has shown, never older than what we wrote ourselves.
//!
//! A watch lags. Whoever writes an object puts the API server's answer in here at once; a watch event that is older than
//! that is dropped, and an object that we deleted is not brought back by a late event.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::{Resource, ResourceExt};
use tokio::sync::watch;

/// Namespace (empty for cluster-scoped kinds) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub fn of<K: Resource>(object: &K) -> Self {
        Self::new(object.meta().namespace.clone().unwrap_or_default(), object.meta().name.clone().unwrap_or_default())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// Called after each change with what was and what is.
type OnChange<K> = Box<dyn Fn(Option<&K>, Option<&K>) + Send + Sync>;

/// Objects of one kind. Cheap to clone.
pub struct Cache<K> {
    inner: Arc<Inner<K>>,
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

struct Inner<K> {
    state: Mutex<State<K>>,
    synced: watch::Sender<bool>,
    on_change: OnChange<K>,
}

struct State<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    /// Uids that we deleted: late events about them are dropped.
    deleted: BTreeSet<String>,
    /// Keys that a list under way has shown so far, or that we wrote since it began.
    listed: Option<BTreeSet<ObjectKey>>,
}

/// Resource versions are numbers that grow in every API server there is; one that is not counts as new.
fn version<K: Resource>(object: &K) -> u64 {
    object.resource_version().and_then(|v| v.parse().ok()).unwrap_or(u64::MAX)
}

/// Most tombstones that are kept; more of them than events can be late.
const MAX_TOMBSTONES: usize = 4096;

impl<K: Resource> Cache<K> {
    /// An empty cache; `on_change` runs after each change, outside the lock, and must not block.
    pub fn new(on_change: impl Fn(Option<&K>, Option<&K>) + Send + Sync + 'static) -> Self {
        let state = State { objects: BTreeMap::new(), deleted: BTreeSet::new(), listed: None };
        let inner =
            Inner { state: Mutex::new(state), synced: watch::Sender::new(false), on_change: Box::new(on_change) };
        Self { inner: Arc::new(inner) }
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.state().objects.get(key).cloned()
    }

    /// All objects, by key.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.state().objects.values().cloned().collect()
    }

    /// Objects that `wanted` picks, by key.
    pub fn select(&self, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.state().objects.values().filter(|o| wanted(o)).cloned().collect()
    }

    /// Objects of one namespace that `wanted` picks.
    pub fn select_in(&self, namespace: &str, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let from = ObjectKey::new(namespace, "");
        self.state()
            .objects
            .range(from..)
            .take_while(|(key, _)| key.namespace == namespace)
            .filter(|(_, object)| wanted(object))
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// Whether the first list is complete.
    pub fn is_synced(&self) -> bool {
        *self.inner.synced.borrow()
    }

    /// Returns once the first list is complete.
    pub async fn synced(&self) {
        let mut receiver = self.inner.synced.subscribe();
        // The sender lives as long as self.
        let _ = receiver.wait_for(|done| *done).await;
    }

    /// Takes the answer to our own write, or an event of the watch. Older states are dropped.
    pub fn put(&self, object: K) {
        let key = ObjectKey::of(&object);
        let (old, new) = {
            let mut state = self.state();
            if let Some(listed) = &mut state.listed {
                listed.insert(key.clone());
            }
            if object.meta().uid.as_ref().is_some_and(|uid| state.deleted.contains(uid)) {
                return;
            }
            if let Some(old) = state.objects.get(&key)
                && version(&**old) >= version(&object)
            {
                return;
            }
            let new = Arc::new(object);
            let old = state.objects.insert(key, Arc::clone(&new));
            (old, new)
        };
        (self.inner.on_change)(old.as_deref(), Some(&new));
    }

    /// The watch says that the object is gone.
    pub fn remove(&self, object: &K) {
        let key = ObjectKey::of(object);
        let old = {
            let mut state = self.state();
            if let Some(uid) = &object.meta().uid {
                state.deleted.remove(uid);
            }
            match state.objects.get(&key) {
                // Already re-created, and we know the newer one.
                Some(old) if old.meta().uid != object.meta().uid && version(&**old) > version(object) => return,
                _ => state.objects.remove(&key),
            }
        };
        if let Some(old) = old {
            (self.inner.on_change)(Some(&old), None);
        }
    }

    /// We deleted the object: it is gone now, whatever late events say.
    pub fn remove_deleted(&self, key: &ObjectKey, uid: &str) {
        let old = {
            let mut state = self.state();
            if state.deleted.len() >= MAX_TOMBSTONES {
                state.deleted.pop_first();
            }
            state.deleted.insert(uid.to_owned());
            match state.objects.get(key) {
                Some(old) if old.meta().uid.as_deref() == Some(uid) => state.objects.remove(key),
                _ => None,
            }
        };
        if let Some(old) = old {
            (self.inner.on_change)(Some(&old), None);
        }
    }

    /// A new list begins.
    pub fn list_begins(&self) {
        self.state().listed = Some(BTreeSet::new());
    }

    /// The list is complete: what it did not show is gone.
    pub fn list_ends(&self) {
        let gone: Vec<Arc<K>> = {
            let mut state = self.state();
            let listed = state.listed.take().unwrap_or_default();
            let keys: Vec<ObjectKey> = state.objects.keys().filter(|k| !listed.contains(*k)).cloned().collect();
            keys.iter().filter_map(|k| state.objects.remove(k)).collect()
        };
        for old in &gone {
            (self.inner.on_change)(Some(old), None);
        }
        self.inner.synced.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some("ns".into());
        object.metadata.name = Some(name.into());
        object.metadata.uid = Some(uid.into());
        object.metadata.resource_version = Some(version.to_string());
        object
    }

    fn seen(cache: &Cache<ConfigMap>) -> Vec<(String, u64)> {
        cache.all().iter().map(|o| (o.name_any(), version(&**o))).collect()
    }

    #[test]
    fn an_event_older_than_our_own_write_is_dropped() {
        let cache = Cache::new(|_, _| {});
        cache.put(object("a", "1", 7));
        cache.put(object("a", "1", 5));
        assert_eq!(seen(&cache), [("a".into(), 7)]);
    }

    #[test]
    fn what_we_deleted_does_not_come_back_with_a_late_event() {
        let cache = Cache::new(|_, _| {});
        cache.put(object("a", "1", 7));
        cache.remove_deleted(&ObjectKey::new("ns", "a"), "1");
        cache.put(object("a", "1", 8));
        assert!(seen(&cache).is_empty());
        // Created again: another uid.
        cache.put(object("a", "2", 9));
        cache.remove(&object("a", "1", 8));
        assert_eq!(seen(&cache), [("a".into(), 9)]);
    }

    #[test]
    fn a_new_list_drops_what_it_does_not_show_but_not_what_we_wrote_meanwhile() {
        let cache = Cache::new(|_, _| {});
        cache.put(object("a", "1", 1));
        cache.list_begins();
        cache.put(object("b", "2", 2));
        cache.list_ends();
        assert_eq!(seen(&cache), [("b".into(), 2)]);
        assert!(cache.is_synced());
    }
}
