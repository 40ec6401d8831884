//! Process-level tests: real API server, real OVN databases and daemons, our controller and agents as processes. Nodes are API objects.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic: that is how it fails"
)]

mod harness;

#[path = "process/smoke.rs"]
mod smoke;

#[path = "process/history.rs"]
mod history;
#[path = "process/row02_guide.rs"]
mod row02_guide;
#[path = "process/row03_databases.rs"]
mod row03_databases;
#[path = "process/row04_flips.rs"]
mod row04_flips;
#[path = "process/row05_row06_failures.rs"]
mod row05_row06_failures;
#[path = "process/row09_invalid.rs"]
mod row09_invalid;

#[path = "process/row11_agent_rights.rs"]
mod row11_agent_rights;
