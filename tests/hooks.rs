//! The hooks against real daemons: `ovsdb-server`, `ovs-vswitchd` (its datapath in user space) and `ovn-controller`,
//! each test in folders of its own.
//!
//! A "pod" here is a uid and the processes that carry it; what a test asserts is what a user could see: which
//! processes live, what the hooks exit with and how long they take, what the database holds.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic: that is how it fails"
)]

#[path = "hooks/node.rs"]
mod node;

#[path = "hooks/start.rs"]
mod start;

#[path = "hooks/stop.rs"]
mod stop;

#[path = "hooks/two_pods.rs"]
mod two_pods;

#[path = "hooks/chassis.rs"]
mod chassis;

#[path = "hooks/pid_namespace.rs"]
mod pid_namespace;

#[path = "hooks/revalidators.rs"]
mod revalidators;

#[path = "hooks/warm_restart.rs"]
mod warm_restart;

#[path = "hooks/user_space.rs"]
mod user_space;

#[path = "hooks/tunnels.rs"]
mod tunnels;
