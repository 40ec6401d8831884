//! What a person or a pod types: the subcommands and their flags.

mod crd;
mod drain;
mod progress;
mod say;

use std::process::ExitCode;

use anyhow::Context;
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
    /// Take the roles away from a node, one after the other, and follow it until it is forgotten.
    ///
    /// Removes the gateway label, waits until the databases confirm that no gateway duty is left, removes the chassis
    /// label and waits until the node's registration is deleted. Needs the rights of a person who may label nodes.
    Drain(drain::DrainArgs),
    /// Give a node its chassis role, and with --gateway its gateway role, back.
    Undrain(drain::UndrainArgs),
    /// Show every chassis node, where it is on its way and what it waits for.
    Status(drain::StatusArgs),
    Agent(crate::agent::AgentArgs),
    /// Turn node labels into settings, evacuate, deregister and keep status: runs on the control plane.
    Controller(crate::controller::ControllerArgs),
    /// What runs around one daemon in its container: entrypoint, pre-stop hook, readiness probe.
    Hook(crate::hook::HookArgs),
    /// Copy this binary to DIR/ovn-chassis, for containers of another image.
    Install(crate::hook::install::InstallArgs),
    /// Print the CustomResourceDefinitions as YAML, ready for `kubectl apply -f -`.
    Crd,
    /// Print a text and end: how the pod of a failed Job tells `kubectl logs job/…` the cause.
    Say(say::SayArgs),
}

/// Runs what was asked for.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Agent(args) => return Ok(crate::agent::run(args)),
        Command::Hook(args) => return Ok(crate::hook::run(args)),
        Command::Install(args) => return Ok(crate::hook::install::run(&args)),
        Command::Controller(args) => control(args),
        Command::Drain(args) => at_terminal(|client| drain::drain(client, args)),
        Command::Undrain(args) => at_terminal(|client| drain::undrain(client, args)),
        Command::Status(args) => at_terminal(|client| drain::status(client, args)),
        Command::Crd => crd::print(&mut std::io::stdout().lock()),
        Command::Say(args) => say::print(&args, &mut std::io::stdout().lock()),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// Runs the controller until it is told to stop.
fn control(args: crate::controller::ControllerArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    Ok(runtime.block_on(crate::controller::run(args))?)
}

/// Runs a person's command against the cluster that kubectl would use.
fn at_terminal<F, R>(command: F) -> anyhow::Result<()>
where
    F: FnOnce(kube::Client) -> R,
    R: Future<Output = anyhow::Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        let client = kube::Client::try_default().await.context("cannot find a cluster: set KUBECONFIG")?;
        command(client).await
    })
}
