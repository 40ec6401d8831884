//! Entrypoints: first start, leftovers, schema, an image that does not work.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::node::{CONTROLLER, GRACE, Node, OVSDB, VSWITCHD, kill_process, stays, until};

#[test]
fn first_start_waits_for_the_settings_and_the_database_does_not() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let mut datapath = pod.start(VSWITCHD);
    let mut controller = pod.start(CONTROLLER);
    let _database = pod.start(OVSDB);
    until("the database answers", || pod.ready(OVSDB).code == 0);
    let not_ready = pod.ready(VSWITCHD);
    assert_eq!(not_ready.code, 1);
    assert!(not_ready.text.contains("waits for the settings"), "{}", not_ready.text);
    node.vsctl(&["--no-wait", "set", "open_vswitch", ".", "external_ids:system-id=id-1"]);
    stays("a system-id alone is not enough", Duration::from_millis(500), || {
        node.pid(VSWITCHD).is_none() && node.pid(CONTROLLER).is_none()
    });
    node.configure("unix:/nonexistent");
    pod.until_ready(VSWITCHD);
    pod.until_ready(CONTROLLER);
    assert!(datapath.is_running() && controller.is_running());
    assert_eq!(node.holder("ovs"), "pod-a");
    assert_eq!(node.holder("ovn-controller"), "pod-a");
}

#[test]
fn sigterm_before_the_first_start_ends_the_container_at_once() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let mut datapath = pod.start(VSWITCHD);
    until("the claim is taken", || node.holder("ovs") == "pod-a");
    assert_eq!(pod.pre_stop(VSWITCHD).code, 0);
    assert_eq!(datapath.terminate(), 0);
    assert_eq!(node.pid(VSWITCHD), None);
}

#[test]
fn a_pid_file_whose_number_lives_again_as_something_else_is_no_obstacle() {
    let node = Node::new();
    for daemon in [OVSDB, VSWITCHD] {
        std::fs::write(node.path("ovs").join(format!("{daemon}.pid")), format!("{}\n", std::process::id())).unwrap();
    }
    let pod = node.pod("pod-a");
    let containers = pod.start_ovs();
    assert!(containers[0].log().contains("removed the stale"), "{}", containers[0].log());
    assert_ne!(node.pid(OVSDB), Some(std::process::id() as i32));
}

#[test]
fn a_living_daemon_without_our_lock_is_left_alone_and_named() {
    let node = Node::new();
    let mut foreign = {
        let mut command = std::process::Command::new("ovsdb-server");
        std::process::Command::new("ovsdb-tool").arg("create").arg(node.path("etc/conf.db")).status().unwrap();
        command.arg(node.path("etc/conf.db")).arg(format!("--pidfile={}", node.path("ovs/ovsdb-server.pid").display()));
        command
            .args(["--unixctl=none", "-vsyslog:off"])
            .arg(format!("--remote=punix:{}", node.path("ovs/db.sock").display()));
        command.spawn().unwrap()
    };
    until("the foreign daemon is up", || node.pid(OVSDB).is_some());
    let mut database = node.pod("pod-a").start(OVSDB);
    assert_eq!(database.exit_code(), 1);
    assert!(database.log().contains("another ovsdb-server (process"), "{}", database.log());
    assert!(foreign.try_wait().unwrap().is_none());
    foreign.kill().unwrap();
    foreign.wait().unwrap();
}

#[test]
fn case_31_an_older_database_is_converted_under_a_backup() {
    let node = Node::new();
    let schema = std::fs::read_to_string("/usr/share/openvswitch/vswitch.ovsschema").unwrap();
    let mut schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    schema["version"] = "7.0.0".into();
    schema["tables"]["Bridge"]["columns"].as_object_mut().unwrap().remove("stp_enable").unwrap();
    std::fs::write(node.path("old.ovsschema"), schema.to_string()).unwrap();
    let pod = node.pod("pod-a");
    let old = node.path("old.ovsschema").display().to_string();
    let mut first = pod.start_with(OVSDB, &["--schema", &old]);
    node.configure("unix:/nonexistent");
    assert_eq!(node.schema_version(), "7.0.0");
    assert_eq!(pod.pre_stop(OVSDB).code, 0);
    assert_eq!(first.terminate(), 0);
    let second = pod.start(OVSDB);
    pod.until_ready(OVSDB);
    assert!(second.log().contains("from schema 7.0.0 to"), "{}", second.log());
    assert_eq!(node.vsctl(&["--no-wait", "get", "open_vswitch", ".", "external_ids:theirs"]), "kept");
    assert_ne!(node.schema_version(), "7.0.0");
    let backups = std::fs::read_dir(node.path("etc")).unwrap();
    assert_eq!(
        backups
            .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with("conf.db.backup7.0.0-"))
            .count(),
        1
    );
}

#[test]
fn an_image_that_cannot_run_its_programs_takes_no_claim_and_is_never_ready() {
    let mut node = Node::new();
    let broken = node.path("bin");
    std::fs::create_dir(&broken).unwrap();
    let program = broken.join(VSWITCHD);
    std::fs::write(&program, "#!/bin/sh\necho 'libssl.so.9: cannot open shared object file' >&2\nexit 127\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let containers = node.pod("pod-a").start_ovs();
    let before = node.pids();
    node.grant(&["pod-b"]);
    let old = node.programs.replace(broken);
    let mut container = node.pod("pod-b").start(VSWITCHD);
    assert_eq!(container.exit_code(), 1);
    assert!(
        container.log().contains("the image cannot run ovs-vswitchd") && container.log().contains("libssl.so.9"),
        "{}",
        container.log()
    );
    let probe = node.pod("pod-b").ready(VSWITCHD);
    assert_eq!(probe.code, 1);
    assert!(probe.text.contains("libssl.so.9"), "{}", probe.text);
    node.programs = old;
    assert_eq!(node.pids(), before);
    assert_eq!(node.holder("ovs"), "pod-a");
    drop(containers);
}

#[test]
fn case_9_a_daemon_that_dies_alone_ends_its_container_and_comes_back_in_its_pod() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let mut containers = pod.start_ovs();
    let settings = node.database();
    let (database, datapath) = (node.pid(OVSDB), node.pid(VSWITCHD));
    kill_process(datapath);
    assert_eq!(containers[1].exit_code(), 137);
    assert_eq!(node.holder("ovs"), "pod-a");
    let _again = pod.start(VSWITCHD);
    pod.until_ready(VSWITCHD);
    assert_eq!(node.pid(OVSDB), database);
    assert_ne!(node.pid(VSWITCHD), datapath);
    assert_eq!(node.database(), settings);

    kill_process(database);
    assert_eq!(containers[0].exit_code(), 137);
    let datapath = node.pid(VSWITCHD);
    let _again = pod.start(OVSDB);
    pod.until_ready(OVSDB);
    assert_eq!(node.pid(VSWITCHD), datapath);
    assert_eq!(node.database(), settings);
}

#[test]
fn a_second_entrypoint_of_the_same_daemon_waits_instead_of_starting_another() {
    let node = Node::new();
    let pod = node.pod("pod-a");
    let _containers = pod.start_ovs();
    let before = node.pids();
    let mut second = pod.start(VSWITCHD);
    stays("nothing changes", GRACE * 2, || node.pids() == before && second.is_running());
    second.signal(Signal::SIGTERM);
    assert_eq!(second.exit_code(), 0);
    assert_eq!(node.pids(), before);
}
