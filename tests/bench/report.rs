//! The table for people and `target/bench.json` for programs.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::measure::Measured;

pub struct Figures {
    pub name: &'static str,
    pub goal: (f64, u64),
    pub ours: Measured,
    pub baseline: Measured,
}

impl Figures {
    fn ratio(&self) -> f64 {
        self.baseline.job.as_secs_f64() / self.ours.job.as_secs_f64()
    }

    fn to_json(&self) -> Value {
        let round = |number: f64, digits: i32| (number * 10_f64.powi(digits)).round() / 10_f64.powi(digits);
        json!({
            "name": self.name,
            "ours_s": round(self.ours.job.as_secs_f64(), 6),
            "baseline_s": round(self.baseline.job.as_secs_f64(), 6),
            "ratio": round(self.ratio(), 1),
            "ours_bytes": self.ours.job_bytes,
            "baseline_bytes": self.baseline.job_bytes,
            "ours_rss_kb": self.ours.rss_kb,
            "baseline_rss_kb": self.baseline.rss_kb,
            "ours_connect_s": round(self.ours.connect.as_secs_f64(), 6),
            "ours_connect_bytes": self.ours.connect_bytes,
            "ours_view_s": round(self.ours.view.as_secs_f64(), 6),
            "ours_view_bytes": self.ours.view_bytes,
        })
    }
}

pub fn print(rows: &[Figures]) {
    println!(
        "Ours on a connected client, the connection apart; baseline: processes of ovn-nbctl/ovn-sbctl from start to end."
    );
    println!(
        "{:<18} {:>9} {:>10} {:>7} {:>6} {:>10} {:>12} {:>7} {:>6} {:>9} {:>9} {:>11} {:>11} {:>9} {:>11}",
        "name",
        "ours ms",
        "baseline",
        "faster",
        "goal",
        "ours bytes",
        "baseline",
        "1/",
        "goal",
        "ours kB",
        "baseline",
        "connect ms",
        "its bytes",
        "naming ms",
        "its bytes"
    );
    for row in rows {
        println!(
            "{:<18} {:>9.1} {:>10.1} {:>6.1}x {:>5}x {:>10} {:>12} {:>7} {:>6} {:>9} {:>9} {:>11.1} {:>11} {:>9.1} {:>11}",
            row.name,
            row.ours.job.as_secs_f64() * 1e3,
            row.baseline.job.as_secs_f64() * 1e3,
            row.ratio(),
            row.goal.0,
            row.ours.job_bytes,
            row.baseline.job_bytes,
            row.baseline.job_bytes / row.ours.job_bytes.max(1),
            row.goal.1,
            row.ours.rss_kb,
            row.baseline.rss_kb,
            row.ours.connect.as_secs_f64() * 1e3,
            row.ours.connect_bytes,
            row.ours.view.as_secs_f64() * 1e3,
            row.ours.view_bytes,
        );
    }
}

fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target"), PathBuf::from)
}

/// Replaces our rows in the file and leaves those of other measurements.
pub fn write(rows: &[Figures]) {
    let path = target_folder().join("bench.json");
    let held = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Vec<Value>>(&bytes).ok());
    let mut all: Vec<Value> = rows.iter().map(Figures::to_json).collect();
    let others = held.unwrap_or_default().into_iter().filter(|row| rows.iter().all(|ours| row["name"] != ours.name));
    all.extend(others);
    std::fs::write(&path, serde_json::to_vec_pretty(&all).unwrap()).unwrap();
}
