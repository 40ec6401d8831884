//! A client of one database: a cheap handle in front of a task that keeps the connection.
//!
//! The task follows the leader, reconnects with bounded backoff, answers and sends echoes, and resumes monitors. A call
//! waits for a usable connection as long as its own deadline allows and never longer; a call that was given up before it
//! was sent is never sent. The task ends when the last handle is dropped.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use ovn_chassis::ovsdb::{Client, Operation, Settings};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::new("unix:/run/openvswitch/db.sock".parse()?, "Open_vSwitch");
//! let client = Client::spawn(settings);
//! let select = [Operation::select("Open_vSwitch", vec![], &["external_ids"])];
//! let outcomes = client.transact(&select, Duration::from_secs(5)).await?;
//! # Ok(()) }
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::connection::{self, Command};
use super::endpoint::Endpoints;
use super::error::ServerError;
use super::fault::Fault;
use super::member::{Demand, Member};
use super::operation::{Operation, Outcome, TransactError, check_results};
use super::replica::{Followed, Follower, Replica};
use super::tls::{ServerNames, TlsSource};

/// Calls that wait for the connection; one more waits in front of the queue, within its deadline.
const QUEUE: usize = 32;

#[derive(Debug, Clone)]
pub struct Settings {
    pub endpoints: Endpoints,
    pub database: String,
    pub demand: Demand,
    pub tls: Option<TlsSource>,
    pub server_names: ServerNames,
    /// From the first packet until the server is known to be fit.
    pub connect_deadline: Duration,
    /// From then on until all monitors hold what the server holds.
    pub sync_deadline: Duration,
    /// After this long without a byte an echo is sent; after as long again the connection is given up.
    pub probe_interval: Duration,
    pub backoff_least: Duration,
    pub backoff_most: Duration,
    /// The longest message taken or sent.
    pub frame_limit: usize,
}

impl Settings {
    pub fn new(endpoints: Endpoints, database: &str) -> Self {
        Self {
            endpoints,
            database: database.to_owned(),
            demand: Demand::Leader,
            tls: None,
            server_names: ServerNames::Verify,
            connect_deadline: Duration::from_secs(3),
            sync_deadline: Duration::from_secs(60),
            probe_interval: Duration::from_secs(5),
            backoff_least: Duration::from_millis(100),
            backoff_most: Duration::from_secs(8),
            frame_limit: 256 << 20,
        }
    }

    #[must_use]
    pub fn with_tls(mut self, source: TlsSource, names: ServerNames) -> Self {
        self.tls = Some(source);
        self.server_names = names;
        self
    }

    #[must_use]
    pub fn with_demand(mut self, demand: Demand) -> Self {
        self.demand = demand;
        self
    }
}

/// What the connection is doing.
#[derive(Debug, Clone)]
pub enum Status {
    /// Connected to a server that is fit to act through. `synced`: every monitor holds what the server holds.
    Connected { endpoint: String, member: Member, synced: bool },
    /// Not connected; the fault is that of the last try.
    Away { endpoint: String, fault: Arc<Fault> },
}

impl Status {
    pub fn member(&self) -> Option<&Member> {
        match self {
            Self::Connected { member, .. } => Some(member),
            Self::Away { .. } => None,
        }
    }

    pub fn is_synced(&self) -> bool {
        matches!(self, Self::Connected { synced: true, .. })
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connected { endpoint, synced: true, .. } => write!(f, "connected to {endpoint}"),
            Self::Connected { endpoint, .. } => write!(f, "connected to {endpoint}, reading its contents"),
            Self::Away { endpoint, fault } => write!(f, "{endpoint}: {fault}"),
        }
    }
}

#[derive(Debug, Error)]
pub enum ClientError {
    /// No usable connection until the deadline. Nothing was sent.
    #[error("{database}: no usable connection to {endpoint}: {fault}")]
    Unavailable { database: String, endpoint: String, fault: Arc<Fault> },
    /// Sent, and no answer until the deadline: it may have been done or not.
    #[error("{database}: no answer from {endpoint} within {} ms; it may have been done or not", after.as_millis())]
    Deadline { database: String, endpoint: String, after: Duration },
    /// Sent, and the connection went away: it may have been done or not.
    #[error("{database}: connection to {endpoint} lost before the answer ({fault}); it may have been done or not")]
    Lost { database: String, endpoint: String, fault: Arc<Fault> },
    /// The server said no: nothing was done.
    #[error("{database} at {endpoint}: {source}")]
    Refused { database: String, endpoint: String, source: Box<TransactError> },
    #[error("{database}: a request of {length} bytes is longer than the limit of {limit}")]
    TooLong { database: String, length: usize, limit: usize },
    #[error("{database}: more than {most} monitors on one connection")]
    TooManyMonitors { database: String, most: usize },
    #[error("{database}: the client's task has ended")]
    Stopped { database: String },
}

impl ClientError {
    /// Whether to look again and try again. A request whose outcome is unknown is worth it too: all of ours can be made
    /// twice.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { fault, .. } => fault.is_retryable(),
            Self::Deadline { .. } | Self::Lost { .. } => true,
            Self::Refused { source, .. } => source.is_retryable(),
            Self::TooLong { .. } | Self::TooManyMonitors { .. } | Self::Stopped { .. } => false,
        }
    }

    /// Whether it may have been done nevertheless.
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Deadline { .. } | Self::Lost { .. } => true,
            Self::Refused { source, .. } => matches!(**source, TransactError::Malformed { .. }),
            _ => false,
        }
    }

    pub fn server_error(&self) -> Option<&ServerError> {
        match self {
            Self::Refused { source, .. } => source.server_error(),
            _ => None,
        }
    }
}

/// Where a call stands: settled between caller and task by one compare-and-swap, so that a call that was given up is
/// never sent afterwards.
#[derive(Debug, Default)]
pub(super) struct Stage(AtomicU8);

const QUEUED: u8 = 0;
const SENT: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Stage {
    fn leave_queue(&self, to: u8) -> bool {
        self.0.compare_exchange(QUEUED, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The task's side: false if the caller has given up.
    pub(super) fn send(&self) -> bool {
        self.leave_queue(SENT)
    }

    /// The caller's side: false if it has been sent.
    fn give_up(&self) -> bool {
        self.leave_queue(GIVEN_UP)
    }
}

/// Why a call that was sent has no answer.
#[derive(Debug)]
pub(super) struct LostCall {
    pub endpoint: String,
    pub fault: Arc<Fault>,
}

#[derive(Debug)]
pub(super) struct Answered {
    pub endpoint: String,
    pub answer: Result<Value, ServerError>,
}

pub(super) type Reply = Result<Answered, LostCall>;

#[derive(Debug)]
struct EndOnDrop(tokio::task::AbortHandle);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The handle. Clones share one connection.
#[derive(Debug, Clone)]
pub struct Client {
    database: String,
    frame_limit: usize,
    commands: mpsc::Sender<Command>,
    status: watch::Receiver<Status>,
    monitors: Arc<std::sync::atomic::AtomicUsize>,
    _task: Arc<EndOnDrop>,
}

impl Client {
    /// Starts the task; needs a tokio runtime. Returns at once: the connection comes up in the background.
    pub fn spawn(settings: Settings) -> Self {
        let (commands, queue) = mpsc::channel(QUEUE);
        let away = Status::Away { endpoint: settings.endpoints.to_string(), fault: Arc::new(Fault::NotYet) };
        let (publish, status) = watch::channel(away);
        let database = settings.database.clone();
        let frame_limit = settings.frame_limit;
        let task = tokio::spawn(connection::run(settings, queue, publish));
        Self {
            database,
            frame_limit,
            commands,
            status,
            monitors: Arc::default(),
            _task: Arc::new(EndOnDrop(task.abort_handle())),
        }
    }

    pub fn database(&self) -> &str {
        &self.database
    }

    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// What the server that we are connected to says about itself.
    pub fn member(&self) -> Option<Member> {
        self.status.borrow().member().cloned()
    }

    fn unavailable(&self) -> ClientError {
        match &*self.status.borrow() {
            Status::Away { endpoint, fault } => ClientError::Unavailable {
                database: self.database.clone(),
                endpoint: endpoint.clone(),
                fault: fault.clone(),
            },
            Status::Connected { endpoint, .. } => ClientError::Unavailable {
                database: self.database.clone(),
                endpoint: endpoint.clone(),
                fault: Arc::new(Fault::NotYet),
            },
        }
    }

    fn stopped(&self) -> ClientError {
        ClientError::Stopped { database: self.database.clone() }
    }

    /// Waits until there is a fit server.
    pub async fn connected(&self, deadline: Duration) -> Result<Member, ClientError> {
        let mut status = self.status.clone();
        let fit = async {
            loop {
                if let Some(member) = status.borrow_and_update().member().cloned() {
                    return Ok(member);
                }
                status.changed().await.map_err(|_| self.stopped())?;
            }
        };
        match timeout(deadline, fit).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.unavailable()),
        }
    }

    /// Carries out a transaction: either all of it was done and every operation's outcome is here, or it is an error.
    pub async fn transact(&self, operations: &[Operation], deadline: Duration) -> Result<Vec<Outcome>, ClientError> {
        let mut params = Vec::with_capacity(operations.len() + 1);
        params.push(json!(self.database));
        params.extend(operations.iter().map(Operation::to_json));
        let Answered { endpoint, answer } = self.call("transact", Value::Array(params), deadline).await?;
        let outcomes = match answer {
            Ok(result) => check_results(operations, result),
            Err(error) => Err(TransactError::Request(error)),
        };
        outcomes.map_err(|source| ClientError::Refused {
            database: self.database.clone(),
            endpoint,
            source: Box::new(source),
        })
    }

    async fn call(&self, method: &'static str, params: Value, deadline: Duration) -> Result<Answered, ClientError> {
        let stage = Arc::new(Stage::default());
        let (reply, answer) = oneshot::channel();
        let params = params.to_string();
        if params.len() > self.frame_limit {
            return Err(ClientError::TooLong {
                database: self.database.clone(),
                length: params.len(),
                limit: self.frame_limit,
            });
        }
        let command = Command::Call { method, params, stage: stage.clone(), reply };
        let exchange = async {
            self.commands.send(command).await.map_err(|_| self.stopped())?;
            match answer.await {
                Ok(Ok(answered)) => Ok(answered),
                Ok(Err(LostCall { endpoint, fault })) => {
                    Err(ClientError::Lost { database: self.database.clone(), endpoint, fault })
                }
                Err(_) => Err(self.stopped()),
            }
        };
        match timeout(deadline, exchange).await {
            Ok(outcome) => outcome,
            Err(_) if stage.give_up() => Err(self.unavailable()),
            Err(_) => {
                let endpoint = match &*self.status.borrow() {
                    Status::Connected { endpoint, .. } | Status::Away { endpoint, .. } => endpoint.clone(),
                };
                Err(ClientError::Deadline { database: self.database.clone(), endpoint, after: deadline })
            }
        }
    }

    /// Follows tables as long as this client lives. The view is empty-handed (not empty) until it is complete, and again
    /// whenever the connection is away.
    pub async fn follow(&self, tables: BTreeMap<String, Followed>) -> Result<View, ClientError> {
        const MOST_MONITORS: usize = 16;
        if self.monitors.fetch_add(1, Ordering::AcqRel) >= MOST_MONITORS {
            self.monitors.fetch_sub(1, Ordering::AcqRel);
            return Err(ClientError::TooManyMonitors { database: self.database.clone(), most: MOST_MONITORS });
        }
        let (publish, view) = watch::channel(None);
        let follower = Box::new(Follower::new(tables));
        self.commands.send(Command::Follow { follower, publish }).await.map_err(|_| self.stopped())?;
        Ok(View(view))
    }
}

/// A followed part of the database.
#[derive(Debug, Clone)]
pub struct View(watch::Receiver<Option<Arc<Replica>>>);

impl View {
    /// What the database holds, or `None` while that is not known: never an old state.
    pub fn current(&self) -> Option<Arc<Replica>> {
        self.0.borrow().clone()
    }

    /// Returns when there is something new to look at; false once the client is gone.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }

    /// Waits until the view is known and `wanted` holds.
    pub async fn until(&mut self, deadline: Duration, wanted: impl Fn(&Replica) -> bool) -> Option<Arc<Replica>> {
        let fulfilled = self.0.wait_for(|view| view.as_ref().is_some_and(|replica| wanted(replica)));
        timeout(deadline, fulfilled).await.ok()?.ok()?.clone()
    }
}
