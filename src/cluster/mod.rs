//! Kubernetes at arm's length: every call has a deadline and an error that names its object, every watch feeds a cache
//! that never steps back behind our own writes.

pub mod cache;
pub mod call;
pub mod connect;
pub mod events;
pub mod jobs;
pub mod lease;
pub mod watch;

pub use cache::{Cache, ObjectKey};
pub use call::{ClusterError, call, call_within};
pub use connect::connect;
