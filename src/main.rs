//! Parses the command line and hands over.

use clap::Parser;

fn main() -> std::process::ExitCode {
    // One line for a person, whatever RUST_BACKTRACE says.
    ovn_chassis::cli::run(ovn_chassis::cli::Cli::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        std::process::ExitCode::FAILURE
    })
}
