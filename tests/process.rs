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

#[path = "process/bench.rs"]
mod bench;
#[path = "process/by_command.rs"]
mod by_command;
#[path = "process/first_roll.rs"]
mod first_roll;
#[path = "process/gateways.rs"]
mod gateways;
#[path = "process/history.rs"]
mod history;
#[path = "process/leaving.rs"]
mod leaving;
#[path = "process/make_before_break.rs"]
mod make_before_break;
#[path = "process/rotation.rs"]
mod rotation;
#[path = "process/row02_guide.rs"]
mod row02_guide;
#[path = "process/row03_databases.rs"]
mod row03_databases;
#[path = "process/row04_flips.rs"]
mod row04_flips;
#[path = "process/row05_row06_failures.rs"]
mod row05_row06_failures;
#[path = "process/row07_crashes.rs"]
mod row07_crashes;
#[path = "process/row08_raft.rs"]
mod row08_raft;
#[path = "process/row09_invalid.rs"]
mod row09_invalid;
#[path = "process/row10_owners.rs"]
mod row10_owners;
#[path = "process/row11_agent_rights.rs"]
mod row11_agent_rights;
#[path = "process/row12_identity.rs"]
mod row12_identity;
#[path = "process/row14_settings.rs"]
mod row14_settings;
#[path = "process/row17_conditions.rs"]
mod row17_conditions;

#[path = "process/rendered_objects.rs"]
mod rendered_objects;
#[path = "process/turns.rs"]
mod turns;
