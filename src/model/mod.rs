//! Ids, names, labels and condition reasons: pure data that every other layer may use.

pub mod conditions;
pub mod hash;
pub mod ids;
pub mod names;
