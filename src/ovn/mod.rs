//! What OVN's central databases mean to us: typed views of their rows, and transactions as data.
//!
//! Planning and parsing are pure. The few async functions named `fetch_…` and `commit_…` put a plan through an OVSDB
//! client, check every element of the reply and hand back a typed outcome; each has a deadline and may be called again.

pub mod northbound;
pub mod southbound;
