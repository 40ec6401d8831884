//! Databases of the size of a large cloud, with rows as Neutron writes them.

use ovn_chassis::ovsdb::{Atom, Client, Datum, Operation, Row, Settings, Uuid};

use crate::PATIENCE;
use crate::launch::{SOUTHBOUND, Server};

/// Gateway chassis of the cloud.
const CHASSIS: usize = 50;
/// Candidates of each router port.
const CANDIDATES: usize = 3;
/// Ports inserted by one transaction.
const BATCH: usize = 500;

/// A UUID that is the same in every run and looks like any other.
fn uuid(kind: u128, number: usize) -> Uuid {
    let mixed = (number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) ^ (kind << 120);
    Uuid::from_u128(mixed)
}

fn chassis(number: usize) -> String {
    uuid(1, number % CHASSIS).to_string()
}

/// The chassis that leaves.
pub fn leaving() -> String {
    chassis(0)
}

fn named(name: &str) -> Atom {
    Atom::NamedUuid(name.to_owned())
}

pub async fn fill(server: &Server, database: &str, size: usize) {
    let client = Client::spawn(Settings::new(server.unix().parse().unwrap(), database));
    let southbound = database == SOUTHBOUND.0;
    if southbound {
        client.transact(&registrations(), PATIENCE).await.unwrap();
    }
    for begin in (0..size).step_by(BATCH) {
        let numbers = begin..(begin + BATCH).min(size);
        let plan = if southbound { bindings(numbers) } else { router_ports(numbers) };
        client.transact(&plan, PATIENCE).await.unwrap();
    }
}

/// One router with its ports, each with its candidates.
fn router_ports(numbers: std::ops::Range<usize>) -> Vec<Operation> {
    let mut plan = Vec::new();
    let mut ports = Vec::new();
    let router = uuid(2, numbers.start);
    for number in numbers {
        let name = format!("lrp-{}", uuid(3, number));
        let mut rows = Vec::new();
        for candidate in 0..CANDIDATES {
            let of = chassis(number * CANDIDATES + candidate);
            let row = Row::new()
                .with("name", format!("{name}_{of}"))
                .with("chassis_name", of)
                .with("priority", candidate as i64 + 1);
            let label = format!("g{number}x{candidate}");
            plan.push(Operation::insert_named("Gateway_Chassis", &label, row));
            rows.push(named(&label));
        }
        let mut port = Row::new()
            .with("name", name)
            .with("mac", format!("fa:16:3e:{:02x}:{:02x}:{:02x}", number >> 16 & 255, number >> 8 & 255, number & 255));
        port.insert("networks".to_owned(), format!("10.{}.{}.1/24", number >> 8 & 255, number & 255).into());
        port.insert("gateway_chassis".to_owned(), Datum::set(rows));
        port.insert(
            "external_ids".to_owned(),
            Datum::map([
                ("neutron:network_name", format!("neutron-{}", uuid(4, number))),
                ("neutron:revision_number", "4".to_owned()),
                ("neutron:router_name", router.to_string()),
                ("neutron:subnet_ids", uuid(5, number).to_string()),
            ]),
        );
        let label = format!("p{number}");
        plan.push(Operation::insert_named("Logical_Router_Port", &label, port));
        ports.push(named(&label));
    }
    let mut row = Row::new().with("name", format!("neutron-{router}"));
    row.insert("ports".to_owned(), Datum::set(ports));
    plan.push(Operation::insert("Logical_Router", row));
    plan
}

fn registrations() -> Vec<Operation> {
    let mut plan = Vec::new();
    for number in 0..CHASSIS {
        let name = chassis(number);
        let encap = Row::new()
            .with("type", "geneve")
            .with("ip", format!("192.0.2.{}", number + 1))
            .with("chassis_name", name.as_str());
        plan.push(Operation::insert_named("Encap", &format!("e{number}"), encap));
        let mut row = Row::new().with("name", name.as_str()).with("hostname", format!("net-{number:02}.cloud.example"));
        row.insert("encaps".to_owned(), named(&format!("e{number}")).into());
        let label = format!("c{number}");
        plan.push(Operation::insert_named("Chassis", &label, row));
        let mut private = Row::new().with("name", name);
        private.insert("chassis".to_owned(), named(&label).into());
        plan.push(Operation::insert("Chassis_Private", private));
    }
    plan
}

/// One network's bindings. Those of gateway ports sit on gateway chassis, as do one in ten of the others here: deleting
/// a chassis then has references to clear.
fn bindings(numbers: std::ops::Range<usize>) -> Vec<Operation> {
    let key = numbers.start / BATCH + 1;
    let datapath = Row::new().with("tunnel_key", key as i64);
    let mut plan = vec![Operation::insert_named("Datapath_Binding", "dp", datapath)];
    for (key, number) in numbers.enumerate() {
        let port = uuid(6, number);
        let mut row = Row::new()
            .with("logical_port", port.to_string())
            .with("tunnel_key", key as i64 + 1)
            .with("datapath", named("dp"))
            .with(
                "mac",
                format!(
                    "fa:16:3e:00:{:02x}:{:02x} 10.0.{}.{}",
                    number >> 8 & 255,
                    number & 255,
                    number >> 8 & 255,
                    number & 255
                ),
            );
        row.insert(
            "external_ids".to_owned(),
            Datum::map([
                ("neutron:device_id", uuid(7, number).to_string()),
                ("neutron:network_name", format!("neutron-{}", uuid(4, key))),
                ("neutron:port_name", String::new()),
                ("neutron:project_id", uuid(8, number % 100).to_string()),
            ]),
        );
        plan.push(Operation::insert("Port_Binding", row));
    }
    plan
}
