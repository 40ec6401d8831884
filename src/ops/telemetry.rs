//! Log lines on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Environment variable with the filter, in `tracing`'s syntax; `RUST_LOG` counts where it is unset.
pub const FILTER_VARIABLE: &str = "OVN_CHASSIS_LOG";

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl std::str::FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("log format {other:?} is unknown: use text or json")),
        }
    }
}

/// Starts logging. A second call changes nothing, so that tests may call it.
///
/// A filter that cannot be read falls back to `info` and says so: logs matter most when settings are wrong.
pub fn init(format: LogFormat) {
    let (filter, fault) = match std::env::var(FILTER_VARIABLE).or_else(|_| std::env::var("RUST_LOG")) {
        Ok(text) => match EnvFilter::try_new(&text) {
            Ok(filter) => (filter, None),
            Err(error) => (EnvFilter::new("info"), Some(format!("{FILTER_VARIABLE}={text:?}: {error}"))),
        },
        Err(_) => (EnvFilter::new("info,kube=warn,hyper=warn"), None),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let done = match format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).with_target(false).try_init(),
    };
    if let (Ok(()), Some(fault)) = (done, fault) {
        tracing::warn!("{fault}; logging at info");
    }
}
