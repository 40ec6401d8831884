//! OVSDB (RFC 7047) for anyone: a core without I/O and a thin shell around it. Knows neither OVN nor Kubernetes.
//!
//! Core: [`value`] and [`operation`] (what is said), [`error`] (what a server answers), [`frame`] (how it is cut),
//! [`endpoint`], [`member`] (which server to take), [`replica`] (a copy kept current), [`session`] (one conversation).
//! Shell: [`tls`], `connection` (the task that owns the socket) and [`client`] (the handle).

pub mod client;
mod connection;
pub mod endpoint;
pub mod error;
pub mod fault;
pub mod frame;
pub mod member;
pub mod operation;
pub mod replica;
pub mod session;
pub mod tls;
pub mod value;

pub use client::{Client, ClientError, Settings, Status, View};
pub use endpoint::{Endpoint, EndpointError, Endpoints};
pub use error::{Kind, ServerError};
pub use fault::Fault;
pub use member::{Demand, Member, Model};
pub use operation::{Condition, Function, Mutation, Operation, Outcome, TransactError};
pub use replica::{Followed, Replica};
pub use tls::{ServerNames, TlsFiles, TlsMaterial, TlsSource};
pub use value::{Atom, Datum, Row, Uuid, ValueError};
