//! Decides, and nothing else: no clock, no client, no environment. What was observed goes in, a plan comes out.
//!
//! | file | decides |
//! | --- | --- |
//! | [`owner`] | whose a node is |
//! | [`identity`] | under which id it registers |
//! | [`order`] | about one node: which of the others has the word |
//! | [`wanted`] | what the node is to be |
//! | [`gateway_ports`] | which gateway ports have to move, and which nobody else can take |
//! | [`before_gateway_off`] | how they move before the role goes |
//! | [`gateway`] | how gateway duties go away |
//! | [`leaving`] | how a node is deregistered and forgotten |
//! | [`status`] | conditions of the OVNChassis |
//! | [`roll`] | how a gateway's role goes and comes back around a roll |
//! | [`handover`] | which standby pods may take over |
//! | [`predecessors`] | which daemons hold no locks, so that nothing can stand by behind them |
//! | [`central`] | where the databases are |

pub mod before_gateway_off;
pub mod central;
pub mod gateway;
pub mod gateway_ports;
pub mod handover;
pub mod identity;
pub mod leaving;
pub mod order;
pub mod owner;
pub mod plan;
pub mod predecessors;
pub mod reason;
pub mod roll;
pub mod standing;
pub mod status;
pub mod view;
pub mod wanted;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use order::decide;
pub use plan::{Entry, JobChange, Plan, Step};
pub use reason::Reason;
pub use view::NodeView;
