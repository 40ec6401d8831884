//! The entrypoint of one daemon's container.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::claim::{ClaimWait, Holder, Turn};
use super::daemon::Daemon;
use super::lock::LOCK_POLL;
use super::ready::check_programs;
use super::revalidators::{ANSWER_WITHIN, Answer, PAUSE_AT_MOST, Revalidators};
use super::supervise::{Signals, Watch, linger, supervise};
use super::tunnels::Tunnels;
use super::warm_restart::{FLAG_AT_MOST, Watchdog, uptime};
use super::{HookError, NodeArgs, Pod};
use crate::ovs::leftover::{PidFile, remove_dead_sockets, remove_if_stale};
use crate::ovs::run::{Invocation, run as run_tool};
use crate::ovs::schema::{Prepared, prepare_database};
use crate::ovs::vsctl::wait_for_settings;

/// How often a standby looks at the claim. This is what a hand-over costs; a look reads one short file in memory.
const CLAIM_POLL: Duration = Duration::from_millis(50);
/// A program of a cold image on a busy node may take its time to answer `--version`.
const PROGRAM_BOUND: Duration = Duration::from_secs(30);
/// One wait for the settings; then it is said again that the daemon waits.
const SETTINGS_PATIENCE: Duration = Duration::from_secs(60);
/// A dying process closes its files one after the other: its pid file may be held for an instant longer than our lock.
const LAST_BREATH: Duration = Duration::from_secs(2);
/// OVS 3.1 computes no handler threads on a machine that booted less than ten seconds ago.
const UPTIME_FOR_VSWITCHD: Duration = Duration::from_secs(11);

/// `ovn-chassis hook start`.
#[derive(Debug, Clone, clap::Args)]
pub struct StartArgs {
    /// The daemon of this container
    daemon: Daemon,
    /// How long the holder of the claim may be without any process before a standby takes over, in milliseconds
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u64).range(0..=600_000), value_name = "MS")]
    orphan_grace_ms: u64,
    /// Another database schema than the image's own (ovsdb-server)
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// How long flow-restore-wait may be on (ovs-vswitchd), in milliseconds; for tests
    #[arg(long, hide = true, default_value_t = millis(FLAG_AT_MOST), value_name = "MS")]
    flow_restore_wait_at_most_ms: u64,
    /// How long the revalidators may be paused for a starting ovn-controller (ovs-vswitchd), in milliseconds; 0: never
    #[arg(long, hide = true, env = "OVN_CHASSIS_REVALIDATORS_PAUSED_AT_MOST_MS", default_value_t = millis(PAUSE_AT_MOST), value_parser = clap::value_parser!(u64).range(0..=millis(PAUSE_AT_MOST)), value_name = "MS")]
    revalidators_paused_at_most_ms: u64,
    /// Folder with tls.crt, tls.key and ca.crt (ovn-controller); used when it holds them
    #[arg(long, default_value = "/etc/ovn-chassis/tls", value_name = "DIR")]
    tls_dir: PathBuf,
    #[command(flatten)]
    node: NodeArgs,
    /// More arguments for the daemon itself
    #[arg(last = true, value_name = "DAEMON_ARGS")]
    daemon_arguments: Vec<OsString>,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Runs the container.
pub(super) async fn run(args: StartArgs) -> Result<ExitCode, HookError> {
    // First of all: process 1 without a handler would ignore SIGTERM until kubelet's patience ends.
    let mut signals = Signals::install()?;
    let daemon = args.daemon;
    let pod = Pod::open(args.node.clone())?;
    let _member = pod.folder.join(&pod.uid)?;
    forget_own_mark(&pod, daemon)?;
    let started = tokio::select! {
        biased;
        () = signals.asked_to_end() => {
            give_up_flows(&pod, daemon).await;
            return Ok(end_before_start(daemon));
        }
        started = start(&pod, &args) => started?,
    };
    let Started::Running(child) = started else {
        tracing::info!("{daemon}: the pod ends before the daemon was started");
        give_up_flows(&pod, daemon).await;
        linger(&pod, daemon, &mut signals).await?;
        return Ok(ExitCode::SUCCESS);
    };
    let watch = (daemon == Daemon::OvsVswitchd).then(|| {
        let flag = Watchdog {
            node: pod.warm_restart(),
            flag_at_most: Duration::from_millis(args.flow_restore_wait_at_most_ms),
        };
        let at_most = Duration::from_millis(args.revalidators_paused_at_most_ms);
        let tunnels = Tunnels::new(pod.warm_restart(), tunnels_before(&pod));
        Watch::new(flag, Revalidators::new(pod.warm_restart(), at_most), tunnels)
    });
    supervise(&pod, daemon, child, signals, watch).await
}

/// The tunnels that forwarded until the daemon before was told to end.
fn tunnels_before(pod: &Pod) -> Vec<String> {
    pod.warm_restart().take_tunnels().unwrap_or_else(|error| {
        tracing::warn!("tunnels wait for their sessions: {error}");
        Vec::new()
    })
}

/// A flag that was set for a daemon that will not start.
async fn give_up_flows(pod: &Pod, daemon: Daemon) {
    if daemon == Daemon::OvsVswitchd
        && let Ok(Holder::Own) = pod.claim(daemon).look()
        && let Err(error) = pod.warm_restart().give_up_flows().await
    {
        tracing::warn!("flow-restore-wait may be left on for the next start: {error}");
    }
}

fn end_before_start(daemon: Daemon) -> ExitCode {
    tracing::info!("{daemon}: asked to end before the daemon was started");
    ExitCode::SUCCESS
}

/// A mark of this pod from before this container started is no longer true: kubelet starts containers only in a pod
/// that is to live.
fn forget_own_mark(pod: &Pod, daemon: Daemon) -> Result<(), HookError> {
    let mut mark = pod.folder.stop_mark(daemon)?;
    if mark.is_of(&pod.uid)? {
        mark.set(None)?;
    }
    Ok(())
}

/// How far the start came.
enum Started {
    Running(tokio::process::Child),
    /// A pre-stop hook of this pod came first.
    Stopping,
}

/// Everything before the daemon runs. Dropping this future at any point is safe: nothing is half-done that the next
/// start would not mend.
async fn start(pod: &Pod, args: &StartArgs) -> Result<Started, HookError> {
    let daemon = args.daemon;
    // Before the claim: an image that cannot run its programs takes nothing away from a pod that works.
    check_programs(daemon, PROGRAM_BOUND).await?;
    let own_socket = takes_unixctl(daemon).await?;
    loop {
        wait_for_claim(pod, args).await?;
        if daemon != Daemon::OvsdbServer {
            wait_until_configured(pod, daemon).await?;
        }
        let lock = wait_for_daemon_lock(pod, daemon).await?;
        remove_leftovers(pod, daemon).await?;
        match daemon {
            Daemon::OvsdbServer => report(&prepare_database(&pod.dirs.conf_db(), args.schema.as_deref()).await?, pod),
            Daemon::OvsVswitchd => before_vswitchd(pod, args).await,
            Daemon::OvnController => before_ovn_controller(pod).await,
        }
        match spawn(pod, args, own_socket, lock).await? {
            Spawned::Running(child) => return Ok(Started::Running(child)),
            Spawned::Stopping => return Ok(Started::Stopping),
            // The claim went to somebody else while this pod prepared: stand by again.
            Spawned::ClaimLost => {}
        }
    }
}

async fn wait_for_claim(pod: &Pod, args: &StartArgs) -> Result<(), HookError> {
    let daemon = args.daemon;
    let mut wait = ClaimWait::new(pod.claim(daemon), Duration::from_millis(args.orphan_grace_ms));
    let mut said = None;
    loop {
        match wait.ask(std::time::Instant::now())? {
            Some(Turn::Holds) => {
                tracing::info!("{daemon}: this pod ({}) holds the claim", pod.uid);
                return Ok(());
            }
            Some(Turn::StandBy { holder }) if said.as_ref() != Some(&holder) => {
                tracing::info!("{daemon}: standing by; pod {holder} holds the claim");
                said = Some(holder);
            }
            Some(Turn::StandBy { .. }) | None => {}
        }
        sleep(CLAIM_POLL).await;
    }
}

/// Waits for the end of a predecessor. The lock lives and dies with the daemon's process, so this holds even for a
/// pod that was killed without a hook.
async fn wait_for_daemon_lock(pod: &Pod, daemon: Daemon) -> Result<File, HookError> {
    let mut said = false;
    loop {
        if let Some(lock) = pod.folder.try_lock_daemon(daemon)? {
            return Ok(lock);
        }
        if !said {
            tracing::info!("{daemon}: waiting for the one before to end");
            said = true;
        }
        sleep(LOCK_POLL).await;
    }
}

/// Waits until the database knows who this node is. Only the first start of a node waits: later ones find what the
/// database holds, with or without an API server.
async fn wait_until_configured(pod: &Pod, daemon: Daemon) -> Result<(), HookError> {
    // The tool itself would wait too, but in steps of a second: in a hand-over the server is there within a tenth of
    // that.
    while std::os::unix::net::UnixStream::connect(pod.dirs.db_socket()).is_err() {
        sleep(CLAIM_POLL).await;
    }
    loop {
        let begun = Instant::now();
        if wait_for_settings(&pod.dirs, SETTINGS_PATIENCE).await.map_err(HookError::Settings)? {
            return Ok(());
        }
        tracing::info!(
            "{daemon}: waiting for system-id and ovn-remote in the database, for another {} s",
            begun.elapsed().as_secs()
        );
    }
}

/// Removes what dead predecessors left, and refuses to start beside a living one that holds no lock of ours.
async fn remove_leftovers(pod: &Pod, daemon: Daemon) -> Result<(), HookError> {
    let pid_file = daemon.pid_file(&pod.dirs);
    let deadline = Instant::now() + LAST_BREATH;
    loop {
        match remove_if_stale(&pid_file, daemon.program())? {
            PidFile::Held { .. } if Instant::now() < deadline => sleep(LOCK_POLL).await,
            PidFile::Held { pid } => return Err(HookError::Foreign { daemon, pid, pid_file }),
            PidFile::Stale => tracing::info!("{daemon}: removed the stale {}", pid_file.display()),
            PidFile::Absent => break,
        }
    }
    let sockets = remove_dead_sockets(daemon.folder(&pod.dirs), daemon.program())?;
    if sockets > 0 {
        tracing::info!("{daemon}: removed {sockets} dead control sockets");
    }
    Ok(())
}

fn report(prepared: &Prepared, pod: &Pod) {
    let path = pod.dirs.conf_db();
    let path = path.display();
    match prepared {
        Prepared::Kept => {}
        Prepared::Created => tracing::info!("created {path}"),
        Prepared::Converted { from, to, backup } => {
            tracing::info!("converted {path} from schema {from} to {to}; the old one is {}", backup.display())
        }
        Prepared::Newer { database, image } => {
            tracing::warn!(
                "{path} has schema {database}, this image brings {image}: left as it is, the daemons read the part that they know"
            );
        }
    }
}

/// The last thing before `ovn-controller` starts.
async fn before_ovn_controller(pod: &Pod) {
    let node = pod.warm_restart();
    let answer = match node.expect_flows().await {
        Ok(request) => node.wait_for_answer(request).await.map_err(Into::into),
        Err(error) => Err(error),
    };
    match answer {
        Ok(Some(Answer::Paused)) => tracing::info!("ovs-vswitchd keeps the kernel's flows until the new ones are in"),
        Ok(Some(Answer::Left)) => tracing::info!("ovs-vswitchd pauses nothing for this start"),
        // It is away, or its pod is of a version that does not answer.
        Ok(None) => tracing::info!(
            "ovs-vswitchd's container said nothing within {:.1} s: started without a pause of the revalidators",
            ANSWER_WITHIN.as_secs_f64()
        ),
        Err(error) => tracing::warn!("ovs-vswitchd does not know that ovn-controller starts: {error}"),
    }
}

/// The last thing before `ovs-vswitchd` starts.
async fn before_vswitchd(pod: &Pod, args: &StartArgs) {
    if let Some(left) = uptime().and_then(|uptime| UPTIME_FOR_VSWITCHD.checked_sub(uptime)) {
        tracing::info!("the machine booted just now: ovs-vswitchd waits for {:.1} s", left.as_secs_f64());
        sleep(left).await;
    }
    let kernel_datapath = !args.daemon_arguments.iter().any(|argument| argument == "--disable-system");
    if kernel_datapath && !Path::new("/sys/module/openvswitch").exists() {
        // The kernel loads it by itself when the datapath is first asked for, unless the host forbids that; a failure
        // here decides nothing.
        let load = Invocation::new("modprobe", PROGRAM_BOUND).args(["-a", "openvswitch", "vport-geneve"]);
        if let Err(error) = run_tool(&load).await {
            tracing::warn!("the kernel module openvswitch is not loaded yet: {error}");
        }
    }
    match pod.warm_restart().hold_flows().await {
        Ok(true) => tracing::info!("flow-restore-wait is set until ovn-controller's flows are in"),
        Ok(false) => tracing::info!("the first start of this node: there are no flows to keep"),
        Err(error) => tracing::warn!("flow-restore-wait is not set, this start loses packets: {error}"),
    }
}

/// Asks the program itself whether it can be told where its control socket goes: older `ovn-controller`s cannot.
async fn takes_unixctl(daemon: Daemon) -> Result<bool, HookError> {
    if daemon != Daemon::OvnController {
        return Ok(true);
    }
    let help = Invocation::new(daemon.program(), PROGRAM_BOUND).arg("--help");
    let text = run_tool(&help).await.map_err(|source| HookError::Program { program: daemon.program(), source })?;
    Ok(text.contains("--unixctl"))
}

enum Spawned {
    Running(tokio::process::Child),
    Stopping,
    ClaimLost,
}

/// Starts the daemon, under the claim's lock: from here on either the hook sees a daemon to stop, or the entrypoint
/// saw the hook's mark.
async fn spawn(pod: &Pod, args: &StartArgs, own_socket: bool, lock: File) -> Result<Spawned, HookError> {
    let daemon = args.daemon;
    let mut locked = pod.lock_claim(daemon).await?;
    if locked.holder()? != Holder::Own {
        return Ok(Spawned::ClaimLost);
    }
    if pod.folder.stop_mark(daemon)?.is_of(&pod.uid)? {
        return Ok(Spawned::Stopping);
    }
    let tls = args.tls_dir.join("tls.key").exists().then_some(args.tls_dir.as_path());
    let child = tokio::process::Command::new(daemon.program())
        .args(daemon.arguments(&pod.dirs, own_socket, tls))
        .args(&args.daemon_arguments)
        .env("OVS_RUNDIR", &pod.dirs.ovs)
        .env("OVN_RUNDIR", &pod.dirs.ovn)
        .env("OVS_DBDIR", &pod.dirs.database)
        // The lock rides on the daemon's standard input, which no daemon reads: it is free exactly when the daemon's
        // process is gone, whatever becomes of this entrypoint.
        .stdin(lock)
        .spawn()
        .map_err(|source| HookError::Spawn { daemon, source })?;
    tracing::info!("{daemon}: started as process {}", child.id().unwrap_or_default());
    if !own_socket && let Some(pid) = child.id() {
        link_socket(pod, daemon, pid);
    }
    Ok(Spawned::Running(child))
}

/// Gives an older `ovn-controller`'s socket its plain name as well, so that a person's `ovn-appctl -t
/// /run/ovn/ovn-controller.ctl` works with every version.
fn link_socket(pod: &Pod, daemon: Daemon, pid: u32) {
    let fresh = daemon.folder(&pod.dirs).join(format!("{daemon}.ctl.new"));
    let _ = std::fs::remove_file(&fresh);
    let linked = std::os::unix::fs::symlink(format!("{daemon}.{pid}.ctl"), &fresh)
        .and_then(|()| std::fs::rename(&fresh, daemon.plain_socket(&pod.dirs)));
    if let Err(error) = linked {
        // A convenience for people: the hooks find the socket by the pid file too.
        tracing::warn!("cannot link {}: {error}", daemon.plain_socket(&pod.dirs).display());
    }
}
