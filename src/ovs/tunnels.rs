//! The tunnels that `ovs-vswitchd` watches by BFD (RFC 5880). Every session of a started `ovs-vswitchd` begins as Down, and for
//! as long a bundle of gateways passes its tunnel over; `bfd/set-forwarding` (ovs-vswitchd(8)) says otherwise, and changes
//! neither the session nor what the far end sees of it.

use std::path::Path;
use std::time::Duration;

use super::unixctl::{UnixctlError, ask};

/// A local question; a daemon that needs longer is not well.
const QUESTION: Duration = Duration::from_secs(2);

/// One session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The interface's name.
    pub name: String,
    /// Packets may go there.
    pub forwards: bool,
    /// Both ends say that they hear each other.
    pub is_up: bool,
}

/// Who says whether packets may go there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarding {
    /// They may, whatever the session says.
    Always,
    /// The session.
    BySession,
}

/// All sessions of the process behind this socket.
pub async fn sessions(socket: &Path) -> Result<Vec<Session>, UnixctlError> {
    Ok(parse(&ask(socket, "bfd/show", &[], QUESTION).await?))
}

/// Sets it for one interface; refused while that has no session.
pub async fn set_forwarding(socket: &Path, name: &str, forwarding: Forwarding) -> Result<(), UnixctlError> {
    let word = match forwarding {
        Forwarding::Always => "true",
        Forwarding::BySession => "normal",
    };
    ask(socket, "bfd/set-forwarding", &[name, word], QUESTION).await.map(|_| ())
}

/// Reads `bfd/show`: for each session a line `---- NAME ----`, and below it lines `KEY: VALUE`.
fn parse(text: &str) -> Vec<Session> {
    let mut sessions: Vec<Session> = Vec::new();
    for line in text.lines().map(str::trim) {
        let name = line.strip_prefix("----").and_then(|rest| rest.strip_suffix("----"));
        if let Some(name) = name {
            sessions.push(Session { name: name.trim().to_owned(), forwards: false, is_up: false });
        } else if let Some(session) = sessions.last_mut()
            && let Some((key, value)) = line.split_once(':')
        {
            match key.trim() {
                "Forwarding" => session.forwards = value.trim() == "true",
                "Local Session State" => session.is_up = value.trim() == "up",
                _ => {}
            }
        }
    }
    sessions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_says_whether_it_forwards_and_whether_it_is_up() {
        let text = "---- ovn-node-b-0 ----\n\tForwarding: true\n\tDetect Multiplier: 5\n\tCPath Down: false\n\tLocal Flags: none\n\
                    \tLocal Session State: up\n\tRemote Session State: up\n\n---- ovn-node-c-0 ----\n\tForwarding: false\n\
                    \tLocal Session State: init\n\tRemote Session State: up\n";
        let session = |name: &str, forwards, is_up| Session { name: name.to_owned(), forwards, is_up };
        assert_eq!(parse(text), [session("ovn-node-b-0", true, true), session("ovn-node-c-0", false, false)]);
        assert_eq!(parse(""), []);
    }
}
