//! Named points in the work at which a test can kill the process.

use std::sync::OnceLock;

/// Environment variable with the name of the step at which the process kills itself.
pub const STOP_AT_VARIABLE: &str = "OVN_CHASSIS_STOP_AT";

/// Marks a point between two outward effects.
///
/// Does nothing unless [`STOP_AT_VARIABLE`] names it: then the process ends by SIGKILL, without any clean-up, as a
/// crash would. Tests walk all names and check that a second replica ends in the same state.
pub fn step(name: &str) {
    static STOP_AT: OnceLock<Option<String>> = OnceLock::new();
    let stop_at = STOP_AT.get_or_init(|| std::env::var(STOP_AT_VARIABLE).ok().filter(|v| !v.is_empty()));
    if stop_at.as_deref() == Some(name) {
        tracing::warn!(step = name, "killed here as {STOP_AT_VARIABLE} asks");
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
        // Nothing may happen between the signal's sending and its arrival.
        loop {
            std::thread::park();
        }
    }
}
