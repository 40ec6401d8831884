//! Row 3: both databases read back with OVN's own tools; only what is ours is gone, nothing else changed by a byte.
use serde_json::Value;

use crate::harness::central::{Central, Shape};
use crate::harness::until;
use crate::harness::world::{CHASSIS_LABEL, GATEWAY_LABEL, SOON, World};

/// The dump of a database as a table of tables: name, column headings, rows.
fn tables(dump: &str) -> Vec<Value> {
    dump.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// `dump` without the rows of `table` that hold `value` in `column`, and without any reference to them elsewhere.
fn without(dump: &str, removals: &[(&str, &str, &str)]) -> Vec<Value> {
    let mut all = tables(dump);
    let mut gone = Vec::new();
    for table in &mut all {
        let headings = table["headings"].clone();
        let column = |name: &str| headings.as_array().unwrap().iter().position(|h| h == name).unwrap();
        let caption = table["caption"].as_str().unwrap().trim_end_matches(" table").to_owned();
        for (_, name, value) in removals.iter().filter(|r| caption == r.0) {
            table["data"].as_array_mut().unwrap().retain(|row| {
                let ours = row[column(name)] == *value;
                if ours {
                    gone.push(row[column("_uuid")][1].clone());
                }
                !ours
            });
        }
    }
    assert!(!gone.is_empty(), "the seeds of this test are in the dump");
    for table in &mut all {
        for row in table["data"].as_array_mut().unwrap() {
            for cell in row.as_array_mut().unwrap() {
                drop_references(cell, &gone);
            }
        }
    }
    all
}

/// Takes references out of a cell. A set of one is written as its element, so what is left over is written again the way the tools do.
fn drop_references(cell: &mut Value, gone: &[Value]) {
    let named = |v: &Value| v[0] == "uuid" && gone.contains(&v[1]);
    if named(cell) {
        *cell = serde_json::json!(["set", []]);
    } else if cell[0] == "set" {
        let members: Vec<Value> = cell[1].as_array().cloned().unwrap_or_default();
        let left: Vec<Value> = members.iter().filter(|m| !named(m)).cloned().collect();
        if left.len() != members.len() {
            *cell = match <[Value; 1]>::try_from(left) {
                Ok([one]) => one,
                Err(left) => serde_json::json!(["set", left]),
            };
        }
    }
}

/// Registrations of clouds that share the Southbound, one of them with the host name of our node.
fn seed_foreign_chassis(central: &Central, hostname: &str) {
    central.sbctl(&[
        "chassis-add",
        "foreign-1",
        "geneve",
        "192.0.2.1",
        "--",
        "chassis-add",
        "foreign-2",
        "vxlan",
        "192.0.2.2",
    ]);
    central.sbctl(&[
        "set",
        "chassis",
        "foreign-1",
        &format!("hostname={hostname}"),
        "other_config:ovn-cms-options=enable-chassis-as-gw,az=1",
    ]);
    central.sbctl(&[
        "create",
        "chassis_private",
        "name=foreign-1",
        "nb_cfg=7",
        "--",
        "create",
        "chassis_private",
        "name=foreign-2",
    ]);
}

#[test]
fn row03_only_our_rows_leave_the_two_raft_databases_and_nothing_else_changes_by_a_byte() {
    // Without northd, so that the product and ovn-controller are the only writers.
    let mut world = World::ready(
        "row03",
        Shape::raft().with_relay().without_northd(),
        &["row03-a.example", "row03-b"],
        &["row03-a.example", "row03-b"],
    );
    let (a, b) = (world.recorded_system_id("row03-a.example"), world.recorded_system_id("row03-b"));
    assert_eq!(
        world.node("row03-a.example").external_id("ovn-remote"),
        format!("ssl:127.0.0.1:{}", world.central.relay.as_ref().unwrap().proxy.port)
    );
    for node in ["row03-a.example", "row03-b"] {
        let central = &world.central;
        world.nodes.get_mut(node).unwrap().start_ovn_controller(central);
    }
    seed_foreign_chassis(&world.central, "row03-a.example");
    seed_northbound(&world.central, &a, &b);
    let pods = ["ovs", "ovn-controller"].map(|s| world.add_daemon_pod("row03-a.example", s));
    until("both registrations", SOON, || {
        let names = world.central.southbound_names("chassis_private");
        if names.contains(&a) && names.contains(&b) { Ok(()) } else { Err(format!("{names:?}")) }
    });
    let (north, south) = (world.central.northbound.dump(""), world.central.southbound.dump(""));

    world.label("row03-a.example", &[(GATEWAY_LABEL, None)]);
    world.wait_job("evacuate", "row03-a.example", "Complete");
    let rows = [("Gateway_Chassis", "chassis_name", a.as_str()), ("HA_Chassis", "chassis_name", a.as_str())];
    assert_eq!(tables(&world.central.northbound.dump("")), without(&north, &rows));
    assert!(!world.central.gateway_rows().contains(&a));

    world.label("row03-a.example", &[(CHASSIS_LABEL, None)]);
    until("our label to leave the node", SOON, || world.owner_label("row03-a.example").map_or(Ok(()), Err));
    world.node_mut("row03-a.example").stop_ovn_controller();
    for pod in &pods {
        world.end_pod(pod);
    }
    world.wait_forgotten("row03-a.example");
    let ours = [
        ("Chassis", "name", a.as_str()),
        ("Chassis_Private", "name", a.as_str()),
        ("Encap", "chassis_name", a.as_str()),
    ];
    let south = clear_announcements(without(&south, &ours));
    assert_eq!(clear_announcements(tables(&world.central.southbound.dump(""))), south);
    assert_eq!(tables(&world.central.northbound.dump("")), without(&north, &rows));
}

/// Every way in which a row of `a` can be held, among rows of others.
fn seed_northbound(central: &Central, a: &str, b: &str) {
    central.seed_gateway_ports("lr0", 20, &[(a, 20), (b, 10), ("foreign-1", 5)]);
    central.seed_gateway_ports("lr1", 3, &[("foreign-1", 2), ("foreign-2", 1)]);
    central.seed_gateway_ports("lr2", 2, &[(a, 1)]);
    central.seed_ha_group("lr0", "mixed", &[(a, 3), (b, 2), ("foreign-2", 1)]);
    central.seed_ha_group("lr1", "theirs", &[("foreign-1", 2), ("foreign-2", 1)]);
    central.seed_ha_group("lr2", "ours-alone", &[(a, 1)]);
    share_rows_between_holders(central, a);
}

/// One Gateway_Chassis row held by two ports and one HA_Chassis row held by two groups: taking it from one holder is not enough.
fn share_rows_between_holders(central: &Central, chassis: &str) {
    let find = |table: &str, conditions: &[&str]| {
        central
            .nbctl(&[&["--bare", "--no-headings", "--columns=_uuid", "find", table], conditions].concat())
            .trim()
            .to_owned()
    };
    // ovn-nbctl names such a row after its port and its chassis.
    let row = find("gateway_chassis", &[&format!("name=lr2-p0-{chassis}")]);
    assert!(!row.is_empty());
    central.nbctl(&["add", "logical_router_port", "lr2-p1", "gateway_chassis", &row]);
    let member = find("ha_chassis", &[&format!("chassis_name={chassis}"), "priority=3"]);
    assert!(!member.is_empty());
    central.nbctl(&["add", "ha_chassis_group", "ours-alone", "ha_chassis", &member]);
}

/// What ovn-controllers themselves go on writing (sequence numbers with their times) is not the product's doing.
fn clear_announcements(mut all: Vec<Value>) -> Vec<Value> {
    for table in &mut all {
        let headings: Vec<String> =
            table["headings"].as_array().unwrap().iter().map(|h| h.as_str().unwrap().to_owned()).collect();
        for row in table["data"].as_array_mut().unwrap() {
            for (column, name) in headings.iter().enumerate() {
                if name.starts_with("nb_cfg")
                    || name == "sb_cfg"
                    || name == "connections"
                    || name == "is_connected"
                    || name == "status"
                {
                    row[column] = Value::Null;
                }
            }
        }
    }
    all
}

#[test]
fn row03_the_comparison_itself_agrees_with_what_ovns_own_tools_do() {
    let folder = crate::harness::scratch::Folder::new("row03-tools");
    let central = Central::start(Shape::default().without_northd(), folder.path());
    central.sbctl(&["chassis-add", "a", "geneve", "192.0.2.8", "--", "create", "chassis_private", "name=a"]);
    seed_foreign_chassis(&central, "a");
    seed_northbound(&central, "a", "b");
    let (north, south) = (central.northbound.dump(""), central.southbound.dump(""));
    let find = |table: &str| {
        let ids = central.nbctl(&["--bare", "--no-headings", "--columns=_uuid", "find", table, "chassis_name=a"]);
        ids.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for (table, holder) in [("gateway_chassis", "logical_router_port"), ("ha_chassis", "ha_chassis_group")] {
        for row in find(table) {
            let holders = central.nbctl(&["--bare", "--no-headings", "--columns=_uuid", "list", holder]);
            for id in holders.split_whitespace() {
                central.nbctl(&["remove", holder, id, table, &row]);
            }
        }
    }
    central.sbctl(&["chassis-del", "a"]);
    let rows = [("Gateway_Chassis", "chassis_name", "a"), ("HA_Chassis", "chassis_name", "a")];
    assert_eq!(tables(&central.northbound.dump("")), without(&north, &rows));
    let ours = [("Chassis", "name", "a"), ("Chassis_Private", "name", "a"), ("Encap", "chassis_name", "a")];
    let left = clear_announcements(tables(&central.southbound.dump("")));
    assert_eq!(left, clear_announcements(without(&south, &ours)));
    assert_ne!(left, clear_announcements(tables(&south)));
}
