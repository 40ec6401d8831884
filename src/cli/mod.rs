//! What a person or a pod types: the subcommands and their flags.

mod crd;

use clap::{Parser, Subcommand};

/// Runs, drains and restarts OVN chassis nodes on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "ovn-chassis", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the CustomResourceDefinitions as YAML, ready for `kubectl apply -f -`.
    Crd,
}

/// Runs what was asked for.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Crd => crd::print(&mut std::io::stdout().lock()),
    }
}
