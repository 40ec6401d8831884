//! Runs, drains and restarts OVN chassis nodes on Kubernetes.
//!
//! A label change travels one way: *observe* (watches and databases become plain views), *decide* (a pure function
//! turns views into a plan), *act* (the plan's steps, each with a deadline), *report* (status, conditions, events).
//!
//! Layers, each using only those before it: [`model`], [`api`], [`ovsdb`], [`ovn`] and [`ovs`], [`cluster`] and [`ops`],
//! [`agent`], [`hook`] and [`controller`], [`cli`]. `tests/layers.rs` holds them to it.

// A panic is never the answer to bad input: what ships has no unwrap, expect or indexing.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

pub mod agent;
pub mod api;
pub mod cli;
pub mod cluster;
pub mod controller;
pub mod hook;
pub mod model;
pub mod ops;
pub mod ovn;
pub mod ovs;
pub mod ovsdb;
