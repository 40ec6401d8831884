//! Reasons of a node's entry, in one word, and what each means for `MaintenanceReady`.

use crate::api::NodePhase;
use crate::model::conditions::maintenance;

/// Why a node is in its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The agent has not reported yet.
    WaitingForAgent,
    /// Another node has the id that this one brings along.
    DuplicateSystemId,
    /// The id that the node brings along cannot be one.
    InvalidSystemId,
    /// Settings changed.
    SettingsChanged,
    /// Everything is as it is to be.
    AsDesired,
    /// The priority was lowered, and other chassis take the gateway ports over.
    MovingTraffic,
    /// The pods of a gateway are being replaced, and its role is elsewhere meanwhile.
    RollingGateway,
    /// The gateway flag is being taken off.
    GatewayFlag,
    /// Rows are being removed from the Northbound.
    MovingGateways,
    /// The rows are gone, and the Southbound still shows gateway ports here.
    BindingsLeft,
    /// The Northbound confirmed that none is left.
    NorthboundConfirmed,
    /// Somebody puts the removed rows back, again and again.
    RowsComeBack,
    /// Ports would be left without any gateway and the policy says to wait.
    LastGateway,
    /// The databases' addresses or certificate are not known.
    CentralNotReady,
    /// A database has no member that is fit to act through.
    DatabaseNotSynced,
    /// Somebody else's Job has the name.
    JobNameTaken,
    /// Pods are still ending.
    PodsEnding,
    /// Rows are being deleted from the Southbound.
    DeletingRows,
    /// A Job failed.
    JobFailed,
    /// The API server does not let the controller do what it has to.
    NotAllowed,
}

impl Reason {
    pub const ALL: [Reason; 20] = [
        Self::WaitingForAgent,
        Self::DuplicateSystemId,
        Self::InvalidSystemId,
        Self::SettingsChanged,
        Self::AsDesired,
        Self::MovingTraffic,
        Self::RollingGateway,
        Self::GatewayFlag,
        Self::MovingGateways,
        Self::BindingsLeft,
        Self::NorthboundConfirmed,
        Self::RowsComeBack,
        Self::LastGateway,
        Self::CentralNotReady,
        Self::DatabaseNotSynced,
        Self::JobNameTaken,
        Self::PodsEnding,
        Self::DeletingRows,
        Self::JobFailed,
        Self::NotAllowed,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::WaitingForAgent => "WaitingForAgent",
            Self::DuplicateSystemId => "DuplicateSystemID",
            Self::InvalidSystemId => "InvalidSystemID",
            Self::SettingsChanged => "SettingsChanged",
            Self::AsDesired => "AsDesired",
            Self::MovingTraffic => "MovingTraffic",
            Self::RollingGateway => "RollingGateway",
            Self::GatewayFlag => "GatewayFlag",
            Self::MovingGateways => "MovingGateways",
            Self::BindingsLeft => "BindingsLeft",
            Self::NorthboundConfirmed => "NorthboundConfirmed",
            Self::RowsComeBack => "RowsComeBack",
            Self::LastGateway => "LastGateway",
            Self::CentralNotReady => "CentralNotReady",
            Self::DatabaseNotSynced => "DatabaseNotSynced",
            Self::JobNameTaken => "JobNameTaken",
            Self::PodsEnding => "PodsEnding",
            Self::DeletingRows => "DeletingRows",
            Self::JobFailed => "JobFailed",
            Self::NotAllowed => "NotAllowed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.as_str() == text)
    }

    /// The phase in which a node has this reason.
    pub fn phase(self) -> NodePhase {
        match self {
            Self::WaitingForAgent | Self::DuplicateSystemId | Self::InvalidSystemId => NodePhase::Pending,
            Self::SettingsChanged | Self::GatewayFlag => NodePhase::Applying,
            Self::AsDesired | Self::RollingGateway => NodePhase::Active,
            Self::MovingTraffic | Self::MovingGateways | Self::BindingsLeft => NodePhase::Evacuating,
            Self::NorthboundConfirmed | Self::RowsComeBack => NodePhase::Evacuated,
            Self::LastGateway
            | Self::CentralNotReady
            | Self::DatabaseNotSynced
            | Self::JobNameTaken
            | Self::NotAllowed => NodePhase::Held,
            Self::PodsEnding => NodePhase::Stopping,
            Self::DeletingRows => NodePhase::Deregistering,
            Self::JobFailed => NodePhase::Failed,
        }
    }

    /// The reason of `MaintenanceReady` that it leads to; the worst of all nodes' is shown.
    pub fn maintenance(self) -> &'static str {
        match self {
            Self::JobFailed => maintenance::JOB_FAILED,
            Self::JobNameTaken | Self::NotAllowed | Self::RowsComeBack => maintenance::ERROR,
            Self::LastGateway | Self::CentralNotReady | Self::DatabaseNotSynced | Self::PodsEnding => {
                maintenance::DEFERRED
            }
            Self::MovingTraffic
            | Self::RollingGateway
            | Self::GatewayFlag
            | Self::MovingGateways
            | Self::BindingsLeft
            | Self::DeletingRows => maintenance::RUNNING,
            Self::WaitingForAgent
            | Self::DuplicateSystemId
            | Self::InvalidSystemId
            | Self::SettingsChanged
            | Self::AsDesired
            | Self::NorthboundConfirmed => maintenance::IDLE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_read_back_as_itself() {
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(reason));
        }
    }
}
