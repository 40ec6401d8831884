//! The registry that `/metrics` shows.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// A registry that every part of a process adds its own metrics to. Cheap to clone.
///
/// Label values must come from a closed set (kinds, results, reasons): never a node's name or an error's text.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { registry: Arc::new(Mutex::new(Registry::with_prefix("ovn_chassis"))) }
    }
}

impl Metrics {
    /// Lets `register` add metrics; names get the prefix `ovn_chassis_`.
    pub fn register<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The text that Prometheus reads.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(text)
    }
}
