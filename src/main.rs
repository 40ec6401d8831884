//! Parses the command line and hands over.

use clap::Parser;

fn main() -> anyhow::Result<std::process::ExitCode> {
    ovn_chassis::cli::run(ovn_chassis::cli::Cli::parse())
}
