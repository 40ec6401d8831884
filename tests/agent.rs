//! The agent alone: a real API server that knows our kinds, roles and policy, a real node database, and a test that
//! plays the controller.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic: that is how it fails"
)]

mod harness;

#[path = "agent/stage.rs"]
mod stage;

#[path = "agent/revalidators.rs"]
mod revalidators;

#[path = "agent/settings.rs"]
mod settings;

#[path = "agent/trouble.rs"]
mod trouble;

#[path = "agent/two_agents.rs"]
mod two_agents;
