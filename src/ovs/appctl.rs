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

/// True when every datapath of `ovs-vswitchd` has revalidators to pause: under flow-restore-wait none has.
pub async fn revalidators_run(socket: &Path, deadline: Duration) -> Result<bool, RunError> {
    Ok(has_revalidators(&run(&ovs_appctl(socket, &["upcall/show"], deadline)).await?))
}

/// One unindented line begins each datapath, one indented `NUMBER: (keys N)` each of its revalidators.
fn has_revalidators(text: &str) -> bool {
    let mut datapaths: Vec<bool> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if !line.starts_with(char::is_whitespace) {
            datapaths.push(false);
        } else if let Some((number, rest)) = line.trim().split_once(':')
            && number.bytes().all(|byte| byte.is_ascii_digit())
            && rest.trim_start().starts_with("(keys")
            && let Some(last) = datapaths.last_mut()
        {
            *last = true;
        }
    }
    !datapaths.is_empty() && datapaths.iter().all(|has| *has)
}

/// The revalidators stop looking after the datapath's flows. Must not be asked for where none runs.
pub async fn pause_revalidators(socket: &Path, deadline: Duration) -> Result<(), RunError> {
    run(&ovs_appctl(socket, &["revalidator/pause"], deadline)).await.map(|_| ())
}

/// They go on. Must follow exactly one pause: without one, `ovs-vswitchd` waits for ever.
pub async fn resume_revalidators(socket: &Path, deadline: Duration) -> Result<(), RunError> {
    run(&ovs_appctl(socket, &["revalidator/resume"], deadline)).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datapath_without_revalidators_is_told_from_one_with() {
        let with = "system@ovs-system:\n  flows         : (current 5) (avg 5) (max 9) (limit 200000)\n  \
                    dump duration : 1ms\n  ufid enabled : true\n\n  10: (keys 2)\n  11: (keys 3)\n";
        let without = "netdev@ovs-netdev:\n  flows         : (current 0) (avg 0) (max 0) (limit 10000)\n  \
                       offloaded flows : 0\n  dump duration : 0ms\n  ufid enabled : false\n\n";
        assert!(has_revalidators(with));
        assert!(!has_revalidators(without) && !has_revalidators(""));
        assert!(!has_revalidators(&format!("{with}{without}")));
    }
}
