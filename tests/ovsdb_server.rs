//! The OVSDB client and the OVN transactions against real `ovsdb-server` processes, and against a peer that misbehaves.

#[path = "ovsdb_server/certificates.rs"]
mod certificates;
#[path = "ovsdb_server/launch.rs"]
mod launch;
#[path = "ovsdb_server/peer.rs"]
mod peer;
#[path = "ovsdb_server/proxy.rs"]
mod proxy;

#[path = "ovsdb_server/cluster.rs"]
mod cluster;
#[path = "ovsdb_server/northbound.rs"]
mod northbound;
#[path = "ovsdb_server/odd_peers.rs"]
mod odd_peers;
#[path = "ovsdb_server/southbound.rs"]
mod southbound;
#[path = "ovsdb_server/standalone.rs"]
mod standalone;
#[path = "ovsdb_server/tls.rs"]
mod tls;

use std::time::Duration;

use ovn_chassis::ovsdb::{Client, Settings, Status};

/// Longer than anything here takes on a busy machine; a test that passes never waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

fn settings(remotes: &str, database: &str) -> Settings {
    Settings::new(remotes.parse().unwrap(), database)
}

/// Waits for the next state that `wanted` picks and returns what it says.
async fn status_until(client: &Client, wanted: impl Fn(&Status) -> bool) -> Status {
    let mut status = client.status();
    let found = tokio::time::timeout(PATIENCE, status.wait_for(|status| wanted(status))).await;
    match found {
        Ok(found) => found.unwrap().clone(),
        Err(_) => panic!("status stays: {}", *client.status().borrow()),
    }
}

/// The message of the state in which the client stays away.
async fn away_because(client: &Client, words: &str) -> String {
    let status = status_until(
        client,
        |status| matches!(status, Status::Away { fault, .. } if fault.to_string().contains(words)),
    );
    status.await.to_string()
}
