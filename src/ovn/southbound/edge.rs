//! The Southbound functions that do I/O: each puts a plan through the client and reads its outcome.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::ids::SystemId;
use crate::ovsdb::{Client, Condition, Followed, Kind, Model};

use super::chassis::{
    Bindings, ChassisView, Deleted, Registration, parse_bindings, parse_chassis, parse_chassis_del,
    parse_registrations, parse_requested, plan_bindings, plan_chassis, plan_chassis_del, plan_registrations,
    plan_requested,
};
use super::{SouthboundError, tables};

pub async fn fetch_chassis(
    client: &Client,
    name: &SystemId,
    deadline: Duration,
) -> Result<ChassisView, SouthboundError> {
    parse_chassis(name, &client.transact(&plan_chassis(name), deadline).await?)
}

/// Every registered chassis: for finding an id that two nodes use.
pub async fn fetch_registrations(client: &Client, deadline: Duration) -> Result<Vec<Registration>, SouthboundError> {
    parse_registrations(&client.transact(&plan_registrations(), deadline).await?)
}

/// The gateway ports on a chassis now; none if it is not registered. One sighting is no proof that a move is over: a
/// binding flaps.
pub async fn fetch_bindings(client: &Client, name: &SystemId, deadline: Duration) -> Result<Bindings, SouthboundError> {
    match fetch_chassis(client, name, deadline).await?.registration {
        Some(Registration { uuid, .. }) => parse_bindings(&client.transact(&plan_bindings(uuid), deadline).await?),
        None => Ok(Bindings::default()),
    }
}

/// Ports that are requested on a chassis, alone or among others, by name; none if it is not registered, or if the
/// Southbound is of an OVN that does not tell.
pub async fn fetch_requested(
    client: &Client,
    name: &SystemId,
    deadline: Duration,
) -> Result<Vec<String>, SouthboundError> {
    let Some(Registration { uuid, .. }) = fetch_chassis(client, name, deadline).await?.registration else {
        return Ok(Vec::new());
    };
    match client.transact(&plan_requested(uuid), deadline).await {
        Ok(outcomes) => parse_requested(&outcomes),
        Err(error) if error.server_error().is_some_and(|refusal| lacks_column(&refusal.kind)) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

fn lacks_column(kind: &Kind) -> bool {
    matches!(kind, Kind::UnknownColumn | Kind::SyntaxError)
}

/// Deletes a chassis' registration, whole or the half that is left; done when the database itself has confirmed that
/// nothing of it is there.
///
/// Nothing to do is success. Runs through a member of the database only: a relay would forward it, but to whom and after
/// what it saw is not ours to know.
pub async fn commit_chassis_del(
    client: &Client,
    name: &SystemId,
    deadline: Duration,
) -> Result<Deleted, SouthboundError> {
    if client.connected(deadline).await?.model == Model::Relay {
        return Err(SouthboundError::Relay { chassis: name.clone() });
    }
    let seen = fetch_chassis(client, name, deadline).await?;
    let plan = plan_chassis_del(&seen);
    if plan.is_empty() {
        return Ok(Deleted::default());
    }
    match client.transact(&plan, deadline).await {
        Ok(outcomes) => parse_chassis_del(name, &outcomes),
        Err(error) if error.server_error().is_some_and(|refusal| refusal.kind == Kind::TimedOut) => {
            Err(SouthboundError::Registered { chassis: name.clone(), source: error })
        }
        Err(error) => Err(error.into()),
    }
}

/// What to follow so that [`Bindings::in_replica`] and [`super::registrations_in`] can tell at any moment where gateway
/// ports sit, who is registered and who reaches which network: only the gateway ports among all bindings.
pub fn followed() -> BTreeMap<String, Followed> {
    let gateway_ports = Followed {
        any_of: vec![Condition::equals("type", "chassisredirect"), Condition::equals("type", "external")],
        ..Followed::columns(&["logical_port", "type", "chassis"])
    };
    BTreeMap::from([
        (tables::CHASSIS.to_owned(), Followed::columns(&["name", "hostname", "other_config", "external_ids"])),
        (tables::PORT_BINDING.to_owned(), gateway_ports),
    ])
}
