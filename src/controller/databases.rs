//! Clients of the central databases: one long-lived pair for each central, shared by all OVNChassis that use it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::decide::central::Central;
use super::decide::view::DatabaseState;
use super::wake::{Key, Wake};
use crate::model::ids::SystemId;
use crate::model::names::ChassisRef;
use crate::ovn::northbound::{self, NorthboundError};
use crate::ovn::southbound::{self, SouthboundError};
use crate::ovsdb::{Client, Endpoints, Fault, ServerNames, Settings, Status, TlsMaterial, TlsSource, View};

/// One database.
pub struct Database {
    pub client: Client,
    view: watch::Receiver<Option<View>>,
    _tasks: Arc<tokio::task::JoinSet<()>>,
}

impl Database {
    fn connect(
        endpoints: Endpoints,
        name: &'static str,
        tls: watch::Receiver<Option<TlsMaterial>>,
        names: ServerNames,
        tables: BTreeMap<String, crate::ovsdb::Followed>,
        changed: impl Fn(Option<&crate::ovsdb::Replica>) + Send + 'static,
    ) -> Self {
        let settings = Settings::new(endpoints, name).with_tls(TlsSource::Held(tls), names);
        let client = Client::spawn(settings);
        let (publish, view) = watch::channel(None);
        let mut tasks = tokio::task::JoinSet::new();
        let followed = client.clone();
        tasks.spawn(async move {
            let mut view = match followed.follow(tables).await {
                Ok(view) => view,
                Err(error) => {
                    tracing::error!(database = name, %error, "cannot be followed");
                    return;
                }
            };
            publish.send_replace(Some(view.clone()));
            let mut status = followed.status();
            loop {
                changed(view.current().as_deref());
                tokio::select! {
                    more = view.changed() => if !more { return },
                    more = status.changed() => if more.is_err() { return },
                }
            }
        });
        Self { client, view, _tasks: Arc::new(tasks) }
    }

    /// What is followed of it; None while that is not current.
    pub fn replica(&self) -> Option<Arc<crate::ovsdb::Replica>> {
        self.view.borrow().as_ref().and_then(View::current)
    }

    /// What its state says about starting work.
    pub fn state(&self) -> DatabaseState {
        match &*self.client.status().borrow() {
            Status::Connected { synced: true, .. } => DatabaseState::Synced,
            Status::Connected { .. } => DatabaseState::Unknown,
            Status::Away { endpoint, fault } => match &**fault {
                Fault::NotYet => DatabaseState::Unknown,
                Fault::Unfit(unfit) => DatabaseState::Unfit(format!("{endpoint}: {unfit}")),
                other => DatabaseState::OutOfReach(format!("{endpoint}: {other}")),
            },
        }
    }
}

/// The pair of one central.
pub struct Link {
    pub northbound: Database,
    pub southbound: Database,
    tls: watch::Sender<Option<TlsMaterial>>,
    endpoints: (Endpoints, Endpoints),
    lowered: Mutex<Option<Lowered>>,
}

/// Chassis whose priority was lowered, and the state of the Northbound that says so.
type Lowered = (Arc<crate::ovsdb::Replica>, Arc<BTreeSet<SystemId>>);

impl Link {
    /// Whether rows carry the note that this chassis' priority was lowered. Every node asks at every look, so it is read
    /// once for each change of the Northbound.
    pub fn is_lowered(&self, id: &SystemId) -> bool {
        let Some(replica) = self.northbound.replica() else { return false };
        let mut held = self.lowered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, lowered)) = &*held
            && Arc::ptr_eq(of, &replica)
        {
            return lowered.contains(id);
        }
        let lowered = Arc::new(northbound::chassis_lowered(&replica));
        let is_lowered = lowered.contains(id);
        *held = Some((replica, lowered));
        is_lowered
    }
}

/// Names a central: an OVNCentral, or an OVNChassis that has the addresses itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CentralKey {
    pub namespace: String,
    pub name: String,
    pub inline: bool,
}

/// All links.
#[derive(Clone)]
pub struct Databases {
    links: Arc<Mutex<BTreeMap<CentralKey, Arc<Link>>>>,
    users: Arc<Mutex<BTreeMap<ChassisRef, CentralKey>>>,
    names: ServerNames,
    wake: Wake,
}

impl Databases {
    pub fn new(names: ServerNames, wake: Wake) -> Self {
        Self { links: Arc::default(), users: Arc::default(), names, wake }
    }

    fn links(&self) -> MutexGuard<'_, BTreeMap<CentralKey, Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn users(&self) -> MutexGuard<'_, BTreeMap<ChassisRef, CentralKey>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link that an OVNChassis uses now.
    pub fn link(&self, chassis: &ChassisRef) -> Option<Arc<Link>> {
        let key = self.users().get(chassis).cloned()?;
        self.links().get(&key).cloned()
    }

    /// Lets an OVNChassis use a central: connects, or hands rotated certificates on.
    pub fn use_central(&self, chassis: &ChassisRef, key: &CentralKey, central: &Central, tls: Option<TlsMaterial>) {
        self.users().insert(chassis.clone(), key.clone());
        let endpoints = (central.northbound.clone(), central.southbound.clone());
        let mut links = self.links();
        if let Some(link) = links.get(key).filter(|l| l.endpoints == endpoints) {
            // The next connection uses it; the one that stands stays.
            link.tls.send_if_modified(|old| {
                let differs = *old != tls;
                *old = tls;
                differs
            });
            return;
        }
        let (sender, receiver) = watch::channel(tls);
        let northbound = Database::connect(
            endpoints.0.clone(),
            "OVN_Northbound",
            receiver.clone(),
            self.names,
            northbound::followed(),
            self.wakes_northbound(key.clone()),
        );
        let southbound = Database::connect(
            endpoints.1.clone(),
            "OVN_Southbound",
            receiver,
            self.names,
            southbound::followed(),
            self.wakes_southbound(key.clone()),
        );
        links.insert(
            key.clone(),
            Arc::new(Link { northbound, southbound, tls: sender, endpoints, lowered: Mutex::default() }),
        );
    }

    /// An OVNChassis is gone: its link goes with its last user.
    pub fn forget(&self, chassis: &ChassisRef) {
        let mut users = self.users();
        let Some(key) = users.remove(chassis) else { return };
        if !users.values().any(|k| *k == key) {
            drop(users);
            self.links().remove(&key);
        }
    }

    fn chassis_of(&self, key: &CentralKey) -> Vec<ChassisRef> {
        self.users().iter().filter(|(_, k)| *k == key).map(|(c, _)| c.clone()).collect()
    }

    fn wakes_northbound(&self, key: CentralKey) -> impl Fn(Option<&crate::ovsdb::Replica>) + Send + 'static {
        let this = self.clone();
        move |_| this.wake_nodes(&key)
    }

    fn wakes_southbound(&self, key: CentralKey) -> impl Fn(Option<&crate::ovsdb::Replica>) + Send + 'static {
        let this = self.clone();
        move |_| {
            this.wake_nodes(&key);
            for chassis in this.chassis_of(&key) {
                this.wake.wake_existing(&Key::Chassis(chassis));
            }
        }
    }

    fn wake_nodes(&self, key: &CentralKey) {
        let users = self.chassis_of(key);
        self.wake.wake_where(|k| matches!(k, Key::Node(chassis, _) if users.contains(chassis)));
    }
}

/// One attempt must not take a Job's whole time.
pub const ATTEMPT: Duration = Duration::from_secs(10);

/// Why database work did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("the databases' addresses are not known")]
    NoCentral,
    #[error(transparent)]
    Northbound(#[from] NorthboundError),
    #[error(transparent)]
    Southbound(#[from] SouthboundError),
}

impl DatabaseError {
    /// No later try can succeed: what answers does not speak as it should, or is not what should be asked.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Northbound(NorthboundError::Row { .. } | NorthboundError::Reply { .. })
                | Self::Southbound(
                    SouthboundError::Row { .. } | SouthboundError::Reply { .. } | SouthboundError::Relay { .. }
                )
        )
    }
}

/// What an evacuation did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evacuation {
    pub rows: u64,
    /// Ports that have no gateway left.
    pub left_without: Vec<String>,
}

/// Takes all rows of a chassis out of the Northbound, which confirms it.
pub async fn evacuate(
    link: &Link,
    id: &SystemId,
    guarded: bool,
    attempt: Duration,
) -> Result<Evacuation, DatabaseError> {
    let client = &link.northbound.client;
    // Only where the decision relied on other candidates must they still be there.
    let guards = match guarded {
        true => northbound::fetch_gateway_view(client, id, attempt).await?.candidate_guards(),
        false => Vec::new(),
    };
    let done = match link.northbound.replica() {
        // Who is named where is followed anyway: no need to ask first.
        Some(replica) => {
            let known = northbound::ChassisRows::in_replica(&replica, id);
            northbound::commit_evacuation_of(client, known, &guards, attempt).await?
        }
        None => northbound::commit_evacuation(client, id, &guards, attempt).await?,
    };
    if link.is_lowered(id) {
        northbound::commit_forgetting(client, id, attempt).await?;
    }
    Ok(Evacuation { rows: done.rows(), left_without: done.left_without })
}

/// The gateway ports around a chassis, and those that are named besides.
pub async fn fetch_view(
    link: &Link,
    id: &SystemId,
    named: &BTreeSet<String>,
    attempt: Duration,
) -> Result<northbound::GatewayView, DatabaseError> {
    Ok(northbound::fetch_gateway_view_with(&link.northbound.client, id, named, attempt).await?)
}

/// What is pinned to a chassis by other means than gateway rows, for people. The Southbound knows the ports whose
/// `requested-chassis` lists several chassis: northd has taken the list apart there.
pub async fn fetch_pins(
    link: &Link,
    id: &SystemId,
    hostname: Option<&str>,
    attempt: Duration,
) -> Result<Vec<String>, DatabaseError> {
    let names: Vec<&str> = std::iter::once(id.as_str()).chain(hostname.filter(|name| *name != id.as_str())).collect();
    let pins = northbound::fetch_pins(&link.northbound.client, &names, attempt).await?;
    let requested = southbound::fetch_requested(&link.southbound.client, id, attempt).await?;
    let mut said: Vec<String> = pins.0.iter().map(ToString::to_string).collect();
    let known = |port: &String| {
        let of_kind = |kind| pins.0.iter().any(|pin| pin.kind == kind && pin.object == *port);
        of_kind(northbound::PinKind::RequestedChassis)
    };
    let more = requested.iter().filter(|port| !known(port));
    said.extend(more.map(|port| format!("{port} (one of several in Logical_Switch_Port options:requested-chassis)")));
    Ok(said)
}

/// Which physical network each of the ports needs.
pub async fn fetch_networks(
    link: &Link,
    ports: &[northbound::GatewayPort],
    attempt: Duration,
) -> Result<BTreeMap<String, String>, DatabaseError> {
    Ok(northbound::fetch_networks(&link.northbound.client, ports, attempt).await?)
}

/// Puts a chassis below the others.
pub async fn lower(link: &Link, lowering: &northbound::Lowering, attempt: Duration) -> Result<(), DatabaseError> {
    Ok(northbound::commit_lowering(&link.northbound.client, lowering, attempt).await?)
}

/// Gives a chassis the priorities back that it had.
pub async fn restore(link: &Link, id: &SystemId, attempt: Duration) -> Result<(), DatabaseError> {
    Ok(northbound::commit_restoration(&link.northbound.client, id, attempt).await?)
}

/// Where gateway ports sit and who is registered; None without a current view.
pub fn whereabouts(link: &Link, id: &SystemId) -> Option<southbound::Whereabouts> {
    southbound::Whereabouts::in_replica(&*link.southbound.replica()?, id).ok()
}

/// Ports that have no other gateway than this chassis.
pub async fn fetch_sole_ports(link: &Link, id: &SystemId, attempt: Duration) -> Result<Vec<String>, DatabaseError> {
    let view = northbound::fetch_gateway_view(&link.northbound.client, id, attempt).await?;
    Ok(view.ports_without_other().iter().map(|p| p.name.clone()).collect())
}

/// Deletes all rows of a chassis from the Southbound, which confirms it.
pub async fn deregister(link: &Link, id: &SystemId, attempt: Duration) -> Result<u64, DatabaseError> {
    let done = southbound::commit_chassis_del(&link.southbound.client, id, attempt).await?;
    Ok(done.chassis + done.private + done.encaps)
}

/// Rows of the Northbound that name a chassis; None without a current view.
pub fn rows_naming(link: &Link, id: &SystemId) -> Option<usize> {
    let replica = link.northbound.replica()?;
    let named = |table: &str| {
        replica.table(table).values().filter(|row| row.text("chassis_name").is_ok_and(|n| n == id.as_str())).count()
    };
    Some(named("Gateway_Chassis") + named("HA_Chassis"))
}

/// Gateway ports that sit on a chassis; None without a current view.
pub fn bindings(link: &Link, id: &SystemId) -> Option<usize> {
    let replica = link.southbound.replica()?;
    southbound::Bindings::in_replica(&replica, id).ok().map(|b| b.count())
}
