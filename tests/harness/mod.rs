//! The process-level harness: real etcd and kube-apiserver, real OVN databases with TLS, northd, ovn-controller, our own binary as processes; nodes are API objects.
//!
//! Everything listens on loopback at ports of its own, keeps its files in one scratch folder per test and is ended by its own pid, whatever becomes of the test:
//! each child is its own process group, is killed when its handle is dropped, and is killed by the kernel when the test binary itself dies.
//!
//! A test takes a [`World`](world::World). Worlds share at most [`control_plane::LANES`] API servers, which are started once per test binary and lent to one test at a time,
//! because the controller works cluster-wide: two tests on one API server would see each other's OVNChassis.
#![allow(dead_code, reason = "each test binary uses its own part of the harness")]

pub mod binaries;
pub mod central;
pub mod control_plane;
pub mod daemon;
pub mod expect;
pub mod kube_api;
pub mod monitor;
pub mod node;
pub mod pki;
pub mod proxy;
pub mod recorder;
pub mod scratch;
pub mod seed;
pub mod world;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The one runtime of a test binary: clients, proxies and recorders outlive the test thread that made them.
pub fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a tokio runtime")
    })
}

/// Looks every 20 ms until `look` returns something; panics with `what` and the last thing seen after `limit`.
#[track_caller]
pub fn until<T, S: std::fmt::Display>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<T, S>) -> T {
    let started = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) if started.elapsed() > limit => {
                panic!("waited {:.1} s for {what}; last seen: {seen}", started.elapsed().as_secs_f64())
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Like [`until`] for a plain condition.
#[track_caller]
pub fn until_true(what: &str, limit: Duration, mut look: impl FnMut() -> bool) {
    until(what, limit, || if look() { Ok(()) } else { Err("not yet") });
}
