//! `ovn-chassis say`.

use std::io::Write;

use anyhow::Context;
use clap::Args;

/// What to print.
#[derive(Debug, Args)]
pub struct SayArgs {
    /// The text; put `--` before one that starts with a dash.
    #[arg(required = true, value_name = "TEXT")]
    text: Vec<String>,
}

/// Prints the text once, with a line end.
pub fn print(args: &SayArgs, out: &mut impl Write) -> anyhow::Result<()> {
    writeln!(out, "{}", args.text.join(" ")).context("cannot write the text to standard output")
}
