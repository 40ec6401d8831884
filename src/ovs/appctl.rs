//! Questions and commands to a running daemon through its control socket.

use std::path::Path;
use std::time::Duration;

use super::run::{Invocation, RunError, run};

/// `ovs-appctl -t SOCKET COMMAND…`, the one form for `ovsdb-server` and `ovs-vswitchd`.
pub fn ovs_appctl(socket: &Path, command: &[&str], deadline: Duration) -> Invocation {
    Invocation::new("ovs-appctl", deadline).arg("-t").arg(socket).args(command)
}

/// `ovn-appctl -t SOCKET COMMAND…`, for `ovn-controller`.
pub fn ovn_appctl(socket: &Path, command: &[&str], deadline: Duration) -> Invocation {
    Invocation::new("ovn-appctl", deadline).arg("-t").arg(socket).args(command)
}

/// What a daemon of Open vSwitch answers when asked for its version: proof that its main loop turns.
pub async fn version(socket: &Path, deadline: Duration) -> Result<String, RunError> {
    Ok(run(&ovs_appctl(socket, &["version"], deadline)).await?.trim().to_owned())
}

/// What `ovn-controller` says about its connection to the Southbound database: `connected`, or anything else.
pub async fn connection_status(socket: &Path, deadline: Duration) -> Result<String, RunError> {
    Ok(run(&ovn_appctl(socket, &["connection-status"], deadline)).await?.trim().to_owned())
}
