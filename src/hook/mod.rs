//! What runs around one daemon of the chassis: its entrypoint, its pre-stop hook, its readiness probe.
//!
//! Nothing here needs the API server or the agent. Two pods of one node share the run folder while one hands over to
//! the other; [`claim`] says which of the two acts, [`lock`] says which daemon is alive, and everything else follows
//! from these two.
//!
//! ```text
//! start:    join the pod -> programs work? -> claim -> database or settings -> daemon's lock -> hold the kernel's
//!           flows -> spawn -> supervise -> linger for the hook
//! pre-stop: claim ours? -> mark -> (ovsdb-server: vswitchd gone?) -> no other hand-over in flight? -> no pause
//!           in force? -> which tunnels forward? -> exit, gently -> lock free? -> the last one gives up the claim
//! ready:    claim ours? daemon answers : (granted? programs work)
//! ```

pub mod claim;
pub mod daemon;
pub mod install;
pub mod lock;
mod pre_stop;
mod ready;
mod revalidators;
mod start;
mod stop;
mod supervise;
mod tunnels;
pub mod warm_restart;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::ops::{LogFormat, telemetry, termination};
use crate::ovs::leftover::LeftoverError;
use crate::ovs::run::RunError;
use crate::ovs::rundir::RunDirs;
use crate::ovs::schema::SchemaError;

use claim::{Claim, LockedClaim};
use daemon::Daemon;
use lock::{LOCK_POLL, LockError, PodUid, RunFolder};

/// `ovn-chassis hook`: entrypoint, pre-stop hook and readiness probe of the daemons' containers.
#[derive(Debug, Clone, clap::Args)]
pub struct HookArgs {
    #[command(subcommand)]
    command: HookCommand,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum HookCommand {
    /// Process 1 of a daemon's container: waits for its turn, prepares, and runs the daemon in the foreground
    ///
    /// Waits until the pod holds the node's claim and the daemon's lock is free; makes or converts the database
    /// (ovsdb-server) or waits until the database has a system-id and an ovn-remote (the others); removes what a dead
    /// predecessor left. Ends with the daemon's exit code when the daemon ends by itself, and with 0 when it was
    /// asked to end.
    Start(start::StartArgs),
    /// Ends the daemon the gentle way, in order, within 40 seconds; does nothing if another pod holds the claim
    ///
    /// Exit codes: 0 the daemon is gone, or was not ours to stop; 1 it is still there when the time is over.
    PreStop(pre_stop::PreStopArgs),
    /// Readiness probe: the pod's daemon answers, or the pod stands by with working programs and is granted
    ///
    /// Exit codes: 0 ready; 1 not ready, with the reason on stdout. Ends within eight
    /// seconds.
    Ready(ready::ReadyArgs),
}

/// Where the node keeps things, and which pod this is.
#[derive(Debug, Clone, clap::Args)]
pub struct NodeArgs {
    /// Sockets and pid files of Open vSwitch
    #[arg(long, env = "OVS_RUNDIR", default_value = "/run/openvswitch", value_name = "DIR")]
    ovs_rundir: PathBuf,
    /// Socket and pid file of ovn-controller
    #[arg(long, env = "OVN_RUNDIR", default_value = "/run/ovn", value_name = "DIR")]
    ovn_rundir: PathBuf,
    /// Folder of conf.db
    #[arg(long, env = "OVS_DBDIR", default_value = "/etc/openvswitch", value_name = "DIR")]
    db_dir: PathBuf,
    /// Claims, locks and grants of this node
    #[arg(long, env = "OVN_CHASSIS_RUN_DIR", default_value = "/run/ovn-chassis", value_name = "DIR")]
    run_dir: PathBuf,
    /// This pod's metadata.uid
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pod_uid: PodUid,
}

/// One pod on one node: everything that the hooks know about where they are.
#[derive(Debug, Clone)]
struct Pod {
    dirs: RunDirs,
    folder: RunFolder,
    uid: PodUid,
}

impl Pod {
    /// Opens the run folder, making what is missing.
    fn open(args: NodeArgs) -> Result<Self, HookError> {
        let folder = RunFolder::open(&args.run_dir)?;
        Ok(Self::with(args, folder))
    }

    /// Only looks: makes no file and no folder.
    fn look(args: NodeArgs) -> Self {
        let folder = RunFolder::at(&args.run_dir);
        Self::with(args, folder)
    }

    fn with(args: NodeArgs, folder: RunFolder) -> Self {
        Self {
            dirs: RunDirs { ovs: args.ovs_rundir, ovn: args.ovn_rundir, database: args.db_dir },
            folder,
            uid: args.pod_uid,
        }
    }

    fn claim(&self, daemon: Daemon) -> Claim {
        Claim::new(self.folder.clone(), daemon.claim(), self.uid.clone())
    }

    fn warm_restart(&self) -> warm_restart::WarmRestart {
        warm_restart::WarmRestart { dirs: self.dirs.clone(), folder: self.folder.clone() }
    }

    /// Locks the claim, waiting for whoever has it locked. They hold it for a few seconds at most.
    async fn lock_claim(&self, daemon: Daemon) -> Result<LockedClaim, HookError> {
        let claim = self.claim(daemon);
        loop {
            if let Some(locked) = claim.try_lock()? {
                return Ok(locked);
            }
            tokio::time::sleep(LOCK_POLL).await;
        }
    }
}

/// Why a hook could not do its work.
#[derive(Debug, thiserror::Error)]
enum HookError {
    /// The run folder.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A program of the image does not work: this container must not take over from one that does.
    #[error("the image cannot run {program}: {source}")]
    Program { program: &'static str, source: RunError },
    /// The database file.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// Pid files and sockets of predecessors.
    #[error(transparent)]
    Leftover(#[from] LeftoverError),
    /// The local database cannot be asked for the settings.
    #[error("cannot wait for the settings of this node: {0}")]
    Settings(RunError),
    /// Somebody who holds no lock of ours runs the daemon.
    #[error("another {daemon} (process {pid}; 0: of another pod or of the host) holds {}; end whatever started it first, for example another operator's pod or a systemd unit", pid_file.display())]
    Foreign { daemon: Daemon, pid: i32, pid_file: PathBuf },
    /// The daemon could not be started.
    #[error("cannot start {daemon}: {source}")]
    Spawn { daemon: Daemon, source: std::io::Error },
    /// The daemon could not be waited for.
    #[error("cannot wait for {daemon}: {source}")]
    Wait { daemon: Daemon, source: std::io::Error },
    /// A signal handler or the runtime could not be set up.
    #[error("cannot set up {what}: {source}")]
    Setup { what: &'static str, source: std::io::Error },
    /// The daemon outlived all attempts.
    #[error("{daemon} is still there after {:.0} s ({last})", waited.as_secs_f64())]
    StillRunning { daemon: Daemon, waited: Duration, last: String },
}

/// Runs one hook to its end. The exit code is the hook's.
pub fn run(args: HookArgs) -> ExitCode {
    telemetry::init(LogFormat::Text);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map_err(|source| HookError::Setup { what: "the runtime", source }).and_then(|runtime| {
        let result = runtime.block_on(async {
            match args.command {
                HookCommand::Start(args) => start::run(args).await,
                HookCommand::PreStop(args) => pre_stop::run(args).await,
                HookCommand::Ready(args) => Ok(ready::run(args).await),
            }
        });
        // Nothing may keep the process from ending: no thread of the runtime is worth waiting for.
        runtime.shutdown_background();
        result
    });
    result.unwrap_or_else(|error| {
        tracing::error!("{error}");
        termination::write(&error.to_string());
        ExitCode::FAILURE
    })
}
