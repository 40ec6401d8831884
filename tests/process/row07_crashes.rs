//! Row 7: the controller is killed between any two steps and a second replica goes on: same end, nothing done twice, no Job lost.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::harness::central::Shape;
use crate::harness::daemon::Daemon;
use crate::harness::kube_api::{JOB, LEASE};
use crate::harness::monitor::RowMonitor;
use crate::harness::world::{CHASSIS_LABEL, GATEWAY_LABEL, SOON, SYSTEM_NAMESPACE, World, job_has};
use crate::harness::{until, until_true};
use crate::history;

/// Every step the source marks, so that a new one is tested without a word here.
fn steps() -> BTreeSet<String> {
    fn collect(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                for rest in text.split("step(\"").skip(1) {
                    found.extend(rest.split('"').next().map(str::to_owned));
                }
            }
        }
    }
    let mut found = BTreeSet::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/controller"), &mut found);
    found
}

/// The lease of a killed holder ends by itself after its duration (its own test); here nobody is to wait for it at every step.
fn end_lease(world: &World) {
    for lease in world.kube.list(LEASE, SYSTEM_NAMESPACE, "") {
        world.kube.delete(LEASE, SYSTEM_NAMESPACE, lease["metadata"]["name"].as_str().unwrap());
    }
}

/// Waits until the first replica has killed itself, or `done` says that the work ended without passing its step.
fn killed(world: &mut World, mut done: impl FnMut(&World) -> bool) -> bool {
    let mut killed = None;
    until("the first replica to die at its step, or the end of the work", SOON, || {
        if let Some(status) = world.controllers[0].try_wait() {
            killed = Daemon::was_killed_by(status);
            return if killed == Some(9) {
                Ok(())
            } else {
                panic!("the controller ended with {status}: {}", world.controllers[0].log_tail(20))
            };
        }
        if done(world) { Ok(()) } else { Err("neither yet") }
    });
    killed.is_some()
}

/// One whole life of a node with the first replica set to die at `step`. Says whether it did.
fn drain_with_crash_at(step: &str) -> bool {
    let node = "row07-a";
    let mut world = World::new("row07", Shape::default().without_northd());
    world.create_chassis(json!({}));
    world.add_node(node, true, true);
    world.start_controller(&[], &[("OVN_CHASSIS_STOP_AT", step)]);
    let mut dead = false;
    let mut take_over = |world: &mut World, done: &mut dyn FnMut(&World) -> bool| {
        if !dead && killed(world, done) {
            dead = true;
            world.start_controller(&[], &[]);
            end_lease(world);
        }
    };

    let account = format!("{}-agent", world.chassis);
    take_over(&mut world, &mut |w| {
        w.kube.get(crate::harness::kube_api::SERVICE_ACCOUNT, &w.namespace, &account).is_some()
    });
    world.start_agent(node);
    take_over(&mut world, &mut |w| {
        w.record(node).is_some_and(|r| r["configHash"].is_string() && r["gateway"] == json!(true))
    });
    world.wait_applied(node);

    let id = world.recorded_system_id(node);
    world.central.seed_chassis(&[&id, "foreign"]);
    world.seed_gateway_ports("lr0", 3, &[(&id, 2), ("foreign", 1)]);
    world.seed_ha_group("lr0", "group0", &[(&id, 2), ("foreign", 1)]);
    world.seed_gateway_ports("alone", 1, &[(&id, 2)]);
    let monitor = |database: &crate::harness::central::Database, table, column| {
        RowMonitor::start(&database.members[0].socket, database.schema.database(), table, column)
    };
    let gateways = ["Gateway_Chassis", "HA_Chassis"].map(|t| monitor(&world.central.northbound, t, "chassis_name"));
    let registrations = monitor(&world.central.southbound, "Chassis", "name");

    world.label(node, &[(GATEWAY_LABEL, None)]);
    take_over(&mut world, &mut |w| w.job("evacuate", node).is_some_and(|j| job_has(&j, "Complete")));
    world.wait_job("evacuate", node, "Complete");
    world.wait_evacuated(node);
    world.label(node, &[(CHASSIS_LABEL, None)]);
    take_over(&mut world, &mut |w| w.job("chassis-del", node).is_some_and(|j| job_has(&j, "Complete")));
    world.wait_job("chassis-del", node, "Complete");
    world.wait_forgotten(node);
    world.wait_condition("MaintenanceReady", "True", "MaintenanceIdle");
    // Field cases 18 and 23: who is left without a gateway is said, whoever of the two took the rows away.
    until("the port without any gateway to be named", SOON, || {
        let said: Vec<String> = world
            .events("PortsWithoutGateway")
            .iter()
            .map(|e| e["note"].to_string() + &e["message"].to_string())
            .collect();
        if said.iter().any(|s| s.contains("alone-p0") && !s.contains("lr0-")) {
            Ok(())
        } else {
            Err(format!("step {step}: {said:?}"))
        }
    });

    assert_eq!(world.central.gateway_rows(), ["foreign"; 4], "step {step}");
    assert_eq!(world.central.chassis_names(), ["foreign"], "step {step}");
    assert_eq!(gateways.iter().map(|m| m.deletions(&id)).sum::<usize>(), 5, "step {step}: each row is deleted once");
    assert_eq!(registrations.deletions(&id), 1, "step {step}: the registration is deleted once");
    let mut uids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for version in world.recorder.history().iter().filter(|v| v.kind == JOB) {
        uids.entry(version.name().to_owned())
            .or_default()
            .insert(version.object["metadata"]["uid"].as_str().unwrap().to_owned());
    }
    for kind in ["evacuate", "chassis-del"] {
        assert_eq!(
            uids.get(&world.job_name(kind, node)).map(BTreeSet::len),
            Some(1),
            "step {step}: one Job {kind}: {uids:?}"
        );
    }
    history::assert_holds(&world);
    history::assert_confirmed_first(&world, &gateways.each_ref());
    dead
}

/// Steps that this life does not take: its ports do not have to move (`make_before_break` kills a leader there), no Job of
/// it fails, no role comes back, and its OVNChassis stays.
const OF_OTHER_LIVES: [&str; 8] = [
    "before-lowering",
    "priority-lowered",
    "priority-restored",
    "cause-pod-created",
    "job-failed",
    "job-deleted",
    "finalizer-removed",
    "objects-removed",
];

#[test]
fn row07_a_controller_killed_at_any_step_is_replaced_and_the_end_is_the_same() {
    let steps = steps();
    assert!(steps.len() >= 5, "the source marks its steps: {steps:?}");
    let mut reached = BTreeSet::new();
    for step in &steps {
        let started = std::time::Instant::now();
        let dead = drain_with_crash_at(step);
        println!(
            "{step}: {} in {:?}",
            if dead { "killed there, taken over" } else { "not passed in this life" },
            started.elapsed()
        );
        if dead {
            reached.insert(step.clone());
        }
    }
    let missed: Vec<_> = steps.difference(&reached).collect();
    println!("{} of {} steps were passed; not passed: {missed:?}", reached.len(), steps.len());
    let unexpected: Vec<_> = missed.iter().filter(|step| !OF_OTHER_LIVES.contains(&step.as_str())).collect();
    assert!(unexpected.is_empty(), "this life should pass every step but those of others; not passed: {unexpected:?}");
}

#[test]
fn row07_a_killed_leaders_lease_runs_out_and_the_second_replica_goes_on() {
    let mut world = World::ready("row07-lease", Shape::default().without_northd(), &["row07-l"], &["row07-l"]);
    world.start_controller(&[], &[]);
    let id = world.recorded_system_id("row07-l");
    world.seed_gateway_ports("lr0", 1, &[(&id, 1)]);
    world.controllers[0].kill();
    let started = std::time::Instant::now();
    world.label("row07-l", &[(GATEWAY_LABEL, None)]);
    until_true("the second replica to evacuate", Duration::from_secs(60), || {
        world.record("row07-l").is_some_and(|r| r["gatewayEvacuated"] == json!(true))
    });
    println!("taken over and evacuated after {:?}", started.elapsed());
    history::assert_holds(&world);
}

#[test]
fn row07_a_leader_that_was_paused_past_its_lease_writes_nothing_when_it_wakes() {
    let mut world = World::ready("row07-pause", Shape::default().without_northd(), &["row07-p"], &["row07-p"]);
    let id = world.recorded_system_id("row07-p");
    world.seed_gateway_ports("lr0", 2, &[(&id, 1)]);
    world.start_controller(&[], &[]);
    world.controllers[0].pause();
    end_lease(&world);
    world.label("row07-p", &[(GATEWAY_LABEL, None)]);
    world.wait_evacuated("row07-p");
    world.label("row07-p", &[(GATEWAY_LABEL, Some("true"))]);
    world.wait_gateway("row07-p");
    let before = world.chassis_object();
    // It still believes in the drain that it saw half of.
    world.controllers[0].resume();
    std::thread::sleep(Duration::from_secs(3));
    let after = world.chassis_object();
    assert_eq!(before["status"]["nodes"], after["status"]["nodes"]);
    assert_eq!(world.central.gateway_rows().len(), 0);
    history::assert_holds(&world);
}
