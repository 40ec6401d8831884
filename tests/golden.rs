//! Generated files are what the code makes of them today. Rewrite them all: `UPDATE_GOLDEN=1 cargo test --test golden`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::cargo::cargo_bin_cmd;
use ovn_chassis::api::OVNChassis;
use ovn_chassis::controller::objects::{
    RenderContext, access, daemon_sets, jobs,
    node::{self, NodeInputs},
    nodes_view,
};
use ovn_chassis::model::ids::{NodeName, SystemId};
use ovn_chassis::model::names::JobKind;
use serde::Serialize;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Compares a committed file with its content of today, or writes it.
fn golden(path: &str, content: &str) {
    let file = root().join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, content).unwrap();
        return;
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    if committed == content {
        return;
    }
    let differing = committed.lines().zip(content.lines()).position(|(a, b)| a != b);
    let line = differing.unwrap_or(committed.lines().count().min(content.lines().count()));
    panic!(
        "{path} is not what the code makes of it, from line {} on:\n  committed: {}\n  now:       {}\n\
         UPDATE_GOLDEN=1 cargo test --test golden rewrites it",
        line + 1,
        committed.lines().nth(line).unwrap_or("(end)"),
        content.lines().nth(line).unwrap_or("(end)"),
    );
}

fn output_of(arguments: &[&str]) -> String {
    // An environment of its own: clap shows the values of variables that a flag can also come from.
    let output = cargo_bin_cmd!("ovn-chassis").args(arguments).env_clear().env("COLUMNS", "100").output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn yaml(objects: &[impl Serialize]) -> String {
    objects.iter().map(|o| format!("---\n{}", serde_saphyr::to_string(o).unwrap())).collect()
}

#[test]
fn crds_are_those_of_the_rust_types() {
    let printed = output_of(&["crd"]);
    let documents: Vec<_> = printed.split("---\n").filter(|d| !d.is_empty()).collect();
    let [chassis, nodes] = documents.try_into().expect("two CRDs");
    assert!(chassis.contains("name: ovnchassis.ovn.openstack.c5c3.io"));
    assert!(nodes.contains("name: ovnchassisnodes.ovn.openstack.c5c3.io"));
    golden("manifests/base/crds/ovnchassis.yaml", chassis);
    golden("manifests/base/crds/ovnchassisnodes.yaml", nodes);
}

/// Subcommands as `--help` lists them, `path` being those that lead there.
fn subcommands(help: &str) -> Vec<String> {
    let Some(list) = help.split("Commands:\n").nth(1) else { return Vec::new() };
    let names =
        list.lines().take_while(|l| !l.trim().is_empty()).filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    names.filter_map(|l| l.split_whitespace().next()).filter(|n| *n != "help").map(str::to_owned).collect()
}

fn collect_help(path: &[String], into: &mut String) {
    let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
    arguments.push("--help");
    let help = output_of(&arguments);
    into.push_str(&format!("## ovn-chassis {}\n\n```\n{}\n```\n\n", arguments.join(" "), help.trim_end()));
    for name in subcommands(&help) {
        let mut deeper = path.to_vec();
        deeper.push(name);
        collect_help(&deeper, into);
    }
}

#[test]
fn help_of_every_subcommand() {
    let mut text = "# Commands\n\nGenerated from the binary's own `--help`.\n\n".to_owned();
    collect_help(&[], &mut text);
    for expected in ["ovn-chassis crd --help", "ovn-chassis say --help"] {
        assert!(text.contains(expected), "{expected} was not found: the reader of subcommands is broken");
    }
    golden("docs/reference/commands.md", &format!("{}\n", text.trim_end()));
}

/// Rules of every role under manifests/, one line each.
#[test]
fn table_of_rights() {
    let mut text = "# Who may do what\n\nGenerated from `manifests/base/rbac`.\n\n\
                    | role | API group | resources | names | verbs |\n| --- | --- | --- | --- | --- |\n"
        .to_owned();
    let mut rows = 0;
    for file in ["controller.yaml", "agent.yaml", "people.yaml"] {
        let manifest = fs::read_to_string(root().join("manifests/base/rbac").join(file)).unwrap();
        for document in serde_saphyr::from_multiple::<serde_json::Value>(&manifest).unwrap() {
            for rule in document["rules"].as_array().into_iter().flatten() {
                let cell = |key: &str| {
                    let words: Vec<_> = rule[key].as_array().into_iter().flatten().filter_map(|w| w.as_str()).collect();
                    words.iter().map(|w| if w.is_empty() { "core" } else { w }).collect::<Vec<_>>().join(", ")
                };
                rows += 1;
                text.push_str(&format!(
                    "| {} {} | {} | {} | {} | {} |\n",
                    document["kind"].as_str().unwrap(),
                    document["metadata"]["name"].as_str().unwrap(),
                    cell("apiGroups"),
                    cell("resources"),
                    cell("resourceNames"),
                    cell("verbs"),
                ));
            }
        }
    }
    assert!(rows > 10);
    golden("docs/reference/rights.md", &text);
}

#[test]
fn agents_may_read_their_objects_and_write_their_status_and_nothing_else() {
    let manifest = fs::read_to_string(root().join("manifests/base/rbac/agent.yaml")).unwrap();
    let role: serde_json::Value = serde_saphyr::from_str(&manifest).unwrap();
    assert_eq!(role["metadata"]["name"], access::AGENT_CLUSTER_ROLE);
    assert_eq!(
        role["rules"],
        serde_json::json!([
            {"apiGroups": ["ovn.openstack.c5c3.io"], "resources": ["ovnchassisnodes"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": ["ovn.openstack.c5c3.io"], "resources": ["ovnchassisnodes/status"], "verbs": ["patch", "update"]},
        ])
    );
}

/// The sample, with an uid as an API server would give it.
fn sample() -> OVNChassis {
    let text = fs::read_to_string(root().join("manifests/sample/ovnchassis.yaml")).unwrap();
    let mut chassis: OVNChassis = serde_saphyr::from_str(&text).unwrap();
    chassis.metadata.uid = Some("00000000-0000-4000-8000-000000000001".to_owned());
    chassis
}

#[test]
fn objects_of_the_sample() {
    let chassis = sample();
    let context = RenderContext {
        image: "ovn-chassis:1".to_owned(),
        node_client_secret: Some("ovn-client".to_owned()),
        job_deadline_seconds: 300,
        stop_first: false,
        api_server: None,
    };
    let inputs = NodeInputs {
        node: NodeName::from("node-a"),
        system_id: Some(SystemId::new("3f0e8cb1-52a2-4e2c-8d0a-2f6f1a1c9b11")),
        gateway: true,
        evacuate: false,
        leaving: false,
        ovn_remote: Some("ssl:192.0.2.1:6642".to_owned()),
        grants: Vec::new(),
    };
    let node = node::chassis_node(&chassis, &inputs);
    golden(
        "tests/golden/daemon-sets.yaml",
        &yaml(&[
            daemon_sets::ovs_daemon_set(&chassis, &context),
            daemon_sets::ovn_controller_daemon_set(&chassis, &context),
        ]),
    );
    golden("tests/golden/node.yaml", &yaml(&[&node]));
    golden("tests/golden/nodes-view.yaml", &yaml(&[nodes_view::nodes_config_map(&chassis, [&node.spec]).unwrap()]));
    golden("tests/golden/jobs.yaml", &yaml(&JobKind::ALL.map(|k| jobs::job(&chassis, &context, k, &inputs.node, 7))));
    let mut live = jobs::job(&chassis, &context, JobKind::Evacuate, &inputs.node, 7);
    live.metadata.uid = Some("00000000-0000-4000-8000-000000000002".to_owned());
    golden("tests/golden/cause-pod.yaml", &yaml(&[jobs::cause_pod(&live, &context.image, "Northbound out of reach")]));
    golden(
        "tests/golden/access.yaml",
        &format!(
            "{}{}",
            yaml(&[access::agent_service_account(&chassis)]),
            yaml(&[access::agent_role_binding(&chassis)])
        ),
    );
}
