//! Turns labels into settings, evacuates, deregisters and keeps status.

pub mod objects;
