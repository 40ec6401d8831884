use ovn_chassis::ovn::southbound::chassis::plan_chassis_del;
use ovn_chassis::ovn::southbound::{
    Bindings, Deleted, commit_chassis_del, fetch_bindings, fetch_chassis, fetch_registrations, followed,
    registrations_in,
};
use ovn_chassis::ovsdb::{Client, Kind, Operation, Row};

use super::launch::{SOUTHBOUND, Server, Transport};
use super::{PATIENCE, settings};

async fn seeded(folder: &std::path::Path) -> (Server, Client) {
    let server = Server::standalone(folder, SOUTHBOUND, Transport::Tcp);
    for (chassis, ip) in [("gw1", "192.0.2.1"), ("gw2", "192.0.2.2"), ("foreign.example", "192.0.2.3")] {
        server.ctl(&["chassis-add", chassis, "geneve,vxlan", ip]);
        server.ctl(&["set", "Chassis", chassis, &format!("hostname={chassis}.host")]);
        server.ctl(&["create", "Chassis_Private", &format!("name={chassis}")]);
    }
    let client = Client::spawn(settings(&server.unix(), "OVN_Southbound"));
    client.connected(PATIENCE).await.unwrap();
    (server, client)
}

async fn bind(server: &Server, client: &Client, ports: &[(&str, &str, &str)]) {
    let datapath = Operation::insert_named("Datapath_Binding", "dp", Row::new().with("tunnel_key", 1));
    let mut plan = vec![datapath];
    for (number, (port, kind, chassis)) in ports.iter().enumerate() {
        let uuid = server.ctl(&["--bare", "--columns=_uuid", "find", "Chassis", &format!("name={chassis}")]);
        let mut row = Row::new()
            .with("logical_port", *port)
            .with("type", *kind)
            .with("tunnel_key", number as i64 + 1)
            .with("datapath", ovn_chassis::ovsdb::Atom::NamedUuid("dp".to_owned()));
        row.insert("chassis".to_owned(), uuid.trim().parse::<ovn_chassis::ovsdb::Uuid>().unwrap().into());
        plan.push(Operation::insert("Port_Binding", row));
    }
    client.transact(&plan, PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_chassis_with_all_that_belongs_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = seeded(folder.path()).await;
    let view = fetch_chassis(&client, &"gw1".into(), PATIENCE).await.unwrap();
    assert_eq!(view.registration.as_ref().unwrap().hostname, "gw1.host");
    assert!(view.private.is_some());
    let mut kinds: Vec<&str> = view.encaps.iter().map(|encap| encap.kind.as_str()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["geneve", "vxlan"]);
    assert!(fetch_chassis(&client, &"nobody".into(), PATIENCE).await.unwrap().is_gone());
    let all = fetch_registrations(&client, PATIENCE).await.unwrap();
    assert_eq!(all.iter().map(|found| found.name.as_str()).collect::<Vec<_>>(), ["foreign.example", "gw1", "gw2"]);
    drop(server);
}

#[tokio::test]
async fn gateway_bindings_are_counted_and_named_by_asking_and_by_following() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = seeded(folder.path()).await;
    let gw1 = "gw1".into();
    let mut view = client.follow(followed()).await.unwrap();
    bind(
        &server,
        &client,
        &[
            ("cr-lrp0", "chassisredirect", "gw1"),
            ("cr-lrp1", "chassisredirect", "gw1"),
            ("cr-lrp2", "chassisredirect", "gw2"),
            ("vm0", "", "gw1"),
        ],
    )
    .await;
    let bindings = fetch_bindings(&client, &gw1, PATIENCE).await.unwrap();
    assert_eq!(bindings.ports, ["cr-lrp0", "cr-lrp1"]);
    let replica = view
        .until(PATIENCE, |replica| Bindings::in_replica(replica, &"gw1".into()).is_ok_and(|found| found.count() == 2))
        .await
        .unwrap();
    assert_eq!(Bindings::in_replica(&replica, &gw1).unwrap(), bindings);
    assert_eq!(replica.table("Port_Binding").len(), 3, "bindings that nobody asked for were sent");
    assert_eq!(registrations_in(&replica).unwrap().len(), 3);
    // A move is seen.
    let gw2 = server.ctl(&["--bare", "--columns=_uuid", "find", "Chassis", "name=gw2"]);
    server.ctl(&["set", "Port_Binding", "cr-lrp0", &format!("chassis={}", gw2.trim())]);
    let moved = |replica: &ovn_chassis::ovsdb::Replica| {
        Bindings::in_replica(replica, &"gw1".into()).is_ok_and(|found| found.ports == ["cr-lrp1"])
    };
    view.until(PATIENCE, moved).await.unwrap();
}

#[tokio::test]
async fn a_deletion_takes_all_of_one_chassis_and_nothing_of_others_and_the_second_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = seeded(folder.path()).await;
    bind(&server, &client, &[("cr-lrp0", "chassisredirect", "gw1"), ("cr-lrp1", "chassisredirect", "gw2")]).await;
    let others = |server: &Server| {
        ["gw2", "foreign.example"].map(|name| {
            let list = |table: &str, by: &str| server.ctl(&["find", table, &format!("{by}={name}")]);
            [list("Chassis", "name"), list("Chassis_Private", "name"), list("Encap", "chassis_name")].concat()
        })
    };
    let before = others(&server);
    let deleted = commit_chassis_del(&client, &"gw1".into(), PATIENCE).await.unwrap();
    assert_eq!(deleted, Deleted { chassis: 1, private: 1, encaps: 2 });
    for (table, by) in [("Chassis", "name"), ("Chassis_Private", "name"), ("Encap", "chassis_name")] {
        assert_eq!(server.ctl(&["find", table, &format!("{by}=gw1")]), "");
    }
    assert_eq!(others(&server), before);
    let chassis = server.ctl(&["--bare", "--columns=chassis", "find", "Port_Binding", "logical_port=cr-lrp0"]);
    assert_eq!(chassis.trim(), "", "a weak reference was left");
    let dump = server.dump();
    assert_eq!(commit_chassis_del(&client, &"gw1".into(), PATIENCE).await.unwrap(), Deleted::default());
    assert_eq!(server.dump(), dump, "the second run wrote");
}

#[tokio::test]
async fn field_17_half_deleted_pairs_are_healed() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = seeded(folder.path()).await;
    server.ctl(&["destroy", "Chassis_Private", "gw1"]);
    let deleted = commit_chassis_del(&client, &"gw1".into(), PATIENCE).await.unwrap();
    assert_eq!(deleted, Deleted { chassis: 1, private: 0, encaps: 2 });
    server.ctl(&["destroy", "Chassis", "gw2"]);
    let deleted = commit_chassis_del(&client, &"gw2".into(), PATIENCE).await.unwrap();
    assert_eq!((deleted.chassis, deleted.private), (0, 1));
    assert!(fetch_chassis(&client, &"gw2".into(), PATIENCE).await.unwrap().is_gone());
}

#[tokio::test]
async fn field_16_a_chassis_that_registered_again_since_the_look_is_not_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let (server, client) = seeded(folder.path()).await;
    let seen = fetch_chassis(&client, &"gw1".into(), PATIENCE).await.unwrap();
    server.ctl(&["chassis-del", "gw1"]);
    server.ctl(&["chassis-add", "gw1", "geneve", "192.0.2.1"]);
    let refused = client.transact(&plan_chassis_del(&seen), PATIENCE).await.unwrap_err();
    assert_eq!(refused.server_error().unwrap().kind, Kind::TimedOut);
    assert!(!fetch_chassis(&client, &"gw1".into(), PATIENCE).await.unwrap().is_gone());
}
