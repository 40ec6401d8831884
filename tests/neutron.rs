//! A real Neutron as the second writer of the Northbound (field case 24): run by `make test-neutron`, which installs it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic: that is how it fails"
)]

mod harness;

#[path = "neutron/chassis_side.rs"]
mod chassis_side;

#[path = "neutron/server.rs"]
mod server;

#[path = "neutron/transactions.rs"]
mod transactions;

#[path = "neutron/second_writer.rs"]
mod second_writer;
