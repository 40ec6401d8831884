//! The task behind a [`super::Client`]: picks an endpoint, connects, and moves bytes between socket and [`Session`].

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::client::{Answered, LostCall, Reply, Settings, Stage, Status};
use super::endpoint::{Endpoint, Host};
use super::fault::Fault;
use super::frame::{FrameReader, Message};
use super::member::{Member, Watermark};
use super::replica::{Follower, Replica};
use super::session::{Event, Session};
use super::tls::{TlsError, TlsSource, client_config, explain};

/// Calls sent and not yet answered.
const MOST_IN_FLIGHT: usize = 32;
/// Addresses of one name that are tried.
const MOST_ADDRESSES: usize = 8;
/// Between two rounds over members of which none is the leader: elections take about a second.
const ELECTION_PAUSE: Duration = Duration::from_millis(500);

pub(super) enum Command {
    /// `params` are JSON text already: large requests are written once and checked for length before they queue.
    Call {
        method: &'static str,
        params: String,
        stage: Arc<Stage>,
        reply: oneshot::Sender<Reply>,
    },
    Follow {
        follower: Box<Follower>,
        publish: watch::Sender<Option<Arc<Replica>>>,
    },
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

struct Driver {
    settings: Settings,
    commands: mpsc::Receiver<Command>,
    status: watch::Sender<Status>,
    watermark: Watermark,
    followers: Vec<Follower>,
    publishers: Vec<watch::Sender<Option<Arc<Replica>>>>,
}

/// Runs until the last client handle is gone (it aborts the task).
pub(super) async fn run(settings: Settings, commands: mpsc::Receiver<Command>, status: watch::Sender<Status>) {
    let watermark = Watermark::default();
    let mut driver = Driver { settings, commands, status, watermark, followers: Vec::new(), publishers: Vec::new() };
    let mut attempt = 0_usize;
    let mut failed_rounds = 0_u32;
    loop {
        let Some(endpoint) = driver.settings.endpoints.nth_round(attempt).cloned() else { return };
        let Ended { was_fit, fault } = driver.connect_and_serve(&endpoint).await;
        if commands_gone(&driver) {
            return;
        }
        let elsewhere = fault.is_elsewhere();
        driver.report_away(&endpoint, fault);
        attempt = attempt.wrapping_add(1);
        if was_fit {
            // A connection that worked: the next member may be the new leader already.
            failed_rounds = 0;
            if driver.settings.endpoints.len() > 1 {
                continue;
            }
        } else if !attempt.is_multiple_of(driver.settings.endpoints.len()) {
            continue;
        }
        let mut pause = backoff(&driver.settings, failed_rounds);
        if elsewhere {
            pause = pause.min(ELECTION_PAUSE);
        }
        failed_rounds = failed_rounds.saturating_add(1);
        driver.pause(pause).await;
    }
}

fn commands_gone(driver: &Driver) -> bool {
    driver.commands.is_closed() && driver.commands.is_empty()
}

fn backoff(settings: &Settings, failed_rounds: u32) -> Duration {
    let factor = 1_u32.checked_shl(failed_rounds.min(16)).unwrap_or(u32::MAX);
    settings.backoff_least.saturating_mul(factor).min(settings.backoff_most)
}

struct Ended {
    was_fit: bool,
    fault: Fault,
}

impl Driver {
    /// Sleeps, but no longer than until new credentials arrive: they may be what was missing.
    async fn pause(&mut self, pause: Duration) {
        let until = sleep_until(Instant::now() + pause);
        match &mut self.settings.tls {
            Some(TlsSource::Held(held)) => {
                tokio::select! {
                    () = until => {}
                    Ok(()) = held.changed() => {}
                }
            }
            _ => until.await,
        }
    }

    fn report_away(&mut self, endpoint: &Endpoint, fault: Fault) {
        for publisher in &self.publishers {
            publisher.send_if_modified(|view| view.take().is_some());
        }
        let was_connected = self.status.borrow().member().is_some();
        if was_connected {
            warn!(database = %self.settings.database, %endpoint, %fault, "database connection lost");
        } else {
            debug!(database = %self.settings.database, %endpoint, %fault, "database not reached");
        }
        self.status.send_replace(Status::Away { endpoint: endpoint.to_string(), fault: Arc::new(fault) });
    }

    async fn connect_and_serve(&mut self, endpoint: &Endpoint) -> Ended {
        let deadline = self.settings.connect_deadline;
        let by = Instant::now() + deadline;
        match timeout(deadline, connect(endpoint, &self.settings)).await {
            Err(_) => Ended { was_fit: false, fault: Fault::ConnectDeadline(deadline) },
            Ok(Err(fault)) => Ended { was_fit: false, fault },
            Ok(Ok(stream)) => self.serve(endpoint, stream, by).await,
        }
    }

    async fn serve(&mut self, endpoint: &Endpoint, stream: Box<dyn Stream>, fit_by: Instant) -> Ended {
        let followers = std::mem::take(&mut self.followers);
        let session = Session::new(&self.settings.database, self.settings.demand, self.watermark, followers);
        let now = Instant::now();
        let mut line = Line {
            endpoint: endpoint.to_string(),
            session,
            callers: HashMap::new(),
            member: None,
            fit_by,
            synced_by: now + self.settings.sync_deadline,
            last_heard: now,
            probed: false,
        };
        let fault = line.serve(self, stream).await;
        let was_fit = line.session.is_fit();
        let (watermark, followers) = line.session.into_parts();
        self.watermark = watermark;
        self.followers = followers;
        let fault = match fault {
            // The callers' errors and the status share the cause, whose parts cannot be cloned.
            fault if line.callers.is_empty() => fault,
            fault => {
                let text = Arc::new(Fault::Lost(fault.to_string()));
                for caller in line.callers.into_values() {
                    let lost = LostCall { endpoint: line.endpoint.clone(), fault: text.clone() };
                    let _ = caller.send(Err(lost));
                }
                fault
            }
        };
        Ended { was_fit, fault }
    }
}

/// One connection while it is up.
struct Line {
    endpoint: String,
    session: Session,
    callers: HashMap<u64, oneshot::Sender<Reply>>,
    member: Option<Member>,
    fit_by: Instant,
    synced_by: Instant,
    last_heard: Instant,
    probed: bool,
}

impl Line {
    /// Moves bytes until something ends the connection. One loop for both directions: a peer that does not read must not
    /// keep us from reading, and reading a long reply must not keep an echo from being sent.
    async fn serve(&mut self, driver: &mut Driver, stream: Box<dyn Stream>) -> Fault {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut frames = FrameReader::new(driver.settings.frame_limit);
        let mut chunk = vec![0_u8; 64 << 10];
        let mut outgoing: Vec<u8> = Vec::new();
        let mut written = 0_usize;
        let mut flush = false;
        loop {
            outgoing.extend_from_slice(&self.session.take_outgoing());
            let unsent = outgoing.get(written..).unwrap_or_default();
            let has_unsent = !unsent.is_empty();
            let take_commands = self.session.is_fit() && self.callers.len() < MOST_IN_FLIGHT && !has_unsent;
            let wake = self.next_deadline(driver.settings.probe_interval);
            tokio::select! {
                read = reader.read(&mut chunk) => match read {
                    Ok(0) => return Fault::Closed,
                    Ok(length) => {
                        self.last_heard = Instant::now();
                        self.probed = false;
                        frames.push(chunk.get(..length).unwrap_or_default());
                        if let Err(fault) = self.take_frames(driver, &mut frames) {
                            return fault;
                        }
                    }
                    Err(error) => return io_fault(error, &self.endpoint),
                },
                // Write, then flush: each step on its own, so that being interrupted between them loses nothing.
                wrote = async {
                    if has_unsent { writer.write(unsent).await.map(Some) } else { writer.flush().await.map(|()| None) }
                }, if has_unsent || flush => match wrote {
                    Ok(Some(0)) => return Fault::Closed,
                    Ok(Some(length)) => {
                        written += length;
                        if written >= outgoing.len() {
                            outgoing = Vec::new();
                            written = 0;
                        }
                        flush = true;
                    }
                    Ok(None) => flush = false,
                    Err(error) => return io_fault(error, &self.endpoint),
                },
                command = driver.commands.recv(), if take_commands => match command {
                    Some(command) => self.take_command(driver, command),
                    None => return Fault::NotYet,
                },
                () = sleep_until(wake) => if let Err(fault) = self.keep_time(&driver.settings) {
                    return fault;
                },
            }
        }
    }

    fn next_deadline(&self, probe_interval: Duration) -> Instant {
        let mut wake = self.last_heard + probe_interval * if self.probed { 2 } else { 1 };
        if !self.session.is_fit() {
            wake = wake.min(self.fit_by);
        } else if !self.session.is_synced() {
            wake = wake.min(self.synced_by);
        }
        wake
    }

    fn keep_time(&mut self, settings: &Settings) -> Result<(), Fault> {
        let now = Instant::now();
        if !self.session.is_fit() && now >= self.fit_by {
            return Err(Fault::ConnectDeadline(settings.connect_deadline));
        }
        if self.session.is_fit() && !self.session.is_synced() && now >= self.synced_by {
            return Err(Fault::Unsynced(settings.sync_deadline));
        }
        let silence = now.duration_since(self.last_heard);
        if self.probed && silence >= settings.probe_interval * 2 {
            return Err(Fault::Silent(silence));
        }
        if !self.probed && silence >= settings.probe_interval {
            self.probed = true;
            self.session.probe();
        }
        Ok(())
    }

    fn take_command(&mut self, driver: &mut Driver, command: Command) {
        match command {
            Command::Call { method, params, stage, reply } => {
                // Callers that gave up while their answer was out: their places are free again.
                let session = &mut self.session;
                self.callers.retain(|id, caller| {
                    let waits = !caller.is_closed();
                    if !waits {
                        session.forget(*id);
                    }
                    waits
                });
                if stage.send() {
                    let id = self.session.request(method, &params);
                    self.callers.insert(id, reply);
                }
            }
            Command::Follow { follower, publish } => {
                driver.publishers.push(publish);
                self.synced_by = Instant::now() + driver.settings.sync_deadline;
                self.session.follow(*follower);
                self.report(driver);
            }
        }
    }

    fn take_frames(&mut self, driver: &mut Driver, frames: &mut FrameReader) -> Result<(), Fault> {
        let mut outcome = Ok(());
        loop {
            match frames.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    outcome =
                        Message::parse(&frame).map_err(Fault::from).and_then(|message| self.session.receive(message));
                }
                Err(error) => outcome = Err(error.into()),
            }
            if outcome.is_err() {
                break;
            }
        }
        // Answers that came before what ended the connection are answers.
        let mut changed = Vec::new();
        for event in self.session.take_events() {
            match event {
                Event::Fit(member) => self.member = Some(member),
                Event::Answer { id, answer } => {
                    if let Some(caller) = self.callers.remove(&id) {
                        let _ = caller.send(Ok(Answered { endpoint: self.endpoint.clone(), answer }));
                    }
                }
                Event::View { monitor } => changed.push(monitor),
            }
        }
        outcome?;
        changed.sort_unstable();
        changed.dedup();
        for monitor in changed {
            if let (Some(publisher), Some(follower)) = (driver.publishers.get(monitor), self.session.follower(monitor))
            {
                publisher.send_replace(Some(Arc::new(follower.replica().clone())));
            }
        }
        self.report(driver);
        Ok(())
    }

    fn report(&mut self, driver: &Driver) {
        let Some(member) = &self.member else { return };
        let synced = self.session.is_synced();
        let endpoint = &self.endpoint;
        driver.status.send_if_modified(|status| {
            let news = match status {
                // A cluster's index moves with every commit of anybody: kept, but nobody is woken for it.
                Status::Connected { member: held, synced: was, .. } => {
                    *was != synced || Member { index: member.index, ..held.clone() } != *member
                }
                Status::Away { .. } => {
                    info!(database = %driver.settings.database, %endpoint, "database connected");
                    true
                }
            };
            *status = Status::Connected { endpoint: endpoint.clone(), member: member.clone(), synced };
            news
        });
    }
}

fn io_fault(error: io::Error, server: &str) -> Fault {
    match tls_error(error, server) {
        Ok(fault) => Fault::Tls(fault),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Fault::Closed,
        Err(error) => Fault::Io(error),
    }
}

/// The TLS error inside an I/O error, if that is what it is, in words.
fn tls_error(error: io::Error, server: &str) -> Result<TlsError, io::Error> {
    if !error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
        return Err(error);
    }
    let kind = error.kind();
    match error.into_inner().map(|inner| inner.downcast::<rustls::Error>()) {
        Some(Ok(source)) => Ok(TlsError::Server { message: explain(&source, server), source: *source }),
        Some(Err(other)) => Err(io::Error::new(kind, other)),
        None => Err(io::Error::from(kind)),
    }
}

async fn connect(endpoint: &Endpoint, settings: &Settings) -> Result<Box<dyn Stream>, Fault> {
    match endpoint {
        Endpoint::Unix(path) => Ok(Box::new(UnixStream::connect(path).await.map_err(Fault::Connect)?)),
        Endpoint::Tcp { host, port } => Ok(Box::new(connect_tcp(host, *port).await?)),
        Endpoint::Ssl { host, port } => {
            let source = settings.tls.as_ref().ok_or(TlsError::NoCredentials)?;
            let material = source.load().await?;
            let config = client_config(&material, settings.server_names)?;
            let name = match host {
                Host::Address(address) => ServerName::from(*address),
                Host::Name(name) => ServerName::try_from(name.trim_end_matches('.').to_owned())
                    .map_err(|_| TlsError::Name { name: name.clone() })?,
            };
            let tcp = connect_tcp(host, *port).await?;
            match tokio_rustls::TlsConnector::from(config).connect(name, tcp).await {
                Ok(stream) => Ok(Box::new(stream)),
                Err(error) => Err(io_fault(error, &endpoint.to_string())),
            }
        }
    }
}

async fn connect_tcp(host: &Host, port: u16) -> Result<TcpStream, Fault> {
    let addresses: Vec<SocketAddr> = match host {
        Host::Address(address) => vec![SocketAddr::new(*address, port)],
        Host::Name(name) => tokio::net::lookup_host((name.as_str(), port))
            .await
            .map_err(|source| Fault::Lookup { name: name.clone(), source })?
            .take(MOST_ADDRESSES)
            .collect(),
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Requests are small and each waits for its answer.
                stream.set_nodelay(true).map_err(Fault::Connect)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(Fault::Connect(last))
}
