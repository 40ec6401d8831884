//! Row 2 at process level: the commands that our users type today, with the names they use, against our controller and a real agent.
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::harness::central::Shape;
use crate::harness::daemon::run;
use crate::harness::world::{SOON, World, hash8};
use crate::harness::{binaries, until};

/// Runs shell commands as a user would type them, each failing the whole (`bash -e`); what they print.
fn shell(world: &World, script: &str) -> String {
    let folder = binaries::control_plane_folder();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command
        .args(["-e", "-o", "pipefail", "-c", script])
        .env("PATH", path)
        .env("KUBECONFIG", &world.lane.admin_kubeconfig);
    run(command.env("HOME", world.folder.path()), Duration::from_secs(90)).unwrap_or_else(|e| panic!("{e}"))
}

const FIND_NODE: &str = r#"NODE="$(kubectl get nodes -l openstack.c5c3.io/chassis=true -o jsonpath='{.items[0].metadata.name}')"
HASH="$(printf '%s' "$NODE" | sha256sum | cut -c1-8)"
echo "$NODE -> $HASH""#;

fn guide_world(gateway_only_one: bool) -> World {
    let mut world = World::as_in_the_guide(Shape::default());
    world.create_chassis(json!({}));
    world.add_node("guide-a", true, true);
    world.start_controller(&[], &[]);
    world.start_agent("guide-a");
    world.wait_applied("guide-a");
    let node = world.recorded_system_id("guide-a");
    let others: &[(&str, u32)] = if gateway_only_one { &[] } else { &[("foreign", 1)] };
    world.seed_gateway_ports("lr0", 2, &[&[(node.as_str(), 5)], others].concat());
    world.seed_ha_group("lr0", "group0", &[&[(node.as_str(), 5)], others].concat());
    world
}

fn walk_through(gateway_only_one: bool) {
    let mut world = guide_world(gateway_only_one);
    let central = &world.central;
    let id = world.recorded_system_id("guide-a");
    world.nodes.get_mut("guide-a").unwrap().start_ovn_controller(central);
    until(
        "the chassis row",
        SOON,
        || if world.central.chassis_names() == [id.clone()] { Ok(()) } else { Err("not yet") },
    );
    // One pod of each DaemonSet, which ends when the test lets it, as pods take their time on a real node.
    let pods = ["ovs", "ovn-controller"].map(|s| world.add_daemon_pod("guide-a", s));

    let printed = shell(&world, FIND_NODE);
    assert_eq!(printed.trim(), format!("guide-a -> {}", hash8("guide-a")));

    let printed = shell(
        &world,
        &format!(
            r#"{FIND_NODE}
kubectl label node "$NODE" openstack.c5c3.io/gateway-
kubectl wait --for=create -n openstack "job/controlplane-chassis-evacuate-${{HASH}}" --timeout=30s
kubectl wait --for=condition=complete -n openstack "job/controlplane-chassis-apply-${{HASH}}" --timeout=5m
kubectl wait --for=condition=complete -n openstack "job/controlplane-chassis-evacuate-${{HASH}}" --timeout=5m
echo "[$(kubectl get ovnchassis controlplane-chassis -n openstack -o jsonpath='{{.status.nodes[0].gatewayEvacuated}} {{.status.nodes[0].gateway}}')]""#
        ),
    );
    assert_eq!(printed.lines().last(), Some("[true ]"), "{printed}");
    let rows = world.central.gateway_rows();
    assert!(!rows.contains(&id), "{rows:?}");
    assert_eq!(rows.len(), if gateway_only_one { 0 } else { 3 });
    assert!(!world.node("guide-a").external_id("ovn-cms-options").contains("enable-chassis-as-gw"));

    let printed = shell(
        &world,
        r#"NODE=guide-a
kubectl label node "$NODE" openstack.c5c3.io/chassis-
kubectl wait --for=jsonpath='{.spec.leaving}'=true -n openstack ovnchassisnode/"$NODE" --timeout=30s >/dev/null
for _ in $(seq 50); do kubectl get configmap controlplane-chassis-nodes -n openstack -o jsonpath="{.data['$NODE']}" | grep -q LEAVING && break; sleep 0.1; done
echo "[$(kubectl get configmap controlplane-chassis-nodes -n openstack -o jsonpath="{.data['$NODE']}")]""#,
    );
    assert!(printed.trim_end().ends_with("LEAVING=true]"), "{printed}");
    assert!(printed.contains(&format!("SYSTEM_ID={id}")), "{printed}");
    assert_eq!(world.central.chassis_names(), [id.as_str()], "the registration stays while pods run");

    // The node's kubelet at work: the label is gone, so the daemons stop and the pods end.
    until("our label to leave the node", SOON, || world.owner_label("guide-a").map_or(Ok(()), Err));
    world.node_mut("guide-a").stop_ovn_controller();
    for pod in &pods {
        world.end_pod(pod);
    }
    let printed = shell(
        &world,
        r#"HASH="$(printf '%s' guide-a | sha256sum | cut -c1-8)"
kubectl wait --for=condition=complete -n openstack "job/controlplane-chassis-chassis-del-${HASH}" --timeout=5m
echo "[$(kubectl get ovnchassis controlplane-chassis -n openstack -o jsonpath='{.status.nodes} {.status.desiredNumberScheduled}')]"
echo "[$(kubectl get configmap controlplane-chassis-nodes -n openstack -o jsonpath="{.data['guide-a']}")]"
kubectl wait --for=jsonpath='{.status.conditions[?(@.type=="MaintenanceReady")].reason}'=MaintenanceIdle -n openstack ovnchassis/controlplane-chassis --timeout=30s >/dev/null
echo "[$(kubectl get ovnchassis controlplane-chassis -n openstack -o jsonpath='{.status.conditions[?(@.type=="MaintenanceReady")].reason}')]""#,
    );
    let last: Vec<&str> = printed.lines().rev().take(3).collect();
    assert_eq!(last, ["[MaintenanceIdle]", "[]", "[ 0]"], "{printed}");
    for table in ["chassis", "chassis_private", "encap"] {
        assert!(world.central.southbound_names(table).is_empty(), "{table}");
    }
}

#[test]
fn row02_the_guides_commands_print_what_the_guide_says() {
    walk_through(false);
}

#[test]
fn row02_the_guides_commands_on_one_node_that_is_the_only_gateway() {
    walk_through(true);
}

#[test]
fn row02_the_guides_failure_section() {
    let mut world = World::as_in_the_guide(Shape::default());
    world.create_chassis(json!({}));
    world.add_node("guide-f", true, true);
    world.start_controller(&["--job-deadline-seconds", "8"], &[]);
    world.start_agent("guide-f");
    world.wait_applied("guide-f");
    let id = world.recorded_system_id("guide-f");
    world.seed_gateway_ports("lr0", 1, &[(&id, 1)]);

    world.central.northbound.members[0].daemon.pause();
    let printed = shell(
        &world,
        r#"kubectl label node guide-f openstack.c5c3.io/gateway-
HASH="$(printf '%s' guide-f | sha256sum | cut -c1-8)"
kubectl wait --for=create -n openstack "job/controlplane-chassis-evacuate-${HASH}" --timeout=30s
kubectl wait --for=condition=failed -n openstack "job/controlplane-chassis-evacuate-${HASH}" --timeout=1m
for _ in $(seq 50); do kubectl get events -n openstack --field-selector reason=ChassisMaintenanceJobFailed 2>/dev/null | grep -q Job && break; sleep 0.1; done
kubectl get events -n openstack --field-selector reason=ChassisMaintenanceJobFailed"#,
    );
    assert!(printed.contains(&world.job_name("evacuate", "guide-f")), "{printed}");
    let condition = world.wait_condition("MaintenanceReady", "False", "MaintenanceJobFailed");
    let message = condition["message"].as_str().unwrap_or_default();
    for words in ["evacuate", &world.job_name("evacuate", "guide-f"), "guide-f"] {
        assert!(message.contains(words), "{words:?} is not in {message:?}");
    }

    world.central.northbound.members[0].daemon.resume();
    let printed = shell(
        &world,
        r#"HASH="$(printf '%s' guide-f | sha256sum | cut -c1-8)"
kubectl delete job -n openstack "controlplane-chassis-evacuate-${HASH}"
kubectl wait --for=create -n openstack "job/controlplane-chassis-evacuate-${HASH}" --timeout=30s
kubectl wait --for=condition=complete -n openstack "job/controlplane-chassis-evacuate-${HASH}" --timeout=1m
echo "[$(kubectl get ovnchassis controlplane-chassis -n openstack -o jsonpath='{.status.nodes[0].gatewayEvacuated} {.status.nodes[0].gateway}')]""#,
    );
    assert_eq!(printed.lines().last(), Some("[true ]"), "{printed}");
    assert!(world.central.gateway_rows().is_empty());
}
