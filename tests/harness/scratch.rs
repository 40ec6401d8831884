//! Scratch folders and ports of a test binary.
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

/// The folder of this test binary. Short, because the path of a unix socket may have 107 characters. What an earlier binary left behind goes first.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let base = std::env::temp_dir();
        for entry in std::fs::read_dir(&base).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(pid) = name.strip_prefix("oc-").and_then(|p| p.parse::<u32>().ok()) else { continue };
            if !Path::new(&format!("/proc/{pid}")).exists() {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let root = base.join(format!("oc-{}", std::process::id()));
        std::fs::create_dir_all(&root).expect("a scratch folder");
        root
    })
}

/// One test's folder: removed when the test passes, kept and named when it fails.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = root().join(name);
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("files of the failed test are kept in {}", self.0.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// A loopback port that nobody listens on and that no outgoing connection is given (the kernel hands those out from 32768 up).
pub fn free_port() -> u16 {
    static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut taken = TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut candidate = 20_000 + (std::process::id().wrapping_mul(97) % 12_000) as u16 + taken.len() as u16;
    for _ in 0..12_000 {
        candidate = if candidate >= 32_000 { 20_000 } else { candidate + 1 };
        if !taken.contains(&candidate) && TcpListener::bind(("127.0.0.1", candidate)).is_ok() {
            taken.insert(candidate);
            return candidate;
        }
    }
    panic!("no free port between 20000 and 32000");
}
