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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        args: SayArgs,
    }

    fn said(words: &[&str]) -> String {
        let typed = Typed::try_parse_from(["say"].iter().chain(words)).unwrap();
        let mut out = Vec::new();
        print(&typed.args, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_text_comes_out_as_it_went_in() {
        assert_eq!(said(&["--", "--evil $(x)\nsecond line"]), "--evil $(x)\nsecond line\n");
        assert_eq!(said(&["two", "words"]), "two words\n");
    }
}
