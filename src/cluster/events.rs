//! Events that people find with `kubectl get events` and `kubectl describe`.

use std::convert::Infallible;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource, ResourceExt};
use tokio::sync::mpsc;

use super::call::CALL_DEADLINE;

/// How loud an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Normal,
    Warning,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    pub severity: Severity,
    pub reason: &'static str,
    pub action: &'static str,
    pub note: String,
}

/// Publishes events; equal ones within a few minutes become one with a counter.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
    later: mpsc::Sender<(ObjectReference, Happening)>,
}

/// Events that nobody waits for; whoever holds it has to run it.
pub struct LaterEvents {
    events: Events,
    queue: mpsc::Receiver<(ObjectReference, Happening)>,
}

impl LaterEvents {
    /// Publishes them one after the other, for ever.
    pub async fn run(mut self) -> Infallible {
        loop {
            match self.queue.recv().await {
                Some((about, happening)) => self.events.publish(&about, &happening).await,
                // Not while `events` holds a sender.
                None => std::future::pending().await,
            }
        }
    }
}

/// Most events that wait; past that they are logged and dropped.
const MOST_WAITING: usize = 256;

/// Longest note that the API accepts.
const MAX_NOTE: usize = 1000;

impl Events {
    pub fn new(client: Client, instance: &str) -> (Self, LaterEvents) {
        let reporter = Reporter { controller: "ovn-chassis-controller".into(), instance: Some(instance.to_owned()) };
        let (later, queue) = mpsc::channel(MOST_WAITING);
        let events = Self { recorder: Recorder::new(client, reporter), later };
        (events.clone(), LaterEvents { events, queue })
    }

    /// Publishes an event without anybody waiting for it: no drain is to take longer because it is told.
    pub fn publish_later(&self, about: ObjectReference, happening: Happening) {
        if let Err(error) = self.later.try_send((about, happening)) {
            tracing::warn!(%error, "event dropped");
        }
    }

    /// Publishes one event about an object. A failure is logged: no work may depend on an event.
    pub async fn publish(&self, about: &ObjectReference, happening: &Happening) {
        let mut note: String = happening.note.clone();
        if note.len() > MAX_NOTE {
            let mut end = MAX_NOTE;
            while !note.is_char_boundary(end) {
                end -= 1;
            }
            note.truncate(end);
            note.push('…');
        }
        let event = Event {
            type_: match happening.severity {
                Severity::Normal => EventType::Normal,
                Severity::Warning => EventType::Warning,
            },
            reason: happening.reason.into(),
            note: Some(note),
            action: happening.action.into(),
            secondary: None,
        };
        match tokio::time::timeout(CALL_DEADLINE, self.recorder.publish(&event, about)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(reason = happening.reason, %error, "event not published"),
            Err(_) => tracing::warn!(reason = happening.reason, "event not published in time"),
        }
    }
}

/// Refers to an object.
pub fn reference<K: Resource>(object: &K) -> ObjectReference
where
    K::DynamicType: Default,
{
    let kind = K::DynamicType::default();
    ObjectReference {
        api_version: Some(K::api_version(&kind).into_owned()),
        kind: Some(K::kind(&kind).into_owned()),
        name: Some(object.name_any()),
        namespace: object.namespace(),
        uid: object.uid(),
        resource_version: object.resource_version(),
        ..ObjectReference::default()
    }
}
