//! Chores of the repository: `cargo xtask tidy` checks its rules, `cargo xtask test` runs every check and test.
#![forbid(unsafe_code)]

mod run;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask COMMAND
  tidy            check the rules of the repository
  tidy --update   lower the entries of xtask/ratchet.toml to today's lengths
  check           the checks and unit tests that every commit should pass: a few minutes
  test            run every check and test, and print the totals
  test --packages the same, and install meanwhile what tests need of Debian's packages
  test --long     the same, with more simulation, tests that the clock judges, Miri, and a minute of each fuzz target";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["tidy"] => tidy::check(&root()),
        ["tidy", "--update"] => tidy::update(&root()),
        ["check"] => run::all(&root(), run::Length::Check, false),
        ["test"] => run::all(&root(), run::Length::Short, false),
        ["test", "--packages"] => run::all(&root(), run::Length::Short, true),
        ["test", "--long"] => run::all(&root(), run::Length::Long, false),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}

/// The repository: the directory above this crate's.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}
