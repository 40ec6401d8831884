//! One job, done by us or by the OVN tools, in a process of its own.

use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use ovn_chassis::model::ids::SystemId;
use ovn_chassis::ovn::northbound::{self, ChassisRows, commit_evacuation_of, fetch_gateway_view};
use ovn_chassis::ovn::southbound::commit_chassis_del;
use ovn_chassis::ovsdb::{Client, Replica, ServerNames, Settings, TlsFiles, TlsSource};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::proxy::Traffic;
use crate::{PATIENCE, seed};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Job {
    Evacuate,
    ChassisDel,
}

impl Job {
    fn as_str(self) -> &'static str {
        match self {
            Self::Evacuate => "evacuate",
            Self::ChassisDel => "chassis-del",
        }
    }

    /// Tables and columns in which the chassis must not be named afterwards.
    pub fn rows_that_go(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Evacuate => &[("Gateway_Chassis", "chassis_name"), ("HA_Chassis", "chassis_name")],
            Self::ChassisDel => &[("Chassis", "name"), ("Chassis_Private", "name"), ("Encap", "chassis_name")],
        }
    }
}

/// A server and what it takes to speak to it.
pub struct Target {
    pub remote: String,
    pub ca: String,
    pub certificate: String,
    pub key: String,
}

#[derive(Clone, Copy, Default)]
pub struct Measured {
    pub job: Duration,
    pub connect: Duration,
    pub job_bytes: u64,
    pub connect_bytes: u64,
    /// Before an evacuation: which ports hang on the chassis and who else could take each of them.
    pub view: Duration,
    pub view_bytes: u64,
    pub rss_kb: u64,
}

fn seconds(value: &Value, key: &str) -> Duration {
    Duration::from_secs_f64(value[key].as_f64().unwrap())
}

/// Starts this program again as [`ours`]: it connects, says so, and does the job when told.
pub async fn run_ours(job: Job, target: &Target, traffic: Option<&Traffic>) -> Measured {
    let before = traffic.map_or(0, Traffic::total);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["ours", job.as_str(), &target.remote, &target.ca, &target.certificate, &target.key])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut told = child.stdin.take().unwrap();
    let mut answer = async |command: &str| -> (Value, u64) {
        told.write_all(command.as_bytes()).await.unwrap();
        let line = lines.next_line().await.unwrap().unwrap();
        (serde_json::from_str(&line).unwrap(), traffic.map_or(0, Traffic::total))
    };
    let (connected, at_connect) = answer("").await;
    let mut measured = Measured {
        connect: seconds(&connected, "connect_s"),
        connect_bytes: at_connect - before,
        ..Measured::default()
    };
    let mut at_start = at_connect;
    if job == Job::Evacuate && traffic.is_some() {
        // Not in the timed runs: what it leaves in memory would count for the job.
        let (view, at_view) = answer("view\n").await;
        measured.view = seconds(&view, "view_s");
        measured.view_bytes = at_view - at_start;
        at_start = at_view;
    }
    let (done, at_end) = answer("go\n").await;
    assert!(child.wait().await.unwrap().success());
    measured.job = seconds(&done, "job_s");
    measured.job_bytes = at_end - at_start;
    measured.rss_kb = done["rss_kb"].as_u64().unwrap();
    measured
}

/// The process: what the controller does with its connected client, which follows who is named where.
pub async fn ours(arguments: &[String]) {
    let [job, remote, ca, certificate, key] = arguments else { panic!("ours JOB REMOTE CA CERTIFICATE KEY") };
    let begin = Instant::now();
    let evacuate = job == Job::Evacuate.as_str();
    let database = if evacuate { "OVN_Northbound" } else { "OVN_Southbound" };
    let files = TlsFiles { ca: ca.into(), certificate: certificate.into(), key: key.into() };
    let settings =
        Settings::new(remote.parse().unwrap(), database).with_tls(TlsSource::Files(files), ServerNames::ChainOnly);
    let client = Client::spawn(settings);
    client.connected(PATIENCE).await.unwrap();
    let mut view = None;
    if evacuate {
        let mut followed = client.follow(northbound::followed()).await.unwrap();
        followed.until(PATIENCE, |_| true).await.unwrap();
        view = Some(followed);
    }
    println!("{}", json!({"connect_s": begin.elapsed().as_secs_f64()}));
    let chassis = SystemId::new(seed::leaving());
    let told = || {
        let mut line = String::new();
        // The client's task runs on another thread meanwhile.
        std::io::stdin().read_line(&mut line).unwrap();
        line
    };
    if told() == "view\n" {
        let begin = Instant::now();
        assert!(!fetch_gateway_view(&client, &chassis, PATIENCE).await.unwrap().ports.is_empty());
        println!("{}", json!({"view_s": begin.elapsed().as_secs_f64()}));
        told();
    }
    let begin = Instant::now();
    if let Some(view) = &view {
        let known = ChassisRows::in_replica(&view.current().unwrap(), &chassis);
        assert!(commit_evacuation_of(&client, known, &[], PATIENCE).await.unwrap().rows() > 0);
    } else {
        assert_eq!(commit_chassis_del(&client, &chassis, PATIENCE).await.unwrap().chassis, 1);
    }
    let job_s = begin.elapsed().as_secs_f64();
    if let Some(mut view) = view {
        // The bytes that tell the view of its own job's end are the job's too.
        let gone = |replica: &Replica| ChassisRows::in_replica(replica, &chassis).is_empty();
        view.until(PATIENCE, gone).await.unwrap();
    }
    println!("{}", json!({"job_s": job_s, "rss_kb": own_peak_kb()}));
}

/// Not by `getrusage`: that one counts what the parent held when it forked.
fn own_peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The job by the OVN tools. The largest of their processes counts for memory. `None` if one of them failed: on a machine
/// that stands still for seconds they lose their connection, and wait for ever unless they are given a time.
pub async fn run_baseline(job: Job, target: &Target) -> Option<Measured> {
    let program = if job == Job::Evacuate { "ovn-nbctl" } else { "ovn-sbctl" };
    let mut total = Measured::default();
    let mut tool = async |arguments: &[&str]| -> Option<String> {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["wrap", program])
            .arg(format!("--db={}", target.remote))
            .arg(format!("--private-key={}", target.key))
            .arg(format!("--certificate={}", target.certificate))
            .arg(format!("--ca-cert={}", target.ca))
            .args(["--format=json", "--timeout=60"])
            .args(arguments)
            .output()
            .await
            .unwrap();
        if !output.status.success() {
            eprintln!("{program} failed: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        let stderr = String::from_utf8(output.stderr).unwrap();
        let usage: Value = serde_json::from_str(stderr.lines().last().unwrap()).unwrap();
        total.job += seconds(&usage, "job_s");
        total.rss_kb = total.rss_kb.max(usage["rss_kb"].as_u64().unwrap());
        Some(String::from_utf8(output.stdout).unwrap())
    };
    let chassis = seed::leaving();
    if job == Job::ChassisDel {
        tool(&["chassis-del", &chassis]).await?;
        return Some(total);
    }
    let named = format!("chassis_name={chassis}");
    let find = |table: &'static str| ["--columns=_uuid", "find", table, named.as_str()];
    let holders = |table: &'static str, column: &'static str| [column, "list", table];
    let look = [
        &find("Gateway_Chassis")[..],
        &["--"],
        &find("HA_Chassis")[..],
        &["--"],
        &holders("Logical_Router_Port", "--columns=_uuid,gateway_chassis")[..],
        &["--"],
        &holders("HA_Chassis_Group", "--columns=_uuid,ha_chassis")[..],
    ]
    .concat();
    let found = tool(&look).await?;
    let removals = removals(&found);
    let removals: Vec<&str> = removals.iter().map(String::as_str).collect();
    tool(&removals).await?;
    let left = tool(&[&find("Gateway_Chassis")[..], &["--"], &find("HA_Chassis")[..]].concat()).await?;
    assert!(!left.contains("uuid\",\""), "rows are left: {left}");
    Some(total)
}

/// The arguments of the one call that takes every row out of whatever holds it.
fn removals(found: &str) -> Vec<String> {
    let tables: Vec<Value> =
        serde_json::Deserializer::from_str(found).into_iter().map(|table| table.unwrap()).collect();
    let uuids = |value: &Value| -> Vec<String> {
        let text = value.to_string();
        text.split('"').filter(|part| part.len() == 36).map(str::to_owned).collect()
    };
    let rows = |at: usize| -> std::collections::BTreeSet<String> { uuids(&tables[at]["data"]).into_iter().collect() };
    let mut arguments = Vec::new();
    for (ours, holders, table, column) in [
        (rows(0), &tables[2], "Logical_Router_Port", "gateway_chassis"),
        (rows(1), &tables[3], "HA_Chassis_Group", "ha_chassis"),
    ] {
        for holder in holders["data"].as_array().unwrap() {
            let own = uuids(&holder[0]);
            for row in uuids(&holder[1]).into_iter().filter(|row| ours.contains(row)) {
                if !arguments.is_empty() {
                    arguments.push("--".to_owned());
                }
                arguments.extend(["remove", table, &own[0], column, &row].map(str::to_owned));
            }
        }
    }
    arguments
}

/// Runs one command and tells, in the last line of stderr, how long it took and how much memory it had at most.
pub fn wrap(arguments: &[String]) {
    let begin = Instant::now();
    let status = std::process::Command::new(&arguments[0]).args(&arguments[1..]).status().unwrap();
    let job_s = begin.elapsed().as_secs_f64();
    let rss_kb = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss();
    eprintln!("{}", json!({"job_s": job_s, "rss_kb": rss_kb}));
    std::process::exit(status.code().unwrap_or(1));
}
