//! OVSDB values as RFC 7047 section 5.1 writes them: atoms, sets, maps, rows.
//!
//! A set of one element and the bare atom are the same value on the wire, so both become a [`Datum::Set`] here: whoever
//! reads a column says what it expects ([`Row::text`], [`Row::uuids`], …) and never looks at the notation.

use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value, json};
use thiserror::Error;

/// Why a JSON value is not an OVSDB value, or a column not what its reader expects.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ValueError {
    #[error("`{found}` is not a UUID; expected 8-4-4-4-12 hexadecimal digits")]
    Uuid { found: String },
    #[error("expected {expected}, found {found}")]
    Shape { expected: &'static str, found: String },
    #[error("column `{column}`: expected {expected}, found {found}")]
    Column { column: String, expected: &'static str, found: String },
    #[error("column `{column}`: {source}")]
    InColumn {
        column: String,
        #[source]
        source: Box<ValueError>,
    },
}

/// A piece of a foreign value for a message: never more than a line of it.
pub(crate) fn excerpt(text: &str) -> String {
    const LIMIT: usize = 80;
    if text.chars().count() <= LIMIT {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(LIMIT).collect();
    cut.push('…');
    cut
}

fn shape(expected: &'static str, found: &Value) -> ValueError {
    // A large value is named by its kind: printing megabytes to cut off 80 characters would cost more than it tells.
    let found = match found {
        Value::Array(elements) if elements.len() > 8 => format!("an array of {} elements", elements.len()),
        Value::Object(members) if members.len() > 8 => format!("an object of {} members", members.len()),
        other => excerpt(&other.to_string()),
    };
    ValueError::Shape { expected, found }
}

/// A row's UUID.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid([u8; 16]);

impl Uuid {
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub const fn from_u128(number: u128) -> Self {
        Self(number.to_be_bytes())
    }

    fn to_json(self) -> Value {
        json!(["uuid", self.to_string()])
    }
}

impl FromStr for Uuid {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ValueError::Uuid { found: excerpt(text) };
        if text.len() != 36 {
            return Err(wrong());
        }
        let mut number: u128 = 0;
        for (position, byte) in text.bytes().enumerate() {
            if matches!(position, 8 | 13 | 18 | 23) {
                if byte != b'-' {
                    return Err(wrong());
                }
                continue;
            }
            let digit = char::from(byte).to_digit(16).ok_or_else(wrong)?;
            number = number << 4 | u128::from(digit);
        }
        Ok(Self(number.to_be_bytes()))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            if matches!(position, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A real number with a total order, so that sets of them can be sorted and compared.
#[derive(Debug, Clone, Copy)]
pub struct Real(pub f64);

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.0.total_cmp(&other.0).is_eq()
    }
}
impl Eq for Real {}
impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Real {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Atom {
    Integer(i64),
    Real(Real),
    Boolean(bool),
    String(String),
    Uuid(Uuid),
    /// The name that an `insert` of the same transaction gave its row.
    NamedUuid(String),
}

impl Atom {
    pub fn parse(value: Value) -> Result<Self, ValueError> {
        const EXPECTED: &str = "a string, number, boolean or [\"uuid\", …]";
        match value {
            Value::String(text) => Ok(Self::String(text)),
            Value::Bool(flag) => Ok(Self::Boolean(flag)),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(integer), _) => Ok(Self::Integer(integer)),
                (None, Some(real)) if !number.is_u64() => Ok(Self::Real(Real(real))),
                _ => Err(shape("an integer of 64 bits", &Value::Number(number))),
            },
            Value::Array(pair) => match pair.as_slice() {
                [Value::String(tag), Value::String(text)] if tag == "uuid" => Ok(Self::Uuid(text.parse()?)),
                [Value::String(tag), Value::String(text)] if tag == "named-uuid" => Ok(Self::NamedUuid(text.clone())),
                _ => Err(shape(EXPECTED, &Value::Array(pair))),
            },
            other => Err(shape(EXPECTED, &other)),
        }
    }

    pub fn to_json(&self) -> Value {
        match self {
            Self::Integer(number) => json!(number),
            Self::Real(Real(number)) => json!(number),
            Self::Boolean(flag) => json!(flag),
            Self::String(text) => json!(text),
            Self::Uuid(uuid) => uuid.to_json(),
            Self::NamedUuid(name) => json!(["named-uuid", name]),
        }
    }
}

impl From<&str> for Atom {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}
impl From<String> for Atom {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}
impl From<i64> for Atom {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}
impl From<bool> for Atom {
    fn from(flag: bool) -> Self {
        Self::Boolean(flag)
    }
}
impl From<Uuid> for Atom {
    fn from(uuid: Uuid) -> Self {
        Self::Uuid(uuid)
    }
}

/// The value of one column.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Datum {
    /// Sorted, without duplicates. A scalar is a set of one element.
    Set(Vec<Atom>),
    /// Sorted by key, keys unique.
    Map(Vec<(Atom, Atom)>),
}

impl Datum {
    pub fn empty() -> Self {
        Self::Set(Vec::new())
    }

    pub fn set(atoms: impl IntoIterator<Item = impl Into<Atom>>) -> Self {
        let mut atoms: Vec<Atom> = atoms.into_iter().map(Into::into).collect();
        atoms.sort();
        atoms.dedup();
        Self::Set(atoms)
    }

    pub fn map(pairs: impl IntoIterator<Item = (impl Into<Atom>, impl Into<Atom>)>) -> Self {
        let mut pairs: Vec<(Atom, Atom)> = pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        pairs.sort();
        pairs.dedup_by(|later, earlier| later.0 == earlier.0);
        Self::Map(pairs)
    }

    pub fn parse(value: Value) -> Result<Self, ValueError> {
        let Value::Array(parts) = value else {
            return Ok(Self::Set(vec![Atom::parse(value)?]));
        };
        let mut parts = parts.into_iter();
        match (parts.next(), parts.next(), parts.next()) {
            (Some(Value::String(tag)), Some(Value::Array(elements)), None) if tag == "set" => {
                let atoms: Result<Vec<Atom>, ValueError> = elements.into_iter().map(Atom::parse).collect();
                Ok(Self::set(atoms?))
            }
            (Some(Value::String(tag)), Some(Value::Array(elements)), None) if tag == "map" => {
                let mut pairs = Vec::with_capacity(elements.len());
                for element in elements {
                    let Value::Array(pair) = element else {
                        return Err(shape("a [key, value] pair", &element));
                    };
                    let mut pair = pair.into_iter();
                    match (pair.next(), pair.next(), pair.next()) {
                        (Some(key), Some(value), None) => pairs.push((Atom::parse(key)?, Atom::parse(value)?)),
                        _ => {
                            return Err(ValueError::Shape {
                                expected: "a [key, value] pair",
                                found: "an array of another length".to_owned(),
                            });
                        }
                    }
                }
                Ok(Self::map(pairs))
            }
            (first, second, rest) => {
                let again: Vec<Value> = [first, second, rest].into_iter().flatten().chain(parts).collect();
                Ok(Self::Set(vec![Atom::parse(Value::Array(again))?]))
            }
        }
    }

    pub fn to_json(&self) -> Value {
        match self {
            Self::Set(atoms) => match atoms.as_slice() {
                [single] => single.to_json(),
                several => json!(["set", several.iter().map(Atom::to_json).collect::<Vec<_>>()]),
            },
            Self::Map(pairs) => {
                let pairs: Vec<Value> =
                    pairs.iter().map(|(key, value)| json!([key.to_json(), value.to_json()])).collect();
                json!(["map", pairs])
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Set(atoms) => atoms.is_empty(),
            Self::Map(pairs) => pairs.is_empty(),
        }
    }
}

impl<A: Into<Atom>> From<A> for Datum {
    fn from(atom: A) -> Self {
        Self::Set(vec![atom.into()])
    }
}

/// Some columns of one row, in no order that means anything. Rows have few columns here (we ask only for those we
/// need), so a short list beats a tree in memory and time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row(Vec<(String, Datum)>);

impl Row {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn with(mut self, column: impl Into<String>, value: impl Into<Datum>) -> Self {
        self.insert(column.into(), value.into());
        self
    }

    /// Puts `value` in, replacing what the column held.
    pub fn insert(&mut self, column: String, value: Datum) {
        match self.0.iter_mut().find(|(name, _)| *name == column) {
            Some((_, held)) => *held = value,
            None => {
                let at = self.0.partition_point(|(name, _)| *name < column);
                self.0.insert(at, (column, value));
            }
        }
    }

    pub fn parse(value: Value) -> Result<Self, ValueError> {
        let Value::Object(members) = value else {
            return Err(shape("a row as an object", &value));
        };
        let mut row = Self(Vec::with_capacity(members.len()));
        for (column, value) in members {
            match Datum::parse(value) {
                Ok(datum) => row.insert(column, datum),
                Err(source) => return Err(ValueError::InColumn { column, source: Box::new(source) }),
            }
        }
        Ok(row)
    }

    pub fn to_json(&self) -> Value {
        let members: Map<String, Value> =
            self.0.iter().map(|(column, datum)| (column.clone(), datum.to_json())).collect();
        Value::Object(members)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Datum)> {
        self.0.iter().map(|(column, datum)| (column.as_str(), datum))
    }

    pub fn get(&self, column: &str) -> Option<&Datum> {
        self.0.iter().find(|(name, _)| name == column).map(|(_, datum)| datum)
    }

    fn wrong(&self, column: &str, expected: &'static str) -> ValueError {
        let found = match self.get(column) {
            None => "no such column in the reply".to_owned(),
            Some(datum) => match shape("", &datum.to_json()) {
                ValueError::Shape { found, .. } => found,
                other => other.to_string(),
            },
        };
        ValueError::Column { column: column.to_owned(), expected, found }
    }

    fn atoms(&self, column: &str, expected: &'static str) -> Result<&[Atom], ValueError> {
        match self.get(column) {
            Some(Datum::Set(atoms)) => Ok(atoms),
            _ => Err(self.wrong(column, expected)),
        }
    }

    pub fn text(&self, column: &str) -> Result<&str, ValueError> {
        self.optional_text(column)?.ok_or_else(|| self.wrong(column, "one string"))
    }

    pub fn optional_text(&self, column: &str) -> Result<Option<&str>, ValueError> {
        match self.atoms(column, "at most one string")? {
            [] => Ok(None),
            [Atom::String(text)] => Ok(Some(text)),
            _ => Err(self.wrong(column, "at most one string")),
        }
    }

    pub fn integer(&self, column: &str) -> Result<i64, ValueError> {
        self.optional_integer(column)?.ok_or_else(|| self.wrong(column, "one integer"))
    }

    pub fn optional_integer(&self, column: &str) -> Result<Option<i64>, ValueError> {
        match self.atoms(column, "at most one integer")? {
            [] => Ok(None),
            [Atom::Integer(number)] => Ok(Some(*number)),
            _ => Err(self.wrong(column, "at most one integer")),
        }
    }

    pub fn boolean(&self, column: &str) -> Result<bool, ValueError> {
        match self.atoms(column, "one boolean")? {
            [Atom::Boolean(flag)] => Ok(*flag),
            _ => Err(self.wrong(column, "one boolean")),
        }
    }

    /// The row's own `_uuid`.
    pub fn own_uuid(&self) -> Result<Uuid, ValueError> {
        self.uuid("_uuid")
    }

    pub fn uuid(&self, column: &str) -> Result<Uuid, ValueError> {
        self.optional_uuid(column)?.ok_or_else(|| self.wrong(column, "one UUID"))
    }

    pub fn optional_uuid(&self, column: &str) -> Result<Option<Uuid>, ValueError> {
        match self.atoms(column, "at most one UUID")? {
            [] => Ok(None),
            [Atom::Uuid(uuid)] => Ok(Some(*uuid)),
            _ => Err(self.wrong(column, "at most one UUID")),
        }
    }

    pub fn uuids(&self, column: &str) -> Result<Vec<Uuid>, ValueError> {
        let atoms = self.atoms(column, "a set of UUIDs")?;
        let mut uuids = Vec::with_capacity(atoms.len());
        for atom in atoms {
            match atom {
                Atom::Uuid(uuid) => uuids.push(*uuid),
                _ => return Err(self.wrong(column, "a set of UUIDs")),
            }
        }
        Ok(uuids)
    }

    /// The pairs of a map of strings. An empty map may come as an empty set.
    pub fn text_map(&self, column: &str) -> Result<Vec<(&str, &str)>, ValueError> {
        const EXPECTED: &str = "a map of strings";
        let pairs = match self.get(column) {
            Some(Datum::Map(pairs)) => pairs.as_slice(),
            Some(Datum::Set(atoms)) if atoms.is_empty() => &[],
            _ => return Err(self.wrong(column, EXPECTED)),
        };
        let mut texts = Vec::with_capacity(pairs.len());
        for pair in pairs {
            match pair {
                (Atom::String(key), Atom::String(value)) => texts.push((key.as_str(), value.as_str())),
                _ => return Err(self.wrong(column, EXPECTED)),
            }
        }
        Ok(texts)
    }

    /// The value of one key in a map of strings.
    pub fn map_entry(&self, column: &str, key: &str) -> Result<Option<&str>, ValueError> {
        Ok(self.text_map(column)?.into_iter().find(|(name, _)| *name == key).map(|(_, value)| value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: &str = "5f1f2f3c-0000-4000-8000-0123456789ab";

    #[test]
    fn uuid_reads_back_as_written() {
        assert_eq!(ONE.parse::<Uuid>().unwrap().to_string(), ONE);
        for wrong in ["", "5f1f2f3c", "5f1f2f3c-0000-4000-8000-0123456789ag", "5f1f2f3c00000-4000-8000-0123456789ab"] {
            let message = wrong.parse::<Uuid>().unwrap_err().to_string();
            assert!(message.contains("8-4-4-4-12"), "{message}");
        }
    }

    #[test]
    fn a_scalar_and_a_set_of_one_are_the_same_value() {
        let bare = Datum::parse(json!(["uuid", ONE])).unwrap();
        let set = Datum::parse(json!(["set", [["uuid", ONE]]])).unwrap();
        assert_eq!(bare, set);
        assert_eq!(set.to_json(), json!(["uuid", ONE]));
    }

    #[test]
    fn maps_and_empty_sets() {
        let row = Row::parse(json!({
            "options": ["map", [["chassis", "b"], ["a", "c"]]],
            "none": ["set", []],
            "name": "lrp0",
            "priority": 5,
            "up": true,
        }))
        .unwrap();
        assert_eq!(row.map_entry("options", "chassis").unwrap(), Some("b"));
        assert_eq!(row.map_entry("none", "chassis").unwrap(), None);
        assert_eq!(row.optional_uuid("none").unwrap(), None);
        assert_eq!(row.text("name").unwrap(), "lrp0");
        assert_eq!(row.integer("priority").unwrap(), 5);
        assert!(row.boolean("up").unwrap());
    }

    #[test]
    fn a_wrong_column_names_itself_what_was_found_and_what_is_expected() {
        let row = Row::parse(json!({"name": 7})).unwrap();
        assert_eq!(row.text("name").unwrap_err().to_string(), "column `name`: expected at most one string, found 7");
        assert_eq!(
            row.integer("other").unwrap_err().to_string(),
            "column `other`: expected at most one integer, found no such column in the reply"
        );
        let wrong = Row::parse(json!({"x": ["set", [["uuid", "nonsense"]]]})).unwrap_err().to_string();
        assert!(wrong.starts_with("column `x`: `nonsense` is not a UUID"), "{wrong}");
    }

    #[test]
    fn an_integer_beyond_64_bits_is_refused() {
        assert!(Datum::parse(json!(u64::MAX)).is_err());
        assert_eq!(Datum::parse(json!(1.5)).unwrap(), Datum::Set(vec![Atom::Real(Real(1.5))]));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,40}".prop_map(Value::from),
            prop_oneof![Just("set"), Just("map"), Just("uuid"), Just("named-uuid")].prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 48, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                prop::collection::vec((".{0,8}", inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_json_is_a_value_or_a_message(value in any_json()) {
            match Datum::parse(value) {
                Ok(datum) => prop_assert_eq!(Datum::parse(datum.to_json()).unwrap(), datum),
                Err(error) => prop_assert!(error.to_string().len() < 600),
            }
        }

        #[test]
        fn any_text_is_a_uuid_or_a_message(text in ".{0,60}") {
            if let Ok(uuid) = text.parse::<Uuid>() {
                prop_assert_eq!(uuid.to_string(), text.to_lowercase());
            }
        }
    }
}
