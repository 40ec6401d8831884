//! Peers that no ovsdb-server is: each must end in a message, never in a panic, a hang or a belief.

use std::collections::BTreeMap;
use std::time::Duration;

use ovn_chassis::ovsdb::{Client, ClientError, Fault, Followed, Operation, Replica, Settings, Status, TransactError};
use serde_json::{Value, json};

use super::peer::{Peer, Talk};
use super::{PATIENCE, away_because, settings, status_until};

fn impatient(peer: &Peer) -> Settings {
    let mut wanted = settings(&peer.remote(), "T");
    wanted.backoff_least = Duration::from_secs(600);
    wanted.backoff_most = Duration::from_secs(600);
    wanted
}

fn member(model: &str, leader: bool, index: u64) -> Value {
    let cid = "00000000-0000-0000-0000-00000000000c";
    json!({"name": "T", "model": model, "connected": true, "leader": leader, "index": index,
           "cid": ["uuid", cid], "sid": ["uuid", cid]})
}

fn select() -> [Operation; 1] {
    [Operation::select("X", vec![], &["name"])]
}

#[tokio::test]
async fn bytes_that_are_no_json_rpc() {
    let cases: [(&[u8], &str); 7] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak OVSDB"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "does not speak OVSDB"),
        (b"{\"id\": tru}", "message is not JSON"),
        (b"{\"hello\": \"world\"}", "no JSON-RPC request, reply or notification"),
        (b"{\"id\":1,\"result\":[],\"error\":null}", "updates that are no object"),
        (b"{\"id\":1,\"result\":{\"Database\":{\"x\":{}}},\"error\":null}", "a row UUID"),
        (b"{\"id\":1,\"result\":{},\"error\":null}", "holds no database `T`"),
    ];
    for (bytes, words) in cases {
        let peer = Peer::listen().await;
        let client = Client::spawn(impatient(&peer));
        let mut talk = peer.accept().await;
        talk.send_bytes(bytes).await;
        away_because(&client, words).await;
        talk.closed().await;
    }
}

#[tokio::test]
async fn a_message_without_end_is_cut_off() {
    let peer = Peer::listen().await;
    let mut wanted = impatient(&peer);
    wanted.frame_limit = 10_000;
    let client = Client::spawn(wanted);
    let mut talk = peer.accept().await;
    talk.send_bytes(b"{\"method\":\"").await;
    for _ in 0..20 {
        talk.send_bytes(&[b'x'; 1_000]).await;
    }
    away_because(&client, "longer than 10000 bytes").await;
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_left_at_the_deadline() {
    let peer = Peer::listen().await;
    let mut wanted = impatient(&peer);
    wanted.connect_deadline = Duration::from_millis(200);
    let client = Client::spawn(wanted);
    let _talk = peer.accept().await;
    away_because(&client, "no usable connection within 200 ms").await;
}

#[tokio::test]
async fn echoes_go_both_ways_and_silence_ends_the_connection() {
    let peer = Peer::listen().await;
    let mut wanted = impatient(&peer);
    wanted.probe_interval = Duration::from_millis(100);
    let client = Client::spawn(wanted);
    let mut talk = peer.welcome().await;
    client.connected(PATIENCE).await.unwrap();
    talk.send(json!({"id": "echo", "method": "echo", "params": [1, "two"]})).await;
    let reply = loop {
        let message = talk.next().await.unwrap();
        if message["id"] == "echo" {
            break message;
        }
        // The client's own probe.
        assert_eq!(message["method"], "echo");
        talk.answer(&message, json!([])).await;
    };
    assert_eq!(reply["result"], json!([1, "two"]));
    let away = status_until(&client, |status| matches!(status, Status::Away { .. })).await;
    assert!(matches!(&away, Status::Away { fault, .. } if matches!(**fault, Fault::Silent(_))), "{away}");
}

#[tokio::test]
async fn replies_that_do_not_match_their_request_are_no_success() {
    for reply in [json!([]), json!([{}]), json!([{"rows": 7}]), json!({"rows": []}), json!(null), json!([null])] {
        let peer = Peer::listen().await;
        let client = Client::spawn(impatient(&peer));
        let answering = async {
            let mut talk = peer.welcome().await;
            let request = talk.expect("transact").await;
            talk.answer(&request, reply.clone()).await;
            talk
        };
        let plan = select();
        let (_talk, outcome) = tokio::join!(answering, client.transact(&plan, PATIENCE));
        let error = outcome.unwrap_err();
        let malformed = |source: &TransactError| matches!(source, TransactError::Malformed { .. });
        assert!(matches!(&error, ClientError::Refused { source, .. } if malformed(source)), "{reply}: {error}");
        assert!(error.is_outcome_unknown() && !error.is_retryable());
    }
}

#[tokio::test]
async fn a_connection_lost_before_the_answer_says_that_it_may_have_been_done() {
    let peer = Peer::listen().await;
    let client = Client::spawn(impatient(&peer));
    let hanging_up = async {
        let mut talk = peer.welcome().await;
        talk.expect("transact").await;
    };
    let plan = select();
    let ((), outcome) = tokio::join!(hanging_up, client.transact(&plan, PATIENCE));
    let error = outcome.unwrap_err();
    assert!(matches!(error, ClientError::Lost { .. }) && error.is_outcome_unknown(), "{error}");
    assert!(error.to_string().contains("closed the connection"), "{error}");
}

#[tokio::test]
async fn an_answer_that_comes_after_its_caller_has_left_harms_nobody() {
    let peer = Peer::listen().await;
    let client = Client::spawn(impatient(&peer));
    let slow = async {
        let mut talk = peer.welcome().await;
        let first = talk.expect("transact").await;
        let second = talk.expect("transact").await;
        talk.answer(&first, json!([{"rows": [{"name": "late"}]}])).await;
        talk.answer(&second, json!([{"rows": [{"name": "right"}]}])).await;
        talk
    };
    let asking = async {
        let error = client.transact(&select(), Duration::from_millis(100)).await.unwrap_err();
        assert!(matches!(error, ClientError::Deadline { .. }), "{error}");
        client.transact(&select(), PATIENCE).await.unwrap()
    };
    let (_talk, outcomes) = tokio::join!(slow, asking);
    assert_eq!(outcomes[0].rows()[0].text("name"), Ok("right"));
}

fn tables() -> BTreeMap<String, Followed> {
    BTreeMap::from([("X".to_owned(), Followed::columns(&["name"]))])
}

const A: &str = "00000000-0000-0000-0000-00000000000a";

async fn schema(talk: &mut Talk) {
    let request = talk.expect("get_schema").await;
    talk.answer(&request, json!({"tables": {"X": {"columns": {"name": {"type": "string"}}}}})).await;
}

fn named(name: &'static str) -> impl Fn(&Replica) -> bool {
    move |replica| replica.table("X").values().any(|row| row.text("name") == Ok(name))
}

#[tokio::test]
async fn older_servers_are_followed_by_their_older_methods() {
    for known in ["monitor_cond", "monitor"] {
        let peer = Peer::listen().await;
        let client = Client::spawn(impatient(&peer));
        let mut view = client.follow(tables()).await.unwrap();
        let mut talk = peer.welcome().await;
        schema(&mut talk).await;
        for method in ["monitor_cond_since", "monitor_cond", "monitor"] {
            let request = talk.expect(method).await;
            if method == known {
                let kind = if known == "monitor" { "new" } else { "initial" };
                talk.answer(&request, json!({"X": {A: {kind: {"name": "first"}}}})).await;
                break;
            }
            talk.refuse(&request, json!({"error": "unknown method"})).await;
        }
        view.until(PATIENCE, named("first")).await.unwrap();
        let (method, change) = match known {
            "monitor" => ("update", json!({"new": {"name": "second"}})),
            _ => ("update2", json!({"modify": {"name": "second"}})),
        };
        talk.send(json!({"id": null, "method": method, "params": ["m0", {"X": {A: change}}]})).await;
        view.until(PATIENCE, named("second")).await.unwrap();
    }
}

#[tokio::test]
async fn updates_that_come_before_their_monitors_reply_are_kept_for_it() {
    let peer = Peer::listen().await;
    let client = Client::spawn(impatient(&peer));
    let mut view = client.follow(tables()).await.unwrap();
    let mut talk = peer.welcome().await;
    schema(&mut talk).await;
    let request = talk.expect("monitor_cond_since").await;
    let early = json!(["m0", A, {"X": {A: {"modify": {"name": "changed"}}}}]);
    talk.send(json!({"id": null, "method": "update3", "params": early})).await;
    talk.answer(&request, json!([false, A, {"X": {A: {"initial": {"name": "first"}}}}])).await;
    let replica = view.until(PATIENCE, |_| true).await.unwrap();
    assert!(named("changed")(&replica));
}

#[tokio::test]
async fn an_update_of_a_row_that_was_never_sent_ends_the_connection_and_the_view() {
    let peer = Peer::listen().await;
    let client = Client::spawn(impatient(&peer));
    let mut view = client.follow(tables()).await.unwrap();
    let mut talk = peer.welcome().await;
    schema(&mut talk).await;
    let request = talk.expect("monitor_cond_since").await;
    talk.answer(&request, json!([false, A, {}])).await;
    view.until(PATIENCE, |_| true).await.unwrap();
    let wrong = json!(["m0", A, {"X": {A: {"modify": {"name": "x"}}}}]);
    talk.send(json!({"id": null, "method": "update3", "params": wrong})).await;
    away_because(&client, "a change of a row that was never sent").await;
    assert!(view.current().is_none());
}

#[tokio::test]
async fn field_30_a_server_whose_index_went_back_is_not_believed() {
    let (ahead, behind) = (Peer::listen().await, Peer::listen().await);
    let mut wanted = settings(&format!("{},{}", ahead.remote(), behind.remote()), "T");
    wanted.backoff_least = Duration::from_secs(600);
    wanted.backoff_most = Duration::from_secs(600);
    let client = Client::spawn(wanted);
    let mut talk = ahead.accept().await;
    talk.introduce(member("clustered", true, 100)).await;
    client.connected(PATIENCE).await.unwrap();
    // It steps down; the next member claims to lead and has forgotten what the first one had.
    let row = "00000000-0000-0000-0000-000000000001";
    let stepped = json!(["_server", {"Database": {row: {"new": member("clustered", false, 120)}}}]);
    talk.send(json!({"id": null, "method": "update", "params": stepped})).await;
    let mut talk = behind.accept().await;
    talk.introduce(member("clustered", true, 99)).await;
    away_because(&client, "its log ends at 99, another member had 100 already").await;
}
