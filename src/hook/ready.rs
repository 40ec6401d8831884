//! The readiness probe of one daemon's container: local health only, or a standby's permission.

use std::process::ExitCode;
use std::time::Duration;

use tokio::time::timeout;

use super::claim::Holder;
use super::daemon::Daemon;
use super::{HookError, NodeArgs, Pod};
use crate::ovs::run::{Invocation, run as run_tool};

/// The whole probe.
const PROBE_BOUND: Duration = Duration::from_secs(6);
/// One answer of a daemon.
const ANSWER_BOUND: Duration = Duration::from_secs(4);
/// A standby's programs, on a node that may be busy.
const PROGRAMS_BOUND: Duration = Duration::from_secs(5);

/// `ovn-chassis hook ready`.
#[derive(Debug, Clone, clap::Args)]
pub struct ReadyArgs {
    /// The daemon of this container
    daemon: Daemon,
    #[command(flatten)]
    node: NodeArgs,
}

/// Runs the probe: says why on stdout, where kubelet's event takes it from.
pub(super) async fn run(args: ReadyArgs) -> ExitCode {
    let pod = Pod::look(args.node);
    let verdict = match timeout(PROBE_BOUND, judge(&pod, args.daemon)).await {
        Ok(verdict) => verdict,
        Err(_) => Err(format!("no answer within {} s", PROBE_BOUND.as_secs())),
    };
    match verdict {
        Ok(how) => {
            println!("{}: {how}", args.daemon);
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("{}: not ready: {why}", args.daemon);
            ExitCode::FAILURE
        }
    }
}

/// Ready, and how; or not, and why.
async fn judge(pod: &Pod, daemon: Daemon) -> Result<String, String> {
    match pod.claim(daemon).look().map_err(|error| error.to_string())? {
        Holder::Free => Err("nobody holds the claim yet".to_owned()),
        Holder::Own => {
            if !pod.folder.is_running(daemon).map_err(|error| error.to_string())? {
                return Err("not started; before its first start it waits for the settings of this node".to_owned());
            }
            let answer =
                run_tool(&daemon.version_call(&pod.dirs, ANSWER_BOUND)).await.map_err(|error| error.to_string())?;
            Ok(format!("answers: {}", answer.lines().next().unwrap_or_default()))
        }
        Holder::Other(holder) => {
            let granted = pod.folder.read_grants().map_err(|error| error.to_string())?.contains(&pod.uid);
            if !granted {
                return Err(format!("stands by; pod {holder} works, and this pod is not granted yet"));
            }
            check_programs(daemon, PROGRAMS_BOUND).await.map_err(|error| error.to_string())?;
            Ok(format!("stands by for pod {holder}, granted"))
        }
    }
}

/// Runs every program that the daemon's container needs, at the same time: an image that cannot is found out before
/// it takes over.
pub(super) async fn check_programs(daemon: Daemon, deadline: Duration) -> Result<(), HookError> {
    let checks = daemon.programs().iter().map(|program| async move {
        let call = Invocation::new(*program, deadline).arg("--version");
        run_tool(&call).await.map_err(|source| HookError::Program { program, source })
    });
    futures::future::try_join_all(checks).await.map(|_| ())
}
