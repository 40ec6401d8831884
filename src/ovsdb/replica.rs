//! A copy of some columns of some tables, kept current by the server's updates.
//!
//! The three generations of the protocol differ in how they write a change: `monitor` sends whole rows, `monitor_cond`
//! and `monitor_cond_since` send differences and leave out default values. Reading differences needs to know which
//! columns are scalars, sets and maps: [`Schema`] holds that much of the database's schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::operation::Condition;
use super::value::{Atom, Datum, Real, Row, Uuid, ValueError};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReplicaError {
    #[error("table `{table}`: {source}")]
    Row { table: String, source: ValueError },
    #[error("a row UUID: {0}")]
    Uuid(ValueError),
    #[error("table `{table}`, row {uuid}: a change of a row that was never sent")]
    UnknownRow { table: String, uuid: Uuid },
    #[error("table `{table}` was not asked for")]
    UnknownTable { table: String },
    #[error("{0}")]
    Shape(&'static str),
    #[error("the server's schema has no table `{table}`")]
    NoTable { table: String },
    #[error("the server's schema has no column `{column}` in table `{table}`")]
    NoColumn { table: String, column: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ColumnShape {
    /// At most one value; the default when it is left out.
    Scalar(Datum),
    Set,
    Map,
}

/// The shapes of all columns of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schema {
    pub version: Option<String>,
    tables: BTreeMap<String, BTreeMap<String, ColumnShape>>,
}

impl Schema {
    pub fn parse(value: &Value) -> Result<Self, ReplicaError> {
        let tables =
            value.get("tables").and_then(Value::as_object).ok_or(ReplicaError::Shape("a schema without tables"))?;
        let mut schema =
            Self { version: value.get("version").and_then(Value::as_str).map(str::to_owned), tables: BTreeMap::new() };
        for (table, definition) in tables {
            let columns = definition
                .get("columns")
                .and_then(Value::as_object)
                .ok_or(ReplicaError::Shape("a schema's table without columns"))?;
            let shapes = columns
                .iter()
                .map(|(column, definition)| {
                    (column.clone(), parse_shape(definition.get("type").unwrap_or(&Value::Null)))
                })
                .collect();
            schema.tables.insert(table.clone(), shapes);
        }
        Ok(schema)
    }

    pub fn has_table(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    pub fn has_column(&self, table: &str, column: &str) -> bool {
        self.shape(table, column).is_some()
    }

    fn shape(&self, table: &str, column: &str) -> Option<&ColumnShape> {
        self.tables.get(table)?.get(column)
    }
}

fn parse_shape(definition: &Value) -> ColumnShape {
    let base = |key: &Value| key.as_str().or_else(|| key.get("type").and_then(Value::as_str)).unwrap_or("").to_owned();
    match definition {
        Value::Object(members) if members.contains_key("value") => ColumnShape::Map,
        Value::Object(members) => {
            let many = match members.get("max") {
                None => false,
                Some(max) => max.as_u64() != Some(1),
            };
            let optional = members.get("min").and_then(Value::as_u64) == Some(0);
            match (many, optional) {
                (true, _) => ColumnShape::Set,
                (false, true) => ColumnShape::Scalar(Datum::empty()),
                (false, false) => ColumnShape::Scalar(default_atom(&base(members.get("key").unwrap_or(&Value::Null)))),
            }
        }
        other => ColumnShape::Scalar(default_atom(&base(other))),
    }
}

fn default_atom(base: &str) -> Datum {
    match base {
        "integer" => Datum::from(0),
        "real" => Datum::Set(vec![Atom::Real(Real(0.0))]),
        "boolean" => Datum::from(false),
        "uuid" => Datum::from(Uuid::from_u128(0)),
        _ => Datum::from(""),
    }
}

/// What to follow of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    pub columns: Vec<String>,
    /// A row is followed if any of these holds; all rows if there are none. A server that knows only the plain
    /// `monitor` (before OVS 2.6) sends all rows: whoever reads the view must not rely on the server's choice alone.
    pub any_of: Vec<Condition>,
}

impl Followed {
    pub fn columns(columns: &[&str]) -> Self {
        Self { columns: columns.iter().map(|column| (*column).to_owned()).collect(), any_of: Vec::new() }
    }
}

/// The three generations of the monitor protocol, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    CondSince,
    Cond,
    Plain,
}

impl Protocol {
    pub fn method(self) -> &'static str {
        match self {
            Self::CondSince => "monitor_cond_since",
            Self::Cond => "monitor_cond",
            Self::Plain => "monitor",
        }
    }

    /// What to try when the server does not know this one.
    pub fn older(self) -> Option<Self> {
        match self {
            Self::CondSince => Some(Self::Cond),
            Self::Cond => Some(Self::Plain),
            Self::Plain => None,
        }
    }
}

pub type Table = BTreeMap<Uuid, Arc<Row>>;

/// The tables themselves. Cloning is cheap: snapshots share tables and rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replica {
    tables: BTreeMap<String, Arc<Table>>,
}

static NO_ROWS: Table = BTreeMap::new();

impl Replica {
    pub fn table(&self, name: &str) -> &Table {
        self.tables.get(name).map_or(&NO_ROWS, |table| table)
    }

    pub fn row(&self, table: &str, uuid: Uuid) -> Option<&Row> {
        self.table(table).get(&uuid).map(AsRef::as_ref)
    }
}

/// One monitor: what it follows and how far it has come. It outlives connections, so that it can resume.
#[derive(Debug, Clone)]
pub struct Follower {
    followed: BTreeMap<String, Followed>,
    replica: Replica,
    /// The last transaction that the replica holds, for `monitor_cond_since`.
    last_transaction: Option<String>,
}

/// The transaction id that no transaction has: "send me everything".
const NO_TRANSACTION: &str = "00000000-0000-0000-0000-000000000000";

impl Follower {
    pub fn new(followed: BTreeMap<String, Followed>) -> Self {
        Self { followed, replica: Replica::default(), last_transaction: None }
    }

    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Whether the database has what is followed: a missing table or column would otherwise read as "no rows".
    pub fn check(&self, schema: &Schema) -> Result<(), ReplicaError> {
        for (table, followed) in &self.followed {
            if !schema.has_table(table) {
                return Err(ReplicaError::NoTable { table: table.clone() });
            }
            for column in &followed.columns {
                if !schema.has_column(table, column) {
                    return Err(ReplicaError::NoColumn { table: table.clone(), column: column.clone() });
                }
            }
        }
        Ok(())
    }

    /// The parameters of the request that starts or resumes the monitor.
    pub fn request(&self, database: &str, id: &str, protocol: Protocol) -> Value {
        let tables: Map<String, Value> = self
            .followed
            .iter()
            .map(|(table, followed)| {
                let mut request = json!({"columns": followed.columns});
                if protocol != Protocol::Plain && !followed.any_of.is_empty() {
                    let conditions: Vec<Value> = followed.any_of.iter().map(Condition::to_json).collect();
                    request = json!({"columns": followed.columns, "where": conditions});
                }
                (table.clone(), json!([request]))
            })
            .collect();
        match protocol {
            Protocol::CondSince => {
                json!([database, id, tables, self.last_transaction.as_deref().unwrap_or(NO_TRANSACTION)])
            }
            Protocol::Cond | Protocol::Plain => json!([database, id, tables]),
        }
    }

    /// Takes the reply to that request. Anything that cannot be resumed starts from nothing.
    pub fn accept_reply(&mut self, protocol: Protocol, reply: Value, schema: &Schema) -> Result<(), ReplicaError> {
        match protocol {
            Protocol::CondSince => {
                let Value::Array(parts) = reply else {
                    return Err(ReplicaError::Shape("a monitor_cond_since reply that is no list"));
                };
                let mut parts = parts.into_iter();
                match (parts.next(), parts.next(), parts.next()) {
                    (Some(Value::Bool(found)), Some(Value::String(transaction)), Some(updates)) => {
                        if !found {
                            self.replica = Replica::default();
                        }
                        self.apply_differences(updates, schema)?;
                        self.last_transaction = Some(transaction);
                        Ok(())
                    }
                    _ => Err(ReplicaError::Shape("a monitor_cond_since reply without its three parts")),
                }
            }
            Protocol::Cond => {
                self.start_over();
                self.apply_differences(reply, schema)
            }
            Protocol::Plain => {
                self.start_over();
                self.apply_whole_rows(reply)
            }
        }
    }

    fn start_over(&mut self) {
        self.replica = Replica::default();
        self.last_transaction = None;
    }

    /// Takes an `update`, `update2` or `update3`; `parts` are its parameters without the monitor's id.
    pub fn accept_update(
        &mut self,
        method: &str,
        parts: impl IntoIterator<Item = Value>,
        schema: &Schema,
    ) -> Result<(), ReplicaError> {
        let mut parts = parts.into_iter();
        match (method, parts.next(), parts.next()) {
            ("update", Some(updates), _) => self.apply_whole_rows(updates),
            ("update2", Some(updates), _) => self.apply_differences(updates, schema),
            ("update3", Some(Value::String(transaction)), Some(updates)) => {
                self.apply_differences(updates, schema)?;
                self.last_transaction = Some(transaction);
                Ok(())
            }
            _ => Err(ReplicaError::Shape("an update without its parts")),
        }
    }

    fn apply_whole_rows(&mut self, updates: Value) -> Result<(), ReplicaError> {
        self.for_each_change(updates, |table, name, uuid, mut change| {
            match change.remove("new").filter(|new| !new.is_null()) {
                Some(new) => {
                    let row = Row::parse(new).map_err(|source| ReplicaError::Row { table: name.to_owned(), source })?;
                    table.insert(uuid, Arc::new(row));
                }
                None => {
                    table.remove(&uuid);
                }
            }
            Ok(())
        })
    }

    fn apply_differences(&mut self, updates: Value, schema: &Schema) -> Result<(), ReplicaError> {
        let followed = self.followed.clone();
        self.for_each_change(updates, |table, name, uuid, change| {
            let parse =
                |row: Value| Row::parse(row).map_err(|source| ReplicaError::Row { table: name.to_owned(), source });
            for (kind, value) in change {
                match kind.as_str() {
                    "initial" | "insert" => {
                        let mut row = parse(value)?;
                        for column in followed.get(name).map_or(&[] as &[String], |followed| &followed.columns) {
                            if row.get(column).is_none()
                                && let Some(shape) = schema.shape(name, column)
                            {
                                let default = match shape {
                                    ColumnShape::Scalar(default) => default.clone(),
                                    ColumnShape::Set => Datum::empty(),
                                    ColumnShape::Map => Datum::Map(Vec::new()),
                                };
                                row.insert(column.clone(), default);
                            }
                        }
                        table.insert(uuid, Arc::new(row));
                    }
                    "modify" => {
                        let held = table
                            .get_mut(&uuid)
                            .ok_or_else(|| ReplicaError::UnknownRow { table: name.to_owned(), uuid })?;
                        let mut row = Row::clone(held);
                        for (column, difference) in parse(value)?.iter() {
                            let merged = merge(row.get(column), difference, schema.shape(name, column));
                            row.insert(column.to_owned(), merged);
                        }
                        *held = Arc::new(row);
                    }
                    "delete" => {
                        table.remove(&uuid);
                    }
                    _ => {
                        return Err(ReplicaError::Shape("a change that is none of initial, insert, modify and delete"));
                    }
                }
            }
            Ok(())
        })
    }

    fn for_each_change(
        &mut self,
        updates: Value,
        mut apply: impl FnMut(&mut Table, &str, Uuid, Map<String, Value>) -> Result<(), ReplicaError>,
    ) -> Result<(), ReplicaError> {
        let Value::Object(tables) = updates else {
            return Err(ReplicaError::Shape("updates that are no object"));
        };
        for (name, changes) in tables {
            if !self.followed.contains_key(&name) {
                return Err(ReplicaError::UnknownTable { table: name });
            }
            let Value::Object(changes) = changes else {
                return Err(ReplicaError::Shape("a table's updates that are no object"));
            };
            let table = Arc::make_mut(self.replica.tables.entry(name.clone()).or_default());
            for (uuid, change) in changes {
                let uuid: Uuid = uuid.parse().map_err(ReplicaError::Uuid)?;
                let Value::Object(change) = change else {
                    return Err(ReplicaError::Shape("a row's update that is no object"));
                };
                apply(table, &name, uuid, change)?;
            }
        }
        Ok(())
    }
}

/// Applies a difference: a scalar is replaced, an element of a set changes sides, a pair of a map is added, replaced, or,
/// if it is there already, removed.
fn merge(held: Option<&Datum>, difference: &Datum, shape: Option<&ColumnShape>) -> Datum {
    match (shape, held, difference) {
        (Some(ColumnShape::Set), Some(Datum::Set(held)), Datum::Set(toggled)) => {
            let mut atoms: Vec<Atom> =
                held.iter().filter(|atom| toggled.binary_search(atom).is_err()).cloned().collect();
            atoms.extend(toggled.iter().filter(|atom| held.binary_search(atom).is_err()).cloned());
            Datum::set(atoms)
        }
        (Some(ColumnShape::Map), Some(Datum::Map(held)), Datum::Map(changes)) => {
            let mut pairs: BTreeMap<Atom, Atom> = held.iter().cloned().collect();
            for (key, value) in changes {
                if pairs.get(key) == Some(value) {
                    pairs.remove(key);
                } else {
                    pairs.insert(key.clone(), value.clone());
                }
            }
            Datum::map(pairs)
        }
        _ => difference.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "00000000-0000-0000-0000-00000000000a";
    const B: &str = "00000000-0000-0000-0000-00000000000b";
    const TXN: &str = "00000000-0000-0000-0000-0000000000ff";

    fn schema() -> Schema {
        Schema::parse(&json!({"version": "1.2.3", "tables": {"T": {"columns": {
            "name": {"type": "string"},
            "number": {"type": {"key": {"type": "integer"}}},
            "maybe": {"type": {"key": "string", "min": 0, "max": 1}},
            "set": {"type": {"key": "integer", "min": 0, "max": "unlimited"}},
            "map": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
        }}}}))
        .unwrap()
    }

    fn follower() -> Follower {
        let followed = Followed::columns(&["name", "number", "maybe", "set", "map"]);
        Follower::new(BTreeMap::from([("T".to_owned(), followed)]))
    }

    fn row(follower: &Follower, uuid: &str) -> Option<Value> {
        follower.replica().row("T", uuid.parse().unwrap()).map(Row::to_json)
    }

    #[test]
    fn left_out_columns_hold_their_defaults() {
        let mut f = follower();
        let reply = json!([false, TXN, {"T": {A: {"initial": {"set": ["set", [1, 2]]}}}}]);
        f.accept_reply(Protocol::CondSince, reply, &schema()).unwrap();
        assert_eq!(
            row(&f, A).unwrap(),
            json!({"name": "", "number": 0, "maybe": ["set", []], "set": ["set", [1, 2]], "map": ["map", []]})
        );
    }

    #[test]
    fn differences_of_each_shape() {
        let mut f = follower();
        let first = json!({"T": {A: {"initial": {"name": "x", "maybe": "y", "set": ["set", [1, 2]],
            "map": ["map", [["k", "v"], ["l", "w"]]]}}}});
        f.accept_reply(Protocol::Cond, first, &schema()).unwrap();
        let change = json!({"T": {A: {"modify": {"name": "z", "maybe": ["set", []], "set": ["set", [2, 3]],
            "map": ["map", [["k", "v"], ["l", "changed"], ["new", "n"]]]}}}});
        f.accept_update("update3", [json!(TXN), change], &schema()).unwrap();
        assert_eq!(
            row(&f, A).unwrap(),
            json!({"name": "z", "number": 0, "maybe": ["set", []], "set": ["set", [1, 3]],
                   "map": ["map", [["l", "changed"], ["new", "n"]]]})
        );
        // One element taken out of a set comes as a bare atom.
        f.accept_update("update2", [json!({"T": {A: {"modify": {"set": 3}}}})], &schema()).unwrap();
        assert_eq!(row(&f, A).unwrap().get("set").unwrap(), &json!(1));
        f.accept_update("update2", [json!({"T": {A: {"delete": null}}})], &schema()).unwrap();
        assert_eq!(row(&f, A), None);
    }

    #[test]
    fn a_resumed_monitor_keeps_its_rows_and_one_that_cannot_resume_starts_over() {
        let mut f = follower();
        let schema = schema();
        f.accept_reply(Protocol::CondSince, json!([false, TXN, {"T": {A: {"initial": {}}}}]), &schema).unwrap();
        assert_eq!(f.request("D", "m", Protocol::CondSince).get(3), Some(&json!(TXN)));
        f.accept_reply(Protocol::CondSince, json!([true, TXN, {"T": {B: {"insert": {}}}}]), &schema).unwrap();
        assert!(row(&f, A).is_some() && row(&f, B).is_some());
        f.accept_reply(Protocol::CondSince, json!([false, TXN, {"T": {B: {"initial": {}}}}]), &schema).unwrap();
        assert!(row(&f, A).is_none() && row(&f, B).is_some());
        f.accept_reply(Protocol::Plain, json!({}), &schema).unwrap();
        assert!(row(&f, B).is_none());
        assert_eq!(f.request("D", "m", Protocol::CondSince).get(3), Some(&json!(NO_TRANSACTION)));
    }

    #[test]
    fn the_plain_protocol_sends_whole_rows() {
        let mut f = follower();
        f.accept_reply(Protocol::Plain, json!({"T": {A: {"new": {"name": "x"}}}}), &schema()).unwrap();
        f.accept_update("update", [json!({"T": {A: {"old": {"name": "x"}, "new": {"name": "y"}}}})], &schema())
            .unwrap();
        assert_eq!(row(&f, A).unwrap(), json!({"name": "y"}));
        f.accept_update("update", [json!({"T": {A: {"old": {"name": "y"}}}})], &schema()).unwrap();
        assert_eq!(row(&f, A), None);
    }

    #[test]
    fn nonsense_is_an_error_and_no_view() {
        let schema = schema();
        for wrong in [
            json!({"U": {A: {"initial": {}}}}),
            json!({"T": {"no uuid": {"initial": {}}}}),
            json!({"T": {A: {"modify": {"name": "never sent"}}}}),
            json!({"T": {A: {"exploded": {}}}}),
            json!({"T": {A: 7}}),
            json!({"T": []}),
            json!([]),
        ] {
            assert!(follower().accept_update("update2", [wrong.clone()], &schema).is_err(), "{wrong}");
        }
        assert!(follower().accept_update("update3", [json!({})], &schema).is_err());
        assert!(follower().accept_reply(Protocol::CondSince, json!([true]), &schema).is_err());
    }

    #[test]
    fn a_table_or_column_that_the_schema_lacks_is_named() {
        let schema = schema();
        assert!(follower().check(&schema).is_ok());
        let none = Follower::new(BTreeMap::from([("X".to_owned(), Followed::columns(&[]))]));
        assert_eq!(none.check(&schema).unwrap_err().to_string(), "the server's schema has no table `X`");
        let none = Follower::new(BTreeMap::from([("T".to_owned(), Followed::columns(&["y"]))]));
        assert!(none.check(&schema).unwrap_err().to_string().contains("no column `y` in table `T`"));
    }

    #[test]
    fn conditions_travel_with_the_newer_protocols() {
        let followed = Followed { any_of: vec![Condition::equals("name", "x")], ..Followed::columns(&["name"]) };
        let f = Follower::new(BTreeMap::from([("T".to_owned(), followed)]));
        assert_eq!(
            f.request("D", "m", Protocol::Cond),
            json!(["D", "m", {"T": [{"columns": ["name"], "where": [["name", "==", "x"]]}]}])
        );
        assert_eq!(f.request("D", "m", Protocol::Plain), json!(["D", "m", {"T": [{"columns": ["name"]}]}]));
    }
}
