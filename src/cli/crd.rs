//! `ovn-chassis crd`.

use std::io::Write;

use anyhow::Context;

use crate::api;

/// Writes the CRDs as a YAML stream.
pub fn print(out: &mut impl Write) -> anyhow::Result<()> {
    out.write_all(yaml()?.as_bytes()).context("cannot write the CRDs to standard output")
}

/// The CRDs as a YAML stream.
pub fn yaml() -> anyhow::Result<String> {
    let mut text = String::new();
    for crd in api::crds() {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&crd).context("cannot render a CRD as YAML")?);
    }
    Ok(text)
}
