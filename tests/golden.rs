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

/// What a field holds, in a word.
fn type_of(schema: &serde_json::Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    let kind = schema["type"].as_str().unwrap_or("any");
    match kind {
        "array" => format!("list of {}", type_of(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map of {}", type_of(&schema["additionalProperties"]))
        }
        _ => match schema["enum"].as_array() {
            Some(values) => {
                values.iter().filter_map(|v| v.as_str()).map(|v| format!("`{v}`")).collect::<Vec<_>>().join(", ")
            }
            None => kind.to_owned(),
        },
    }
}

/// One line per field below `path`. Kubernetes' own types are left to Kubernetes' own reference.
fn fields(path: &str, schema: &serde_json::Value, into: &mut String) {
    let required: Vec<_> = schema["required"].as_array().into_iter().flatten().filter_map(|r| r.as_str()).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let inner = if field["type"] == "array" { &field["items"] } else { field };
        let suffix = if field["type"] == "array" && inner["properties"].is_object() { "[]" } else { "" };
        let path = format!("{path}.{name}{suffix}");
        let text = field["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        let extra = match &field["default"] {
            serde_json::Value::Null if required.contains(&name.as_str()) => "required".to_owned(),
            serde_json::Value::Null => String::new(),
            value => format!("`{}`", value.to_string().trim_matches('"')),
        };
        into.push_str(&format!("| `{path}` | {} | {extra} | {text} |\n", type_of(field)));
        if !["resources", "tolerations", "conditions"].contains(&name.as_str()) {
            fields(&path, inner, into);
        }
    }
}

#[test]
fn reference_of_fields() {
    let mut text = "# Fields\n\nGenerated from the Rust types; `kubectl explain` shows the same.\n".to_owned();
    for crd in ovn_chassis::api::crds() {
        let crd = serde_json::to_value(crd).unwrap();
        let version = &crd["spec"]["versions"][0];
        text.push_str(&format!(
            "\n## {}\n\n`{}/{}`, short name `{}`\n\n| field | type | default | |\n| --- | --- | --- | --- |\n",
            crd["spec"]["names"]["kind"].as_str().unwrap(),
            crd["spec"]["group"].as_str().unwrap(),
            version["name"].as_str().unwrap(),
            crd["spec"]["names"]["shortNames"][0].as_str().unwrap(),
        ));
        for part in ["spec", "status"] {
            fields(part, &version["schema"]["openAPIV3Schema"]["properties"][part], &mut text);
        }
    }
    assert!(text.contains("`spec.gateway.nodeSelector`") && text.contains("`status.nodes[].gatewayEvacuated`"));
    golden("docs/reference/fields.md", &text);
}

/// Name, kind and help of the metrics that a file registers: a name and a help text as the first two arguments, then
/// the field that holds the metric.
fn metrics_of(source: &str) -> Vec<(String, &'static str, String)> {
    let parts: Vec<_> = source.split('"').collect();
    let mut found = Vec::new();
    // Texts between quotes have odd places.
    for at in (1..parts.len().saturating_sub(3)).step_by(2) {
        let (before, name, between, help, after) =
            (parts[at - 1], parts[at], parts[at + 1], parts[at + 2], parts[at + 3]);
        let called = before.trim_end().ends_with("register(") || before.trim_end().ends_with("add(");
        if !called || between.trim() != "," {
            continue;
        }
        let field = after
            .split(['.', ',', ')'])
            .map(|w| w.trim_matches(['&', ' ', '\n']))
            .find(|w| !w.is_empty() && !["this", "own", "self"].contains(w));
        let declared = field.and_then(|f| source.split(&format!("\n    {f}: ")).nth(1)).and_then(|t| t.lines().next());
        let kind = ["Counter", "Gauge", "Histogram"].into_iter().find(|k| declared.is_some_and(|d| d.contains(k)));
        let kind = kind.unwrap_or_else(|| panic!("metric {name}: no field {field:?} of a known kind"));
        let suffix = if kind == "Counter" { "_total" } else { "" };
        found.push((format!("ovn_chassis_{name}{suffix}"), kind, help.to_owned()));
    }
    found
}

#[test]
fn list_of_metrics() {
    fn files(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, into);
            } else if path.extension().is_some_and(|e| e == "rs") {
                into.push(path);
            }
        }
    }
    let mut sources = Vec::new();
    files(&root().join("src"), &mut sources);
    let mut found: Vec<_> = sources
        .iter()
        .flat_map(|file| {
            let text = fs::read_to_string(file).unwrap();
            metrics_of(text.split("#[cfg(test)]").next().unwrap())
        })
        .collect();
    found.sort();
    let mut text = "# Metrics\n\nGenerated from the source. Agents and controller serve them on `/metrics`.\n\n\
                    | metric | kind | |\n| --- | --- | --- |\n"
        .to_owned();
    for (name, kind, help) in &found {
        text.push_str(&format!("| `{name}` | {} | {help} |\n", kind.to_lowercase()));
    }
    for expected in ["ovn_chassis_controller_leading", "ovn_chassis_agent_repairs_total"] {
        assert!(found.iter().any(|(name, ..)| name == expected), "{expected} was not found: the reader is broken");
    }
    golden("docs/reference/metrics.md", &text);
}
