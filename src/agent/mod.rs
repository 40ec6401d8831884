//! One node's half: applies what the OVNChassisNode says to the local database, and reports how the node is.
//!
//! ```text
//! observe   the OVNChassisNode (one watch), the local database (one monitor), the daemons (their control sockets)
//! decide    what differs, what to write, what to report                                            pure: decide/
//! act       one ovs-vsctl, only while this pod holds the claim
//! report    server-side apply of the status, when it says something new
//! ```
//!
//! It holds no credential of a database and talks to none but the node's own. While the API server is away it goes on
//! with what it knows.

pub mod act;
pub mod decide;
pub mod handover;
pub mod metrics;
pub mod observe;
pub mod report;
mod settings;
pub mod warm_restart;
mod work;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use crate::cluster::{ClusterError, connect};
use crate::hook::lock::LockError;
use crate::ops::{Health, LogFormat, Metrics, Shutdown, http, tasks, telemetry, termination};
use handover::Handover;
use metrics::AgentMetrics;
use observe::FollowError;
use settings::Settings;

pub use settings::AgentArgs;

/// How often a port that is taken is asked for again: the agent of the pod before keeps it until that pod has ended.
const BIND_EVERY: Duration = Duration::from_secs(1);

/// Why the agent ends.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("cannot set up {what}")]
    Setup { what: &'static str, source: std::io::Error },
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Follow(#[from] FollowError),
    /// A part that runs for ever did not.
    #[error("{0} ended by itself")]
    Ended(&'static str),
}

/// Runs the agent until SIGTERM.
pub fn run(args: AgentArgs) -> ExitCode {
    telemetry::init(LogFormat::Text);
    let settings = Settings::from(args);
    // One thread: the agent waits nearly all of its life, and each further thread costs memory on every node.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map_err(|source| AgentError::Setup { what: "the runtime", source }).and_then(|runtime| {
        let result = runtime.block_on(run_until_told(&settings));
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = tasks::chain(&error);
            tracing::error!("{text}");
            termination::write(&text);
            ExitCode::FAILURE
        }
    }
}

async fn run_until_told(settings: &Settings) -> Result<(), AgentError> {
    let shutdown = Shutdown::on_signals().map_err(|source| AgentError::Setup { what: "signal handlers", source })?;
    tokio::select! {
        () = shutdown.requested() => Ok(()),
        result = run_for_ever(settings, &shutdown) => result,
    }
}

/// Stands by, works while the claim is this pod's, stands by again.
async fn run_for_ever(settings: &Settings, shutdown: &Shutdown) -> Result<(), AgentError> {
    let handover = Handover::join(&settings.run_dir, settings.pod.clone())?;
    let (health, metrics) = (Health::default(), Metrics::default());
    let own = AgentMetrics::register(&metrics);
    loop {
        handover.active().await?;
        tracing::info!("node {}: active", settings.node_name);
        let client = connect().await?;
        tokio::select! {
            result = work::work(settings, client, &handover, &health, &own) => return result,
            lost = handover.lost() => {
                lost?;
                tracing::info!("node {}: the claim has passed on", settings.node_name);
            }
            never = serve(settings.metrics, &health, &metrics, shutdown) => match never {},
        }
    }
}

/// Serves health and metrics. A port that is taken does not hold up the work.
async fn serve(address: SocketAddr, health: &Health, metrics: &Metrics, shutdown: &Shutdown) -> Infallible {
    let mut said = false;
    loop {
        let served = match http::bind(address).await {
            Ok(listener) => http::serve(listener, health.clone(), metrics.clone(), shutdown.clone()).await,
            Err(error) => Err(error),
        };
        match served {
            // Shutdown was requested: the caller ends this.
            Ok(()) => std::future::pending().await,
            Err(error) if !said => {
                tracing::warn!("{}; trying again every second", tasks::chain(&error));
                said = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(BIND_EVERY).await;
    }
}
