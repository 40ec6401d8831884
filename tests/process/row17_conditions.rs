//! Row 17: what is missing, wrong or somebody else's gets a condition that names it and says what to do, and work goes on by itself once it is mended.
use serde_json::{Value, json};

use crate::harness::central::Shape;
use crate::harness::control_plane::{ControlPlane, base64};
use crate::harness::kube_api::{self, CONFIG_MAP, JOB, OVN_CENTRAL, OVN_CHASSIS, SECRET};
use crate::harness::until;
use crate::harness::world::{CHASSIS_LABEL, GATEWAY_LABEL, SOON, World};
use crate::history;

/// Waits for a condition with this status whose message holds all the words.
#[track_caller]
fn wait_message(world: &World, kind: &str, status: &str, words: &[&str]) -> Value {
    until(&format!("{kind}={status} with {words:?}"), SOON, || {
        let chassis = world.chassis_object();
        match kube_api::condition(&chassis, kind) {
            Some(c)
                if c["status"] == status
                    && words.iter().all(|w| c["message"].as_str().unwrap_or_default().contains(w)) =>
            {
                Ok(c.clone())
            }
            _ => Err(kube_api::show_condition(&chassis, kind)),
        }
    })
}

/// A world whose node waits for something, and whose end shows that it goes on by itself.
fn waiting_world(test: &str) -> World {
    let mut world = World::new(test, Shape::default().without_northd());
    world.add_node("row17-a", true, true);
    world.start_controller(&[], &[]);
    world.create_chassis(json!({}));
    world
}

fn assert_goes_on(mut world: World) {
    wait_message(&world, "CentralReady", "True", &[]);
    world.start_agent("row17-a");
    world.wait_applied("row17-a");
    let id = world.recorded_system_id("row17-a");
    world.seed_gateway_ports("lr0", 1, &[(&id, 1)]);
    world.label("row17-a", &[(GATEWAY_LABEL, None)]);
    world.wait_evacuated("row17-a");
    history::assert_holds(&world);
}

#[test]
fn row17_a_missing_ovncentral_is_named() {
    let world = waiting_world("row17-none");
    let central = world.kube.get(OVN_CENTRAL, &world.namespace, "central").unwrap();
    world.kube.delete(OVN_CENTRAL, &world.namespace, "central");
    wait_message(&world, "CentralReady", "False", &["OVNCentral", "central"]);
    world.wait_condition("Ready", "False", "");
    world.kube.create(OVN_CENTRAL, &world.namespace, json!({"metadata": {"name": "central"}, "spec": {}}));
    world.kube.merge_status(OVN_CENTRAL, &world.namespace, "central", central["status"].clone());
    assert_goes_on(world);
}

#[test]
fn row17_an_ovncentral_that_is_not_ready_is_named() {
    let world = waiting_world("row17-notready");
    world.write_central_status(false);
    wait_message(&world, "CentralReady", "False", &["central"]);
    world.write_central_status(true);
    assert_goes_on(world);
}

#[test]
fn row17_an_ovncentral_without_addresses_is_named_with_the_field() {
    let world = waiting_world("row17-addresses");
    world.kube.merge_status(OVN_CENTRAL, &world.namespace, "central", json!({"southbound": null}));
    wait_message(&world, "CentralReady", "False", &["central", "southbound"]);
    for (bad, words) in [("ssl:127.0.0.1", "127.0.0.1"), ("nonsense", "nonsense"), ("ssl:127.0.0.1:99999", "99999")] {
        world.kube.merge_status(
            OVN_CENTRAL,
            &world.namespace,
            "central",
            json!({"southbound": {"internalDbAddress": bad, "dbAddress": bad}}),
        );
        wait_message(&world, "CentralReady", "False", &["central", words]);
    }
    world.write_central_status(true);
    assert_goes_on(world);
}

#[test]
fn row17_a_missing_secret_and_an_expired_certificate_are_named() {
    let world = waiting_world("row17-secret");
    world.kube.delete(SECRET, &world.namespace, "central-client");
    wait_message(&world, "CentralReady", "False", &["Secret", "central-client"]);

    let expired = world.central.authority.identity_until("client", None, 2021);
    let data = json!({"tls.crt": base64(expired.certificate.as_bytes()), "tls.key": base64(expired.key.as_bytes()), "ca.crt": base64(world.central.authority.certificate.as_bytes())});
    world.kube.create(SECRET, &world.namespace, json!({"metadata": {"name": "central-client"}, "data": data}));
    wait_message(&world, "CentralReady", "False", &["central-client", "expired"]);

    for (field, text) in [
        ("tls.crt", "not a certificate"),
        ("tls.key", ""),
        ("ca.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
    ] {
        let mut data = world.client_secret_data();
        data[field] = json!(base64(text.as_bytes()));
        world.kube.merge(SECRET, &world.namespace, "central-client", json!({"data": data}));
        wait_message(&world, "CentralReady", "False", &["central-client", field]);
    }
    world.kube.merge(SECRET, &world.namespace, "central-client", json!({"data": world.client_secret_data()}));
    assert_goes_on(world);
}

#[test]
fn row17_a_job_name_taken_by_somebody_elses_job_is_named_and_the_job_left_alone() {
    let world = World::ready("row17-job", Shape::default().without_northd(), &["row17-j"], &["row17-j"]);
    let id = world.recorded_system_id("row17-j");
    world.seed_gateway_ports("lr0", 1, &[(&id, 1)]);
    let name = world.job_name("evacuate", "row17-j");
    let template =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "x", "image": "none.example/x"}]}});
    let theirs = world.kube.create(
        JOB,
        &world.namespace,
        json!({"metadata": {"name": name}, "spec": {"template": template, "suspend": true}}),
    );
    world.label("row17-j", &[(GATEWAY_LABEL, None)]);
    until("a condition that names the Job", SOON, || {
        let chassis = world.chassis_object();
        let text = format!("{} {}", chassis["status"]["conditions"], world.record("row17-j").unwrap_or(Value::Null));
        if text.contains(&name) { Ok(()) } else { Err(text) }
    });
    let now = world.job("evacuate", "row17-j").unwrap();
    assert_eq!(now["metadata"]["uid"], theirs["metadata"]["uid"]);
    assert_eq!(now["status"], theirs["status"]);

    world.kube.delete(JOB, &world.namespace, &name);
    world.wait_evacuated("row17-j");
    assert!(world.central.gateway_rows().is_empty());
}

#[test]
fn row17_a_config_map_edited_by_hand_is_rendered_again_and_nobody_acts_on_it() {
    let world = World::ready("row17-view", Shape::default().without_northd(), &["row17-v"], &["row17-v"]);
    let view = format!("{}-nodes", world.chassis);
    let read = || world.kube.get(CONFIG_MAP, &world.namespace, &view).unwrap()["data"].clone();
    let before = read();
    for edit in [
        json!({"row17-v": "SYSTEM_ID=stolen\nGATEWAY=false\nLEAVING=true\n"}),
        json!({"row17-v": null}),
        json!({"ghost": "SYSTEM_ID=x"}),
        json!({"row17-v": "\u{0}not=a line"}),
    ] {
        let _ = world.kube.try_merge(CONFIG_MAP, &world.namespace, &view, "", &json!({"data": edit}));
        until("the view to be what it was", SOON, || if read() == before { Ok(()) } else { Err(read()) });
    }
    let record = world.record("row17-v").unwrap();
    assert_eq!((&record["gateway"], &record["leaving"]), (&json!(true), &json!(null)));
    assert!(world.job("evacuate", "row17-v").is_none());
}

#[test]
fn row17_labels_with_other_values_are_no_roles() {
    let world = World::ready("row17-values", Shape::default().without_northd(), &["row17-l"], &["row17-l"]);
    let id = world.recorded_system_id("row17-l");
    world.central.seed_chassis(&[&id]);
    world.label("row17-l", &[(GATEWAY_LABEL, Some("false"))]);
    world.wait_evacuated("row17-l");
    world.label("row17-l", &[(CHASSIS_LABEL, Some(""))]);
    world.wait_forgotten("row17-l");
    assert!(world.central.chassis_names().is_empty());
}

#[test]
fn row17_an_api_server_that_drops_managed_by_is_refused_with_the_reason() {
    let plane = ControlPlane::start("cp-old", &["--feature-gates=JobManagedBy=false"]);
    plane.install_product();
    let folder = crate::harness::scratch::Folder::new("row17-old");
    let controller =
        crate::harness::daemon::Program::new("controller", crate::harness::binaries::ovn_chassis(), folder.path())
            .args([
                "controller",
                "--lease-namespace",
                "ovn-chassis-system",
                "--identity",
                "old",
                "--image",
                "registry.example/ovn-chassis:test",
            ])
            .args(["--metrics-addr", &format!("127.0.0.1:{}", crate::harness::scratch::free_port())])
            .env("KUBECONFIG", plane.admin_kubeconfig.display().to_string())
            .env("RUST_LOG", "info");
    plane.admin.create(kube_api::NAMESPACE, "", json!({"metadata": {"name": "old"}}));
    plane.admin.create(
        OVN_CHASSIS,
        "old",
        json!({"metadata": {"name": "drain"}, "spec": World::chassis_spec(&json!({}))}),
    );
    let mut controller = controller.start();
    until("the refusal", SOON, || {
        let said = controller.log().contains("managedBy");
        let shown =
            plane.admin.get(OVN_CHASSIS, "old", "drain").unwrap_or(Value::Null)["status"]["conditions"].to_string();
        if said || shown.contains("managedBy") { Ok(()) } else { Err(controller.log_tail(5)) }
    });
    assert!(plane.admin.list(JOB, "", "").is_empty(), "no Job was made that Kubernetes would start pods for");
    let _ = controller.try_wait();
}
