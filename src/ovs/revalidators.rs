//! The threads of `ovs-vswitchd` that take a datapath's flows away when the bridge's tables no longer say the same.
//!
//! Measured with 3.1.0: a resume that has no pause before it, and a pause that came while `flow-restore-wait` kept these
//! threads from starting, stop `ovs-vswitchd` for ever. So do, under a pause, `exit`, the removal of a bridge, and the
//! first bridge of another datapath type. Who calls [`pause`] owes exactly one [`resume`], to the same process.

use std::path::Path;
use std::time::Duration;

use super::unixctl::{UnixctlError, ask};

/// A local question; a daemon that needs longer is not well.
const QUESTION: Duration = Duration::from_secs(2);
/// The threads end their round first, which takes as long as a dump of the datapath's flows.
const PAUSE_WITHIN: Duration = Duration::from_secs(3);
/// A main loop that is busy answers late; one that does not answer for this long hangs.
const RESUME_WITHIN: Duration = Duration::from_secs(10);

/// Whether a pause would do what it is for, and no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fitness {
    /// Every datapath is the kernel's and has its threads.
    Fit,
    /// There is no datapath, or one whose threads do not run: `flow-restore-wait` is on, or there is no bridge yet.
    NoThreads,
    /// A datapath in user space, alone or beside the kernel's.
    NotTheKernels,
}

/// Looks at the datapaths of the process behind this socket.
pub async fn look(socket: &Path) -> Result<Fitness, UnixctlError> {
    Ok(judge(&ask(socket, "upcall/show", &[], QUESTION).await?))
}

/// Pauses them; when this returns well they stand still.
pub async fn pause(socket: &Path) -> Result<(), UnixctlError> {
    ask(socket, "revalidator/pause", &[], PAUSE_WITHIN).await.map(|_| ())
}

/// Lets them run again.
pub async fn resume(socket: &Path) -> Result<(), UnixctlError> {
    ask(socket, "revalidator/resume", &[], RESUME_WITHIN).await.map(|_| ())
}

/// Reads `upcall/show`: for each datapath a line `TYPE@NAME:`, and below it one `NUMBER: (keys COUNT)` per thread.
fn judge(text: &str) -> Fitness {
    let mut datapaths = 0_usize;
    let mut with_threads = 0_usize;
    let mut counted = true;
    for line in text.lines() {
        if line.contains('@') && !line.starts_with(char::is_whitespace) {
            if !line.starts_with("system@") {
                return Fitness::NotTheKernels;
            }
            datapaths += 1;
            counted = false;
        } else if !counted && line.contains(": (keys ") {
            with_threads += 1;
            counted = true;
        }
    }
    if datapaths > 0 && datapaths == with_threads { Fitness::Fit } else { Fitness::NoThreads }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "  flows         : (current 0) (avg 0) (max 0) (limit 10000)\n  dump duration : 1ms\n  ufid enabled : true\n\n";

    #[test]
    fn a_pause_needs_the_kernels_datapath_with_its_threads_and_no_other() {
        let system = format!("system@ovs-system:\n{HEAD}");
        let netdev = format!("netdev@ovs-netdev:\n{HEAD}");
        let threads = "  5: (keys 0)\n  6: (keys 17)\n";
        assert_eq!(judge(""), Fitness::NoThreads);
        assert_eq!(judge(&system), Fitness::NoThreads);
        assert_eq!(judge(&format!("{system}{threads}")), Fitness::Fit);
        assert_eq!(judge(&format!("{system}{threads}{system}")), Fitness::NoThreads);
        assert_eq!(judge(&format!("{system}{threads}{netdev}{threads}")), Fitness::NotTheKernels);
        assert_eq!(judge(&format!("{netdev}{threads}")), Fitness::NotTheKernels);
    }
}
