//! Keeps every version of the objects of some kinds, in the order in which the API server hands them out, so that a test can assert on the whole history.
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::Request;
use futures::StreamExt;
use kube::core::WatchEvent;
use serde_json::Value;

use super::kube_api::{Kind, KubeApi};
use super::{runtime, until};

#[derive(Clone, Debug)]
pub struct Version {
    pub at: Instant,
    pub kind: Kind,
    pub deleted: bool,
    pub object: Value,
}

impl Version {
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }
    pub fn resource_version(&self) -> u64 {
        self.object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(0)
    }
}

pub struct Recorder {
    versions: Arc<Mutex<Vec<Version>>>,
    broken: Arc<Mutex<Option<String>>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Recorder {
    /// Starts before it returns: a write after this call is recorded.
    pub fn start(kube: &KubeApi, namespace: &str, kinds: &[Kind]) -> Self {
        let versions = Arc::new(Mutex::new(Vec::new()));
        let broken = Arc::new(Mutex::new(None));
        let mut tasks = Vec::new();
        for kind in kinds {
            let path = kind.path(namespace, "");
            let list = kube
                .request("GET", &path, "application/json", None)
                .unwrap_or_else(|e| panic!("cannot list {}: {e}", kind.plural));
            let mut from = list["metadata"]["resourceVersion"].as_str().expect("a list has a version").to_owned();
            let (client, versions, broken, kind) = (kube.client.clone(), versions.clone(), broken.clone(), *kind);
            tasks.push(runtime().spawn(async move {
                loop {
                    if let Err(cause) = follow(&client, kind, &path, &mut from, &versions).await {
                        broken.lock().expect("not poisoned").get_or_insert(format!("{}: {cause}", kind.plural));
                        return;
                    }
                }
            }));
        }
        Self { versions, broken, tasks }
    }

    /// All versions so far, in the order of their resourceVersion (one etcd counts them all, so the order holds across kinds).
    #[track_caller]
    pub fn history(&self) -> Vec<Version> {
        if let Some(cause) = self.broken.lock().expect("not poisoned").as_ref() {
            panic!("the recorder lost its watch, so the history has a hole: {cause}");
        }
        let mut all = self.versions.lock().expect("not poisoned").clone();
        all.sort_by_key(Version::resource_version);
        all
    }

    pub fn of(&self, kind: Kind, name: &str) -> Vec<Version> {
        self.history().into_iter().filter(|v| v.kind == kind && v.name() == name).collect()
    }

    /// The first version after resourceVersion `after` that `wanted` takes: seen when the watch brings it, without asking the API server.
    #[track_caller]
    pub fn wait_for(&self, what: &str, kind: Kind, after: u64, wanted: impl Fn(&Value) -> bool) -> Version {
        until(what, super::world::SOON, || {
            let all = self.versions.lock().expect("not poisoned");
            // Newest first: the history is long and what is waited for is at its end.
            let recent = all.iter().rev().take_while(|v| v.kind != kind || v.resource_version() > after);
            let found = recent.filter(|v| v.kind == kind && !v.deleted && wanted(&v.object)).last();
            found.cloned().ok_or("not yet")
        })
    }

    /// Waits until the watch has brought what was written up to `version`: a history read too early would miss the last writes.
    pub fn catch_up(&self, kind: Kind, name: &str, version: &str) {
        let wanted: u64 = version.parse().unwrap_or(0);
        until("the recorder to catch up", Duration::from_secs(10), || {
            let seen = self.of(kind, name).iter().map(Version::resource_version).max().unwrap_or(0);
            if seen >= wanted { Ok(()) } else { Err(format!("{seen} of {wanted}")) }
        });
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// One watch to its end. An interrupted one is taken up at the last version seen, so nothing is missed.
async fn follow(
    client: &kube::Client,
    kind: Kind,
    path: &str,
    from: &mut String,
    versions: &Mutex<Vec<Version>>,
) -> Result<(), String> {
    let uri = format!("{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds=280&resourceVersion={from}");
    let request = Request::get(uri).body(Vec::new()).map_err(|e| e.to_string())?;
    let Ok(stream) = client.request_events::<Value>(request).await else {
        // The API server restarts in some tests.
        tokio::time::sleep(Duration::from_millis(200)).await;
        return Ok(());
    };
    let mut stream = std::pin::pin!(stream);
    while let Some(event) = stream.next().await {
        let (object, deleted) = match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => (object, false),
            Ok(WatchEvent::Deleted(object)) => (object, true),
            Ok(WatchEvent::Bookmark(mark)) => {
                *from = mark.metadata.resource_version;
                continue;
            }
            Ok(WatchEvent::Error(status)) => return Err(format!("{status:?}")),
            Err(_) => return Ok(()),
        };
        if let Some(version) = object["metadata"]["resourceVersion"].as_str() {
            *from = version.to_owned();
        }
        versions.lock().map_err(|e| e.to_string())?.push(Version { at: Instant::now(), kind, deleted, object });
    }
    Ok(())
}
