//! One request to stop, seen by everybody.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// A request to stop. Cheap to clone; once made it stays.
#[derive(Clone, Debug)]
pub struct Shutdown {
    sender: Arc<watch::Sender<bool>>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { sender: Arc::new(watch::Sender::new(false)) }
    }
}

impl Shutdown {
    /// A request that SIGTERM or SIGINT makes. Call it inside the runtime.
    pub fn on_signals() -> io::Result<Self> {
        let shutdown = Self::default();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let by_signal = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
                _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
            }
            by_signal.request();
        });
        Ok(shutdown)
    }

    /// Makes the request.
    pub fn request(&self) {
        self.sender.send_replace(true);
    }

    pub fn is_requested(&self) -> bool {
        *self.sender.borrow()
    }

    /// Returns once the request was made.
    pub async fn requested(&self) {
        let mut receiver = self.sender.subscribe();
        // The sender lives as long as self, so this cannot end early.
        let _ = receiver.wait_for(|stop| *stop).await;
    }
}
