//! Rows 5 and 6: a drain that cannot go on fails in time, says why, and harms no other node.
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::central::Shape;
use crate::harness::kube_api::{JOB, POD};
use crate::harness::proxy::Line;
use crate::harness::until;
use crate::harness::world::{CHASSIS_LABEL, GATEWAY_LABEL, SOON, World};
use crate::history;

fn world_with_deadline(test: &str, nodes: &[&str], seconds: &str) -> World {
    let mut world = World::new(test, Shape::default().without_northd());
    world.create_chassis(json!({}));
    for node in nodes {
        world.add_node(node, true, true);
    }
    world.start_controller(&["--job-deadline-seconds", seconds], &[]);
    for node in nodes {
        world.start_agent(node);
    }
    for node in nodes {
        world.wait_applied(node);
    }
    world
}

/// The pod that prints the cause for `kubectl logs job/…`: chosen as kubectl chooses it, by the Job's selector.
fn log_pod(world: &World, job: &Value) -> Value {
    let labels = job["spec"]["selector"]["matchLabels"].as_object().cloned().unwrap_or_default();
    assert!(!labels.is_empty(), "the Job has a selector: {}", job["spec"]);
    let selector: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    until("the pod that prints the cause", SOON, || {
        world
            .kube
            .list(POD, &world.namespace, &selector.join(","))
            .into_iter()
            .next()
            .ok_or("no pod with the Job's labels")
    })
}

fn row05(line: Line) {
    let world = world_with_deadline("row05", &["row05-a"], "3");
    let id = world.recorded_system_id("row05-a");
    world.seed_gateway_ports("lr0", 3, &[(&id, 1)]);
    let connections = world.connections("OVN_Northbound");
    world.central.northbound.set_lines(line);

    world.label("row05-a", &[(GATEWAY_LABEL, None)]);
    let job = world.wait_job("evacuate", "row05-a", "Failed");
    assert_eq!(job["spec"]["managedBy"], "ovn.openstack.c5c3.io/ovn-chassis");
    let failed = crate::harness::kube_api::condition(&job, "Failed").unwrap();
    assert_eq!(failed["reason"], "DeadlineExceeded", "{failed}");
    let names_the_database = |text: &str| text.contains("127.0.0.1") || text.to_lowercase().contains("northbound");
    assert!(names_the_database(failed["message"].as_str().unwrap()), "{failed}");

    let condition = world.wait_condition("MaintenanceReady", "False", "MaintenanceJobFailed");
    let message = condition["message"].as_str().unwrap();
    for words in ["evacuate", &world.job_name("evacuate", "row05-a"), "row05-a"] {
        assert!(message.contains(words), "{words:?} is missing in {message:?}");
    }
    world.wait_condition("Ready", "False", "");
    until(
        "the event",
        SOON,
        || if world.events("ChassisMaintenanceJobFailed").is_empty() { Err("none") } else { Ok(()) },
    );
    let record = world.record("row05-a").unwrap();
    assert_eq!(
        (&record["gateway"], &record["gatewayEvacuated"], &record["phase"]),
        (&json!(true), &json!(null), &json!("Failed")),
        "{record}"
    );

    let pod = log_pod(&world, &job);
    let (text, owner) = (pod["spec"].to_string(), &pod["metadata"]["ownerReferences"][0]);
    assert!(names_the_database(&text), "{text}");
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Job"), &job["metadata"]["uid"]));

    // Nothing is tried again before somebody says so.
    let version = job["metadata"]["resourceVersion"].clone();
    // What is still on its way in a stalled line is lost with it and does not arrive after all.
    world.central.northbound.set_lines(Line::Cut);
    std::thread::sleep(Duration::from_millis(200));
    world.central.northbound.set_lines(Line::Open);
    world.wait_connected("OVN_Northbound", connections);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(world.job("evacuate", "row05-a").map(|j| j["metadata"]["resourceVersion"].clone()), Some(version));
    assert!(world.central.gateway_rows().contains(&id));

    world.kube.delete(JOB, &world.namespace, &world.job_name("evacuate", "row05-a"));
    world.wait_job("evacuate", "row05-a", "Complete");
    world.wait_evacuated("row05-a");
    assert!(world.central.gateway_rows().is_empty());
    world.wait_condition("MaintenanceReady", "True", "MaintenanceIdle");
    history::assert_holds(&world);
}

#[test]
fn row05_northbound_that_refuses_connections_fails_the_job_in_time_and_says_why() {
    row05(Line::Cut);
}

#[test]
fn row05_northbound_that_does_not_answer_fails_the_job_in_time_and_says_why() {
    row05(Line::Stalled);
}

#[test]
fn row05_southbound_out_of_reach_fails_chassis_del_and_a_deleted_job_completes() {
    let world = world_with_deadline("row05-sb", &["row05-s"], "3");
    let id = world.recorded_system_id("row05-s");
    world.central.seed_chassis(&[&id]);
    world.label("row05-s", &[(GATEWAY_LABEL, None)]);
    world.wait_evacuated("row05-s");
    let connections = world.connections("OVN_Southbound");
    world.central.southbound.set_lines(Line::Cut);
    world.label("row05-s", &[(CHASSIS_LABEL, None)]);
    world.wait_job("chassis-del", "row05-s", "Failed");
    let condition = world.wait_condition("MaintenanceReady", "False", "MaintenanceJobFailed");
    assert!(condition["message"].as_str().unwrap().contains("chassis-del"), "{condition}");
    assert_eq!(world.record("row05-s").unwrap()["systemID"], json!(id), "the id outlives the failure");

    world.central.southbound.set_lines(Line::Open);
    world.wait_connected("OVN_Southbound", connections);
    world.kube.delete(JOB, &world.namespace, &world.job_name("chassis-del", "row05-s"));
    world.wait_forgotten("row05-s");
    assert!(world.central.chassis_names().is_empty());
    history::assert_holds(&world);
}

/// From the label's removal to the status that shows the evacuation.
fn time_of_drain(world: &World, node: &str) -> Duration {
    let started = Instant::now();
    world.label(node, &[(GATEWAY_LABEL, None)]);
    world.wait_evacuated(node);
    started.elapsed()
}

#[test]
fn row06_a_dead_agent_and_a_failed_job_hold_no_other_node_up() {
    let nodes = ["row06-a", "row06-b", "row06-c"];
    let mut world = world_with_deadline("row06", &nodes, "4");
    for node in nodes {
        let id = world.recorded_system_id(node);
        world.seed_gateway_ports(&format!("lr-{node}"), 2, &[(&id, 2)]);
    }
    let alone = time_of_drain(&world, "row06-c");

    world.node_mut("row06-a").agent.as_ref().unwrap().pause();
    world.label("row06-a", &[(GATEWAY_LABEL, None)]);
    let beside_dead_agent = time_of_drain(&world, "row06-b");
    assert!(
        beside_dead_agent < alone + Duration::from_secs(1),
        "{beside_dead_agent:?} beside a dead agent, {alone:?} alone"
    );

    let job = world.wait_job("apply", "row06-a", "Failed");
    let message = crate::harness::kube_api::condition(&job, "Failed").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("row06-a") && message.contains("agent"), "{message}");
    world.label("row06-b", &[(GATEWAY_LABEL, Some("true"))]);
    world.wait_gateway("row06-b");
    let beside_failed_job = time_of_drain(&world, "row06-b");
    assert!(
        beside_failed_job < alone + Duration::from_secs(1),
        "{beside_failed_job:?} beside a failed Job, {alone:?} alone"
    );
    println!("alone {alone:?}, beside a dead agent {beside_dead_agent:?}, beside a failed Job {beside_failed_job:?}");

    // The agent is back: its Job is deleted and the drain goes on from where it stood.
    world.node_mut("row06-a").agent.as_ref().unwrap().resume();
    world.kube.delete(JOB, &world.namespace, &world.job_name("apply", "row06-a"));
    world.wait_evacuated("row06-a");
    history::assert_holds(&world);
}

#[test]
fn field32_a_node_that_is_down_does_not_hold_up_another_ones_relabelling() {
    let nodes = ["field32-a", "field32-b"];
    let mut world = world_with_deadline("field32", &nodes, "60");
    // The whole node is away: its agent and its database.
    let down = world.node_mut("field32-a");
    down.agent.as_mut().unwrap().kill();
    down.database.kill();
    world.label("field32-a", &[(GATEWAY_LABEL, None)]);
    let id = world.recorded_system_id("field32-b");
    world.seed_gateway_ports("lr0", 2, &[(&id, 2)]);
    let took = time_of_drain(&world, "field32-b");
    assert!(took < Duration::from_secs(2), "{took:?}");
}
