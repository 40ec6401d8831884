use std::time::Duration;

use ovn_chassis::ovsdb::{Client, ServerNames, Settings, TlsFiles, TlsMaterial, TlsSource};
use tokio::sync::watch;

use super::certificates::{Authority, Validity};
use super::launch::{NORTHBOUND, Server, Transport};
use super::{PATIENCE, away_because, settings};

fn held(material: TlsMaterial) -> TlsSource {
    // The sender may go: what it held stays.
    TlsSource::Held(watch::channel(Some(material)).1)
}

fn tls_settings(server: &Server, material: TlsMaterial, names: ServerNames) -> Settings {
    settings(&server.remote(), "OVN_Northbound").with_tls(held(material), names)
}

#[tokio::test]
async fn a_server_proves_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = Server::standalone(folder.path(), NORTHBOUND, Transport::Tls(&authority));
    let client = Client::spawn(tls_settings(&server, authority.client(), ServerNames::Verify));
    client.connected(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_certificate_for_another_address_is_refused_unless_only_the_chain_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let pair = authority.issue(&["192.0.2.1".parse().unwrap()], &["db.example"], Validity::Now);
    let server = Server::with_certificate(folder.path(), &authority, &pair);
    let strict = Client::spawn(tls_settings(&server, authority.client(), ServerNames::Verify));
    let message = away_because(&strict, "does not carry that address or name").await;
    assert!(message.starts_with(&server.remote()), "{message}");
    let chain = Client::spawn(tls_settings(&server, authority.client(), ServerNames::ChainOnly));
    chain.connected(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn wrong_authorities_and_expired_certificates_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new("ours");
    let theirs = Authority::new("theirs");
    let server = Server::standalone(&folder.path().join("good"), NORTHBOUND, Transport::Tls(&ours));
    for names in [ServerNames::Verify, ServerNames::ChainOnly] {
        let stranger = Client::spawn(tls_settings(&server, theirs.client(), names));
        away_because(&stranger, "is not signed by our CA (ca.crt)").await;
    }
    let foreign = theirs.issue(&[], &["client.example"], Validity::Now);
    let foreign = TlsMaterial { ca: ours.pem.clone().into_bytes(), ..theirs.material(&foreign) };
    let unknown = Client::spawn(tls_settings(&server, foreign, ServerNames::Verify));
    away_because(&unknown, "refuses our client certificate: the server does not know its CA").await;

    let past = ours.issue(&[], &["client.example"], Validity::Past);
    let expired = Client::spawn(tls_settings(&server, ours.material(&past), ServerNames::Verify));
    away_because(&expired, "client certificate (tls.crt) expired on 2004-02-28; renew it").await;

    let old = ours.issue(&[], &["db.example"], Validity::Past);
    let old_server = Server::with_certificate(&folder.path().join("old"), &ours, &old);
    for names in [ServerNames::Verify, ServerNames::ChainOnly] {
        let client = Client::spawn(tls_settings(&old_server, ours.client(), names));
        away_because(&client, "expired on 2004-02-28").await;
    }
}

#[tokio::test]
async fn a_rotated_secret_is_used_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = Server::standalone(folder.path(), NORTHBOUND, Transport::Tls(&authority));
    let (secret, source) = watch::channel(None);
    let mut wanted =
        settings(&server.remote(), "OVN_Northbound").with_tls(TlsSource::Held(source), ServerNames::Verify);
    // Longer than the test's patience: only the new Secret can end the pause.
    wanted.backoff_least = Duration::from_secs(600);
    wanted.backoff_most = Duration::from_secs(600);
    let client = Client::spawn(wanted);
    away_because(&client, "no certificate is configured").await;
    let past = authority.issue(&[], &["client.example"], Validity::Past);
    secret.send_replace(Some(authority.material(&past)));
    away_because(&client, "expired on 2004-02-28").await;
    secret.send_replace(Some(authority.client()));
    client.connected(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn files_are_read_again_for_each_connection() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = Server::standalone(&folder.path().join("db"), NORTHBOUND, Transport::Tls(&authority));
    let path = |name: &str| folder.path().join(name);
    let files = TlsFiles { ca: path("ca.crt"), certificate: path("tls.crt"), key: path("tls.key") };
    let wanted =
        settings(&server.remote(), "OVN_Northbound").with_tls(TlsSource::Files(files.clone()), ServerNames::Verify);
    let client = Client::spawn(wanted);
    away_because(&client, "cannot read CA certificate (ca.crt)").await;
    let material = authority.client();
    std::fs::write(&files.certificate, &material.certificate).unwrap();
    std::fs::write(&files.key, &material.key).unwrap();
    std::fs::write(&files.ca, &material.ca).unwrap();
    client.connected(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn tls_to_a_plain_port_and_plain_to_a_tls_port_are_recognised() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let plain = Server::standalone(&folder.path().join("plain"), NORTHBOUND, Transport::Tcp);
    let wrong = plain.remote().replace("tcp:", "ssl:");
    let mut wanted = settings(&wrong, "OVN_Northbound").with_tls(held(authority.client()), ServerNames::Verify);
    wanted.connect_deadline = Duration::from_secs(1);
    let client = Client::spawn(wanted);
    let message = super::status_until(&client, |status| {
        let text = status.to_string();
        !text.contains("not connected yet")
    })
    .await
    .to_string();
    assert!(message.starts_with(&wrong), "{message}");
    let tls = Server::standalone(&folder.path().join("tls"), NORTHBOUND, Transport::Tls(&authority));
    let client = Client::spawn(settings(&tls.remote().replace("ssl:", "tcp:"), "OVN_Northbound"));
    super::status_until(&client, |status| !status.to_string().contains("not connected yet")).await;
}

/// Certificates as OVS' own tool makes them carry no name at all.
#[tokio::test]
async fn certificates_of_ovs_pki_work_with_the_chain_alone() {
    let folder = tempfile::tempdir().unwrap();
    let dir = format!("--dir={}", folder.path().join("pki").display());
    let log = format!("--log={}", folder.path().join("log").display());
    let pki = |arguments: &[&str]| {
        let arguments = [&["--force", dir.as_str(), log.as_str()], arguments].concat();
        let done = std::process::Command::new("ovs-pki").args(&arguments).current_dir(folder.path()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    pki(&["init"]);
    pki(&["req+sign", "db", "switch"]);
    pki(&["req+sign", "client", "controller"]);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    // Each role has its own authority: both sides are given both.
    let both = read("pki/switchca/cacert.pem") + &read("pki/controllerca/cacert.pem");
    let mut authority = Authority::new("unused");
    authority.pem = both;
    let pair = super::certificates::Pair { certificate: read("db-cert.pem"), key: read("db-privkey.pem") };
    let server = Server::with_certificate(&folder.path().join("db"), &authority, &pair);
    let client = super::certificates::Pair { certificate: read("client-cert.pem"), key: read("client-privkey.pem") };
    let strict = Client::spawn(tls_settings(&server, authority.material(&client), ServerNames::Verify));
    away_because(&strict, "verify the chain only").await;
    let chain = Client::spawn(tls_settings(&server, authority.material(&client), ServerNames::ChainOnly));
    chain.connected(PATIENCE).await.unwrap();
}
