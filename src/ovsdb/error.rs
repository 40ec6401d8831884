//! The errors that a server reports, one variant per error string of RFC 7047 (and of what ovsdb-server adds to them).

use std::fmt;

use serde_json::Value;

use super::value::excerpt;

/// What kind of refusal a server's `error` string stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A `wait` whose condition did not hold in time. It comes inside the result list, with a null top-level error.
    TimedOut,
    ReferentialIntegrityViolation,
    ConstraintViolation,
    ResourcesExhausted,
    IoError,
    DuplicateUuidName,
    DomainError,
    RangeError,
    NotSupported,
    Aborted,
    NotOwner,
    Canceled,
    UnknownDatabase,
    UnknownTable,
    UnknownColumn,
    UnknownMethod,
    SyntaxError,
    PermissionError,
    /// This member is no longer the leader, or lost its cluster, in the middle of the transaction.
    ClusterError,
    NotLeader,
    Other(String),
}

impl Kind {
    pub fn parse(text: &str) -> Self {
        match text {
            "timed out" => Self::TimedOut,
            "referential integrity violation" => Self::ReferentialIntegrityViolation,
            "constraint violation" => Self::ConstraintViolation,
            "resources exhausted" => Self::ResourcesExhausted,
            "I/O error" => Self::IoError,
            "duplicate uuid name" | "duplicate uuid-name" => Self::DuplicateUuidName,
            "domain error" => Self::DomainError,
            "range error" => Self::RangeError,
            "not supported" => Self::NotSupported,
            "aborted" => Self::Aborted,
            "not owner" => Self::NotOwner,
            "canceled" => Self::Canceled,
            "unknown database" => Self::UnknownDatabase,
            "unknown table" | "No such table" => Self::UnknownTable,
            "unknown column" => Self::UnknownColumn,
            "unknown method" => Self::UnknownMethod,
            "syntax error" => Self::SyntaxError,
            "permission error" => Self::PermissionError,
            "cluster error" => Self::ClusterError,
            "not leader" => Self::NotLeader,
            other => Self::Other(excerpt(other)),
        }
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::TimedOut => "timed out",
            Self::ReferentialIntegrityViolation => "referential integrity violation",
            Self::ConstraintViolation => "constraint violation",
            Self::ResourcesExhausted => "resources exhausted",
            Self::IoError => "I/O error",
            Self::DuplicateUuidName => "duplicate uuid name",
            Self::DomainError => "domain error",
            Self::RangeError => "range error",
            Self::NotSupported => "not supported",
            Self::Aborted => "aborted",
            Self::NotOwner => "not owner",
            Self::Canceled => "canceled",
            Self::UnknownDatabase => "unknown database",
            Self::UnknownTable => "unknown table",
            Self::UnknownColumn => "unknown column",
            Self::UnknownMethod => "unknown method",
            Self::SyntaxError => "syntax error",
            Self::PermissionError => "permission error",
            Self::ClusterError => "cluster error",
            Self::NotLeader => "not leader",
            Self::Other(text) => text,
        }
    }

    /// Whether the same request, made again after looking again, may succeed without anybody mending anything.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::TimedOut
                | Self::ReferentialIntegrityViolation
                | Self::ResourcesExhausted
                | Self::Canceled
                | Self::ClusterError
                | Self::NotLeader
        )
    }
}

/// An `error` of the server with its `details`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    pub kind: Kind,
    pub details: Option<String>,
}

impl ServerError {
    /// Reads an error in any of the forms servers use: a bare string, or an object with `error` and `details`.
    pub fn parse(value: &Value) -> Self {
        match value {
            Value::String(text) => Self { kind: Kind::parse(text), details: None },
            Value::Object(members) => Self {
                kind: match members.get("error") {
                    Some(Value::String(text)) => Kind::parse(text),
                    _ => Kind::Other(excerpt(&value.to_string())),
                },
                details: members.get("details").and_then(Value::as_str).map(excerpt_details),
            },
            other => Self { kind: Kind::Other(excerpt(&other.to_string())), details: None },
        }
    }
}

/// Details are a server's prose and worth more than one line, but not worth a megabyte of a status message.
fn excerpt_details(text: &str) -> String {
    text.chars().take(400).collect()
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.details {
            Some(details) => write!(f, "{}: {details}", self.kind.as_str()),
            None => f.write_str(self.kind.as_str()),
        }
    }
}

impl std::error::Error for ServerError {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_known_string_reads_back_as_itself() {
        for text in [
            "timed out",
            "referential integrity violation",
            "constraint violation",
            "resources exhausted",
            "I/O error",
            "duplicate uuid name",
            "domain error",
            "range error",
            "not supported",
            "aborted",
            "not owner",
            "canceled",
            "unknown database",
            "unknown table",
            "unknown column",
            "unknown method",
            "syntax error",
            "permission error",
            "cluster error",
            "not leader",
        ] {
            let kind = Kind::parse(text);
            assert!(!matches!(kind, Kind::Other(_)), "{text}");
            assert_eq!(kind.as_str(), text);
        }
        assert_eq!(Kind::parse("moon phase"), Kind::Other("moon phase".to_owned()));
    }

    #[test]
    fn the_three_forms_of_an_error() {
        assert_eq!(ServerError::parse(&json!("unknown database")).kind, Kind::UnknownDatabase);
        let full = ServerError::parse(&json!({"error": "constraint violation", "details": "why"}));
        assert_eq!(full.to_string(), "constraint violation: why");
        assert_eq!(ServerError::parse(&json!([1])).to_string(), "[1]");
    }
}
