//! One process: started, bounded in time and output, and reported with its arguments, its status and its stderr.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// A tool of the node answers in lines, not in megabytes; more than this is a fault of the tool and is cut off.
pub(super) const OUTPUT_LIMIT: u64 = 1 << 20;
/// How much of stderr an error message carries.
const STDERR_IN_MESSAGE: usize = 2000;

/// What is to be run: plain data, so that a test can compare it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    deadline: Duration,
}

impl Invocation {
    /// A call of `program`, killed after `deadline`.
    pub fn new(program: impl Into<OsString>, deadline: Duration) -> Self {
        Self { program: program.into(), arguments: Vec::new(), environment: Vec::new(), deadline }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds one variable to the inherited environment.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((key.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Adds the run folder that the tools of Open vSwitch look into.
    #[must_use]
    pub fn ovs_rundir(self, folder: &Path) -> Self {
        self.env("OVS_RUNDIR", folder)
    }

    /// The arguments as text, for tests and messages.
    pub fn words(&self) -> Vec<String> {
        std::iter::once(&self.program).chain(&self.arguments).map(|word| word.to_string_lossy().into_owned()).collect()
    }
}

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.words().iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            if word.is_empty() || word.contains(|c: char| c.is_whitespace() || c == '"' || c == '\'') {
                write!(f, "{word:?}")?;
            } else {
                f.write_str(word)?;
            }
        }
        Ok(())
    }
}

/// Why a process gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program is missing or may not be executed.
    #[error("cannot start `{command}`: {source}")]
    Start { command: Box<str>, source: std::io::Error },
    /// It ran, and said no.
    #[error("`{command}` ended with {status}: {stderr}")]
    Failed { command: Box<str>, status: ExitStatus, stderr: Box<str> },
    /// It did not end in time and was killed.
    #[error("`{command}` did not end within {:.1} s and was killed: {stderr}", deadline.as_secs_f64())]
    Deadline { command: Box<str>, deadline: Duration, stderr: Box<str> },
    /// Its output could not be read.
    #[error("cannot read what `{command}` prints: {source}")]
    Output { command: Box<str>, source: std::io::Error },
}

impl RunError {
    /// True when the same call may succeed later without anybody mending the image.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, RunError::Start { .. })
    }
}

/// Runs `invocation` to its end and returns what it printed to stdout.
///
/// A process that outlives the deadline is killed; so is one whose caller goes away. Its stdin is empty.
pub async fn run(invocation: &Invocation) -> Result<String, RunError> {
    let command: Box<str> = invocation.to_string().into();
    let mut child = Command::new(&invocation.program)
        .args(&invocation.arguments)
        .envs(invocation.environment.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| RunError::Start { command: command.clone(), source })?;
    let (stdout_pipe, stderr_pipe) = (child.stdout.take(), child.stderr.take());
    let mut stdout = Vec::new();
    let mut stderr = Vec::new();
    let ended = tokio::time::timeout(invocation.deadline, async {
        let (out, err) = tokio::join!(read_bounded(stdout_pipe, &mut stdout), read_bounded(stderr_pipe, &mut stderr));
        out.and(err)?;
        child.wait().await
    })
    .await;
    match ended {
        Ok(Ok(status)) if status.success() => Ok(String::from_utf8_lossy(&stdout).into_owned()),
        Ok(Ok(status)) => Err(RunError::Failed { command, status, stderr: message_of(&stderr) }),
        Ok(Err(source)) => Err(RunError::Output { command, source }),
        Err(_) => {
            // The kill is sent by hand and waited for, so that nobody meets the process after this call. The only
            // failure is "it has ended already".
            let _ = child.kill().await;
            Err(RunError::Deadline { command, deadline: invocation.deadline, stderr: message_of(&stderr) })
        }
    }
}

/// Reads a pipe to its end, keeps the first [`OUTPUT_LIMIT`] bytes and drops the rest, so that the writer never
/// blocks on a full pipe.
async fn read_bounded(pipe: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) -> std::io::Result<()> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    (&mut pipe).take(OUTPUT_LIMIT).read_to_end(into).await?;
    tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    Ok(())
}

/// The last part of stderr on one line: the cause stands at the end, after the warnings.
fn message_of(stderr: &[u8]) -> Box<str> {
    let tail = stderr.get(stderr.len().saturating_sub(STDERR_IN_MESSAGE)..).unwrap_or(stderr);
    let text = String::from_utf8_lossy(tail);
    let lines = text.lines().map(|line| without_stamp(line).trim()).filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join("; ");
    if line.is_empty() { "nothing on stderr".into() } else { line.into() }
}

/// A log line of an Open vSwitch tool without its time and number: the same fault twice is the same message twice.
fn without_stamp(line: &str) -> &str {
    let mut parts = line.splitn(3, '|');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(time), Some(number), Some(rest))
            if time.ends_with('Z')
                && time.contains('T')
                && !number.is_empty()
                && number.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            rest
        }
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn stdout_of_a_success_is_the_answer() {
        let answer = run(&Invocation::new("sh", SOON).arg("-c").arg("echo one; echo two >&2")).await.unwrap();
        assert_eq!(answer, "one\n");
    }

    #[tokio::test]
    async fn a_failure_keeps_arguments_status_and_stderr() {
        let error =
            run(&Invocation::new("sh", SOON).args(["-c", "echo no such bridge >&2; exit 3"])).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("sh -c \"echo no such bridge"), "{text}");
        assert!(text.contains("exit status: 3") && text.ends_with("no such bridge"), "{text}");
    }

    #[test]
    fn the_same_fault_is_the_same_message_whenever_it_happens() {
        let log =
            |second: u8| format!("2026-11-30T22:47:0{second}Z|00001|unixctl|WARN|failed to connect\ncannot connect\n");
        assert_eq!(message_of(log(1).as_bytes()), message_of(log(2).as_bytes()));
        assert_eq!(&*message_of(log(1).as_bytes()), "unixctl|WARN|failed to connect; cannot connect");
        assert_eq!(&*message_of(b"a|b|c"), "a|b|c");
    }

    #[tokio::test]
    async fn a_process_that_hangs_is_killed_at_the_deadline() {
        let begun = std::time::Instant::now();
        let error =
            run(&Invocation::new("sh", Duration::from_millis(200)).args(["-c", "echo slow >&2; exec sleep 60"]))
                .await
                .unwrap_err();
        assert!(matches!(error, RunError::Deadline { .. }), "{error}");
        assert!(error.to_string().contains("slow"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let error = run(&Invocation::new("/nonexistent/ovs-vsctl", SOON)).await.unwrap_err();
        assert!(error.to_string().starts_with("cannot start `/nonexistent/ovs-vsctl`"), "{error}");
        assert!(!error.is_retryable());
    }

    #[tokio::test]
    async fn endless_output_is_cut_and_does_not_block_the_writer() {
        let answer = run(&Invocation::new("head", SOON).args(["-c", "3000000", "/dev/zero"])).await.unwrap();
        assert_eq!(answer.len() as u64, OUTPUT_LIMIT);
    }
}
