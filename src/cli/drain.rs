//! `ovn-chassis drain`, `undrain` and `status`: the label changes of a drain as one command, with live progress.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::progress::{Goal, LabelError, Progress, describe, judge, label_to_remove, record_of};
use crate::api::OVNChassis;
use crate::cluster::{ClusterError, call_within};

/// How long one call to the API server may take.
const CALL: Duration = Duration::from_secs(15);

/// Which OVNChassis is meant.
#[derive(Debug, Args)]
pub struct Target {
    /// Namespace of the OVNChassis. Default: every namespace is searched.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Name of the OVNChassis. Default: the one that has a record of the node, or the only one there is.
    #[arg(short, long)]
    pub chassis: Option<String>,
}

/// Flags of `drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The node to drain.
    pub node: String,
    #[command(flatten)]
    pub target: Target,
    /// Take the gateway role only; the node stays a chassis.
    #[arg(long)]
    pub gateway_only: bool,
    /// Which label to remove, when a selector holds several. May be given twice: gateway's and chassis'.
    #[arg(long)]
    pub label: Vec<String>,
    /// Change the labels and do not wait for the result. Both roles are left at once, which is safe.
    #[arg(long)]
    pub no_wait: bool,
    /// Seconds to wait for each role.
    #[arg(long, default_value_t = 600)]
    pub timeout: u64,
}

/// Flags of `undrain`.
#[derive(Debug, Args)]
pub struct UndrainArgs {
    /// The node that is to be a chassis.
    pub node: String,
    #[command(flatten)]
    pub target: Target,
    /// Make it a gateway as well.
    #[arg(long)]
    pub gateway: bool,
    /// Change the labels and do not wait for the result.
    #[arg(long)]
    pub no_wait: bool,
    /// Seconds to wait.
    #[arg(long, default_value_t = 600)]
    pub timeout: u64,
}

/// Flags of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Only this node.
    pub node: Option<String>,
    #[command(flatten)]
    pub target: Target,
}

/// Bounds a call to the API server: kube sets no deadline of its own.
async fn call<T>(what: &str, future: impl Future<Output = kube::Result<T>>) -> Result<T, ClusterError> {
    call_within(CALL, what, future).await
}

async fn node_of(nodes: &Api<Node>, name: &str) -> anyhow::Result<Node> {
    match call(&format!("cannot read node {name}"), nodes.get(name)).await {
        Err(error) if error.is_not_found() => bail!("there is no Node {name}: kubectl get nodes lists them"),
        other => Ok(other?),
    }
}

async fn candidates(client: &Client, target: &Target) -> anyhow::Result<Vec<OVNChassis>> {
    let api: Api<OVNChassis> = match &target.namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut all = call("cannot list OVNChassis", api.list(&ListParams::default())).await?.items;
    if let Some(name) = &target.chassis {
        all.retain(|c| c.name_any() == *name);
    }
    Ok(all)
}

async fn chassis_for(client: &Client, target: &Target, node: &Node) -> anyhow::Result<OVNChassis> {
    let name = node.name_any();
    let mut all = candidates(client, target).await?;
    let knows = |c: &OVNChassis| record_of(c, &name).is_some();
    if all.iter().any(knows) {
        all.retain(knows);
    } else if all.len() > 1 {
        all.retain(|c| matches(node.labels(), &c.spec.node_selector));
    }
    match all.len() {
        0 => bail!("no OVNChassis has node {name}: name it with --chassis and --namespace"),
        1 => Ok(all.remove(0)),
        _ => bail!("several OVNChassis could have node {name}: name one with --chassis and --namespace"),
    }
}

fn matches(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(k, v)| labels.get(k) == Some(v))
}

async fn set_labels(nodes: &Api<Node>, node: &str, labels: serde_json::Value) -> anyhow::Result<()> {
    let patch = json!({ "metadata": { "labels": labels } });
    call(
        &format!("cannot change the labels of node {node}"),
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(&patch)),
    )
    .await?;
    Ok(())
}

/// Follows a node's record until the goal is reached, it fails or time is up.
async fn follow(client: &Client, chassis: &OVNChassis, node: &str, goal: Goal, bound: Duration) -> anyhow::Result<()> {
    let namespace = chassis.namespace().unwrap_or_default();
    let api: Api<OVNChassis> = Api::namespaced(client.clone(), &namespace);
    let name = chassis.name_any();
    let mut last = String::from("nothing seen yet");
    let watch = async {
        let stream = watcher::watch_object(api, &name);
        pin_mut!(stream);
        while let Some(seen) = stream.next().await {
            // The watcher comes back by itself after an error.
            let Ok(seen) = seen else { continue };
            let Some(seen) = seen else { bail!("OVNChassis {namespace}/{name} was deleted meanwhile") };
            match judge(goal, record_of(&seen, node)) {
                Progress::Done => return Ok(()),
                Progress::Failed(line) => bail!("{node}: {line}"),
                Progress::Waiting(line) if line != last => {
                    println!("  {line}");
                    last = line;
                }
                Progress::Waiting(_) => {}
            }
        }
        bail!("the watch of OVNChassis {namespace}/{name} ended")
    };
    match tokio::time::timeout(bound, watch).await {
        Ok(result) => result,
        Err(_) => bail!("{node}: not done after {} s; last seen: {last}", bound.as_secs()),
    }
}

/// Takes the gateway role, then the chassis role.
pub async fn drain(client: Client, args: DrainArgs) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = node_of(&nodes, &args.node).await?;
    let chassis = chassis_for(&client, &args.target, &node).await?;
    let name = chassis.name_any();
    let bound = Duration::from_secs(args.timeout);
    let gateway = chassis.spec.gateway.as_ref().map(|g| &g.node_selector);
    let chosen = |selector: &BTreeMap<String, String>| args.label.iter().find(|l| selector.contains_key(*l)).cloned();

    match gateway.filter(|selector| matches(node.labels(), selector)) {
        Some(selector) => {
            let keep = Some(&chassis.spec.node_selector);
            let label = label_to_remove("gateway", &name, selector, keep, chosen(selector).as_deref())?;
            println!("{}: taking the gateway role away (label {label})", args.node);
            set_labels(&nodes, &args.node, json!({ label: null })).await?;
        }
        None if args.gateway_only && gateway.is_none() => return Err(LabelError::NoGateway { chassis: name }.into()),
        None => println!("{}: is no gateway", args.node),
    }
    let has_duties = record_of(&chassis, &args.node).is_some_and(|r| r.gateway);
    if !args.no_wait && has_duties {
        follow(&client, &chassis, &args.node, Goal::Evacuated, bound).await?;
        println!("{}: gateway duties are evacuated", args.node);
    }
    if args.gateway_only {
        return Ok(());
    }
    if matches(node.labels(), &chassis.spec.node_selector) {
        let selector = &chassis.spec.node_selector;
        let label = label_to_remove("chassis", &name, selector, None, chosen(selector).as_deref())?;
        println!("{}: taking the chassis role away (label {label})", args.node);
        set_labels(&nodes, &args.node, json!({ label: null })).await?;
    }
    if !args.no_wait {
        follow(&client, &chassis, &args.node, Goal::Gone, bound).await?;
        println!("{}: deregistered and forgotten", args.node);
    }
    Ok(())
}

/// Gives the roles back.
pub async fn undrain(client: Client, args: UndrainArgs) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = node_of(&nodes, &args.node).await?;
    let mut all = candidates(&client, &args.target).await?;
    let chassis = match all.len() {
        1 => all.remove(0),
        0 => bail!("no such OVNChassis: name one with --chassis and --namespace"),
        _ => chassis_for(&client, &args.target, &node).await?,
    };
    let mut labels = chassis.spec.node_selector.clone();
    if args.gateway {
        let Some(gateway) = &chassis.spec.gateway else {
            return Err(LabelError::NoGateway { chassis: chassis.name_any() }.into());
        };
        labels.extend(gateway.node_selector.clone());
    }
    set_labels(&nodes, &args.node, json!(labels)).await?;
    let gateway =
        chassis.spec.gateway.as_ref().is_some_and(|g| args.gateway || matches(node.labels(), &g.node_selector));
    println!("{}: labelled as {}", args.node, if gateway { "chassis and gateway" } else { "chassis" });
    if !args.no_wait {
        let bound = Duration::from_secs(args.timeout);
        follow(&client, &chassis, &args.node, Goal::Active { gateway }, bound).await?;
        println!("{}: settings are applied", args.node);
    }
    Ok(())
}

/// Prints one line a node.
pub async fn status(client: Client, args: StatusArgs) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for chassis in candidates(&client, &args.target).await? {
        let namespace = chassis.namespace().unwrap_or_default();
        let status = chassis.status.clone().unwrap_or_default();
        writeln!(
            out,
            "OVNChassis {namespace}/{}: {} of {} nodes ready",
            chassis.name_any(),
            status.number_ready,
            status.desired_number_scheduled
        )?;
        for condition in status.conditions.iter().filter(|c| c.status == "False") {
            writeln!(out, "  {} is False ({}): {}", condition.type_, condition.reason, condition.message)?;
        }
        for record in status.nodes.iter().filter(|r| args.node.as_ref().is_none_or(|n| *n == r.name)) {
            let role = if record.gateway { "gateway" } else { "chassis" };
            let id = record.system_id.as_deref().unwrap_or("no system-id yet");
            writeln!(out, "  {}  {role}  {id}  {}", record.name, describe(record))?;
        }
    }
    Ok(())
}
