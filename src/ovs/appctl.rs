//! Questions and commands to a running daemon through its control socket.

use std::path::Path;
use std::time::Duration;

use super::run::Invocation;
use super::unixctl::{UnixctlError, ask};

/// `ovs-appctl -t SOCKET COMMAND…`, the one form for `ovsdb-server` and `ovs-vswitchd`.
pub fn ovs_appctl(socket: &Path, command: &[&str], deadline: Duration) -> Invocation {
    Invocation::new("ovs-appctl", deadline).arg("-t").arg(socket).args(command)
}

/// `ovn-appctl -t SOCKET COMMAND…`, for `ovn-controller`.
pub fn ovn_appctl(socket: &Path, command: &[&str], deadline: Duration) -> Invocation {
    Invocation::new("ovn-appctl", deadline).arg("-t").arg(socket).args(command)
}

/// What a daemon answers when asked for its version: proof that its main loop turns.
pub async fn version(socket: &Path, deadline: Duration) -> Result<String, UnixctlError> {
    Ok(ask(socket, "version", &[], deadline).await?.trim().to_owned())
}

/// What `ovn-controller` says about its connection to the Southbound database: `connected`, or anything else.
pub async fn connection_status(socket: &Path, deadline: Duration) -> Result<String, UnixctlError> {
    Ok(ask(socket, "connection-status", &[], deadline).await?.trim().to_owned())
}

/// How many rules all tables of all bridges of `ovs-vswitchd` hold, its own hidden ones included; none when it does not say.
/// It changes whenever a table is emptied or filled, and costs `ovs-vswitchd` a sum over its tables, however full they are.
pub async fn count_rules(socket: &Path, deadline: Duration) -> Result<Option<u64>, UnixctlError> {
    Ok(parse_rules(&ask(socket, "memory/show", &[], deadline).await?))
}

/// Reads `handlers:1 ports:3 revalidators:1 rules:22 udpif keys:4`.
fn parse_rules(text: &str) -> Option<u64> {
    text.split_whitespace().find_map(|word| word.strip_prefix("rules:")).and_then(|count| count.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_found_among_the_other_counts() {
        let text = "handlers:1 idl-cells-Open_vSwitch:339 ofconns:2 ports:6 revalidators:1 rules:27 udpif keys:4\n";
        assert_eq!(parse_rules(text), Some(27));
        assert_eq!(parse_rules("idl-cells:1"), None);
    }
}
