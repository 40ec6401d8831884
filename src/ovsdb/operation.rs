//! Operations of a `transact` request as data, and the check of every element of its reply.
//!
//! The reply of a refused transaction has a null top-level error: the refusal stands inside the result list, at the
//! operation's place or after the last one (a commit that failed). [`check_results`] reads all of them.

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::error::ServerError;
use super::value::{Datum, Row, Uuid, ValueError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    Equals,
    Differs,
    Includes,
    Excludes,
}

impl Function {
    fn as_str(self) -> &'static str {
        match self {
            Self::Equals => "==",
            Self::Differs => "!=",
            Self::Includes => "includes",
            Self::Excludes => "excludes",
        }
    }
}

/// One clause of a `where`; all clauses of one operation must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub column: String,
    pub function: Function,
    pub value: Datum,
}

impl Condition {
    pub fn new(column: impl Into<String>, function: Function, value: impl Into<Datum>) -> Self {
        Self { column: column.into(), function, value: value.into() }
    }

    pub fn equals(column: impl Into<String>, value: impl Into<Datum>) -> Self {
        Self::new(column, Function::Equals, value)
    }

    pub fn differs(column: impl Into<String>, value: impl Into<Datum>) -> Self {
        Self::new(column, Function::Differs, value)
    }

    pub fn includes(column: impl Into<String>, value: impl Into<Datum>) -> Self {
        Self::new(column, Function::Includes, value)
    }

    pub fn to_json(&self) -> Value {
        json!([self.column, self.function.as_str(), self.value.to_json()])
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutator {
    Insert,
    Delete,
    Add,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    pub column: String,
    pub mutator: Mutator,
    pub value: Datum,
}

impl Mutation {
    pub fn insert(column: impl Into<String>, value: impl Into<Datum>) -> Self {
        Self { column: column.into(), mutator: Mutator::Insert, value: value.into() }
    }

    pub fn delete(column: impl Into<String>, value: impl Into<Datum>) -> Self {
        Self { column: column.into(), mutator: Mutator::Delete, value: value.into() }
    }

    fn to_json(&self) -> Value {
        let mutator = match self.mutator {
            Mutator::Insert => "insert",
            Mutator::Delete => "delete",
            Mutator::Add => "+=",
        };
        json!([self.column, mutator, self.value.to_json()])
    }
}

/// What a `wait` waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Equal,
    NotEqual,
}

/// One operation of a transaction. Plans are lists of these: comparable and printable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    Insert {
        table: String,
        uuid_name: Option<String>,
        row: Row,
    },
    Select {
        table: String,
        conditions: Vec<Condition>,
        columns: Vec<String>,
    },
    Update {
        table: String,
        conditions: Vec<Condition>,
        row: Row,
    },
    Mutate {
        table: String,
        conditions: Vec<Condition>,
        mutations: Vec<Mutation>,
    },
    Delete {
        table: String,
        conditions: Vec<Condition>,
    },
    /// A guard: with `timeout` 0 the transaction fails at once unless the rows are (or are not) as given.
    Wait {
        table: String,
        conditions: Vec<Condition>,
        columns: Vec<String>,
        until: Until,
        rows: Vec<Row>,
    },
    Comment(String),
    Abort,
}

fn owned(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|column| (*column).to_owned()).collect()
}

impl Operation {
    pub fn select(table: &str, conditions: Vec<Condition>, columns: &[&str]) -> Self {
        Self::Select { table: table.to_owned(), conditions, columns: owned(columns) }
    }

    pub fn insert(table: &str, row: Row) -> Self {
        Self::Insert { table: table.to_owned(), uuid_name: None, row }
    }

    pub fn insert_named(table: &str, uuid_name: &str, row: Row) -> Self {
        Self::Insert { table: table.to_owned(), uuid_name: Some(uuid_name.to_owned()), row }
    }

    pub fn update(table: &str, conditions: Vec<Condition>, row: Row) -> Self {
        Self::Update { table: table.to_owned(), conditions, row }
    }

    pub fn mutate(table: &str, conditions: Vec<Condition>, mutations: Vec<Mutation>) -> Self {
        Self::Mutate { table: table.to_owned(), conditions, mutations }
    }

    pub fn delete(table: &str, conditions: Vec<Condition>) -> Self {
        Self::Delete { table: table.to_owned(), conditions }
    }

    /// Fails the transaction at once unless exactly `rows` match `conditions` now, compared in `columns`.
    pub fn guard(table: &str, conditions: Vec<Condition>, columns: &[&str], rows: Vec<Row>) -> Self {
        Self::Wait { table: table.to_owned(), conditions, columns: owned(columns), until: Until::Equal, rows }
    }

    /// The operation's name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Insert { .. } => "insert",
            Self::Select { .. } => "select",
            Self::Update { .. } => "update",
            Self::Mutate { .. } => "mutate",
            Self::Delete { .. } => "delete",
            Self::Wait { .. } => "wait",
            Self::Comment(_) => "comment",
            Self::Abort => "abort",
        }
    }

    pub fn table(&self) -> &str {
        match self {
            Self::Insert { table, .. }
            | Self::Select { table, .. }
            | Self::Update { table, .. }
            | Self::Mutate { table, .. }
            | Self::Delete { table, .. }
            | Self::Wait { table, .. } => table,
            Self::Comment(_) | Self::Abort => "",
        }
    }

    pub fn to_json(&self) -> Value {
        let conditions = |list: &[Condition]| Value::Array(list.iter().map(Condition::to_json).collect());
        let mut object = Map::new();
        object.insert("op".to_owned(), self.name().into());
        if !self.table().is_empty() {
            object.insert("table".to_owned(), self.table().into());
        }
        match self {
            Self::Insert { uuid_name, row, .. } => {
                if let Some(name) = uuid_name {
                    object.insert("uuid-name".to_owned(), name.as_str().into());
                }
                object.insert("row".to_owned(), row.to_json());
            }
            Self::Select { conditions: list, columns, .. } => {
                object.insert("where".to_owned(), conditions(list));
                object.insert("columns".to_owned(), json!(columns));
            }
            Self::Update { conditions: list, row, .. } => {
                object.insert("where".to_owned(), conditions(list));
                object.insert("row".to_owned(), row.to_json());
            }
            Self::Mutate { conditions: list, mutations, .. } => {
                object.insert("where".to_owned(), conditions(list));
                object.insert("mutations".to_owned(), mutations.iter().map(Mutation::to_json).collect());
            }
            Self::Delete { conditions: list, .. } => {
                object.insert("where".to_owned(), conditions(list));
            }
            Self::Wait { conditions: list, columns, until, rows, .. } => {
                object.insert("where".to_owned(), conditions(list));
                object.insert("columns".to_owned(), json!(columns));
                object.insert(
                    "until".to_owned(),
                    match until {
                        Until::Equal => "==",
                        Until::NotEqual => "!=",
                    }
                    .into(),
                );
                object.insert("rows".to_owned(), rows.iter().map(Row::to_json).collect());
                object.insert("timeout".to_owned(), 0.into());
            }
            Self::Comment(text) => {
                object.insert("comment".to_owned(), text.as_str().into());
            }
            Self::Abort => {}
        }
        Value::Object(object)
    }
}

/// What one operation came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Inserted(Uuid),
    Rows(Vec<Row>),
    Count(u64),
    Done,
}

impl Outcome {
    pub fn rows(&self) -> &[Row] {
        match self {
            Self::Rows(rows) => rows,
            _ => &[],
        }
    }

    pub fn count(&self) -> u64 {
        match self {
            Self::Count(count) => *count,
            _ => 0,
        }
    }
}

/// Why a transaction did not happen, or its reply cannot be believed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TransactError {
    #[error("operation {number} ({operation} {table}) refused: {error}")]
    Operation { number: usize, operation: &'static str, table: String, error: ServerError },
    #[error("commit refused: {0}")]
    Commit(ServerError),
    #[error("transaction refused: {0}")]
    Request(ServerError),
    #[error("reply not understood at operation {number} ({operation} {table}): {problem}")]
    Malformed { number: usize, operation: &'static str, table: String, problem: String },
}

impl TransactError {
    pub fn server_error(&self) -> Option<&ServerError> {
        match self {
            Self::Operation { error, .. } | Self::Commit(error) | Self::Request(error) => Some(error),
            Self::Malformed { .. } => None,
        }
    }

    pub fn is_retryable(&self) -> bool {
        self.server_error().is_some_and(|error| error.kind.is_retryable())
    }
}

/// Reads the `result` of a `transact` against the operations that were sent. Either every operation was done, or this is
/// an error that names the one that was not.
pub fn check_results(operations: &[Operation], result: Value) -> Result<Vec<Outcome>, TransactError> {
    let malformed = |number: usize, problem: String| TransactError::Malformed {
        number,
        operation: operations.get(number).map_or("commit", Operation::name),
        table: operations.get(number).map_or("", Operation::table).to_owned(),
        problem,
    };
    let Value::Array(elements) = result else {
        return Err(malformed(0, "the result is not a list".to_owned()));
    };
    // The refusal first, wherever it stands: the elements after a refused operation are null and say nothing.
    for (number, element) in elements.iter().enumerate() {
        if element.get("error").is_some_and(|error| !error.is_null()) {
            let error = ServerError::parse(element);
            return Err(match operations.get(number) {
                Some(operation) => TransactError::Operation {
                    number,
                    operation: operation.name(),
                    table: operation.table().to_owned(),
                    error,
                },
                None => TransactError::Commit(error),
            });
        }
    }
    if elements.len() != operations.len() {
        return Err(malformed(elements.len(), format!("{} results for {}", elements.len(), operations.len())));
    }
    let mut outcomes = Vec::with_capacity(elements.len());
    for (number, (operation, element)) in operations.iter().zip(elements).enumerate() {
        let outcome = parse_outcome(operation, element).map_err(|problem| malformed(number, problem))?;
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

fn parse_outcome(operation: &Operation, element: Value) -> Result<Outcome, String> {
    let Value::Object(mut members) = element else {
        return Err(format!("expected an object, found {}", super::value::excerpt(&element.to_string())));
    };
    match operation {
        Operation::Insert { .. } => {
            let uuid = members.remove("uuid").ok_or("no `uuid`")?;
            match super::value::Atom::parse(uuid) {
                Ok(super::value::Atom::Uuid(uuid)) => Ok(Outcome::Inserted(uuid)),
                _ => Err("`uuid` is not a UUID".to_owned()),
            }
        }
        Operation::Select { .. } => match members.remove("rows") {
            Some(Value::Array(rows)) => rows
                .into_iter()
                .map(Row::parse)
                .collect::<Result<Vec<Row>, ValueError>>()
                .map(Outcome::Rows)
                .map_err(|error| error.to_string()),
            _ => Err("no list of `rows`".to_owned()),
        },
        Operation::Update { .. } | Operation::Mutate { .. } | Operation::Delete { .. } => {
            members.get("count").and_then(Value::as_u64).map(Outcome::Count).ok_or("no `count`".to_owned())
        }
        Operation::Wait { .. } | Operation::Comment(_) | Operation::Abort => Ok(Outcome::Done),
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::Kind;
    use super::*;

    fn plan() -> Vec<Operation> {
        vec![
            Operation::guard("T", vec![Condition::equals("name", "a")], &["n"], vec![Row::new().with("n", 1)]),
            Operation::mutate("T", vec![], vec![Mutation::delete("refs", Datum::set([Uuid::from_u128(7)]))]),
            Operation::select("T", vec![], &["_uuid"]),
        ]
    }

    #[test]
    fn operations_read_as_the_rfc_writes_them() {
        let written: Vec<Value> = plan().iter().map(Operation::to_json).collect();
        assert_eq!(
            Value::Array(written),
            json!([
                {"op": "wait", "table": "T", "where": [["name", "==", "a"]], "columns": ["n"], "until": "==",
                 "rows": [{"n": 1}], "timeout": 0},
                {"op": "mutate", "table": "T", "where": [],
                 "mutations": [["refs", "delete", ["uuid", "00000000-0000-0000-0000-000000000007"]]]},
                {"op": "select", "table": "T", "where": [], "columns": ["_uuid"]},
            ])
        );
    }

    #[test]
    fn a_refused_wait_is_an_error_though_nothing_else_says_so() {
        let error = check_results(&plan(), json!([{"error": "timed out", "details": "\"where\" …"}, null, null]));
        let error = error.unwrap_err();
        assert_eq!(error.server_error().unwrap().kind, Kind::TimedOut);
        assert!(error.is_retryable());
        assert!(error.to_string().starts_with("operation 0 (wait T) refused: timed out"), "{error}");
    }

    #[test]
    fn a_commit_that_fails_is_an_element_more() {
        let reply = json!([{}, {"count": 3}, {"rows": []}, {"error": "referential integrity violation"}]);
        assert!(matches!(check_results(&plan(), reply), Err(TransactError::Commit(_))));
    }

    #[test]
    fn all_results_are_typed() {
        let reply = json!([{}, {"count": 3}, {"rows": [{"_uuid": ["uuid", "00000000-0000-0000-0000-000000000007"]}]}]);
        let outcomes = check_results(&plan(), reply).unwrap();
        assert_eq!(outcomes.get(1).unwrap().count(), 3);
        assert_eq!(outcomes.get(2).unwrap().rows().first().unwrap().own_uuid().unwrap(), Uuid::from_u128(7));
    }

    #[test]
    fn too_few_results_or_results_of_another_shape_are_no_success() {
        for reply in [json!([]), json!([{}, {"count": 1}]), json!(null), json!([{}, {"count": -1}, {"rows": []}])] {
            assert!(matches!(check_results(&plan(), reply), Err(TransactError::Malformed { .. })));
        }
        for reply in [json!([null, null, null]), json!([{}, {"count": 1}, {"rows": [7]}])] {
            assert!(check_results(&plan(), reply).is_err());
        }
    }
}
