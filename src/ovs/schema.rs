//! The database file of `ovsdb-server`: made when missing, converted when the image brings a newer schema, always
//! under a backup.
//!
//! Both steps write a new file next to the old one and rename it, so that a container killed in the middle leaves
//! either the old database or the new one.

use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::run::{Invocation, RunError, run};

/// Conversion reads and writes a few kilobytes; minutes mean a broken disk.
const TOOL_DEADLINE: Duration = Duration::from_secs(30);

/// What was done with the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prepared {
    /// It fits as it is.
    Kept,
    /// It was missing and is empty now.
    Created,
    /// It was older than the image.
    Converted { from: String, to: String, backup: PathBuf },
    /// It is newer than the image, of the same major version: left alone, because a conversion back would drop
    /// columns that the next image wants.
    Newer { database: String, image: String },
}

/// A conversion that failed, with both versions.
#[derive(Debug, thiserror::Error)]
#[error("the database {} has schema {from}, the image brings {to}, and the conversion failed (the database is unchanged, its copy is {}): {source}", path.display(), backup.display())]
pub struct FailedConversion {
    pub path: PathBuf,
    pub from: String,
    pub to: String,
    pub backup: PathBuf,
    pub source: RunError,
}

/// Why the file is not ready.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// `ovsdb-tool` said no.
    #[error("cannot {action} the database {}: {source}", path.display())]
    Tool { action: &'static str, path: PathBuf, source: RunError },
    /// A conversion failed; the database is as it was.
    #[error(transparent)]
    Convert(Box<FailedConversion>),
    /// A file could not be copied or moved.
    #[error("cannot {action} {}: {source}", path.display())]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
}

/// Makes the database at `path` usable for the `ovsdb-server` of this image. `schema` names another schema file than
/// the image's default.
///
/// The caller holds the lock of the daemon. Run twice, the second run does nothing.
pub async fn prepare_database(path: &Path, schema: Option<&Path>) -> Result<Prepared, SchemaError> {
    let tool = |action| move |source| SchemaError::Tool { action, path: path.into(), source };
    if !path.exists() {
        let fresh = sibling(path, "creating");
        remove_leftover(&fresh)?;
        run(&ovsdb_tool("create").arg(&fresh).args(schema)).await.map_err(tool("create"))?;
        replace(&fresh, path)?;
        return Ok(Prepared::Created);
    }
    let answer =
        run(&ovsdb_tool("needs-conversion").arg(path).args(schema)).await.map_err(tool("read the schema of"))?;
    if answer.trim() != "yes" {
        return Ok(Prepared::Kept);
    }
    let from = run(&ovsdb_tool("db-version").arg(path)).await.map_err(tool("read the version of"))?.trim().to_owned();
    let to = run(&ovsdb_tool("schema-version").args(schema))
        .await
        .map_err(tool("read the image's schema for"))?
        .trim()
        .to_owned();
    if newer_but_compatible(&from, &to) {
        return Ok(Prepared::Newer { database: from, image: to });
    }
    let checksum = run(&ovsdb_tool("db-cksum").arg(path)).await.map_err(tool("read the checksum of"))?;
    let backup = sibling(path, &format!("backup{from}-{}", checksum.trim().replace(' ', "-")));
    copy(path, &backup)?;
    let fresh = sibling(path, "converting");
    remove_leftover(&fresh)?;
    // With a target of its own the tool never leaves a half-written `conf.db.tmp`, which would make every later
    // conversion fail.
    let converted = match schema {
        Some(schema) => ovsdb_tool("convert").arg(path).arg(schema).arg(&fresh),
        None => ovsdb_tool("convert").arg(path).arg(image_schema()).arg(&fresh),
    };
    if let Err(source) = run(&converted).await {
        let failed = FailedConversion { path: path.into(), from, to, backup, source };
        return Err(SchemaError::Convert(Box::new(failed)));
    }
    replace(&fresh, path)?;
    Ok(Prepared::Converted { from, to, backup })
}

fn ovsdb_tool(command: &str) -> Invocation {
    Invocation::new("ovsdb-tool", TOOL_DEADLINE).arg(command)
}

/// The schema file of the image: where Open vSwitch's own scripts look for it.
fn image_schema() -> PathBuf {
    let folder =
        std::env::var_os("OVS_PKGDATADIR").map_or_else(|| PathBuf::from("/usr/share/openvswitch"), PathBuf::from);
    let local = Path::new("/usr/local/share/openvswitch/vswitch.ovsschema");
    let usual = folder.join("vswitch.ovsschema");
    if !usual.exists() && local.exists() { local.into() } else { usual }
}

/// True when the database's schema is newer than the image's and has the same major version: old daemons then read
/// the part that they know.
fn newer_but_compatible(database: &str, image: &str) -> bool {
    let (Some(database), Some(image)) = (parse_version(database), parse_version(image)) else { return false };
    database.0 == image.0 && database > image
}

fn parse_version(text: &str) -> Option<(u64, u64, u64)> {
    let mut parts = text.split('.').map(|part| part.parse::<u64>().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}

fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

fn remove_leftover(path: &Path) -> Result<(), SchemaError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(SchemaError::File { action: "remove", path: path.into(), source })
        }
        _ => Ok(()),
    }
}

/// Copies through a temporary name, so that a backup is whole or absent.
fn copy(from: &Path, to: &Path) -> Result<(), SchemaError> {
    let partial = sibling(to, "partial");
    std::fs::copy(from, &partial).map_err(|source| SchemaError::File {
        action: "back up",
        path: from.into(),
        source,
    })?;
    replace(&partial, to)
}

fn replace(fresh: &Path, path: &Path) -> Result<(), SchemaError> {
    File::open(fresh)
        .and_then(|file| file.sync_all())
        .and_then(|()| std::fs::rename(fresh, path))
        .map_err(|source| SchemaError::File { action: "put in place", path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(folder: &Path, version: &str, columns: &str) -> PathBuf {
        let path = folder.join(format!("{version}.ovsschema"));
        let text = format!(
            r#"{{"name":"Open_vSwitch","version":"{version}","tables":{{"Open_vSwitch":{{"isRoot":true,"columns":{{{columns}}}}}}}}}"#
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    const ONE: &str = r#""a":{"type":"string"}"#;
    const TWO: &str = r#""a":{"type":"string"},"b":{"type":"string"}"#;

    #[tokio::test]
    async fn created_then_kept_then_converted_with_a_backup_then_kept() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("conf.db");
        let (old, new) = (schema(folder.path(), "1.0.0", ONE), schema(folder.path(), "1.1.0", TWO));
        assert_eq!(prepare_database(&db, Some(&old)).await.unwrap(), Prepared::Created);
        assert_eq!(prepare_database(&db, Some(&old)).await.unwrap(), Prepared::Kept);
        let before = std::fs::read(&db).unwrap();
        let converted = prepare_database(&db, Some(&new)).await.unwrap();
        let backup = match &converted {
            Prepared::Converted { from, to, backup } if from == "1.0.0" && to == "1.1.0" => Some(backup),
            _ => None,
        };
        let backup = backup.ok_or(&converted).unwrap();
        assert_eq!(std::fs::read(backup).unwrap(), before);
        assert_eq!(prepare_database(&db, Some(&new)).await.unwrap(), Prepared::Kept);
    }

    #[tokio::test]
    async fn case_31_a_database_newer_than_the_image_is_left_alone_and_both_versions_named() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("conf.db");
        let (old, new) = (schema(folder.path(), "1.0.0", ONE), schema(folder.path(), "1.1.0", TWO));
        prepare_database(&db, Some(&new)).await.unwrap();
        let before = std::fs::read(&db).unwrap();
        let found = prepare_database(&db, Some(&old)).await.unwrap();
        assert_eq!(found, Prepared::Newer { database: "1.1.0".into(), image: "1.0.0".into() });
        assert_eq!(std::fs::read(&db).unwrap(), before);
    }

    #[tokio::test]
    async fn a_failed_conversion_leaves_the_database_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("conf.db");
        let old = schema(folder.path(), "1.0.0", ONE);
        prepare_database(&db, Some(&old)).await.unwrap();
        let row = r#"["Open_vSwitch",{"op":"insert","table":"Open_vSwitch","row":{"a":"text"}}]"#;
        run(&ovsdb_tool("transact").arg(&db).arg(row)).await.unwrap();
        let before = std::fs::read(&db).unwrap();
        // A text that is to become a number.
        let other = schema(folder.path(), "2.0.0", r#""a":{"type":"integer"}"#);
        let error = prepare_database(&db, Some(&other)).await.unwrap_err().to_string();
        assert!(error.contains("has schema 1.0.0, the image brings 2.0.0"), "{error}");
        assert_eq!(std::fs::read(&db).unwrap(), before);
    }

    #[tokio::test]
    async fn leftovers_of_a_killed_container_do_not_disturb() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("conf.db");
        let (old, new) = (schema(folder.path(), "1.0.0", ONE), schema(folder.path(), "1.1.0", TWO));
        std::fs::write(folder.path().join("conf.db.creating"), "half").unwrap();
        assert_eq!(prepare_database(&db, Some(&old)).await.unwrap(), Prepared::Created);
        std::fs::write(folder.path().join("conf.db.converting"), "half").unwrap();
        assert!(matches!(prepare_database(&db, Some(&new)).await.unwrap(), Prepared::Converted { .. }));
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(newer_but_compatible("8.10.0", "8.9.1"));
        assert!(!newer_but_compatible("8.9.1", "8.10.0"));
        assert!(!newer_but_compatible("9.0.0", "8.10.0"));
        assert!(!newer_but_compatible("nonsense", "8.10.0"));
    }
}
