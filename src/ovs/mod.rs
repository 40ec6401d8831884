//! The node's own Open vSwitch and OVN tools: one process at a time, with a deadline and its stderr kept.
//!
//! Nothing here decides. [`run`] starts one process, [`vsctl`], [`appctl`], [`datapath`], [`revalidators`], [`tunnels`] and
//! [`schema`] say which one, [`leftover`] tells a live owner from what a dead one left, and [`rundir`] knows where sockets and pid files live.

pub mod appctl;
pub mod datapath;
pub mod leftover;
pub mod revalidators;
pub mod run;
pub mod rundir;
pub mod schema;
pub mod tunnels;
pub mod unixctl;
pub mod vsctl;
