//! A client from KUBECONFIG, `~/.kube/config` or a pod's service account.

use std::time::Duration;

use kube::{Client, Config};

use super::call::ClusterError;

/// Connects. Nothing is sent yet.
pub async fn connect() -> Result<Client, ClusterError> {
    let mut config = Config::infer().await.map_err(|e| ClusterError::Config(Box::new(e)))?;
    config.connect_timeout = Some(Duration::from_secs(5));
    config.write_timeout = Some(Duration::from_secs(10));
    // A watch is quiet for up to its timeout of 290 s; single calls have their own, much shorter deadline.
    config.read_timeout = Some(Duration::from_secs(295));
    Client::try_from(config).map_err(|e| ClusterError::Config(Box::new(e)))
}
