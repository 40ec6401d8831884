use std::collections::BTreeMap;

use ovn_chassis::model::ids::SystemId;
use ovn_chassis::ovn::northbound::evacuation::{plan_evacuation, plan_rows};
use ovn_chassis::ovn::northbound::{
    ChassisRows, Pin, chassis_named, commit_evacuation, commit_evacuation_of, fetch_chassis_rows, fetch_gateway_view,
    fetch_pins, followed,
};
use ovn_chassis::ovsdb::{Atom, Client, Datum, Kind, Row};
use serde_json::Value;

use super::launch::{NORTHBOUND, Server, Transport};
use super::{PATIENCE, settings};

fn gw1() -> SystemId {
    "gw1".into()
}

/// A cloud of two writers' worth: ports with rows of their own, ports behind groups, a port with both, a group that two
/// ports share, an external port, and chassis that are none of ours.
fn seed(server: &Server) {
    server.ctl(&["lr-add", "lr0", "--", "ls-add", "ls0"]);
    for number in 0..6 {
        let mac = format!("00:00:00:00:01:{number:02x}");
        let net = format!("10.0.{number}.1/24");
        server.ctl(&["lrp-add", "lr0", &format!("lrp{number}"), &mac, &net]);
    }
    for (port, chassis, priority) in [
        ("lrp0", "gw1", "3"),
        ("lrp0", "gw2", "2"),
        ("lrp0", "foreign.example", "1"),
        ("lrp1", "gw1", "1"),
        ("lrp2", "gw2", "1"),
        ("lrp3", "gw1", "5"),
    ] {
        server.ctl(&["lrp-set-gateway-chassis", port, chassis, priority]);
    }
    for (group, chassis, priority) in
        [("shared", "gw1", "9"), ("shared", "gw3", "8"), ("own", "gw1", "1"), ("foreign", "gw3", "1")]
    {
        if !server.ctl(&["ha-chassis-group-list"]).contains(&format!("({group})")) {
            server.ctl(&["ha-chassis-group-add", group]);
        }
        server.ctl(&["ha-chassis-group-add-chassis", group, chassis, priority]);
    }
    let uuid = |group: &str| {
        server
            .ctl(&["--bare", "--columns=_uuid", "find", "HA_Chassis_Group", &format!("name={group}")])
            .trim()
            .to_owned()
    };
    for (port, group) in [("lrp3", "shared"), ("lrp4", "shared"), ("lrp5", "own")] {
        server.ctl(&["set", "Logical_Router_Port", port, &format!("ha_chassis_group={}", uuid(group))]);
    }
    let group = format!("ha_chassis_group={}", uuid("shared"));
    server.ctl(&["lsp-add", "ls0", "ext0", "--", "lsp-set-type", "ext0", "external"]);
    server.ctl(&["set", "Logical_Switch_Port", "ext0", &group, "external_ids:\"neutron:device_owner\"=baremetal"]);
}

async fn seeded(folder: &std::path::Path) -> (Server, Client) {
    let server = Server::standalone(folder, NORTHBOUND, Transport::Tcp);
    seed(&server);
    let client = Client::spawn(settings(&server.unix(), "OVN_Northbound"));
    client.connected(PATIENCE).await.unwrap();
    (server, client)
}

#[tokio::test]
async fn the_view_names_ports_candidates_and_who_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, client) = seeded(folder.path()).await;
    let view = fetch_gateway_view(&client, &gw1(), PATIENCE).await.unwrap();
    let ports: Vec<(&str, Vec<&str>)> = view
        .ports
        .iter()
        .map(|port| (port.name.as_str(), port.candidates.iter().map(|found| found.chassis.as_str()).collect()))
        .collect();
    assert_eq!(
        ports,
        [
            ("ext0", vec!["gw1", "gw3"]),
            ("lrp0", vec!["gw1", "gw2", "foreign.example"]),
            ("lrp1", vec!["gw1"]),
            ("lrp3", vec!["gw1", "gw3", "gw1"]),
            ("lrp4", vec!["gw1", "gw3"]),
            ("lrp5", vec!["gw1"]),
        ]
    );
    let alone: Vec<&str> = view.ports_without_other().iter().map(|port| port.name.as_str()).collect();
    assert_eq!(alone, ["lrp1", "lrp5"]);
    assert_eq!((view.rows.gateway_chassis.len(), view.rows.ha_chassis.len()), (3, 2));
    assert_eq!(view.rows, {
        let mut cheap = fetch_chassis_rows(&client, &gw1(), PATIENCE).await.unwrap();
        cheap.gateway_chassis.sort();
        cheap.ha_chassis.sort();
        cheap
    });
    let none = fetch_gateway_view(&client, &"stranger".into(), PATIENCE).await.unwrap();
    assert!(none.ports.is_empty() && none.rows.is_empty());
}

/// Every cell of the database but the chassis' own rows and the references to them: what must be the same afterwards.
fn all_but(server: &Server, chassis: &str) -> BTreeMap<String, Datum> {
    let mut cells = BTreeMap::new();
    let mut ours = Vec::new();
    for line in server.dump().lines() {
        let table: Value = serde_json::from_str(line).unwrap();
        let headings = table["headings"].as_array().unwrap();
        for data in table["data"].as_array().unwrap() {
            let columns = headings.iter().map(|heading| heading.as_str().unwrap().to_owned());
            let row = Row::parse(columns.zip(data.as_array().unwrap().iter().cloned()).collect()).unwrap();
            if row.text("chassis_name") == Ok(chassis) {
                ours.push(Atom::Uuid(row.own_uuid().unwrap()));
                continue;
            }
            for (column, datum) in row.iter().filter(|(column, _)| *column != "_version") {
                cells.insert(format!("{} {} {column}", table["caption"], row.own_uuid().unwrap()), datum.clone());
            }
        }
    }
    for datum in cells.values_mut() {
        if let Datum::Set(atoms) = datum {
            atoms.retain(|atom| !ours.contains(atom));
        }
    }
    cells
}

#[tokio::test]
async fn an_evacuation_takes_ours_and_nothing_else_and_the_second_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = seeded(folder.path()).await;
    let before = all_but(&server, "gw1");
    let evacuated = commit_evacuation(&client, &gw1(), &[], PATIENCE).await.unwrap();
    assert_eq!((evacuated.gateway_chassis, evacuated.ha_chassis), (3, 2));
    assert_eq!(evacuated.left_without, ["lrp1", "lrp5"]);
    // Read back by other programs.
    for table in ["Gateway_Chassis", "HA_Chassis"] {
        assert_eq!(server.ctl(&["find", table, "chassis_name=gw1"]), "");
    }
    assert!(before.len() > 100, "the comparison sees too little");
    assert_eq!(all_but(&server, "gw1"), before);
    let dump = server.dump();
    let again = commit_evacuation(&client, &gw1(), &[], PATIENCE).await.unwrap();
    assert_eq!(again.rows(), 0);
    assert_eq!(server.dump(), dump, "the second run wrote");
}

#[tokio::test]
async fn field_24_a_row_added_after_the_look_refuses_the_commit_and_the_next_look_finds_it() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = seeded(folder.path()).await;
    let seen = fetch_chassis_rows(&client, &gw1(), PATIENCE).await.unwrap();
    server.ctl(&["lrp-set-gateway-chassis", "lrp2", "gw1", "7"]);
    let before = server.dump();
    let refused = client.transact(&plan_evacuation(&seen, &[]), PATIENCE).await.unwrap_err();
    assert_eq!(refused.server_error().unwrap().kind, Kind::ReferentialIntegrityViolation);
    assert_eq!(server.dump(), before, "a refused evacuation wrote");
    assert_eq!(commit_evacuation(&client, &gw1(), &[], PATIENCE).await.unwrap().gateway_chassis, 4);
}

#[tokio::test]
async fn a_row_removed_after_the_look_is_simply_gone() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = seeded(folder.path()).await;
    let seen = fetch_chassis_rows(&client, &gw1(), PATIENCE).await.unwrap();
    server.ctl(&["lrp-del-gateway-chassis", "lrp0", "gw1", "--", "lrp-del", "lrp1"]);
    client.transact(&plan_evacuation(&seen, &[]), PATIENCE).await.unwrap();
    let outcomes = client.transact(&plan_rows(&gw1()), PATIENCE).await.unwrap();
    assert!(outcomes.iter().all(|outcome| outcome.rows().is_empty()));
}

#[tokio::test]
async fn a_guard_on_the_other_candidates_stops_an_evacuation_whose_ground_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = seeded(folder.path()).await;
    let view = fetch_gateway_view(&client, &gw1(), PATIENCE).await.unwrap();
    server.ctl(&["lrp-del-gateway-chassis", "lrp0", "gw2"]);
    let refused = commit_evacuation(&client, &gw1(), &view.candidate_guards(), PATIENCE).await.unwrap_err();
    assert!(refused.is_retryable() && refused.to_string().contains("timed out"), "{refused}");
    assert_eq!(fetch_chassis_rows(&client, &gw1(), PATIENCE).await.unwrap().count(), 5);
    let view = fetch_gateway_view(&client, &gw1(), PATIENCE).await.unwrap();
    commit_evacuation(&client, &gw1(), &view.candidate_guards(), PATIENCE).await.unwrap();
}

#[tokio::test]
async fn field_23_ports_left_without_any_gateway_are_named_by_the_evacuation_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = seeded(folder.path()).await;
    // Never had a gateway, nor has the group behind it: not our doing, whatever is evacuated.
    server.ctl(&[
        "lrp-add",
        "lr0",
        "internal",
        "00:00:00:00:02:00",
        "10.9.0.1/24",
        "--",
        "ha-chassis-group-add",
        "void",
    ]);
    for chassis in ["gw1", "gw3"] {
        let view = fetch_gateway_view(&client, &chassis.into(), PATIENCE).await.unwrap();
        let expected: Vec<String> = view.ports_without_other().iter().map(|port| port.name.clone()).collect();
        let evacuated = commit_evacuation(&client, &chassis.into(), &[], PATIENCE).await.unwrap();
        assert_eq!(evacuated.left_without, expected, "{chassis}");
    }
    // The shared group went empty with its second member: both ports behind it and the external one.
    assert!(!server.dump().contains("ovn-chassis-had-no-gateway"));
}

#[tokio::test]
async fn an_evacuation_from_a_followed_view_needs_no_look_and_an_old_view_is_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = seeded(folder.path()).await;
    let mut view = client.follow(followed()).await.unwrap();
    let replica = view.until(PATIENCE, |_| true).await.unwrap();
    let known = ChassisRows::in_replica(&replica, &gw1());
    assert_eq!(known.count(), 5);
    server.ctl(&["lrp-set-gateway-chassis", "lrp2", "gw1", "7", "--", "lrp-del-gateway-chassis", "lrp1", "gw1"]);
    let evacuated = commit_evacuation_of(&client, known, &[], PATIENCE).await.unwrap();
    assert_eq!(evacuated.rows(), 5);
    // A view that shows nothing is not believed.
    server.ctl(&["lrp-set-gateway-chassis", "lrp2", "gw1", "7"]);
    let nothing = ChassisRows { chassis: gw1(), gateway_chassis: vec![], ha_chassis: vec![] };
    assert_eq!(commit_evacuation_of(&client, nothing, &[], PATIENCE).await.unwrap().rows(), 1);
}

#[tokio::test]
async fn rows_that_come_back_show_in_the_followed_view() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = seeded(folder.path()).await;
    let mut view = client.follow(followed()).await.unwrap();
    let named =
        |replica: &ovn_chassis::ovsdb::Replica| chassis_named(replica).unwrap().get(&gw1()).copied().unwrap_or(0);
    view.until(PATIENCE, |replica| named(replica) == 5).await.unwrap();
    commit_evacuation(&client, &gw1(), &[], PATIENCE).await.unwrap();
    view.until(PATIENCE, |replica| named(replica) == 0).await.unwrap();
    server.ctl(&["lrp-set-gateway-chassis", "lrp2", "gw1", "7"]);
    view.until(PATIENCE, |replica| named(replica) == 1).await.unwrap();
}

#[tokio::test]
async fn pins_are_found_by_id_and_by_hostname() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = seeded(folder.path()).await;
    server.ctl(&["lr-add", "lr-pinned", "--", "set", "Logical_Router", "lr-pinned", "options:chassis=gw1"]);
    server.ctl(&["lsp-add", "ls0", "vm0", "--", "lsp-set-options", "vm0", "requested-chassis=gw1.example"]);
    server.ctl(&["lsp-add", "ls0", "l2gw", "--", "lsp-set-options", "l2gw", "l2gateway-chassis=gw1", "network_name=x"]);
    server.ctl(&["create", "Chassis_Template_Var", "chassis=gw1", "variables:a=b"]);
    server.ctl(&["lsp-add", "ls0", "vm1", "--", "lsp-set-options", "vm1", "requested-chassis=gw2"]);
    let pins = fetch_pins(&client, &["gw1", "gw1.example"], PATIENCE).await.unwrap();
    let texts: Vec<String> = pins.0.iter().map(Pin::to_string).collect();
    assert_eq!(
        texts,
        [
            "lr-pinned (Logical_Router options:chassis)",
            "vm0 (Logical_Switch_Port options:requested-chassis)",
            "l2gw (Logical_Switch_Port options:l2gateway-chassis)",
            "gw1 (Chassis_Template_Var chassis)",
        ]
    );
    assert!(fetch_pins(&client, &["gw3"], PATIENCE).await.unwrap().0.is_empty());
}
