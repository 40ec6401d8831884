//! Looks at the gateway ports around a chassis whose role goes or moves, and remembers what one look cannot tell: which
//! ports were here, and since when none is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::databases::{self, DatabaseError, Link};
use super::decide::gateway_ports::{Ports, judge, networks_matter};
use super::decide::view::DatabaseState;
use crate::model::ids::SystemId;
use crate::ovn::northbound::{GatewayView, plan_lowering};
use crate::ovn::southbound::Whereabouts;
use crate::ovsdb::Replica;

/// A question that failed is not asked again before this time.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// What a worker remembers of one move.
#[derive(Clone, Debug, Default)]
pub struct Moving {
    /// The ports as they were read, for as long as the followed Northbound has not changed.
    read: Option<Read>,
    /// Why the last reading failed.
    failed: Option<(Timestamp, String)>,
    /// Ports that were seen on the chassis although others could have them.
    seen: BTreeSet<String>,
    quiet_since: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Read {
    of: Arc<Replica>,
    named: BTreeSet<String>,
    view: GatewayView,
    networks: Option<BTreeMap<String, String>>,
}

/// What a look brought, and the failure to count if it brought none.
pub struct Look {
    pub ports: Ports,
    pub failure: Option<DatabaseError>,
}

impl From<String> for Look {
    fn from(why: String) -> Self {
        Self { ports: Ports::Unknown(why), failure: None }
    }
}

fn why_unreadable(name: &str, state: &DatabaseState) -> String {
    match state {
        DatabaseState::Unfit(why) | DatabaseState::OutOfReach(why) => format!("{name} database: {why}"),
        DatabaseState::Unknown | DatabaseState::Synced => format!("the {name} database has not been read yet"),
    }
}

impl Moving {
    /// The next look reads the Northbound again: what was read was changed by us or by somebody else.
    pub fn forget_reading(&mut self) {
        self.read = None;
    }

    /// Looks. `rows_are_gone`: only what still sits here is asked about.
    pub async fn look(
        &mut self,
        link: &Link,
        id: &SystemId,
        rows_are_gone: bool,
        attempt: Duration,
        now: Timestamp,
    ) -> Look {
        let Some(replica) = link.northbound.replica() else {
            return why_unreadable("Northbound", &link.northbound.state()).into();
        };
        let southbound = databases::whereabouts(link, id);
        let named = match &southbound {
            Some(southbound) if rows_are_gone => southbound.here.union(&self.seen).cloned().collect(),
            _ => BTreeSet::new(),
        };
        if let Some((_, why)) = self.failed.as_ref().filter(|(at, _)| now.duration_since(*at) < PAUSE) {
            return why.clone().into();
        }
        self.failed = None;
        match self.read(link, id, replica, named, southbound.as_ref(), attempt).await {
            Ok(()) => {}
            Err(error) => {
                let why = crate::ops::tasks::chain(&error);
                self.failed = Some((now, why.clone()));
                return Look { ports: Ports::Unknown(why), failure: Some(error) };
            }
        }
        self.judged(link, id, southbound, now)
    }

    async fn read(
        &mut self,
        link: &Link,
        id: &SystemId,
        replica: Arc<Replica>,
        named: BTreeSet<String>,
        southbound: Option<&Whereabouts>,
        attempt: Duration,
    ) -> Result<(), DatabaseError> {
        let is_current = |read: &Read| Arc::ptr_eq(&read.of, &replica) && read.named == named;
        if !self.read.as_ref().is_some_and(is_current) {
            let view = databases::fetch_view(link, id, &named, attempt).await?;
            self.read = Some(Read { of: replica, named, view, networks: None });
        }
        if let (Some(read), Some(southbound)) = (&mut self.read, southbound)
            && read.networks.is_none()
            && networks_matter(&read.view, southbound)
        {
            read.networks = Some(databases::fetch_networks(link, &read.view.ports, attempt).await?);
        }
        Ok(())
    }

    fn judged(&mut self, link: &Link, id: &SystemId, southbound: Option<Whereabouts>, now: Timestamp) -> Look {
        let Some(read) = &self.read else { return why_unreadable("Northbound", &link.northbound.state()).into() };
        let southbound = match southbound {
            Some(southbound) => southbound,
            // Nobody else could take anything: where it sits makes no difference.
            None if read.named.is_empty() && read.view.other_chassis().is_empty() && self.seen.is_empty() => {
                Whereabouts::default()
            }
            None => return why_unreadable("Southbound", &link.southbound.state()).into(),
        };
        let networks = read.networks.clone().unwrap_or_default();
        let mut ports = judge(&read.view, &networks, &southbound, &self.seen);
        // One that goes down itself is nobody to raise: two that did that to each other would never end, and each would
        // overwrite the other's original. Its end is waited for.
        let steady = southbound.networks.into_keys().filter(|other| other == id || !link.is_lowered(other)).collect();
        ports.lowering = plan_lowering(&read.view, &steady);
        self.seen.extend(ports.here.iter().cloned());
        self.quiet_since = if ports.here.is_empty() { Some(self.quiet_since.unwrap_or(now)) } else { None };
        ports.moved = link.is_lowered(id) || !self.seen.is_empty();
        ports.quiet_since = self.quiet_since;
        Look { ports: Ports::Known(ports), failure: None }
    }
}
