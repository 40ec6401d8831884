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

#[path = "process/row09_invalid.rs"]
mod row09_invalid;

#[path = "process/row11_agent_rights.rs"]
mod row11_agent_rights;
