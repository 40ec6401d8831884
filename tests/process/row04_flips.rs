//! Row 4: hundreds of random label flips. Nothing in the history may break a rule, and the end never depends on the order.
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::central::Shape;
use crate::harness::kube_api::NODE;
use crate::harness::monitor::RowMonitor;
use crate::harness::world::{CHASSIS_LABEL, GATEWAY_LABEL, World};
use crate::history;

/// xorshift: the run is repeated by its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

const NODES: [&str; 3] = ["flip-a", "flip-b", "flip-c"];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// One random change of one node; the name of it.
fn flip(world: &World, dice: &mut Dice, node: &str) -> &'static str {
    let exists = world.kube.get(NODE, "", node).is_some();
    if !exists {
        world.create_node_object(node, true, dice.roll(3) > 0);
        return "node created";
    }
    let labels = |chassis: Option<Option<&str>>, gateway: Option<Option<&str>>| {
        let mut change = Vec::new();
        change.extend(chassis.map(|v| (CHASSIS_LABEL, v)));
        change.extend(gateway.map(|v| (GATEWAY_LABEL, v)));
        world.label(node, &change);
    };
    match dice.roll(10) {
        0 | 1 => (labels(None, Some(None)), "gateway off").1,
        2 | 3 => (labels(None, Some(Some("true"))), "gateway on").1,
        4 => (labels(Some(None), None), "chassis off").1,
        5 => (labels(Some(Some("true")), None), "chassis on").1,
        6 => (labels(Some(None), Some(None)), "both off").1,
        7 | 8 => (labels(Some(Some("true")), Some(Some("true"))), "both on").1,
        _ => (world.kube.delete(NODE, "", node), "node deleted").1,
    }
}

/// Gives a node that is a gateway right now something to deregister, and something to evacuate. One that leaves registers no
/// more: its pods have ended, and a row that came then would stay.
fn seed(world: &World, node: &str, round: usize) {
    let Some(object) = world.kube.get(NODE, "", node) else { return };
    let Some(record) = world.record(node) else { return };
    let stays = object["metadata"]["labels"][CHASSIS_LABEL] == "true" && record["leaving"] != json!(true);
    let (Some(id), true) = (record["systemID"].as_str(), stays && record["gateway"] == json!(true)) else { return };
    if !world.central.chassis_names().contains(&id.to_owned()) {
        world.central.seed_chassis(&[id]);
    }
    world.seed_gateway_ports(&format!("lr-{round}"), 2, &[(id, 5), ("foreign", 1)]);
    world.seed_ha_group(&format!("lr-{round}"), &format!("group-{round}"), &[(id, 5), ("foreign", 1)]);
}

#[test]
fn row04_random_label_flips_break_no_rule_and_the_end_does_not_depend_on_the_order() {
    let seed_of_run = number("OVN_CHASSIS_FLIP_SEED", u64::from(std::process::id()) * 7919 + 1);
    let flips = number("OVN_CHASSIS_FLIPS", 240) as usize;
    println!("repeat with OVN_CHASSIS_FLIP_SEED={seed_of_run}");
    let mut dice = Dice(seed_of_run);

    let world = World::ready("row04", Shape::default().without_northd(), &NODES, &NODES);
    let socket = world.central.northbound.members[0].socket.clone();
    let monitors = ["Gateway_Chassis", "HA_Chassis"]
        .map(|table| RowMonitor::start(&socket, "OVN_Northbound", table, "chassis_name"));
    world.central.seed_chassis(&["foreign"]);

    let (started, mut done) = (Instant::now(), 0);
    while done < flips {
        let node = NODES[dice.roll(3) as usize];
        if done % 5 == 0 {
            seed(&world, node, done);
        }
        let what = flip(&world, &mut dice, node);
        done += 1;
        // Half of the flips come while the one before is at work, some after it is done.
        let pause = [0, 5, 20, 60, 150, 400][dice.roll(6) as usize];
        println!("{done}: {node} {what}, then {pause} ms");
        std::thread::sleep(Duration::from_millis(pause));
    }

    // Whatever came before: without labels everything of ours is gone,
    for node in NODES {
        if world.kube.get(NODE, "", node).is_some() {
            world.label(node, &[(CHASSIS_LABEL, None), (GATEWAY_LABEL, None)]);
        }
    }
    for node in NODES {
        world.wait_forgotten(node);
    }
    world.wait_condition("MaintenanceReady", "True", "MaintenanceIdle");
    assert!(world.central.gateway_rows().iter().all(|name| name == "foreign"), "{:?}", world.central.gateway_rows());
    assert_eq!(world.central.chassis_names(), ["foreign"]);
    assert_eq!(world.chassis_object()["status"]["desiredNumberScheduled"], json!(0));

    // and with both labels everything is back.
    for node in NODES {
        if world.kube.get(NODE, "", node).is_none() {
            world.create_node_object(node, false, false);
        }
        world.label(node, &[(CHASSIS_LABEL, Some("true")), (GATEWAY_LABEL, Some("true"))]);
    }
    for node in NODES {
        world.wait_gateway(node);
        let record = world.record(node).unwrap();
        assert_eq!(
            (&record["gateway"], &record["gatewayEvacuated"], &record["leaving"]),
            (&json!(true), &json!(null), &json!(null)),
            "{record}"
        );
        assert!(world.node(node).external_id("ovn-cms-options").contains("enable-chassis-as-gw"));
    }

    history::assert_holds(&world);
    let confirmed = history::assert_confirmed_first(&world, &monitors.each_ref());
    println!(
        "{done} flips in {:?}, {confirmed} drains, {} versions recorded",
        started.elapsed(),
        world.recorder.history().len()
    );
    assert!(confirmed >= 10, "only {confirmed} drains were seen to their end");
}
