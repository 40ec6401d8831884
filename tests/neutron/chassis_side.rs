//! What three ovn-controllers would write into the Southbound, played by the test: registrations that follow the node's own settings, and gateway
//! ports bound to the best candidate. Real ones without a datapath between them see no peer's BFD and bind nothing.
use std::collections::BTreeMap;
use std::time::Duration;

use ovn_chassis::ovsdb::{
    Client, Condition, Datum, Endpoints, Followed, Operation, Replica, Row, Settings, Uuid, View,
};

use crate::harness::node::SimNode;
use crate::harness::runtime;
use crate::harness::world::World;

const PATIENCE: Duration = Duration::from_secs(20);

fn client(socket: &std::path::Path, database: &str) -> Client {
    let endpoints: Endpoints = format!("unix:{}", socket.display()).parse().unwrap();
    let _on_the_runtime = runtime().enter();
    Client::spawn(Settings::new(endpoints, database))
}

/// Ends what it plays when it is dropped.
pub struct Played(tokio::task::JoinHandle<()>);

impl Drop for Played {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn southbound(world: &World) -> Client {
    client(&world.central.southbound.members[0].socket, "OVN_Southbound")
}

async fn follow(client: &Client, tables: &[(&str, &[&str])]) -> View {
    let tables = tables.iter().map(|(table, columns)| ((*table).to_owned(), Followed::columns(columns)));
    client.follow(tables.collect::<BTreeMap<_, _>>()).await.unwrap()
}

/// Registers a node under its id and keeps the registration as the node's database has it, until dropped.
pub fn register(world: &World, node: &SimNode) -> Played {
    let id = node.system_id();
    world.central.seed_chassis(&[&id]);
    let row =
        world.central.sbctl(&["--bare", "--no-headings", "--columns=_uuid", "find", "chassis", &format!("name={id}")]);
    // No host name: Neutron would keep a record of the host, and its SQLite takes one writer at a time.
    world.central.sbctl(&["set", "chassis_private", &id, &format!("chassis={}", row.trim())]);
    let (southbound, local) = (southbound(world), client(&node.ovs_rundir.join("db.sock"), "Open_vSwitch"));
    Played(runtime().spawn(async move {
        let mut view = follow(&local, &[("Open_vSwitch", &["external_ids"])]).await;
        let mut written = None;
        while view.changed().await {
            let Some(replica) = view.current() else { continue };
            let Some(row) = replica.table("Open_vSwitch").values().next() else { continue };
            let keys = ["ovn-cms-options", "ovn-bridge-mappings"];
            let config: Vec<(String, String)> = keys
                .iter()
                .filter_map(|key| {
                    let value = row.map_entry("external_ids", key).ok()??;
                    Some(((*key).to_owned(), value.to_owned()))
                })
                .collect();
            if written.as_ref() == Some(&config) {
                continue;
            }
            let update = Operation::update(
                "Chassis",
                vec![Condition::equals("name", id.as_str())],
                Row::new().with("other_config", Datum::map(config.clone())),
            );
            if southbound.transact(&[update], PATIENCE).await.is_ok() {
                written = Some(config);
            }
        }
    }))
}

/// Gateway ports whose binding is not where their group's best candidate is, and where that is.
fn misplaced(replica: &Replica) -> Vec<(Uuid, Option<Uuid>)> {
    let best = |group: Uuid| {
        let members = replica.row("HA_Chassis_Group", group)?.uuids("ha_chassis").ok()?;
        let mut candidates: Vec<(i64, Uuid)> = members
            .into_iter()
            .filter_map(|member| {
                let row = replica.row("HA_Chassis", member)?;
                Some((row.integer("priority").ok()?, row.optional_uuid("chassis").ok()??))
            })
            .collect();
        candidates.sort();
        candidates.pop().map(|(_, chassis)| chassis)
    };
    let ports = replica.table("Port_Binding").iter().filter(|(_, row)| row.text("type") == Ok("chassisredirect"));
    ports
        .filter_map(|(uuid, row)| {
            let wanted = row.optional_uuid("ha_chassis_group").ok()?.and_then(best);
            (row.optional_uuid("chassis").ok()? != wanted).then_some((*uuid, wanted))
        })
        .collect()
}

/// Binds every gateway port to the best candidate of its group, until dropped.
pub fn bind_gateway_ports(world: &World) -> Played {
    let southbound = southbound(world);
    Played(runtime().spawn(async move {
        let tables: [(&str, &[&str]); 3] = [
            ("HA_Chassis_Group", &["ha_chassis"]),
            ("HA_Chassis", &["chassis", "priority"]),
            ("Port_Binding", &["type", "chassis", "ha_chassis_group"]),
        ];
        let mut view = follow(&southbound, &tables).await;
        while view.changed().await {
            let Some(replica) = view.current() else { continue };
            let bind: Vec<Operation> = misplaced(&replica)
                .into_iter()
                .map(|(port, chassis)| {
                    let chassis = chassis.map_or_else(Datum::empty, |uuid| Datum::set([uuid]));
                    let row = Row::new().with("chassis", chassis);
                    Operation::update("Port_Binding", vec![Condition::equals("_uuid", port)], row)
                })
                .collect();
            if !bind.is_empty() {
                // A row that went away meanwhile fails the transaction; the next change looks again.
                let _ = southbound.transact(&bind, PATIENCE).await;
            }
        }
    }))
}
