//! Records every change of one column of an OVSDB table, by `ovsdb-client monitor`, with the moment it arrived.
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::until_true;

#[derive(Clone, Debug)]
pub struct RowChange {
    pub at: Instant,
    pub row: String,
    /// `initial`, `insert`, `delete`, `old` or `new`.
    pub action: String,
    pub value: Value,
}

pub struct RowMonitor {
    changes: Arc<Mutex<Vec<RowChange>>>,
    child: Child,
}

/// The changes of one update. A changed row comes as two lines, `old` with the row's id and `new` without it.
fn changes_in(update: &Value, column: usize, at: Instant) -> Vec<RowChange> {
    let mut changes: Vec<RowChange> = Vec::new();
    for entry in update["data"].as_array().into_iter().flatten() {
        let text = |i: usize| entry[i].as_str().unwrap_or_default().to_owned();
        let row = match (text(0), changes.last()) {
            (id, Some(before)) if id.is_empty() => before.row.clone(),
            (id, _) => id,
        };
        changes.push(RowChange { at, row, action: text(1), value: entry[column].clone() });
    }
    changes
}

impl RowMonitor {
    pub fn start(socket: &Path, database: &str, table: &str, column: &str) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "ovsdb-client", "-f", "json", "monitor"]);
        // All tables, because of an empty one alone there would be no first answer to wait for.
        command.arg(format!("unix:{}", socket.display())).args([database, "ALL"]);
        let (table, column) = (table.to_owned(), column.to_owned());
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("ovsdb-client monitor");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let changes = Arc::new(Mutex::new(Vec::new()));
        let (sink, started) = (changes.clone(), Arc::new(Mutex::new(false)));
        let first = started.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let at = Instant::now();
                let Ok(update) = serde_json::from_str::<Value>(&line) else { continue };
                let position = |name: &str| update["headings"].as_array()?.iter().position(|h| h == name);
                if let Some(column) = position(&column).filter(|_| update["caption"] == table.as_str()) {
                    sink.lock().expect("not poisoned").extend(changes_in(&update, column, at));
                }
                *first.lock().expect("not poisoned") = true;
            }
        });
        until_true("ovsdb-client to monitor", Duration::from_secs(10), || *started.lock().expect("not poisoned"));
        Self { changes, child }
    }

    pub fn changes(&self) -> Vec<RowChange> {
        self.changes.lock().expect("not poisoned").clone()
    }

    /// The values of the rows that were there at `moment`.
    pub fn values_at(&self, moment: Instant) -> Vec<Value> {
        let mut rows = std::collections::BTreeMap::new();
        for change in self.changes().into_iter().take_while(|c| c.at <= moment) {
            match change.action.as_str() {
                "delete" => drop(rows.remove(&change.row)),
                "old" => {}
                _ => drop(rows.insert(change.row, change.value)),
            }
        }
        rows.into_values().collect()
    }

    /// How many rows with this value were deleted so far.
    pub fn deletions(&self, value: &str) -> usize {
        self.changes().iter().filter(|c| c.action == "delete" && c.value == value).count()
    }
}

impl Drop for RowMonitor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
