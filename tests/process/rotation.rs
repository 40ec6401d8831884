//! A certificate that is replaced in the middle of a run: the controller reads the Secret again and goes on, without a restart.
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::harness::central::Shape;
use crate::harness::daemon::run;
use crate::harness::kube_api::SECRET;
use crate::harness::pki::{Authority, Files};
use crate::harness::proxy::Line;
use crate::harness::until;
use crate::harness::world::{GATEWAY_LABEL, SOON, World};
use crate::history;

/// Whether a server takes a client with these files.
fn is_taken(world: &World, files: &Files) -> Result<String, String> {
    let mut tool = Command::new("ovsdb-client");
    tool.args(["--timeout=5", "list-dbs"]).arg(world.central.northbound.addresses()).args(files.ovs_arguments());
    run(&mut tool, Duration::from_secs(7))
}

#[test]
fn a_secret_rotated_in_the_middle_of_a_drain_is_read_again_and_the_drain_ends() {
    let node = "rotation-a";
    let mut world = World::ready("rotation", Shape::default().without_northd(), &[node], &[node]);
    let id = world.recorded_system_id(node);
    world.seed_gateway_ports("lr0", 2, &[(&id, 2), ("foreign", 1)]);
    let controller = world.controllers[0].pid();

    // Another authority for servers and clients; the one before is worth nothing any more.
    let folder = world.folder.path().to_owned();
    let old_folder = folder.join("before");
    std::fs::create_dir(&old_folder).unwrap();
    let keep = |path: &std::path::Path| {
        let copy = old_folder.join(path.file_name().unwrap());
        std::fs::copy(path, &copy).unwrap();
        copy
    };
    let client = world.central.client.clone();
    let before =
        Files { certificate: keep(&client.certificate), key: keep(&client.key), authority: keep(&client.authority) };
    is_taken(&world, &before).expect("the certificate is good before");
    let authority = Authority::new("the next central");
    authority.write(&folder, "ovsdb", &authority.identity("ovsdb", None));
    authority.write(&folder, "client", &authority.identity("client", None));
    world.central.authority = authority;
    for database in [&mut world.central.northbound, &mut world.central.southbound] {
        database.set_lines(Line::Cut);
        for member in &mut database.members {
            member.daemon.kill();
            member.daemon.start_again();
        }
        database.set_lines(Line::Open);
    }
    until("the servers to take the new certificate", SOON, || is_taken(&world, &client));
    // The new servers with the old authority's word, as the controller has it: refused on both sides.
    is_taken(&world, &before).expect_err("the old certificate is refused");

    world.label(node, &[(GATEWAY_LABEL, None)]);
    until("the drain to start and to be told why it cannot", SOON, || {
        let job = world.job("evacuate", node).unwrap_or_default();
        let record = world.record(node).unwrap_or_default();
        let said = record["message"].as_str().unwrap_or_default().to_lowercase();
        if job["status"]["startTime"].is_string() && said.contains("certificate") {
            Ok(())
        } else {
            Err(format!("{record}"))
        }
    });
    assert!(world.record(node).unwrap()["gatewayEvacuated"].is_null());

    world.kube.merge(SECRET, &world.namespace, "central-client", json!({"data": world.client_secret_data()}));
    world.wait_evacuated(node);
    world.wait_job("evacuate", node, "Complete");
    assert_eq!(world.central.gateway_rows(), ["foreign", "foreign"]);
    assert!(world.controllers[0].is_running());
    assert_eq!(world.controllers[0].pid(), controller, "the same process went on");
    history::assert_holds(&world);
}
