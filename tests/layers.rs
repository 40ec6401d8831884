//! Each layer may use only those before it: reads the imports of every file.

use std::fs;
use std::path::{Path, PathBuf};

/// What a layer may use of this crate.
const ALLOWED: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("api", &["model"]),
    ("ovsdb", &[]),
    ("ovn", &["model", "ovsdb"]),
    ("ovs", &["model", "ovsdb"]),
    ("cluster", &["model", "api"]),
    ("ops", &["model"]),
    ("hook", &["model", "ovs", "ops"]),
    ("agent", &["model", "api", "ovsdb", "ovs", "cluster", "ops", "hook"]),
    ("controller", &["model", "api", "ovsdb", "ovn", "cluster", "ops"]),
    ("cli", &["model", "api", "ovsdb", "ovn", "ovs", "cluster", "ops", "hook", "agent", "controller"]),
];

/// What files that decide must not name: they are pure.
const IMPURE: &[&str] = &[
    "tokio",
    "kube::Client",
    "kube::Api",
    "async fn",
    "SystemTime::now",
    "Instant::now",
    "std::env",
    "Timestamp::now",
];

fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// The part of a file that ships: everything before its unit tests.
fn shipped(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap()
}

/// Layers that a file names as `crate::layer`, also inside `use crate::{a::…, b}`.
fn layers_used(text: &str) -> Vec<String> {
    let mut used = Vec::new();
    for part in text.split("crate::").skip(1) {
        if let Some(group) = part.strip_prefix('{') {
            let mut depth = 1;
            let mut name = String::new();
            let mut at_start = true;
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    ',' if depth == 1 => {
                        at_start = true;
                        used.push(std::mem::take(&mut name));
                    }
                    _ if depth == 1 && at_start && (c.is_alphanumeric() || c == '_') => name.push(c),
                    ':' if depth == 1 => at_start = false,
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
            }
            used.push(name);
        } else {
            used.push(part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    used.retain(|n| ALLOWED.iter().any(|(layer, _)| layer == n));
    used
}

#[test]
fn each_layer_uses_only_those_before_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut faults = Vec::new();
    let mut seen = 0;
    for (layer, allowed) in ALLOWED {
        let mut files = Vec::new();
        rust_files(&src.join(layer), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for used in layers_used(shipped(&text)) {
                seen += 1;
                if used != *layer && !allowed.contains(&used.as_str()) {
                    faults.push(format!("{}: {layer} must not use {used}", file.display()));
                }
            }
        }
    }
    assert!(seen > 0, "no import was found: the reader of imports is broken");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn what_decides_is_pure() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    let deciding: Vec<_> = files
        .into_iter()
        .filter(|f| f.components().any(|c| c.as_os_str().to_string_lossy().trim_end_matches(".rs") == "decide"))
        .collect();
    let mut faults = Vec::new();
    for file in &deciding {
        let text = fs::read_to_string(file).unwrap();
        for word in IMPURE {
            if shipped(&text).lines().any(|l| !l.trim_start().starts_with("//") && l.contains(word)) {
                faults.push(format!("{}: names {word}", file.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
