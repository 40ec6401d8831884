//! Turns labels into settings, evacuates, deregisters and keeps status.
//!
//! ```text
//! watches, databases -> observe -> decide (pure) -> act -> report
//!                          ^                                  |
//!                          +---- caches, own writes at once --+
//! ```
//!
//! One worker for each node, one for each OVNChassis, one writer of each status: [`wake`] starts and wakes them. Nothing
//! runs without the lease, and the claim is checked before each write.

pub mod act;
pub mod chassis_worker;
pub mod databases;
pub mod decide;
pub mod metrics;
mod moving;
pub mod node_worker;
pub mod objects;
pub mod observe;
pub mod report;
pub mod run;
pub mod settings;
pub mod wake;
pub mod watched;
pub mod world;

pub use run::run;
pub use settings::ControllerArgs;
