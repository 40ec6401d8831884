//! Tasks with an owner.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;

use super::Shutdown;

/// A task ended that should not have, or did not end when it should have.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("task {task} failed: {cause}")]
    Failed { task: String, cause: String },
    #[error("task {task} ended by itself")]
    Ended { task: String },
    #[error("a task panicked: {0}")]
    Panicked(String),
    #[error("tasks did not stop within {} s: {}", grace.as_secs(), tasks.join(", "))]
    Stuck { grace: Duration, tasks: Vec<String> },
}

/// Owns everything a process runs: one task that ends by itself ends the process.
#[derive(Debug, Default)]
pub struct Tasks {
    set: JoinSet<(String, Result<(), String>)>,
    names: Vec<String>,
}

impl Tasks {
    /// Starts a task that is to run until shutdown.
    pub fn spawn<F, E>(&mut self, name: impl Into<String>, task: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display + std::error::Error,
    {
        let name = name.into();
        self.names.push(name.clone());
        self.set.spawn(async move {
            let result = task.await.map_err(|error| chain(&error));
            (name, result)
        });
    }

    /// Runs until shutdown is requested and all tasks have ended, at most `grace` later, or until one ends by itself.
    ///
    /// In the second case the others are asked to stop as well, with the same grace, and the first fault is returned.
    pub async fn run(mut self, shutdown: &Shutdown, grace: Duration) -> Result<(), TaskError> {
        let mut fault = None;
        tokio::select! {
            () = shutdown.requested() => {}
            Some(ended) = self.set.join_next() => {
                // A task may see the request before this select does.
                let by_request = shutdown.is_requested();
                fault = self.note(ended, by_request);
                shutdown.request();
            }
        }
        let stop = async {
            let mut late = None;
            while let Some(ended) = self.set.join_next().await {
                if let Some(error) = self.note(ended, true) {
                    late.get_or_insert(error);
                }
            }
            late
        };
        match tokio::time::timeout(grace, stop).await {
            Ok(late) => fault.or(late).map_or(Ok(()), Err),
            Err(_) => {
                self.set.abort_all();
                Err(fault.unwrap_or(TaskError::Stuck { grace, tasks: self.names.clone() }))
            }
        }
    }

    fn note(
        &mut self,
        ended: Result<(String, Result<(), String>), tokio::task::JoinError>,
        by_request: bool,
    ) -> Option<TaskError> {
        match ended {
            Ok((task, result)) => {
                self.names.retain(|n| *n != task);
                match result {
                    Ok(()) if by_request => None,
                    Ok(()) => Some(TaskError::Ended { task }),
                    Err(cause) => Some(TaskError::Failed { task, cause }),
                }
            }
            Err(error) if error.is_panic() => Some(TaskError::Panicked(error.to_string())),
            Err(_) => None,
        }
    }
}

/// An error with its sources, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some libraries repeat their source in their own text.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_by_itself_ends_all_and_is_named() {
        let shutdown = Shutdown::default();
        let mut tasks = Tasks::default();
        let stop = shutdown.clone();
        tasks.spawn("waits", async move {
            stop.requested().await;
            Ok::<_, std::io::Error>(())
        });
        tasks.spawn("short", async { Ok::<_, std::io::Error>(()) });
        let error = tasks.run(&shutdown, Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(error.to_string(), "task short ended by itself");
        assert!(shutdown.is_requested());
    }

    #[tokio::test]
    async fn a_request_ends_all_without_a_fault() {
        let shutdown = Shutdown::default();
        let mut tasks = Tasks::default();
        let stop = shutdown.clone();
        tasks.spawn("waits", async move {
            stop.requested().await;
            Ok::<_, std::io::Error>(())
        });
        shutdown.request();
        tasks.run(&shutdown, Duration::from_secs(5)).await.unwrap();
    }

    #[tokio::test]
    async fn a_task_that_does_not_stop_is_named_after_the_grace() {
        let shutdown = Shutdown::default();
        let mut tasks = Tasks::default();
        tasks.spawn("stubborn", async {
            std::future::pending::<()>().await;
            Ok::<_, std::io::Error>(())
        });
        shutdown.request();
        let error = tasks.run(&shutdown, Duration::from_millis(20)).await.unwrap_err();
        assert!(error.to_string().contains("stubborn"), "{error}");
    }
}
