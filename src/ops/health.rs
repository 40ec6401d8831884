//! Who is not ready, and why.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Readiness of the parts of a process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Health {
    parts: Arc<Mutex<BTreeMap<&'static str, Result<(), String>>>>,
}

impl Health {
    /// Sets the state of one part.
    pub fn set(&self, part: &'static str, state: Result<(), String>) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(part, state);
    }

    /// Ready when every part is; else one line for each that is not.
    pub fn ready(&self) -> Result<(), String> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let faults: Vec<String> =
            parts.iter().filter_map(|(part, state)| state.as_ref().err().map(|why| format!("{part}: {why}"))).collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_part_that_is_not_ready_holds_the_whole_and_is_named() {
        let health = Health::default();
        health.set("watches", Err("first list is under way".into()));
        health.set("lease", Ok(()));
        assert_eq!(health.ready(), Err("watches: first list is under way".to_owned()));
        health.set("watches", Ok(()));
        assert_eq!(health.ready(), Ok(()));
    }
}
