//! One call to the API server: a deadline around it, and an error that says which object and what to make of it.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

/// Longest time one call may take. kube itself waits for ever.
pub const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// Why a call failed. `what` is the verb and the object.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("cannot find out how to reach the API server (KUBECONFIG or a pod's service account)")]
    Config(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{what}: no answer from the API server within {} s", after.as_secs())]
    Timeout { what: String, after: Duration },
    #[error("{what}: it does not exist")]
    NotFound { what: String },
    #[error("{what}: it exists already")]
    AlreadyExists { what: String },
    #[error("{what}: it changed meanwhile")]
    Conflict { what: String },
    #[error("{what}: not allowed: {message}")]
    Forbidden { what: String, message: String },
    #[error("{what}: refused: {message}")]
    Invalid { what: String, message: String },
    #[error("{what}: the API server answered {code}: {message}")]
    Status { what: String, code: u16, message: String },
    #[error("{what}: the API server is out of reach")]
    Unreachable { what: String, source: Box<kube::Error> },
    #[error("{what}: not sent, because this process does not lead (any more)")]
    NotLeading { what: String },
}

impl ClusterError {
    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Conflict { .. } | Self::Unreachable { .. } => true,
            Self::Status { code, .. } => *code == 429 || *code >= 500,
            _ => false,
        }
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Wraps kube's error.
    pub fn from_kube(what: String, error: kube::Error) -> Self {
        let status = match error {
            kube::Error::Api(status) => status,
            other => return Self::Unreachable { what, source: Box::new(other) },
        };
        let message = status.message.clone();
        match (status.code, status.reason.as_str()) {
            (404, _) => Self::NotFound { what },
            (409, "AlreadyExists") => Self::AlreadyExists { what },
            (409, _) => Self::Conflict { what },
            (401 | 403, _) => Self::Forbidden { what, message },
            (400 | 413 | 422, _) => Self::Invalid { what, message },
            (code, _) => Self::Status { what, code, message },
        }
    }
}

/// Waits for one call, at most [`CALL_DEADLINE`].
pub async fn call<T>(
    what: impl Into<String>,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ClusterError> {
    call_within(CALL_DEADLINE, what, request).await
}

/// Waits for one call, at most `deadline`.
pub async fn call_within<T>(
    deadline: Duration,
    what: impl Into<String>,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ClusterError> {
    match tokio::time::timeout(deadline, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(ClusterError::from_kube(what.into(), error)),
        Err(_) => Err(ClusterError::Timeout { what: what.into(), after: deadline }),
    }
}

/// The wall clock, for timestamps in objects.
pub fn now() -> Timestamp {
    Timestamp::now()
}
