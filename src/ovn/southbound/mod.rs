//! Southbound: a chassis' registration, the gateway ports bound to it, and its deletion.

pub mod chassis;
mod edge;
pub mod whereabouts;

use thiserror::Error;

use crate::model::ids::SystemId;
use crate::ovsdb::{ClientError, ValueError};

pub use chassis::{Bindings, ChassisView, Deleted, Encap, Registration, registrations_in};
pub use edge::{commit_chassis_del, fetch_bindings, fetch_chassis, fetch_registrations, fetch_requested, followed};
pub use whereabouts::Whereabouts;

#[derive(Debug, Error)]
pub enum SouthboundError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("Southbound table {table}: {source}")]
    Row { table: &'static str, source: ValueError },
    #[error("the Southbound's reply holds {found} results where {expected} were expected")]
    Reply { expected: usize, found: usize },
    #[error("after the deletion {rows} Southbound rows of chassis {chassis} are still there")]
    Survivors { chassis: SystemId, rows: usize },
    /// The registration is another one than was seen: its ovn-controller is alive and has registered again.
    #[error("chassis {chassis} registered again while it was being deleted; is its ovn-controller still running?")]
    Registered { chassis: SystemId, source: ClientError },
    /// Deletions go to a member of the database, never through a relay.
    #[error("chassis {chassis} is not deleted through a relay; give the database members' addresses")]
    Relay { chassis: SystemId },
}

impl SouthboundError {
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Client(error) => error.is_retryable(),
            Self::Survivors { .. } | Self::Registered { .. } => true,
            Self::Row { .. } | Self::Reply { .. } | Self::Relay { .. } => false,
        }
    }
}

pub(crate) mod tables {
    pub const CHASSIS: &str = "Chassis";
    pub const PRIVATE: &str = "Chassis_Private";
    pub const ENCAP: &str = "Encap";
    pub const PORT_BINDING: &str = "Port_Binding";
}
