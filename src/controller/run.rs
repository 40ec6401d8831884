//! Start and end of the controller: connect, check, wait for the lease, watch, work, let go.

use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::task::JoinSet;

use super::metrics::ControllerMetrics;
use super::settings::{ControllerArgs, Settings};
use super::wake::Key;
use super::world::World;
use super::{chassis_worker, node_worker, report};
use crate::cluster::events::Events;
use crate::cluster::lease::{self, Claim, LeaseError, LeaseSettings};
use crate::cluster::watch::{Absent, follow};
use crate::cluster::{ClusterError, call, connect, jobs};
use crate::model::names::{
    APP_NAME, COMPONENT_LABEL, COMPONENT_OVN_CONTROLLER, COMPONENT_OVS, MANAGED_BY, MANAGED_BY_LABEL, NAME_LABEL,
};
use crate::ops::tasks::{TaskError, chain};
use crate::ops::{self, Health, Metrics, Shutdown, Tasks};

/// Time that all tasks have to end.
const GRACE: Duration = Duration::from_secs(10);

/// Why the controller ended.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Http(#[from] ops::http::HttpError),
    #[error(transparent)]
    Task(#[from] TaskError),
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
    #[error(
        "this API server drops spec.managedBy of Jobs (Kubernetes before 1.32): it would start real pods for the \
         controller's Jobs. Use Kubernetes 1.32 or later, or turn the feature gate JobManagedBy on"
    )]
    NoManagedBy,
    #[error("which image is ours is not known: give --image, or set POD_NAME and POD_NAMESPACE to this pod's")]
    NoImage,
    #[error("worker of {worker} panicked")]
    Worker { worker: String },
}

/// Runs until told to stop, or until something makes it impossible to go on.
pub async fn run(args: ControllerArgs) -> Result<(), ControllerError> {
    ops::telemetry::init(args.log_format);
    let result = work(args).await;
    if let Err(error) = &result {
        ops::termination::write(&chain(error));
    }
    result
}

async fn work(args: ControllerArgs) -> Result<(), ControllerError> {
    let shutdown = Shutdown::on_signals().map_err(ControllerError::Signals)?;
    let (health, metrics) = (Health::default(), Metrics::default());
    let gauges = ControllerMetrics::register(&metrics);
    let listener = ops::http::bind(args.metrics_addr).await?;
    let mut tasks = Tasks::default();
    tasks.spawn("health and metrics", ops::http::serve(listener, health.clone(), metrics, shutdown.clone()));
    let client = connect().await?;
    health.set("api-server", Err("not reached yet".into()));
    let image = tokio::select! {
        image = image(&client, &args) => image?,
        () = shutdown.requested() => return Ok(()),
    };
    tokio::select! {
        checked = check_managed_by(&client, &args.lease_namespace, &image) => checked?,
        () = shutdown.requested() => return Ok(()),
    }
    health.set("api-server", Ok(()));

    let claim = Claim::default();
    let (events, later) = Events::new(client.clone(), &args.identity);
    let stop = shutdown.clone();
    tasks.spawn("events", async move { until_stopped(later.run(), &stop).await });
    let world = World::new(client.clone(), Settings::new(&args, image), claim.clone(), events);
    let lease = LeaseSettings {
        namespace: args.lease_namespace.clone(),
        name: args.lease_name.clone(),
        identity: args.identity.clone(),
        duration: Duration::from_secs(args.lease_duration_seconds),
    };
    // A standby watches too, so that it takes over without a first list.
    let (watching, stop) = (watch_all(world.clone(), health.clone()), shutdown.clone());
    tasks.spawn("watches", async move { until_stopped(watching, &stop).await });
    let (leading, stop) = (lease::lead(client.clone(), lease.clone(), claim.clone()), shutdown.clone());
    tasks.spawn("lease", async move {
        tokio::select! {
            lost = leading => Err(lost),
            () = stop.requested() => Ok(()),
        }
    });
    let (supervised, stop) = (supervise(world.clone()), shutdown.clone());
    tasks.spawn("workers", async move {
        tokio::select! {
            ended = supervised => ended,
            () = stop.requested() => Ok(()),
        }
    });
    let (measured, stop) = (world.clone(), shutdown.clone());
    tasks.spawn("gauges", async move {
        until_stopped(
            async move {
                loop {
                    gauges.set(&measured);
                    tokio::time::sleep(Duration::from_secs(5)).await;
                }
            },
            &stop,
        )
        .await
    });
    let result = tasks.run(&shutdown, GRACE).await;
    // All work has stopped: nobody writes any more, so the next one need not wait.
    lease::release(client, &lease, &claim).await;
    Ok(result?)
}

async fn until_stopped(work: impl Future<Output = Infallible>, stop: &Shutdown) -> Result<(), std::io::Error> {
    tokio::select! {
        never = work => match never {},
        () = stop.requested() => Ok(()),
    }
}

/// Our own image: what was given, else what our own pod runs.
async fn image(client: &Client, args: &ControllerArgs) -> Result<String, ControllerError> {
    if let Some(image) = &args.image {
        return Ok(image.clone());
    }
    let name = std::env::var("POD_NAME").map_err(|_| ControllerError::NoImage)?;
    let api: Api<Pod> = Api::namespaced(client.clone(), &args.lease_namespace);
    let pod = retried(|| call(format!("get Pod {}/{name}", args.lease_namespace), api.get(&name))).await?;
    let container = pod.spec.and_then(|s| s.containers.into_iter().next());
    container.and_then(|c| c.image).ok_or(ControllerError::NoImage)
}

/// Tries again as long as that may help.
async fn retried<T, F>(mut request: impl FnMut() -> F) -> Result<T, ClusterError>
where
    F: Future<Output = Result<T, ClusterError>>,
{
    let mut pause = Duration::from_millis(200);
    loop {
        match request().await {
            Err(error) if error.is_retryable() => {
                tracing::warn!(error = %chain(&error), "trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(5));
            }
            other => return other,
        }
    }
}

async fn check_managed_by(client: &Client, namespace: &str, image: &str) -> Result<(), ControllerError> {
    if retried(|| jobs::keeps_managed_by(client, namespace, image)).await? {
        Ok(())
    } else {
        Err(ControllerError::NoManagedBy)
    }
}

/// Keeps all caches current, for ever.
async fn watch_all(world: World, health: Health) -> Infallible {
    let client = &world.client;
    let ours = format!("{MANAGED_BY_LABEL}={MANAGED_BY}");
    let pods = format!("{NAME_LABEL}={APP_NAME},{COMPONENT_LABEL} in ({COMPONENT_OVS},{COMPONENT_OVN_CONTROLLER})");
    let labelled = |selector: &str| watcher::Config::default().labels(selector);
    let everything = watcher::Config::default;
    health.set("watches", Err("the first lists are under way".into()));
    let synced = async {
        world.listed().await;
        health.set("watches", Ok(()));
        std::future::pending::<Infallible>().await
    };
    // Labels and annotations are all that is needed of a Node.
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
    tokio::select! {
        never = synced => never,
        never = follow(nodes, everything(), world.nodes.clone(), Absent::Wait) => never,
        never = follow(Api::all(client.clone()), everything(), world.chassis.clone(), Absent::Wait) => never,
        never = follow(Api::all(client.clone()), everything(), world.chassis_nodes.clone(), Absent::Wait) => never,
        never = follow(Api::all(client.clone()), labelled(&ours), world.jobs.clone(), Absent::Wait) => never,
        never = follow(Api::all(client.clone()), labelled(&pods), world.pods.clone(), Absent::Wait) => never,
        never = follow(Api::all(client.clone()), labelled(&ours), world.config_maps.clone(), Absent::Wait) => never,
        never = follow(Api::all(client.clone()), labelled(&ours), world.daemon_sets.clone(), Absent::Wait) => never,
        never = follow(Api::all(client.clone()), everything(), world.centrals.clone(), Absent::IsEmpty) => never,
    }
}

/// Starts a worker for each key that is woken and has none. Returns only if one breaks.
async fn supervise(world: World) -> Result<(), ControllerError> {
    world.claim.won().await;
    if !world.is_listed() {
        tracing::info!("leads, and waits for the first lists");
    }
    // No decision on a view that is not complete: an object that is not listed yet is not a missing one.
    world.listed().await;
    world.centrals.synced().await;
    let mut workers: JoinSet<String> = JoinSet::new();
    loop {
        tokio::select! {
            bell = world.wake.unstarted() => {
                let key = bell.key().clone();
                let (world, name) = (world.clone(), key.to_string());
                match key {
                    Key::Node(chassis, node) => workers.spawn(async move {
                        node_worker::run(world, bell, chassis, node).await;
                        name
                    }),
                    Key::Chassis(chassis) => workers.spawn(async move {
                        chassis_worker::run(world, bell, chassis).await;
                        name
                    }),
                    Key::Report(chassis) => workers.spawn(async move {
                        report::run(world, bell, chassis).await;
                        name
                    }),
                    Key::Drains(chassis) => workers.spawn(async move {
                        report::run_drains(world, bell, chassis).await;
                        name
                    }),
                };
            }
            Some(ended) = workers.join_next() => match ended {
                Ok(name) => tracing::debug!(worker = %name, "nothing is left to do"),
                Err(error) => return Err(ControllerError::Worker { worker: error.to_string() }),
            },
        }
    }
}
