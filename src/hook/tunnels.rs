//! The tunnels that forwarded when `ovs-vswitchd` was told to end, kept forwarding until the sessions of its successor are
//! up: those begin as Down, and a node that sends to a gateway would drop what it sends until then.
//!
//! ```text
//! pre-stop hook                 writes the names of the tunnels that forward (`tunnels`)
//! ovs-vswitchd's entrypoint     takes the names, and while flow-restore-wait is on lets these tunnels forward
//!                               then, one by one: the session is up, or its time is over -> the session decides again
//! ```
//!
//! A tunnel that was down stays down: its far end may be dead. Only process 1 of the container says so, which cannot die
//! without its daemon, so nothing outlasts a crash. A daemon that was killed left no names, and nothing is done.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use super::daemon::Daemon;
use super::lock::LockError;
use super::warm_restart::{FLAG_AT_MOST, Phase, WarmRestart, uptime};
use crate::ovs::tunnels::{Forwarding, Session, sessions, set_forwarding};
use crate::ovs::unixctl::UnixctlError;

/// Names that are older say nothing any more.
const NAMES_ARE_FRESH_FOR: Duration = Duration::from_secs(60);
/// How long a session may take to come up once `flow-restore-wait` is off, which is when its packets pass. The far end may
/// have died meanwhile, and only the session would tell.
const UP_WITHIN: Duration = Duration::from_secs(10);
/// How often to look, while there is something to look for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl WarmRestart {
    /// Before `ovs-vswitchd` is told to end: which tunnels forward.
    pub(super) async fn note_tunnels(&self) -> Result<(), TunnelsError> {
        let sessions = sessions(&Daemon::OvsVswitchd.control_socket(&self.dirs)).await?;
        let mut text = format!("{}\n", uptime().unwrap_or_default().as_millis());
        for session in sessions.iter().filter(|session| session.forwards) {
            text += &format!("{}\n", session.name);
        }
        self.write_tunnels(&text)?;
        Ok(())
    }

    /// Before `ovs-vswitchd` starts: their names, which are read once.
    pub(super) fn take_tunnels(&self) -> Result<Vec<String>, LockError> {
        let path = self.folder.tunnels_file();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(LockError::Io { action: "read", path, source }),
        };
        if text.is_empty() {
            return Ok(Vec::new());
        }
        self.write_tunnels("")?;
        Ok(fresh_names(&text, uptime().unwrap_or_default()))
    }

    fn write_tunnels(&self, text: &str) -> Result<(), LockError> {
        let path: PathBuf = self.folder.tunnels_file();
        std::fs::write(&path, text).map_err(|source| LockError::Io { action: "write", path, source })
    }
}

/// The tunnels that forward could not be noted.
#[derive(Debug, thiserror::Error)]
pub(super) enum TunnelsError {
    #[error(transparent)]
    Control(#[from] UnixctlError),
    #[error(transparent)]
    Record(#[from] LockError),
}

fn fresh_names(text: &str, now: Duration) -> Vec<String> {
    // Half a name at the end is none.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let mut lines = whole.lines();
    let since = lines.next().and_then(|line| line.parse().ok()).map(Duration::from_millis);
    // A time that has not come yet is one of before a reboot.
    let age = since.and_then(|since| now.checked_sub(since));
    if age.is_none_or(|age| age >= NAMES_ARE_FRESH_FOR) {
        return Vec::new();
    }
    lines.map(str::to_owned).collect()
}

/// What to do about one tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Wait,
    /// Let it forward, whatever its session says.
    Keep,
    /// The session decides again.
    HandBack {
        is_up: bool,
    },
}

/// Decides for one tunnel. Pure. `released_for`: how long `flow-restore-wait` has been off; `session`: none while
/// `ovs-vswitchd` does not know it.
fn decide(is_kept: bool, session: Option<&Session>, released_for: Option<Duration>) -> Step {
    let over = released_for.is_some_and(|released| released >= UP_WITHIN);
    match session {
        Some(session) if session.is_up || over => Step::HandBack { is_up: session.is_up },
        None if over => Step::HandBack { is_up: false },
        Some(_) if !is_kept => Step::Keep,
        _ => Step::Wait,
    }
}

#[derive(Debug)]
struct Tunnel {
    name: String,
    is_kept: bool,
}

/// The tunnels of one `ovs-vswitchd`, kept by its parent.
#[derive(Debug)]
pub(super) struct Tunnels {
    node: WarmRestart,
    left: Vec<Tunnel>,
    begun: Instant,
    released: Option<Instant>,
    next_look: Instant,
}

impl Tunnels {
    pub(super) fn new(node: WarmRestart, names: Vec<String>) -> Self {
        // Any other parent could die and leave a daemon behind that takes every far end for alive.
        let names = if std::process::id() == 1 { names } else { Vec::new() };
        let left = names.into_iter().map(|name| Tunnel { name, is_kept: false }).collect();
        let now = Instant::now();
        Self { node, left, begun: now, released: None, next_look: now }
    }

    /// Does what is to be done now: nothing, once every tunnel is handed back.
    pub(super) async fn look(&mut self) {
        let now = Instant::now();
        if self.left.is_empty() || now < self.next_look {
            return;
        }
        let is_held = self.node.read(Daemon::OvsVswitchd).is_some_and(|note| note.phase == Phase::Held);
        if self.released.is_none() && (!is_held || now - self.begun >= FLAG_AT_MOST) {
            self.released = Some(now);
        }
        let released_for = self.released.map(|released| now - released);
        // Err: it is not that far yet, or is about to end.
        if let Ok(sessions) = sessions(&Daemon::OvsVswitchd.control_socket(&self.node.dirs)).await {
            for tunnel in std::mem::take(&mut self.left) {
                let session = sessions.iter().find(|session| session.name == tunnel.name);
                let step = decide(tunnel.is_kept, session, released_for);
                self.left.extend(self.take_step(tunnel, step).await);
            }
            if self.left.is_empty() {
                let after = self.begun.elapsed().as_secs_f64();
                tracing::info!("the tunnels' sessions decide again, {after:.1} s after the start");
            }
        }
        self.next_look = Instant::now() + LOOK_EVERY;
    }

    /// The tunnel, as long as there is something to do about it.
    async fn take_step(&self, mut tunnel: Tunnel, step: Step) -> Option<Tunnel> {
        let forwarding = match step {
            Step::Wait => return Some(tunnel),
            Step::Keep => Forwarding::Always,
            Step::HandBack { is_up } => {
                if !is_up {
                    let bound = UP_WITHIN.as_secs();
                    tracing::warn!("tunnel {}: no session within {bound} s, which decides from now on", tunnel.name);
                }
                Forwarding::BySession
            }
        };
        if forwarding == Forwarding::BySession && !tunnel.is_kept {
            return None;
        }
        let socket = Daemon::OvsVswitchd.control_socket(&self.node.dirs);
        match set_forwarding(&socket, &tunnel.name, forwarding).await {
            Ok(()) if forwarding == Forwarding::Always => {
                tunnel.is_kept = true;
                Some(tunnel)
            }
            Ok(()) => None,
            // The interface is gone, and what was said of it as well; another one of its name begins anew.
            Err(UnixctlError::Refused { .. }) => None,
            Err(error) => {
                tracing::warn!("tunnel {}: {error}", tunnel.name);
                // It may have been carried out: it is handed back in any case.
                tunnel.is_kept = true;
                Some(tunnel)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(is_up: bool) -> Session {
        Session { name: "t".to_owned(), forwards: true, is_up }
    }

    #[test]
    fn only_fresh_whole_names_count() {
        let names = |text, now| fresh_names(text, Duration::from_secs(now));
        assert_eq!(names("100000\na\nb\n", 120), ["a", "b"]);
        assert_eq!(names("100000\na\nb", 120), ["a"]);
        assert!(names("100000\na\n", 160).is_empty());
        // Noted before a reboot.
        assert!(names("100000\na\n", 50).is_empty());
        for text in ["", "\n", "100000\n", "100000", "a\nb\n"] {
            assert!(names(text, 120).is_empty(), "{text:?}");
        }
    }

    #[test]
    fn a_tunnel_forwards_until_its_session_is_up_or_its_time_is_over() {
        let released = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(decide(false, None, None), Step::Wait);
        assert_eq!(decide(false, Some(&session(false)), None), Step::Keep);
        assert_eq!(decide(true, Some(&session(false)), None), Step::Wait);
        assert_eq!(decide(true, Some(&session(false)), released(9)), Step::Wait);
        assert_eq!(decide(true, Some(&session(true)), released(1)), Step::HandBack { is_up: true });
        assert_eq!(decide(true, Some(&session(false)), released(10)), Step::HandBack { is_up: false });
        assert_eq!(decide(false, None, released(10)), Step::HandBack { is_up: false });
        // It came up before anything was said.
        assert_eq!(decide(false, Some(&session(true)), None), Step::HandBack { is_up: true });
    }
}
