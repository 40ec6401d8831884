//! What each long-running half needs around its work: logs, metrics, health, owned tasks, an ordered shutdown.
//!
//! A half starts like this: [`telemetry::init`], then [`Shutdown::on_signals`], then [`Tasks`] that own everything it
//! runs, among them [`http::serve`] for `/healthz`, `/readyz` and `/metrics`; last [`Tasks::run`], which ends when the
//! process is told to or when a task ends by itself, and whose error goes to [`termination::write`].

pub mod health;
pub mod http;
pub mod metrics;
pub mod shutdown;
pub mod step;
pub mod tasks;
pub mod telemetry;
pub mod termination;

pub use health::Health;
pub use metrics::Metrics;
pub use shutdown::Shutdown;
pub use step::step;
pub use tasks::Tasks;
pub use telemetry::LogFormat;
