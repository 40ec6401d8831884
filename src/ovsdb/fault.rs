//! Why there is no usable connection to a database right now.

use std::io;
use std::time::Duration;

use thiserror::Error;

use super::error::{Kind, ServerError};
use super::frame::FrameError;
use super::member::Unfit;
use super::replica::ReplicaError;
use super::tls::TlsError;
use super::value::ValueError;

#[derive(Debug, Error)]
pub enum Fault {
    #[error("not connected yet")]
    NotYet,
    #[error("cannot look up `{name}`: {source}")]
    Lookup { name: String, source: io::Error },
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    #[error("no usable connection within {} ms", .0.as_millis())]
    ConnectDeadline(Duration),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the server closed the connection")]
    Closed,
    #[error("connection lost: {0}")]
    Io(#[source] io::Error),
    #[error("no answer for {} ms, not even to an echo", .0.as_millis())]
    Silent(Duration),
    /// The text of a fault that ended a connection on which calls were waiting.
    #[error("{0}")]
    Lost(String),
    #[error("its contents were not complete within {} ms", .0.as_millis())]
    Unsynced(Duration),
    #[error("the server sends {0}")]
    Frame(#[from] FrameError),
    #[error("the server holds no database `{database}`")]
    NoDatabase { database: String },
    #[error("{0}")]
    Unfit(#[from] Unfit),
    #[error("the server refused `{request}`: {error}")]
    Refused { request: &'static str, error: ServerError },
    #[error("the server's reply to `{request}` is not understood: {source}")]
    Reply { request: &'static str, source: ValueError },
    #[error("the server's update is not understood: {0}")]
    Update(#[from] ReplicaError),
    #[error("the server took back the monitor of `{0}`")]
    MonitorCanceled(String),
    #[error("more than {0} updates came before the reply to their monitor")]
    TooManyEarly(usize),
}

impl Fault {
    /// Another member of the same cluster may be the right one: no reason to wait before asking it.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Unfit(_))
    }

    /// Whether it can go away without anybody changing a setting, a certificate or a Secret.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Tls(_) | Self::NoDatabase { .. } | Self::Unfit(Unfit::Relay) => false,
            Self::Frame(FrameError::NotAnObject { .. }) => false,
            Self::Refused { error, .. } => error.kind.is_retryable() || error.kind == Kind::UnknownDatabase,
            _ => true,
        }
    }
}
