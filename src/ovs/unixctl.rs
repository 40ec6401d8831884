//! A daemon's control socket, asked without a process in between: what `ovs-appctl` speaks (JSON-RPC 1.0, one request, one
//! reply whose result is text). For questions that are asked again and again: on a busy node each process costs more than
//! its answer is worth.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::ovsdb::frame::{FrameError, FrameReader, Message};

/// The longest answer that is asked for here lists threads and counts.
const ANSWER_LIMIT: usize = 1 << 20;

/// Why a daemon gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum UnixctlError {
    /// Nobody listens: the daemon is away, or not that far yet. The command was not delivered.
    #[error("cannot connect to {socket}: {source}")]
    Connect { socket: Box<str>, source: std::io::Error },
    /// It answered, and said no.
    #[error("`{command}` to {socket} was refused: {answer}")]
    Refused { socket: Box<str>, command: Box<str>, answer: Box<str> },
    /// It may have been carried out.
    #[error("`{command}` to {socket} was not answered within {:.1} s", deadline.as_secs_f64())]
    Deadline { socket: Box<str>, command: Box<str>, deadline: Duration },
    /// It may have been carried out.
    #[error("`{command}` to {socket}: the connection broke: {source}")]
    Broken { socket: Box<str>, command: Box<str>, source: std::io::Error },
    /// Something else listens there.
    #[error("`{command}` to {socket}: {source}")]
    Frame { socket: Box<str>, command: Box<str>, source: FrameError },
}

impl UnixctlError {
    /// True when the command cannot have had an effect.
    pub fn is_without_effect(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Refused { .. })
    }
}

/// Sends one command and returns the text that it prints.
pub async fn ask(socket: &Path, command: &str, arguments: &[&str], deadline: Duration) -> Result<String, UnixctlError> {
    let late = || UnixctlError::Deadline { socket: name(socket), command: command.into(), deadline };
    timeout(deadline, converse(socket, command, arguments)).await.map_err(|_| late())?
}

fn name(socket: &Path) -> Box<str> {
    socket.display().to_string().into()
}

async fn converse(socket: &Path, command: &str, arguments: &[&str]) -> Result<String, UnixctlError> {
    let broken = |source| UnixctlError::Broken { socket: name(socket), command: command.into(), source };
    let garbled = |source| UnixctlError::Frame { socket: name(socket), command: command.into(), source };
    let mut stream =
        UnixStream::connect(socket).await.map_err(|source| UnixctlError::Connect { socket: name(socket), source })?;
    let request = Message::Request { id: json!(0), method: command.to_owned(), params: json!(arguments) };
    stream.write_all(&request.to_bytes()).await.map_err(broken)?;
    let mut frames = FrameReader::new(ANSWER_LIMIT);
    let mut bytes = [0; 4096];
    loop {
        if let Some(frame) = frames.next_frame().map_err(garbled)? {
            return match Message::parse(&frame).map_err(garbled)? {
                Message::Reply { error: Some(error), .. } => Err(UnixctlError::Refused {
                    socket: name(socket),
                    command: command.into(),
                    answer: text(error).trim().into(),
                }),
                Message::Reply { result, .. } => Ok(text(result)),
                Message::Request { .. } | Message::Notification { .. } => Err(garbled(FrameError::NotJsonRpc)),
            };
        }
        match stream.read(&mut bytes).await.map_err(broken)? {
            0 => return Err(broken(std::io::ErrorKind::UnexpectedEof.into())),
            read => frames.push(bytes.get(..read).unwrap_or_default()),
        }
    }
}

fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    const SOON: Duration = Duration::from_secs(5);

    /// What `ask` makes of a peer that answers with this and closes.
    async fn answered(answer: &'static str) -> (Result<String, UnixctlError>, Value) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("d.ctl");
        let listener = UnixListener::bind(&socket).unwrap();
        let peer = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let read = stream.read(&mut request).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            serde_json::from_slice(&request[..read]).unwrap()
        };
        tokio::join!(ask(&socket, "exit", &["--restart"], SOON), peer)
    }

    #[tokio::test]
    async fn a_command_and_its_answer() {
        let (answer, request) = answered(r#"{"id":0,"result":"one\ntwo\n","error":null}"#).await;
        assert_eq!(answer.unwrap(), "one\ntwo\n");
        assert_eq!(request, json!({"id": 0, "method": "exit", "params": ["--restart"]}));
    }

    #[tokio::test]
    async fn every_other_answer_is_an_error_that_names_socket_and_command() {
        for (answer, words, without_effect) in [
            (r#"{"id":0,"result":null,"error":"\"exit\" is not a valid command"}"#, "refused: \"exit\" is not", true),
            ("", "the connection broke", false),
            ("HTTP/1.1 400", "byte 0x48", false),
            (r#"{"id":0,"method":"echo","params":[]}"#, "no JSON-RPC", false),
        ] {
            let error = answered(answer).await.0.unwrap_err();
            let message = error.to_string();
            assert!(message.contains("d.ctl") && message.contains("`exit`") && message.contains(words), "{message}");
            assert_eq!(error.is_without_effect(), without_effect, "{message}");
        }
    }

    #[tokio::test]
    async fn a_daemon_that_is_away_or_hangs_costs_no_more_than_the_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("d.ctl");
        assert!(ask(&socket, "version", &[], SOON).await.unwrap_err().is_without_effect());
        let _hangs = UnixListener::bind(&socket).unwrap();
        let error = ask(&socket, "version", &[], Duration::from_millis(50)).await.unwrap_err();
        assert!(matches!(error, UnixctlError::Deadline { .. }) && !error.is_without_effect(), "{error}");
    }
}
