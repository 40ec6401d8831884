//! What the central databases cost us and what they cost the OVN tools, measured in one run.
//!
//! `cargo bench --bench central` seeds a Northbound with 5,000 and 20,000 router ports and a Southbound with 20,000 port
//! bindings, does each job both ways over TLS, and writes the rows to `target/bench.json`.
//!
//! - *Ours* is a process of its own that does what the controller does: its client is connected and follows the names
//!   of the candidates already when the job starts, and what the job's own changes cost there is counted with the job.
//!   Connecting and the first reading are measured too and stand in columns of their own: the controller pays them once.
//! - Naming the ports with all their other candidates beforehand, as `lastGateway: Hold` asks for and the tools' way does
//!   not do, is not part of the job either; what it costs stands in columns of its own.
//! - *Baseline* is the same job by processes of `ovn-nbctl` or `ovn-sbctl`: look, one call that changes, look again;
//!   `ovn-sbctl chassis-del` for the deletion. Their time is from the start of the process to its end.
//! - Times are taken on a direct connection, the median of three; bytes in a run of their own through a counting proxy.
//!   Before each run the server starts again from the same file.
//! - Ports, rows and names are as Neutron makes them: three candidates for each port, 50 gateway chassis, so 6 of 100
//!   ports name the one that leaves (300 of 5,000 and 1,200 of 20,000).

#[path = "../ovsdb_server/certificates.rs"]
#[expect(dead_code, reason = "shared with the tests, which use all of it")]
mod certificates;
#[path = "../ovsdb_server/launch.rs"]
#[expect(dead_code, reason = "shared with the tests, which use all of it")]
mod launch;
mod measure;
#[path = "../ovsdb_server/proxy.rs"]
#[expect(dead_code, reason = "shared with the tests, which use all of it")]
mod proxy;
mod report;
mod seed;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use certificates::Authority;
use launch::{NORTHBOUND, PORT, SOUTHBOUND, Server, Transport};
use measure::{Job, Measured, Target};
use proxy::Proxy;
use report::Figures;

/// Timed runs of each way.
const REPETITIONS: usize = 3;

struct Case {
    name: &'static str,
    database: (&'static str, &'static str),
    size: usize,
    job: Job,
    /// At least this many times faster, at most this part of the bytes.
    goal: (f64, u64),
}

const CASES: [Case; 3] = [
    Case { name: "evacuate-5000", database: NORTHBOUND, size: 5_000, job: Job::Evacuate, goal: (10.0, 200) },
    Case { name: "evacuate-20000", database: NORTHBOUND, size: 20_000, job: Job::Evacuate, goal: (10.0, 200) },
    Case { name: "chassis-del-20000", database: SOUTHBOUND, size: 20_000, job: Job::ChassisDel, goal: (50.0, 1_000) },
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match arguments.first().map(String::as_str) {
        // The two processes that this one starts.
        Some("ours") => runtime.block_on(measure::ours(&arguments[1..])),
        Some("wrap") => measure::wrap(&arguments[1..]),
        _ => runtime.block_on(all()),
    }
}

async fn all() {
    let mut rows = Vec::new();
    for case in &CASES {
        eprintln!("{}: seeding", case.name);
        let folder = tempfile::tempdir().unwrap();
        rows.push(run_case(case, folder.path()).await);
    }
    report::print(&rows);
    report::write(&rows);
}

async fn run_case(case: &Case, folder: &Path) -> Figures {
    let authority = Authority::new("bench");
    let mut server = Server::standalone(folder, case.database, Transport::Tls(&authority));
    seed::fill(&server, case.database.0, case.size).await;
    server.kill();
    let (file, kept) = (folder.join("db"), folder.join("db.seeded"));
    launch::run("ovsdb-tool", &["compact", &file.display().to_string()]);
    std::fs::copy(&file, &kept).unwrap();
    let material = authority.client();
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.join(name), bytes).unwrap();
        folder.join(name).display().to_string()
    };
    let target = |remote: String| Target {
        remote,
        ca: write("client-ca.pem", &material.ca),
        certificate: write("client-cert.pem", &material.certificate),
        key: write("client-key.pem", &material.key),
    };
    let server_address = SocketAddr::new(server.address, PORT);
    // In front of the server under an address of its own; the server's certificate is checked by its chain there.
    let proxy = Proxy::start(SocketAddr::new(launch::own_address(), 0), server_address).await;
    let direct = target(server.remote());
    let counted = target(format!("ssl:{}", proxy.address));

    let reset = |server: &mut Server| {
        server.kill();
        std::fs::copy(&kept, &file).unwrap();
        server.start();
    };
    let (mut ours, mut baseline) = (Vec::new(), Vec::new());
    for repetition in 1..=REPETITIONS {
        eprintln!("{}: run {repetition} of {REPETITIONS}", case.name);
        baseline.push(baseline_run(case.job, &direct, || reset(&mut server)).await);
        confirm(case.job, &server);
        reset(&mut server);
        ours.push(measure::run_ours(case.job, &direct, None).await);
        confirm(case.job, &server);
    }
    eprintln!("{}: counting bytes", case.name);
    let mut before = 0;
    let start = || {
        reset(&mut server);
        before = proxy.traffic.total();
    };
    baseline_run(case.job, &counted, start).await;
    let baseline_bytes = proxy.traffic.total() - before;
    reset(&mut server);
    let counted_ours = measure::run_ours(case.job, &counted, Some(&proxy.traffic)).await;
    let timed = median(ours);
    Figures {
        name: case.name,
        goal: case.goal,
        ours: Measured { job: timed.job, connect: timed.connect, rss_kb: timed.rss_kb, ..counted_ours },
        baseline: Measured { job_bytes: baseline_bytes, ..median(baseline) },
    }
}

/// A run of the tools on a fresh server, again if one of them fails.
async fn baseline_run(job: Job, target: &Target, mut reset: impl FnMut()) -> Measured {
    for _ in 0..3 {
        reset();
        if let Some(measured) = measure::run_baseline(job, target).await {
            return measured;
        }
    }
    panic!("the OVN tools failed three times");
}

/// That the job was done, read back by a tool that had no part in it.
fn confirm(job: Job, server: &Server) {
    let chassis = seed::leaving();
    for (table, column) in job.rows_that_go() {
        let found = server.ctl(&["--bare", "--columns=_uuid", "find", table, &format!("{column}={chassis}")]);
        assert_eq!(found, "", "{table} still names the chassis");
    }
}

fn median(mut runs: Vec<Measured>) -> Measured {
    runs.sort_by_key(|run| run.job);
    runs[runs.len() / 2]
}

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(120);
