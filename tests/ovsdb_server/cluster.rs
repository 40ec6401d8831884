use std::collections::BTreeMap;
use std::time::Duration;

use ovn_chassis::ovn::northbound::commit_evacuation;
use ovn_chassis::ovn::southbound::{SouthboundError, commit_chassis_del};
use ovn_chassis::ovsdb::{Client, Demand, Followed, Model, Operation, Row, ServerNames, Settings, Status, TlsSource};
use tokio::sync::watch;

use super::certificates::Authority;
use super::launch::{Cluster, NORTHBOUND, PORT, SOUTHBOUND, Server, Transport};
use super::proxy::Proxy;
use super::{PATIENCE, away_because, settings, status_until};

fn tls(remotes: &str, database: &str, authority: &Authority) -> Settings {
    let source = TlsSource::Held(watch::channel(Some(authority.client())).1);
    settings(remotes, database).with_tls(source, ServerNames::Verify)
}

fn endpoint_of(status: &Status) -> Option<String> {
    match status {
        Status::Connected { endpoint, .. } => Some(endpoint.clone()),
        Status::Away { .. } => None,
    }
}

#[tokio::test]
async fn the_leader_is_found_and_followed_when_it_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let mut cluster = Cluster::start(folder.path(), NORTHBOUND, 3, Transport::Tls(&authority));
    let client = Client::spawn(tls(&cluster.remotes(), cluster.database(), &authority));
    let member = client.connected(PATIENCE).await.unwrap();
    assert!(member.model == Model::Clustered && member.leader && member.connected);
    let insert = |name: &str| [Operation::insert("Logical_Switch", Row::new().with("name", name))];
    client.transact(&insert("before"), PATIENCE).await.unwrap();
    let tables = BTreeMap::from([("Logical_Switch".to_owned(), Followed::columns(&["name"]))]);
    let mut view = client.follow(tables).await.unwrap();
    view.until(PATIENCE, |replica| replica.table("Logical_Switch").len() == 1).await.unwrap();

    let leader = cluster.leader();
    assert_eq!(endpoint_of(&client.status().borrow()), Some(cluster.members[leader].remote()));
    cluster.members[leader].kill();
    status_until(&client, |status| matches!(status, Status::Away { .. })).await;
    // Asked before there is a new leader: waits for it, and is done once.
    client.transact(&insert("after"), PATIENCE).await.unwrap();
    let successor = cluster.leader();
    assert_ne!(successor, leader);
    assert_eq!(endpoint_of(&client.status().borrow()), Some(cluster.members[successor].remote()));
    view.until(PATIENCE, |replica| replica.table("Logical_Switch").len() == 2).await.unwrap();
}

#[tokio::test]
async fn a_leader_that_steps_down_is_left_for_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(folder.path(), NORTHBOUND, 3, Transport::Tcp);
    let client = Client::spawn(settings(&cluster.remotes(), cluster.database()));
    client.connected(PATIENCE).await.unwrap();
    let leader = cluster.leader();
    let first = cluster.members[leader].remote();
    // A paused leader loses its office and hears of it when it goes on.
    cluster.members[leader].pause();
    let successor = super::launch::eventually("a new leader", PATIENCE, || {
        cluster.members.iter().enumerate().filter(|(at, _)| *at != leader).find(|(_, member)| member.is_leader())
    });
    cluster.members[leader].resume();
    let second = successor.1.remote();
    let status = status_until(&client, |status| endpoint_of(status).is_some_and(|endpoint| endpoint != first)).await;
    assert_eq!(endpoint_of(&status), Some(second));
}

#[tokio::test]
async fn followers_alone_are_not_acted_through() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(folder.path(), NORTHBOUND, 3, Transport::Tcp);
    let leader = cluster.leader();
    let followers: Vec<String> =
        cluster.members.iter().enumerate().filter(|(at, _)| *at != leader).map(|(_, member)| member.remote()).collect();
    let client = Client::spawn(settings(&followers.join(","), cluster.database()));
    away_because(&client, "it is a follower, not the leader").await;
    let nothing = [Operation::select("Logical_Switch", vec![], &["name"])];
    let error = client.transact(&nothing, Duration::from_millis(300)).await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("not the leader"), "{error}");
    let reader = Client::spawn(settings(&followers.join(","), cluster.database()).with_demand(Demand::Any));
    reader.transact(&nothing, PATIENCE).await.unwrap();
}

#[tokio::test]
async fn field_30_a_member_cut_off_from_its_cluster_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(folder.path(), NORTHBOUND, 3, Transport::Tcp);
    let client = Client::spawn(settings(&cluster.remotes(), cluster.database()));
    client.connected(PATIENCE).await.unwrap();
    let leader = cluster.leader();
    for at in (0..3).filter(|at| *at != leader) {
        cluster.members[at].kill();
    }
    status_until(&client, |status| matches!(status, Status::Away { .. })).await;
    let nothing = [Operation::select("Logical_Switch", vec![], &["name"])];
    let error = client.transact(&nothing, Duration::from_millis(300)).await.unwrap_err();
    assert!(!error.is_outcome_unknown(), "{error}");
}

#[tokio::test]
async fn a_relay_is_never_the_way_to_delete_a_chassis() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let transport = Transport::Tls(&authority);
    let cluster = Cluster::start(&folder.path().join("sb"), SOUTHBOUND, 3, transport);
    let relay = Server::relay(&folder.path().join("relay"), SOUTHBOUND, &cluster.remotes(), transport);
    cluster.members[cluster.leader()].ctl(&["chassis-add", "gw1", "geneve", "192.0.2.1"]);

    let client = Client::spawn(tls(&relay.remote(), "OVN_Southbound", &authority));
    away_because(&client, "it is a relay").await;
    let refused = commit_chassis_del(&client, &"gw1".into(), Duration::from_millis(300)).await.unwrap_err();
    assert!(!refused.is_retryable(), "{refused}");

    let reader = Client::spawn(tls(&relay.remote(), "OVN_Southbound", &authority).with_demand(Demand::Any));
    assert_eq!(reader.connected(PATIENCE).await.unwrap().model, Model::Relay);
    let refused = commit_chassis_del(&reader, &"gw1".into(), PATIENCE).await.unwrap_err();
    assert!(matches!(refused, SouthboundError::Relay { .. }), "{refused}");

    // With the members behind it in the list, they are taken.
    let both = format!("{},{}", relay.remote(), cluster.remotes());
    let client = Client::spawn(tls(&both, "OVN_Southbound", &authority));
    let deleted = commit_chassis_del(&client, &"gw1".into(), PATIENCE).await.unwrap();
    assert_eq!((deleted.chassis, deleted.encaps), (1, 1));
}

#[tokio::test]
async fn commits_of_others_move_the_index_and_wake_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(folder.path(), NORTHBOUND, 1, Transport::Tcp);
    let client = Client::spawn(settings(&cluster.remotes(), cluster.database()));
    let before = client.connected(PATIENCE).await.unwrap().index;
    let mut status = client.status();
    status.borrow_and_update();
    cluster.members[0].ctl(&["ls-add", "ls0"]);
    let nothing = [Operation::select("Logical_Switch", vec![], &["name"])];
    let moved = async {
        while client.member().unwrap().index == before {
            // What has arrived is read while this waits for an answer.
            client.transact(&nothing, PATIENCE).await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, moved).await.expect("the index stands still");
    assert!(!status.has_changed().unwrap(), "{}", *status.borrow());
}

/// A clustered member resumes a monitor by its transaction id: after a reconnect only what changed is sent.
#[tokio::test]
async fn a_monitor_resumes_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(folder.path(), NORTHBOUND, 1, Transport::Tcp);
    let listen = "127.0.0.1:0".parse().unwrap();
    let proxy = Proxy::start(listen, std::net::SocketAddr::new(cluster.members[0].address, PORT)).await;
    let client = Client::spawn(settings(&format!("tcp:{}", proxy.address), "OVN_Northbound"));
    let plan: Vec<Operation> = (0..500)
        .map(|number| Operation::insert("Logical_Switch", Row::new().with("name", format!("switch-{number:04}"))))
        .collect();
    client.transact(&plan, PATIENCE).await.unwrap();
    let tables = BTreeMap::from([("Logical_Switch".to_owned(), Followed::columns(&["name"]))]);
    let mut view = client.follow(tables).await.unwrap();
    view.until(PATIENCE, |replica| replica.table("Logical_Switch").len() == 500).await.unwrap();
    let heard_before = proxy.heard.borrow().len();
    let traffic_before = proxy.traffic.total();

    cluster.members[0].kill();
    status_until(&client, |status| matches!(status, Status::Away { .. })).await;
    assert!(view.current().is_none());
    cluster.members[0].start();
    let again = [Operation::insert("Logical_Switch", Row::new().with("name", "one-more"))];
    client.transact(&again, PATIENCE).await.unwrap();
    view.until(PATIENCE, |replica| replica.table("Logical_Switch").len() == 501).await.unwrap();
    let traffic = proxy.traffic.total() - traffic_before;
    let heard = proxy.heard.borrow().clone();
    let since = String::from_utf8_lossy(&heard[heard_before..]).into_owned();
    assert!(!since.contains("switch-0123"), "all rows were sent again");
    assert!(since.contains("[true,\""), "the server did not resume");
    // Every row again would be 40,000 bytes for the names alone; most of what passes is the schema.
    assert!(since.len() as u64 <= traffic, "{} of {traffic} bytes", since.len());
}

/// The evacuation as a whole against a leader that dies at any moment: whatever the first try came to, calling it again
/// ends with no row left, and with nothing else touched.
#[tokio::test]
async fn an_evacuation_survives_the_death_of_the_leader() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let mut cluster = Cluster::start(folder.path(), NORTHBOUND, 3, Transport::Tls(&authority));
    let client = Client::spawn(tls(&cluster.remotes(), cluster.database(), &authority));
    let seeder = cluster.leader();
    cluster.members[seeder].ctl(&["lr-add", "lr0"]);
    for number in 0..20 {
        let port = format!("lrp{number}");
        let mac = format!("00:00:00:00:00:{number:02x}");
        let net = format!("10.0.{number}.1/24");
        let (to, from) =
            (["lrp-set-gateway-chassis", &port, "gw1", "3"], ["lrp-set-gateway-chassis", &port, "gw2", "2"]);
        let add = ["lrp-add", "lr0", &port, &mac, &net];
        let all = [&add[..], &["--"], &to[..], &["--"], &from[..]].concat();
        cluster.members[seeder].ctl(&all);
    }
    client.connected(PATIENCE).await.unwrap();
    let chassis = "gw1".into();
    let racing = tokio::spawn({
        let client = client.clone();
        async move { commit_evacuation(&client, &"gw1".into(), &[], PATIENCE).await }
    });
    tokio::task::yield_now().await;
    let leader = cluster.leader();
    cluster.members[leader].kill();
    match racing.await.unwrap() {
        Ok(done) => assert!(done.rows() == 20 || done.rows() == 0),
        Err(error) => assert!(error.is_retryable(), "{error}"),
    }
    commit_evacuation(&client, &chassis, &[], PATIENCE).await.unwrap();
    let again = commit_evacuation(&client, &chassis, &[], PATIENCE).await.unwrap();
    assert_eq!(again.rows(), 0);
    let survivor = cluster.leader();
    let left = cluster.members[survivor].ctl(&["--bare", "--columns=chassis_name", "list", "Gateway_Chassis"]);
    let left: Vec<&str> = left.split_whitespace().collect();
    assert_eq!(left, vec!["gw2"; 20]);
}
