//! What each transaction of ours changed, from the Northbound's own log: a standalone database keeps every one of them with its comment.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value};

/// Row by table and id, as the log has it so far.
type Rows = BTreeMap<(String, String), Map<String, Value>>;

fn set(value: Option<&Value>) -> BTreeSet<String> {
    match value {
        Some(Value::Array(pair)) if pair.first() == Some(&Value::from("set")) => {
            pair[1].as_array().into_iter().flatten().map(Value::to_string).collect()
        }
        Some(one) if !one.is_null() => BTreeSet::from([one.to_string()]),
        _ => BTreeSet::new(),
    }
}

fn chassis(row: Option<&Map<String, Value>>) -> Option<&str> {
    row?.get("chassis_name")?.as_str()
}

/// Everything that our transactions did to others: a line each. Priorities may be changed (they are what a hand-over is made of), and rows and
/// references of `ours` may go; nothing else.
pub fn trespasses(database: &Path, ours: &BTreeSet<String>) -> (usize, Vec<String>) {
    let log = std::fs::read_to_string(database).unwrap();
    let (mut rows, mut transactions, mut found) = (Rows::new(), 0, Vec::new());
    for record in log.lines().filter(|line| line.starts_with('{')).filter_map(|l| serde_json::from_str::<Value>(l).ok())
    {
        let by_us = record["_comment"].as_str().is_some_and(|comment| comment.contains("ovn-chassis:"));
        transactions += usize::from(by_us);
        // References are judged by the rows as they were before this transaction.
        let before = rows.clone();
        for (table, changes) in record.as_object().into_iter().flatten().filter(|(name, _)| !name.starts_with('_')) {
            let Some(changes) = changes.as_object() else { continue };
            for (uuid, change) in changes {
                let key = (table.clone(), uuid.clone());
                if by_us {
                    judge(&before, &key, change, ours, &mut found);
                }
                match change.as_object() {
                    Some(columns) => rows.entry(key).or_default().extend(columns.clone()),
                    None => drop(rows.remove(&key)),
                }
            }
        }
    }
    (transactions, found)
}

fn judge(before: &Rows, key: &(String, String), change: &Value, ours: &BTreeSet<String>, found: &mut Vec<String>) {
    let old = before.get(key);
    let is_ours = |row: Option<&Map<String, Value>>| chassis(row).is_some_and(|name| ours.contains(name));
    let fine = match (key.0.as_str(), change.as_object()) {
        ("HA_Chassis" | "Gateway_Chassis", None) => is_ours(old),
        ("HA_Chassis" | "Gateway_Chassis", Some(columns)) => {
            old.is_some() && columns.keys().all(|column| column == "priority" || column == "external_ids")
        }
        ("HA_Chassis_Group" | "Logical_Router_Port", Some(columns)) => columns.iter().all(|(column, new)| {
            let (had, has) = (set(old.and_then(|row| row.get(column))), set(Some(new)));
            let refers_to = |reference: &String| {
                let uuid = serde_json::from_str::<Value>(reference).ok()?[1].as_str()?.to_owned();
                let table = if column == "ha_chassis" { "HA_Chassis" } else { "Gateway_Chassis" };
                before.get(&(table.to_owned(), uuid))
            };
            matches!(column.as_str(), "ha_chassis" | "gateway_chassis")
                && has.is_subset(&had)
                && had.difference(&has).all(|gone| is_ours(refers_to(gone)))
        }),
        _ => false,
    };
    if !fine {
        found.push(format!("{} {}: {} -> {change}", key.0, key.1, old.cloned().map(Value::from).unwrap_or_default()));
    }
}
