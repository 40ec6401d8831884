//! One connection's conversation, without its I/O: messages in, messages and events out.
//!
//! It asks the server who it is (`_Server`), goes on only with one that is fit to act through, then fetches the schema and
//! starts or resumes the monitors. The server may change its mind at any time (a leader steps down): then
//! [`Session::receive`] returns the fault and the connection is over.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::error::{Kind, ServerError};
use super::fault::Fault;
use super::frame::Message;
use super::member::{self, Demand, Member, Model, Watermark};
use super::replica::{Followed, Follower, Protocol, Schema};
use super::value::ValueError;

/// Updates kept for a monitor whose reply has not come yet. A server sends none in practice.
const MOST_EARLY: usize = 1_000;
const SERVER_MONITOR: &str = "_server";
const SERVER_TABLE: &str = "Database";

#[derive(Debug)]
pub enum Event {
    /// The server is fit to act through; again whenever what it says about itself changes.
    Fit(Member),
    Answer {
        id: u64,
        answer: Result<Value, ServerError>,
    },
    /// A monitor's replica is complete or has changed.
    View {
        monitor: usize,
    },
}

#[derive(Debug)]
enum Pending {
    Server,
    Schema,
    Monitor { index: usize, protocol: Protocol },
    Echo,
    Caller,
}

#[derive(Debug)]
struct Monitor {
    follower: Follower,
    synced: bool,
    early: Vec<(String, Vec<Value>)>,
}

#[derive(Debug)]
pub struct Session {
    database: String,
    demand: Demand,
    watermark: Watermark,
    next_id: u64,
    pending: BTreeMap<u64, Pending>,
    server: Follower,
    member: Option<Member>,
    schema: Option<Schema>,
    monitors: Vec<Monitor>,
    outgoing: Vec<u8>,
    events: Vec<Event>,
}

impl Session {
    /// Starts a conversation; the monitors are those of the connection before, to be resumed.
    pub fn new(database: &str, demand: Demand, watermark: Watermark, followers: Vec<Follower>) -> Self {
        let of_server = BTreeMap::from([(SERVER_TABLE.to_owned(), Followed::columns(&member::COLUMNS))]);
        let mut session = Self {
            database: database.to_owned(),
            demand,
            watermark,
            next_id: 1,
            pending: BTreeMap::new(),
            server: Follower::new(of_server),
            member: None,
            schema: None,
            monitors: Vec::new(),
            outgoing: Vec::new(),
            events: Vec::new(),
        };
        session.monitors.extend(followers.into_iter().map(Monitor::new));
        let params = session.server.request("_Server", SERVER_MONITOR, Protocol::Plain);
        session.send(Pending::Server, Protocol::Plain.method(), params);
        session
    }

    /// What has to outlive the connection.
    pub fn into_parts(self) -> (Watermark, Vec<Follower>) {
        (self.watermark, self.monitors.into_iter().map(|monitor| monitor.follower).collect())
    }

    pub fn is_fit(&self) -> bool {
        self.member.is_some()
    }

    /// Whether every monitor holds what the server holds.
    pub fn is_synced(&self) -> bool {
        self.is_fit() && self.monitors.iter().all(|monitor| monitor.synced)
    }

    pub fn schema(&self) -> Option<&Schema> {
        self.schema.as_ref()
    }

    pub fn follower(&self, monitor: usize) -> Option<&Follower> {
        self.monitors.get(monitor).map(|monitor| &monitor.follower)
    }

    pub fn take_outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Sends a caller's request; its answer comes as an event with this id. `params` is JSON text: a long request is written once, before it queues.
    pub fn request(&mut self, method: &str, params: &str) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.pending.insert(id, Pending::Caller);
        let request = format!("{{\"id\":{id},\"method\":{},\"params\":{params}}}", Value::from(method));
        self.outgoing.extend_from_slice(request.as_bytes());
        id
    }

    /// The caller is gone: its answer, should it come, is dropped.
    pub fn forget(&mut self, id: u64) {
        self.pending.remove(&id);
    }

    pub fn probe(&mut self) {
        self.send(Pending::Echo, "echo", json!([]));
    }

    pub fn follow(&mut self, follower: Follower) {
        self.monitors.push(Monitor::new(follower));
        if self.is_fit() {
            match self.schema {
                Some(_) => self.start_monitor(self.monitors.len() - 1, Protocol::CondSince),
                None => self.fetch_schema(),
            }
        }
    }

    fn fetch_schema(&mut self) {
        if !self.pending.values().any(|pending| matches!(pending, Pending::Schema)) {
            let params = json!([self.database]);
            self.send(Pending::Schema, "get_schema", params);
        }
    }

    fn send(&mut self, pending: Pending, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.pending.insert(id, pending);
        let message = Message::Request { id: id.into(), method: method.to_owned(), params };
        self.outgoing.extend_from_slice(&message.to_bytes());
        id
    }

    fn start_monitor(&mut self, index: usize, protocol: Protocol) {
        let Some(monitor) = self.monitors.get(index) else { return };
        let params = monitor.follower.request(&self.database, &monitor_id(index), protocol);
        self.send(Pending::Monitor { index, protocol }, protocol.method(), params);
    }

    pub fn receive(&mut self, message: Message) -> Result<(), Fault> {
        match message {
            Message::Request { id, method, params } => {
                let reply = if method == "echo" {
                    Message::Reply { id, result: params, error: None }
                } else {
                    Message::Reply { id, result: Value::Null, error: Some(json!("unknown method")) }
                };
                self.outgoing.extend_from_slice(&reply.to_bytes());
                Ok(())
            }
            Message::Notification { method, params } => self.receive_notification(&method, params),
            Message::Reply { id, result, error } => {
                let Some((id, pending)) = id.as_u64().and_then(|id| self.pending.remove_entry(&id)) else {
                    // The answer of a request that was given up.
                    return Ok(());
                };
                let answer = match error {
                    None => Ok(result),
                    Some(error) => Err(ServerError::parse(&error)),
                };
                self.receive_answer(id, pending, answer)
            }
        }
    }

    fn receive_answer(&mut self, id: u64, pending: Pending, answer: Result<Value, ServerError>) -> Result<(), Fault> {
        match (pending, answer) {
            (Pending::Caller, answer) => {
                self.events.push(Event::Answer { id, answer });
                Ok(())
            }
            (Pending::Echo, _) => Ok(()),
            (Pending::Server, Ok(reply)) => {
                self.server.accept_reply(Protocol::Plain, reply, &Schema::default())?;
                self.assess()
            }
            (Pending::Server, Err(error)) if error.kind == Kind::UnknownDatabase => {
                // Before OVS 2.9 there is no `_Server`, and no cluster either.
                let alone = Member {
                    model: Model::Standalone,
                    leader: true,
                    connected: true,
                    index: None,
                    cid: None,
                    sid: None,
                };
                self.become_fit(alone);
                Ok(())
            }
            (Pending::Server, Err(error)) => Err(Fault::Refused { request: "monitor of _Server", error }),
            (Pending::Schema, Ok(reply)) => {
                let schema = Schema::parse(&reply)?;
                for monitor in &self.monitors {
                    monitor.follower.check(&schema)?;
                }
                self.schema = Some(schema);
                for index in 0..self.monitors.len() {
                    self.start_monitor(index, Protocol::CondSince);
                }
                Ok(())
            }
            (Pending::Schema, Err(error)) => Err(Fault::Refused { request: "get_schema", error }),
            (Pending::Monitor { index, protocol }, Ok(reply)) => {
                let schema = self.schema.take().unwrap_or_default();
                let accepted = self.accept_monitor(index, protocol, reply, &schema);
                self.schema = Some(schema);
                accepted
            }
            (Pending::Monitor { index, protocol }, Err(error)) => match protocol.older() {
                Some(older) if error.kind == Kind::UnknownMethod => {
                    self.start_monitor(index, older);
                    Ok(())
                }
                _ => Err(Fault::Refused { request: protocol.method(), error }),
            },
        }
    }

    fn accept_monitor(&mut self, index: usize, protocol: Protocol, reply: Value, schema: &Schema) -> Result<(), Fault> {
        let Some(monitor) = self.monitors.get_mut(index) else { return Ok(()) };
        monitor.follower.accept_reply(protocol, reply, schema)?;
        for (method, parts) in std::mem::take(&mut monitor.early) {
            monitor.follower.accept_update(&method, parts, schema)?;
        }
        monitor.synced = true;
        self.events.push(Event::View { monitor: index });
        Ok(())
    }

    fn receive_notification(&mut self, method: &str, params: Value) -> Result<(), Fault> {
        let Value::Array(params) = params else { return Ok(()) };
        let mut params = params.into_iter();
        let Some(Value::String(id)) = params.next() else { return Ok(()) };
        match method {
            "update" | "update2" | "update3" if id == SERVER_MONITOR => {
                self.server.accept_update(method, params, &Schema::default())?;
                // Before the first reply there is nothing complete to judge.
                if self.is_fit() { self.assess() } else { Ok(()) }
            }
            "update" | "update2" | "update3" => {
                let Some(index) = monitor_index(&id) else { return Ok(()) };
                let Some(monitor) = self.monitors.get_mut(index) else { return Ok(()) };
                match &self.schema {
                    Some(schema) if monitor.synced => {
                        monitor.follower.accept_update(method, params, schema)?;
                        self.events.push(Event::View { monitor: index });
                    }
                    _ if monitor.early.len() >= MOST_EARLY => return Err(Fault::TooManyEarly(MOST_EARLY)),
                    _ => monitor.early.push((method.to_owned(), params.collect())),
                }
                Ok(())
            }
            "monitor_canceled" => Err(Fault::MonitorCanceled(id)),
            _ => Ok(()),
        }
    }

    /// Reads what the server says about the database now, and whether that will do.
    fn assess(&mut self) -> Result<(), Fault> {
        let reply = |source: ValueError| Fault::Reply { request: "monitor of _Server", source };
        for row in self.server.replica().table(SERVER_TABLE).values() {
            if row.text("name").map_err(reply)? != self.database {
                continue;
            }
            let member = Member::parse(row).map_err(reply)?;
            member.check(self.demand, &self.watermark)?;
            self.watermark.note(&member);
            self.become_fit(member);
            return Ok(());
        }
        Err(Fault::NoDatabase { database: self.database.clone() })
    }

    fn become_fit(&mut self, member: Member) {
        let first = self.member.is_none();
        if self.member.as_ref() != Some(&member) {
            self.events.push(Event::Fit(member.clone()));
        }
        self.member = Some(member);
        if first && !self.monitors.is_empty() {
            self.fetch_schema();
        }
    }
}

impl Monitor {
    fn new(follower: Follower) -> Self {
        Self { follower, synced: false, early: Vec::new() }
    }
}

fn monitor_id(index: usize) -> String {
    format!("m{index}")
}

fn monitor_index(id: &str) -> Option<usize> {
    id.strip_prefix('m')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ovsdb::frame::FrameReader;

    const TXN: &str = "00000000-0000-0000-0000-0000000000ff";

    fn sent(session: &mut Session) -> Vec<Value> {
        let mut frames = FrameReader::new(1 << 20);
        frames.push(&session.take_outgoing());
        std::iter::from_fn(|| frames.next_frame().unwrap())
            .map(|frame| serde_json::from_slice(&frame).unwrap())
            .collect()
    }

    fn reply(id: &Value, result: Value) -> Message {
        Message::Reply { id: id.clone(), result, error: None }
    }

    fn server_row(leader: bool) -> Value {
        json!({"Database": {"00000000-0000-0000-0000-000000000001": {"new": {"name": "T", "model": "clustered",
            "connected": true, "leader": leader, "index": 7, "cid": ["set", []], "sid": ["set", []]}}}})
    }

    fn follower() -> Follower {
        Follower::new(BTreeMap::from([("X".to_owned(), Followed::columns(&["name"]))]))
    }

    /// A session that has met a fit server and answered nothing else yet.
    fn fit(followers: Vec<Follower>) -> Session {
        let mut session = Session::new("T", Demand::Leader, Watermark::default(), followers);
        let first = sent(&mut session);
        session.receive(reply(&first[0]["id"], server_row(true))).unwrap();
        session
    }

    fn sync(session: &mut Session) {
        let schema = json!({"tables": {"X": {"columns": {"name": {"type": "string"}}}}});
        let asked = sent(session);
        assert_eq!(asked[0]["method"], "get_schema");
        session.receive(reply(&asked[0]["id"], schema)).unwrap();
    }

    #[test]
    fn nothing_is_asked_of_a_server_before_it_is_known_to_be_fit() {
        let mut session = Session::new("T", Demand::Leader, Watermark::default(), vec![follower()]);
        let first = sent(&mut session);
        assert_eq!(first.len(), 1);
        assert_eq!(first[0]["params"][0], "_Server");
        let refused = session.receive(reply(&first[0]["id"], server_row(false)));
        assert!(matches!(refused, Err(Fault::Unfit(_))));
        assert!(!session.is_fit() && sent(&mut session).is_empty());
    }

    #[test]
    fn a_monitor_resumes_over_sessions_from_its_last_transaction() {
        let mut session = fit(vec![follower()]);
        assert!(session.is_fit() && !session.is_synced());
        sync(&mut session);
        let asked = sent(&mut session);
        assert_eq!(asked[0]["params"][3], "00000000-0000-0000-0000-000000000000");
        session.receive(reply(&asked[0]["id"], json!([false, TXN, {}]))).unwrap();
        assert!(session.is_synced());
        let (_, followers) = session.into_parts();
        let mut next = fit(followers);
        assert!(!next.is_synced(), "what the connection before knew is old");
        sync(&mut next);
        assert_eq!(sent(&mut next)[0]["params"][3], TXN);
    }

    #[test]
    fn a_leader_that_steps_down_ends_the_session() {
        let mut session = fit(vec![]);
        let params = json!([SERVER_MONITOR, server_row(false)]);
        let told = session.receive(Message::Notification { method: "update".to_owned(), params });
        assert!(matches!(told, Err(Fault::Unfit(_))));
    }

    #[test]
    fn answers_reach_their_callers_and_strangers_nobody() {
        let mut session = fit(vec![]);
        session.take_events();
        let kept = session.request("transact", "[\"T\"]");
        let forgotten = session.request("transact", "[\"T\"]");
        assert_eq!(sent(&mut session).len(), 2);
        session.forget(forgotten);
        for id in [forgotten, 999, kept] {
            session.receive(reply(&id.into(), json!([]))).unwrap();
        }
        let events = session.take_events();
        assert!(matches!(events.as_slice(), [Event::Answer { id, answer: Ok(_) }] if *id == kept), "{events:?}");
    }

    #[test]
    fn updates_before_the_reply_are_bounded() {
        let mut session = fit(vec![follower()]);
        let early = || Message::Notification { method: "update3".to_owned(), params: json!(["m0", TXN, {}]) };
        for _ in 0..MOST_EARLY {
            session.receive(early()).unwrap();
        }
        assert!(matches!(session.receive(early()), Err(Fault::TooManyEarly(_))));
    }

    #[test]
    fn a_canceled_monitor_and_foreign_requests() {
        let mut session = fit(vec![]);
        sent(&mut session);
        let request = Message::Request { id: json!(3), method: "steal".to_owned(), params: Value::Null };
        session.receive(request).unwrap();
        assert_eq!(sent(&mut session)[0]["error"], "unknown method");
        let params = json!(["m0"]);
        let canceled = session.receive(Message::Notification { method: "monitor_canceled".to_owned(), params });
        assert!(matches!(canceled, Err(Fault::MonitorCanceled(_))));
    }
}
