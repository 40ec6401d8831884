//! One type per kind of id, so that a node's name never stands where a system-id belongs.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hash::sha256_hex;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps a text that is known to be one.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }
    };
}

id!(
    /// The name of a Kubernetes Node: a DNS subdomain of up to 253 characters.
    NodeName
);
id!(
    /// What OVN calls a chassis' `system-id` and the Southbound database `Chassis.name`.
    SystemId
);
id!(
    /// A short hash over everything that an agent applies; equal hashes mean equal settings.
    ConfigHash
);

/// Why a text cannot be a system-id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("system-id {found:?} is not usable: {expected}")]
pub struct InvalidSystemId {
    pub found: String,
    pub expected: &'static str,
}

impl SystemId {
    /// Longest id that is accepted; OVN sets no limit, an OpenFlow or ConfigMap line should have one.
    pub const MAX_LEN: usize = 253;

    /// Parses an id that a node brought along.
    ///
    /// OVN takes any string; whitespace, quotes, commas, colons and controls are refused because they
    /// cannot stand in `KEY=value` lines or in `ovn-cms-options` style lists without changing their meaning.
    pub fn parse(text: &str) -> Result<Self, InvalidSystemId> {
        let refuse = |expected| Err(InvalidSystemId { found: text.to_owned(), expected });
        if text.is_empty() {
            return refuse("it must not be empty");
        }
        if text.len() > Self::MAX_LEN {
            return refuse("it must have at most 253 characters");
        }
        if !text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
            return refuse("it must consist of letters, digits, '-', '_' and '.'");
        }
        Ok(Self(text.to_owned()))
    }

    /// The id of a node that has none yet: a UUID made from the Node object's uid.
    ///
    /// The uid is unique across clusters that share one OVN, and a controller that crashes before it records
    /// the id arrives at the same one again.
    pub fn from_node_uid(uid: &str) -> Self {
        let hex = sha256_hex(&format!("ovn-chassis/system-id/{uid}"), 32);
        let (a, rest) = hex.split_at(8);
        let (b, rest) = rest.split_at(4);
        let (c, rest) = rest.split_at(4);
        let (d, e) = rest.split_at(4);
        // Version 8 (RFC 9562: custom) and the RFC's variant, so that tools that check a UUID accept it.
        let c = c.get(1..).unwrap_or_default();
        let d = d.get(1..).unwrap_or_default();
        Self(format!("{a}-{b}-8{c}-a{d}-{e}"))
    }
}

impl ConfigHash {
    /// The hash of rendered settings: 16 hexadecimal digits.
    pub fn of(rendered: &str) -> Self {
        Self(sha256_hex(rendered, 16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_system_id_is_a_stable_uuid() {
        let id = SystemId::from_node_uid("6f1a");
        assert_eq!(id, SystemId::from_node_uid("6f1a"));
        assert_ne!(id, SystemId::from_node_uid("6f1b"));
        assert_eq!(id.as_str().len(), 36);
        assert_eq!(id.as_str().chars().filter(|c| *c == '-').count(), 4);
        assert_eq!(id.as_str().chars().nth(14), Some('8'));
        assert!(SystemId::parse(id.as_str()).is_ok());
    }

    #[test]
    fn ids_that_break_a_line_or_a_list_are_refused_with_what_was_found() {
        for bad in ["", "a b", "a,b", "a:b", "a\"b", "a\nb", &"x".repeat(254)] {
            let error = SystemId::parse(bad).unwrap_err();
            assert_eq!(error.found, bad);
        }
        assert!(SystemId::parse("node-a.example_1").is_ok());
    }
}
