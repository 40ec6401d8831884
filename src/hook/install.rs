//! `ovn-chassis install DIR`: leaves a copy of the running binary in a folder that other containers mount.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::ops::{LogFormat, telemetry};

/// Copies this binary to DIR/ovn-chassis.
#[derive(Debug, Clone, clap::Args)]
pub struct InstallArgs {
    /// Folder that receives the binary
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// The copy failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct InstallError {
    action: &'static str,
    path: PathBuf,
    source: std::io::Error,
}

/// Runs the command.
pub fn run(args: &InstallArgs) -> ExitCode {
    telemetry::init(LogFormat::Text);
    match install(Path::new("/proc/self/exe"), &args.dir) {
        Ok(path) => {
            tracing::info!("installed {}", path.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Copies `binary` into `dir` under a temporary name and renames it: a container that starts at the same moment finds
/// the whole file or none, and a copy that is being executed is replaced, not written to.
fn install(binary: &Path, dir: &Path) -> Result<PathBuf, InstallError> {
    let target = dir.join("ovn-chassis");
    let fresh = dir.join(format!(".ovn-chassis.{}", std::process::id()));
    let fail = |action, path: &Path| {
        let path = path.to_owned();
        move |source| InstallError { action, path, source }
    };
    std::fs::create_dir_all(dir).map_err(fail("create", dir))?;
    let copied = std::fs::copy(binary, &fresh)
        .and_then(|_| std::fs::set_permissions(&fresh, Permissions::from_mode(0o755)))
        .and_then(|()| File::open(&fresh)?.sync_all())
        .and_then(|()| std::fs::rename(&fresh, &target));
    if copied.is_err() {
        // Best effort: the error that matters is the one above.
        let _ = std::fs::remove_file(&fresh);
    }
    copied.map_err(fail("write", &target))?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_whole_executable_and_replaces_an_older_one() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        let dir = folder.path().join("opt");
        std::fs::write(&source, "one").unwrap();
        let target = install(&source, &dir).unwrap();
        std::fs::write(&source, "two").unwrap();
        assert_eq!(install(&source, &dir).unwrap(), target);
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "two");
        assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = install(&file, &file.join("sub")).unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot create {}", file.join("sub").display())), "{error}");
    }
}
