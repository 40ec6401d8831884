//! The readiness probe of one daemon's container: local health only, or a standby's permission.

use std::process::ExitCode;
use std::time::Duration;

use tokio::time::timeout;

use super::claim::Holder;
use super::daemon::Daemon;
use super::{HookError, NodeArgs, Pod};
use crate::ovs::appctl;
use crate::ovs::run::{Invocation, run as run_tool};

/// The whole probe.
const PROBE_BOUND: Duration = Duration::from_secs(8);
/// One answer of a daemon.
const ANSWER_BOUND: Duration = Duration::from_millis(2500);
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
            let mut answers = Vec::new();
            for one in answers_for(daemon) {
                answers.push(ask(pod, *one).await.map_err(|why| format!("{one} {why}"))?);
            }
            Ok(format!("answers: {}", answers.join(", ")))
        }
        Holder::Other(holder) => {
            let granted = pod.folder.read_grants().map_err(|error| error.to_string())?.contains(&pod.uid);
            if !granted {
                return Err(format!("stands by; pod {holder} works, and this pod is not granted yet"));
            }
            let checks = answers_for(daemon).iter().map(|one| check_programs(*one, PROGRAMS_BOUND));
            futures::future::try_join_all(checks).await.map_err(|error| error.to_string())?;
            Ok(format!("stands by for pod {holder}, granted"))
        }
    }
}

/// The daemons whose health this container's probe tells. Each probe is a process that kubelet starts in a container, so the
/// `ovs` pod has one for both of its daemons.
fn answers_for(daemon: Daemon) -> &'static [Daemon] {
    match daemon {
        Daemon::OvsVswitchd => &[Daemon::OvsdbServer, Daemon::OvsVswitchd],
        Daemon::OvsdbServer => &[Daemon::OvsdbServer],
        Daemon::OvnController => &[Daemon::OvnController],
    }
}

/// What a daemon of this pod says of itself.
async fn ask(pod: &Pod, daemon: Daemon) -> Result<String, String> {
    if !pod.folder.is_running(daemon).map_err(|error| error.to_string())? {
        return Err("is not started; before its first start it waits for the settings of this node".to_owned());
    }
    let socket = daemon.control_socket(&pod.dirs);
    let answer = appctl::version(&socket, ANSWER_BOUND).await.map_err(|error| format!("does not answer: {error}"))?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
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
