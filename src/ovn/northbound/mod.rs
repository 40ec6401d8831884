//! Northbound: which rows give a chassis gateway duties, which ports hang on them, and how they are taken away.

mod edge;
pub mod evacuation;
pub mod networks;
pub mod pins;
pub mod priority;
pub mod view;

use thiserror::Error;

use crate::model::ids::SystemId;
use crate::ovsdb::{ClientError, ValueError};

pub use edge::{
    commit_evacuation, commit_evacuation_of, commit_forgetting, commit_lowering, commit_restoration,
    fetch_chassis_rows, fetch_gateway_view, fetch_gateway_view_with, fetch_networks, fetch_pins, followed,
};
pub use evacuation::{ChassisRows, Evacuated};
pub use pins::{Pin, PinKind, Pins};
pub use priority::{Lowering, chassis_lowered, plan_lowering};
pub use view::{Candidate, GatewayPort, GatewayView, PortKind, chassis_named};

#[derive(Debug, Error)]
pub enum NorthboundError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("Northbound table {table}: {source}")]
    Row { table: &'static str, source: ValueError },
    #[error("the Northbound's reply holds {found} results where {expected} were expected")]
    Reply { expected: usize, found: usize },
    /// The transaction was carried out and its own reading back still shows rows.
    #[error("after the evacuation {rows} Northbound rows still name chassis {chassis}")]
    Survivors { chassis: SystemId, rows: usize },
    /// Another writer changed what a move of priorities relied on.
    #[error("gateway rows of chassis {chassis} or of those that stand in for it changed meanwhile: {source}")]
    Changed { chassis: SystemId, source: ClientError },
    /// Somebody added rows between our look and our transaction, each time.
    #[error("another writer gave chassis {chassis} new gateway rows at each of {tries} tries: {source}")]
    Contended { chassis: SystemId, tries: u32, source: ClientError },
}

impl NorthboundError {
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Client(error) => error.is_retryable(),
            Self::Contended { .. } | Self::Survivors { .. } | Self::Changed { .. } => true,
            Self::Row { .. } | Self::Reply { .. } => false,
        }
    }
}

pub(crate) mod tables {
    pub const ROUTER_PORT: &str = "Logical_Router_Port";
    pub const SWITCH_PORT: &str = "Logical_Switch_Port";
    pub const SWITCH: &str = "Logical_Switch";
    pub const ROUTER: &str = "Logical_Router";
    pub const GATEWAY_CHASSIS: &str = "Gateway_Chassis";
    pub const HA_CHASSIS: &str = "HA_Chassis";
    pub const HA_GROUP: &str = "HA_Chassis_Group";
    pub const TEMPLATE_VAR: &str = "Chassis_Template_Var";
}
