//! Where the binaries of the control plane are: built once by the project, or somebody's own.
use std::path::PathBuf;

/// The cache folder's name carries the versions, so that a newer build never meets an older one's files.
const CONTROL_PLANE: &str = "ovn-chassis/controlplane-1.34.4-etcd-3.6.4/bin";

pub fn control_plane_folder() -> PathBuf {
    if let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS").filter(|v| !v.is_empty()) {
        return assets.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|v| !v.is_empty()).map(PathBuf::from);
    cache
        .unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache"))
        .join(CONTROL_PLANE)
}

/// A binary of the control plane by name; says how to get it when it is missing.
pub fn control_plane(name: &str) -> PathBuf {
    let path = control_plane_folder().join(name);
    assert!(
        path.is_file(),
        "{} is missing: `make controlplane` builds etcd, kube-apiserver and kubectl there, or set KUBEBUILDER_ASSETS to a folder that holds them",
        path.display()
    );
    path
}

/// Our own binary as cargo built it for this test.
pub fn ovn_chassis() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_ovn-chassis"))
}
