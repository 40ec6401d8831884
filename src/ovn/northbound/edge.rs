//! The Northbound functions that do I/O: each puts a plan through the client and reads its outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::ids::SystemId;
use crate::ovsdb::{Client, Followed, Kind, Operation};

use super::evacuation::{ChassisRows, Evacuated, parse_evacuation, parse_rows, plan_evacuation, plan_rows};
use super::networks::{parse_localnets, parse_networks, plan_localnets, plan_networks};
use super::pins::{PinKind, Pins, parse_pins, plan_pins, plan_template_pins};
use super::priority::{Lowering, parse_originals, plan_forgetting, plan_originals, plan_restoration};
use super::view::{GatewayPort, GatewayView, parse_view, plan_view};
use super::{NorthboundError, tables};

/// Looks that an evacuation takes while another writer keeps adding rows.
const TRIES: u32 = 3;

/// The rows that name a chassis: cheap, a few bytes for each row found.
pub async fn fetch_chassis_rows(
    client: &Client,
    chassis: &SystemId,
    deadline: Duration,
) -> Result<ChassisRows, NorthboundError> {
    parse_rows(chassis, &client.transact(&plan_rows(chassis), deadline).await?)
}

/// The ports behind those rows and their other candidates. It reads all candidates of the cloud once, so it is asked for
/// when rows change, not in a loop; nothing is read if no row names the chassis.
pub async fn fetch_gateway_view(
    client: &Client,
    chassis: &SystemId,
    deadline: Duration,
) -> Result<GatewayView, NorthboundError> {
    fetch_gateway_view_with(client, chassis, &BTreeSet::new(), deadline).await
}

/// The same, and the ports with these names whether or not a row of theirs names the chassis.
pub async fn fetch_gateway_view_with(
    client: &Client,
    chassis: &SystemId,
    named: &BTreeSet<String>,
    deadline: Duration,
) -> Result<GatewayView, NorthboundError> {
    let rows = fetch_chassis_rows(client, chassis, deadline).await?;
    if rows.is_empty() && named.is_empty() {
        return Ok(GatewayView { rows, own: Vec::new(), ports: Vec::new() });
    }
    parse_view(chassis, named, &client.transact(&plan_view(), deadline).await?)
}

/// Over which physical network each of the ports reaches the outside, by the port's name; those without are left out.
pub async fn fetch_networks(
    client: &Client,
    ports: &[GatewayPort],
    deadline: Duration,
) -> Result<BTreeMap<String, String>, NorthboundError> {
    let localnets = parse_localnets(&client.transact(&plan_localnets(), deadline).await?)?;
    if localnets.is_empty() || ports.is_empty() {
        return Ok(BTreeMap::new());
    }
    parse_networks(&localnets, ports, &client.transact(&plan_networks(&localnets), deadline).await?)
}

/// Puts a chassis below the others. Refused if what the plan relied on is not so any more: look again.
pub async fn commit_lowering(client: &Client, lowering: &Lowering, deadline: Duration) -> Result<(), NorthboundError> {
    match client.transact(&lowering.operations(), deadline).await {
        Ok(_) => Ok(()),
        Err(error) if error.server_error().is_some_and(|refusal| refusal.kind == Kind::TimedOut) => {
            Err(NorthboundError::Changed { chassis: lowering.chassis.clone(), source: error })
        }
        Err(error) => Err(error.into()),
    }
}

/// Gives back what a lowering took. Nothing to do is success.
pub async fn commit_restoration(
    client: &Client,
    chassis: &SystemId,
    deadline: Duration,
) -> Result<(), NorthboundError> {
    let originals = parse_originals(&client.transact(&plan_originals(chassis), deadline).await?)?;
    client.transact(&plan_restoration(chassis, &originals), deadline).await?;
    Ok(())
}

/// Takes the notes off the rows of others that were raised for a chassis that is out.
pub async fn commit_forgetting(client: &Client, chassis: &SystemId, deadline: Duration) -> Result<(), NorthboundError> {
    client.transact(&plan_forgetting(chassis), deadline).await?;
    Ok(())
}

/// Takes the chassis out of all ports and groups; done when the database itself has confirmed that no row names it.
///
/// Nothing to do is success. `deadline` is that of each call. An error whose outcome is unknown is mended by calling this
/// again. A `guards` operation that does not hold is [`Kind::TimedOut`] in a refused transaction: decide again.
pub async fn commit_evacuation(
    client: &Client,
    chassis: &SystemId,
    guards: &[Operation],
    deadline: Duration,
) -> Result<Evacuated, NorthboundError> {
    let unknown = ChassisRows { chassis: chassis.clone(), gateway_chassis: Vec::new(), ha_chassis: Vec::new() };
    commit_evacuation_of(client, unknown, guards, deadline).await
}

/// The same, starting from rows that are known already (from a followed Northbound): one exchange in the usual case. If
/// they turn out not to be all, they are looked up.
pub async fn commit_evacuation_of(
    client: &Client,
    mut rows: ChassisRows,
    guards: &[Operation],
    deadline: Duration,
) -> Result<Evacuated, NorthboundError> {
    if rows.is_empty() {
        // That nothing names the chassis is for the database to say, not for a copy.
        rows = fetch_chassis_rows(client, &rows.chassis, deadline).await?;
    }
    let mut tries = 0;
    loop {
        tries += 1;
        let plan = plan_evacuation(&rows, guards);
        if plan.is_empty() {
            return Ok(Evacuated::default());
        }
        match client.transact(&plan, deadline).await {
            Ok(outcomes) => {
                let reading = parse_evacuation(&rows, &outcomes)?;
                let question = reading.plan_ports_behind_groups();
                let answer = match question.as_slice() {
                    [] => Vec::new(),
                    question => client.transact(question, deadline).await?,
                };
                return reading.into_evacuated(&answer);
            }
            Err(error) => match error.server_error().map(|refusal| &refusal.kind) {
                Some(Kind::ReferentialIntegrityViolation) if tries < TRIES => {}
                Some(Kind::ReferentialIntegrityViolation) => {
                    return Err(NorthboundError::Contended { chassis: rows.chassis, tries, source: error });
                }
                _ => return Err(error.into()),
            },
        }
        rows = fetch_chassis_rows(client, &rows.chassis, deadline).await?;
    }
}

/// What else names the chassis, by system-id or hostname.
pub async fn fetch_pins(client: &Client, names: &[&str], deadline: Duration) -> Result<Pins, NorthboundError> {
    let fetch = async |plan: Vec<(PinKind, Operation)>| {
        let (kinds, operations): (Vec<PinKind>, Vec<Operation>) = plan.into_iter().unzip();
        let outcomes = client.transact(&operations, deadline).await?;
        parse_pins(&kinds, &outcomes)
    };
    let mut pins = fetch(plan_pins(names)).await?;
    match fetch(plan_template_pins(names)).await {
        Ok(Pins(more)) => pins.0.extend(more),
        Err(NorthboundError::Client(error)) if lacks_table(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(pins)
}

/// ovsdb-server answers a table that it does not know with a syntax error whose details say so.
fn lacks_table(error: &crate::ovsdb::ClientError) -> bool {
    error.server_error().is_some_and(|refusal| {
        refusal.kind == Kind::UnknownTable
            || refusal.kind == Kind::SyntaxError
                && refusal.details.as_deref().is_some_and(|details| details.contains("No table named"))
    })
}

/// What to follow so that [`super::chassis_named`] and [`super::chassis_lowered`] can tell, at any moment, how many rows
/// name each chassis and whose priority was lowered.
pub fn followed() -> BTreeMap<String, Followed> {
    let columns = Followed::columns(&["chassis_name", "priority", "external_ids"]);
    BTreeMap::from([(tables::GATEWAY_CHASSIS.to_owned(), columns.clone()), (tables::HA_CHASSIS.to_owned(), columns)])
}
