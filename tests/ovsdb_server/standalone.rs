use std::collections::BTreeMap;
use std::time::Duration;

use ovn_chassis::ovsdb::{
    Client, ClientError, Condition, Datum, Fault, Followed, Kind, Model, Mutation, Operation, Row, Status,
};

use super::launch::{NORTHBOUND, Server, Transport};
use super::proxy::Proxy;
use super::{PATIENCE, settings, status_until};

fn insert_switch(name: &str) -> Operation {
    Operation::insert("Logical_Switch", Row::new().with("name", name))
}

fn select_switches() -> Operation {
    Operation::select("Logical_Switch", vec![], &["name"])
}

#[tokio::test]
async fn unix_and_tcp_carry_the_same_transactions() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::standalone(folder.path(), NORTHBOUND, Transport::Tcp);
    for (number, remote) in [server.unix(), server.remote()].iter().enumerate() {
        let client = Client::spawn(settings(remote, "OVN_Northbound"));
        assert_eq!(client.connected(PATIENCE).await.unwrap().model, Model::Standalone);
        let plan = [insert_switch(&format!("ls{number}")), select_switches()];
        let outcomes = client.transact(&plan, PATIENCE).await.unwrap();
        assert_eq!(outcomes[1].rows().len(), number + 1);
    }
}

#[tokio::test]
async fn a_refused_operation_is_an_error_with_its_kind_and_nothing_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::standalone(folder.path(), NORTHBOUND, Transport::Tcp);
    let client = Client::spawn(settings(&server.unix(), "OVN_Northbound"));
    let refused = async |plan: &[Operation]| {
        let error = client.transact(plan, PATIENCE).await.unwrap_err();
        assert!(!error.is_outcome_unknown(), "{error}");
        error.server_error().unwrap().kind.clone()
    };
    let guard = Operation::guard("NB_Global", vec![], &["name"], vec![Row::new().with("name", "other")]);
    assert_eq!(refused(&[insert_switch("a"), guard]).await, Kind::TimedOut);
    assert_eq!(refused(&[insert_switch("a"), Operation::Abort]).await, Kind::Aborted);
    let twice = Operation::insert("Address_Set", Row::new().with("name", "as"));
    assert_eq!(refused(&[insert_switch("a"), twice.clone(), twice]).await, Kind::ConstraintViolation);
    let unknown = Operation::select("No_Such_Table", vec![], &["name"]);
    assert_eq!(refused(&[insert_switch("a"), unknown]).await, Kind::SyntaxError);
    let outcomes = client.transact(&[select_switches()], PATIENCE).await.unwrap();
    assert_eq!(outcomes[0].rows(), []);
}

#[tokio::test]
async fn a_paused_server_costs_no_more_than_the_deadline_and_is_left_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::standalone(folder.path(), NORTHBOUND, Transport::Tcp);
    let mut wanted = settings(&server.remote(), "OVN_Northbound");
    wanted.probe_interval = Duration::from_millis(300);
    wanted.connect_deadline = Duration::from_millis(500);
    let client = Client::spawn(wanted);
    client.connected(PATIENCE).await.unwrap();
    server.pause();
    let error = client.transact(&[insert_switch("late")], Duration::from_millis(200)).await.unwrap_err();
    assert!(matches!(error, ClientError::Deadline { .. }), "{error}");
    assert!(error.is_outcome_unknown() && error.is_retryable());
    let away = status_until(&client, |status| matches!(status, Status::Away { .. })).await;
    assert!(matches!(&away, Status::Away { fault, .. } if matches!(**fault, Fault::Silent(_))), "{away}");
    // Now nothing is sent at all, and the error says why.
    let error = client.transact(&[insert_switch("never")], Duration::from_millis(200)).await.unwrap_err();
    assert!(matches!(error, ClientError::Unavailable { .. }), "{error}");
    assert!(!error.is_outcome_unknown() && error.is_retryable());
    server.resume();
    client.connected(PATIENCE).await.unwrap();
    let outcomes = client.transact(&[select_switches()], PATIENCE).await.unwrap();
    let names: Vec<&str> = outcomes[0].rows().iter().map(|row| row.text("name").unwrap()).collect();
    assert!(!names.contains(&"never"), "a call that was given up was sent: {names:?}");
}

#[tokio::test]
async fn field_07_a_server_that_is_restarted_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::standalone(folder.path(), NORTHBOUND, Transport::Tcp);
    let client = Client::spawn(settings(&server.unix(), "OVN_Northbound"));
    client.connected(PATIENCE).await.unwrap();
    server.kill();
    status_until(&client, |status| matches!(status, Status::Away { .. })).await;
    // The call waits for the server that comes back, within its own deadline.
    let call = tokio::spawn(async move { client.transact(&[select_switches()], PATIENCE).await });
    server.start();
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_followed_table_is_complete_current_and_never_old() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::standalone(folder.path(), NORTHBOUND, Transport::Tcp);
    let client = Client::spawn(settings(&server.unix(), "OVN_Northbound"));
    client.transact(&[insert_switch("first")], PATIENCE).await.unwrap();
    let tables = BTreeMap::from([("Logical_Switch".to_owned(), Followed::columns(&["name", "other_config"]))]);
    let mut view = client.follow(tables).await.unwrap();
    let has = |name: &'static str| {
        move |replica: &ovn_chassis::ovsdb::Replica| {
            replica.table("Logical_Switch").values().any(|row| row.text("name") == Ok(name))
        }
    };
    view.until(PATIENCE, has("first")).await.unwrap();

    server.ctl(&["ls-add", "second", "--", "set", "Logical_Switch", "second", "other_config:a=b", "other_config:c=d"]);
    view.until(PATIENCE, has("second")).await.unwrap();
    server.ctl(&["remove", "Logical_Switch", "second", "other_config", "a"]);
    let one_pair = |replica: &ovn_chassis::ovsdb::Replica| {
        replica.table("Logical_Switch").values().any(|row| row.text_map("other_config") == Ok(vec![("c", "d")]))
    };
    view.until(PATIENCE, one_pair).await.unwrap();

    server.kill();
    status_until(&client, |status| matches!(status, Status::Away { .. })).await;
    assert!(view.current().is_none(), "a view of a server that is away");
    server.start();
    server.ctl(&["ls-del", "first"]);
    let gone = move |replica: &ovn_chassis::ovsdb::Replica| !has("first")(replica) && has("second")(replica);
    view.until(PATIENCE, gone).await.unwrap();
    assert!(client.status().borrow().is_synced());
}

#[tokio::test]
async fn conditions_keep_rows_away_that_nobody_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::standalone(folder.path(), NORTHBOUND, Transport::Tcp);
    server.ctl(&["ls-add", "wanted", "--", "ls-add", "other"]);
    let client = Client::spawn(settings(&server.unix(), "OVN_Northbound"));
    let followed = Followed { any_of: vec![Condition::equals("name", "wanted")], ..Followed::columns(&["name"]) };
    let mut view = client.follow(BTreeMap::from([("Logical_Switch".to_owned(), followed)])).await.unwrap();
    let replica = view.until(PATIENCE, |_| true).await.unwrap();
    assert_eq!(replica.table("Logical_Switch").len(), 1);
    // A row that enters the condition by a change arrives as new.
    let rename = Operation::update(
        "Logical_Switch",
        vec![Condition::equals("name", "other")],
        Row::new().with("name", "wanted"),
    );
    client.transact(&[rename], PATIENCE).await.unwrap();
    view.until(PATIENCE, |replica| replica.table("Logical_Switch").len() == 2).await.unwrap();
}

#[tokio::test]
async fn a_column_that_the_database_lacks_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::standalone(folder.path(), NORTHBOUND, Transport::Tcp);
    let client = Client::spawn(settings(&server.unix(), "OVN_Northbound"));
    let tables = BTreeMap::from([("Logical_Switch".to_owned(), Followed::columns(&["colour"]))]);
    let view = client.follow(tables).await.unwrap();
    super::away_because(&client, "no column `colour` in table `Logical_Switch`").await;
    assert!(view.current().is_none());
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::standalone(folder.path(), NORTHBOUND, Transport::Tcp);
    let client = Client::spawn(settings(&server.unix(), "OVN_Southbound"));
    let message = super::away_because(&client, "holds no database `OVN_Southbound`").await;
    assert!(message.starts_with(&server.unix()), "{message}");
}

#[tokio::test]
async fn the_servers_echo_is_answered_and_the_connection_stays() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::standalone(folder.path(), NORTHBOUND, Transport::Tcp);
    // A second listener of the server, with probes a second apart instead of five.
    let own = super::launch::own_address();
    server.ctl(&[
        "set-connection",
        &format!("ptcp:6650:{own}"),
        "--",
        "set",
        "Connection",
        ".",
        "inactivity_probe=1000",
    ]);
    server.appctl(&["ovsdb-server/add-remote", "db:OVN_Northbound,NB_Global,connections"]);
    let listening = std::net::SocketAddr::new(own, 6650);
    super::launch::eventually("the second listener", PATIENCE, || std::net::TcpStream::connect(listening).ok());
    let mut proxy = Proxy::start("127.0.0.1:0".parse().unwrap(), listening).await;
    let mut wanted = settings(&format!("tcp:{}", proxy.address), "OVN_Northbound");
    wanted.probe_interval = Duration::from_secs(600);
    let client = Client::spawn(wanted);
    client.connected(PATIENCE).await.unwrap();
    let status = client.status();
    // Unanswered, the second of them would be the end of the connection.
    let echoes = |heard: &Vec<u8>| String::from_utf8_lossy(heard).matches("\"echo\"").count() >= 4;
    tokio::time::timeout(PATIENCE, proxy.heard.wait_for(echoes)).await.expect("no echoes").unwrap();
    assert!(status.borrow().member().is_some(), "{}", *status.borrow());
    client.transact(&[select_switches()], PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_long_request_and_a_long_reply_pass() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::standalone(folder.path(), NORTHBOUND, Transport::Tcp);
    let client = Client::spawn(settings(&server.remote(), "OVN_Northbound"));
    let plan: Vec<Operation> = (0..20_000).map(|number| insert_switch(&format!("ls{number}"))).collect();
    client.transact(&plan, PATIENCE).await.unwrap();
    let outcomes = client.transact(&[select_switches()], PATIENCE).await.unwrap();
    assert_eq!(outcomes[0].rows().len(), 20_000);
    let mut short = settings(&server.remote(), "OVN_Northbound");
    short.frame_limit = 100_000;
    let client = Client::spawn(short);
    let error = client.transact(&plan, PATIENCE).await.unwrap_err();
    assert!(matches!(error, ClientError::TooLong { .. }) && !error.is_retryable(), "{error}");
    let error = client.transact(&[select_switches()], PATIENCE).await.unwrap_err();
    assert!(error.to_string().contains("longer than 100000 bytes"), "{error}");
}

#[tokio::test]
async fn mutations_change_what_they_name_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::standalone(folder.path(), NORTHBOUND, Transport::Tcp);
    server.ctl(&["ls-add", "a", "--", "set", "Logical_Switch", "a", "external_ids:keep=me", "external_ids:take=me"]);
    let client = Client::spawn(settings(&server.unix(), "OVN_Northbound"));
    let take = Mutation::delete("external_ids", Datum::set(["take"]));
    let add = Mutation::insert("external_ids", Datum::map([("new", "one")]));
    let plan = [
        Operation::mutate("Logical_Switch", vec![], vec![take, add]),
        Operation::select("Logical_Switch", vec![], &["external_ids"]),
    ];
    let outcomes = client.transact(&plan, PATIENCE).await.unwrap();
    assert_eq!(outcomes[0].count(), 1);
    assert_eq!(outcomes[1].rows()[0].text_map("external_ids").unwrap(), [("keep", "me"), ("new", "one")]);
}

#[tokio::test]
async fn the_task_ends_with_the_last_handle() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::standalone(folder.path(), NORTHBOUND, Transport::Tcp);
    let client = Client::spawn(settings(&server.unix(), "OVN_Northbound"));
    client.connected(PATIENCE).await.unwrap();
    let mut status = client.status();
    let second = client.clone();
    drop(client);
    second.transact(&[select_switches()], PATIENCE).await.unwrap();
    drop(second);
    let ended = async { while status.changed().await.is_ok() {} };
    tokio::time::timeout(PATIENCE, ended).await.expect("the task goes on");
}
