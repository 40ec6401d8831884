//! Row 16: from the label's removal to `gatewayEvacuated: true`, measured over many drains. `make bench` runs it; nothing here asserts a time.
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::central::Shape;
use crate::harness::kube_api::OVN_CHASSIS;
use crate::harness::until;
use crate::harness::world::{GATEWAY_LABEL, SOON, World, record_in};

#[test]
#[ignore = "a measurement: `make bench`"]
fn bench_label_to_evacuated() {
    let drains: usize = std::env::var("OVN_CHASSIS_DRAINS").ok().and_then(|v| v.parse().ok()).unwrap_or(200);
    let world = World::ready("bench", Shape::raft().without_northd(), &["bench-a"], &["bench-a"]);
    let id = world.recorded_system_id("bench-a");
    world.central.seed_chassis(&[&id, "foreign"]);
    world.seed_gateway_ports("lr0", 20, &[(&id, 2), ("foreign", 1)]);
    let restore: Vec<String> = (0..20)
        .flat_map(|p| ["--", "lrp-set-gateway-chassis", &format!("lr0-p{p}"), &id, "2"].map(str::to_owned))
        .collect();
    let restore: Vec<&str> = restore.iter().map(String::as_str).collect();

    let mut seconds = Vec::with_capacity(drains);
    for _ in 0..drains {
        let version = world.chassis_object()["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let started = Instant::now();
        world.label("bench-a", &[(GATEWAY_LABEL, None)]);
        // The recorder's watch is a reader like any other: the moment at which it is told counts, and no polling adds to it.
        let shown = |o: &Value| record_in(o, "bench-a").is_some_and(|r| r["gatewayEvacuated"] == json!(true));
        let at = world.recorder.wait_for("the evacuation", OVN_CHASSIS, version, shown).at;
        seconds.push((at - started).as_secs_f64());
        world.central.nbctl(&restore);
        world.label("bench-a", &[(GATEWAY_LABEL, Some("true"))]);
        until("the role to be back", SOON, || match world.record("bench-a") {
            Some(record) if record["gateway"] == json!(true) && record["gatewayEvacuated"].is_null() => Ok(()),
            other => Err(format!("{other:?}")),
        });
        world.wait_applied("bench-a");
        std::thread::sleep(Duration::from_millis(20));
        let rows = world.central.gateway_rows().iter().filter(|n| **n == id).count();
        assert!(rows == 0 || rows == 20, "{rows} of 20 rows restored");
        if rows == 0 {
            world.central.nbctl(&restore);
        }
    }
    seconds.sort_by(f64::total_cmp);
    let quantile = |q: f64| seconds[((seconds.len() as f64 * q).ceil() as usize).clamp(1, seconds.len()) - 1];
    let (p50, p99) = (quantile(0.50), quantile(0.99));
    println!("{:<24} {:>6} {:>9} {:>9}", "name", "n", "p50_s", "p99_s");
    println!("{:<24} {drains:>6} {p50:>9.3} {p99:>9.3}", "label-to-evacuated");
    write_row(json!({"name": "label-to-evacuated", "n": drains, "p50_s": p50, "p99_s": p99}));
}

/// Puts one row into target/bench.json and keeps those of other measurements.
fn write_row(row: Value) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench.json");
    let mut rows: Vec<Value> =
        std::fs::read(&path).ok().and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default();
    rows.retain(|r| r["name"] != row["name"]);
    rows.push(row);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, serde_json::to_string_pretty(&rows).unwrap() + "\n").unwrap();
}
