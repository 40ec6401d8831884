//! Flags and environment of `ovn-chassis controller`, parsed once.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::objects::ApiServer;
use crate::ops::LogFormat;
use crate::ovsdb::ServerNames;

/// What an OVN server's certificate has to prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Verify {
    /// That our CA signed it. For certificates without names, as ovs-pki makes them.
    Chain,
    /// That our CA signed it for the address that is dialled.
    Name,
}

impl From<Verify> for ServerNames {
    fn from(verify: Verify) -> Self {
        match verify {
            Verify::Chain => ServerNames::ChainOnly,
            Verify::Name => ServerNames::Verify,
        }
    }
}

/// Flags as they are typed.
#[derive(Clone, Debug, Args)]
pub struct ControllerArgs {
    /// Namespace of the lease.
    #[arg(long, env = "POD_NAMESPACE", default_value = "ovn-chassis-system")]
    pub lease_namespace: String,
    /// Name of the lease.
    #[arg(long, default_value = "ovn-chassis-controller")]
    pub lease_name: String,
    /// Seconds after which a lease that is not renewed may be taken over.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(2..=300))]
    pub lease_duration_seconds: u64,
    /// Who claims the lease; must differ between replicas.
    #[arg(long, env = "POD_NAME")]
    pub identity: String,
    /// Where /healthz, /readyz and /metrics answer.
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub metrics_addr: SocketAddr,
    /// Our own image. Default: what this process' own pod runs.
    #[arg(long)]
    pub image: Option<String>,
    /// Seconds that a Job may work.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(i64).range(1..=86_400))]
    pub job_deadline_seconds: i64,
    /// Hours that a complete Job stays.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(i64).range(1..=720))]
    pub job_keep_hours: i64,
    /// Seconds that the agent of a leaving node is waited for.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(i64).range(1..=3600))]
    pub dead_agent_wait_seconds: i64,
    /// What the certificates of the OVN databases have to prove.
    #[arg(long, value_enum, default_value_t = Verify::Name)]
    pub ovsdb_verify: Verify,
    /// Host of the API server as the nodes' pods reach it, if not by the address that the kubelet gives them.
    #[arg(long, requires = "agent_api_server_port")]
    pub agent_api_server_host: Option<String>,
    /// Its port.
    #[arg(long, requires = "agent_api_server_host")]
    pub agent_api_server_port: Option<u16>,
    /// text or json.
    #[arg(long, default_value = "text")]
    pub log_format: LogFormat,
}

/// The same, as the controller uses it.
#[derive(Clone, Debug)]
pub struct Settings {
    pub image: String,
    pub identity: String,
    pub job_deadline_seconds: i64,
    pub job_keep: Duration,
    pub dead_agent_wait_seconds: i64,
    pub server_names: ServerNames,
    pub api_server: Option<ApiServer>,
}

impl Settings {
    pub fn new(args: &ControllerArgs, image: String) -> Self {
        let hours = u64::try_from(args.job_keep_hours).unwrap_or(24);
        Self {
            image,
            identity: args.identity.clone(),
            job_deadline_seconds: args.job_deadline_seconds,
            job_keep: Duration::from_secs(hours * 3600),
            dead_agent_wait_seconds: args.dead_agent_wait_seconds,
            server_names: args.ovsdb_verify.into(),
            api_server: args
                .agent_api_server_host
                .clone()
                .zip(args.agent_api_server_port)
                .map(|(host, port)| ApiServer { host, port }),
        }
    }
}
