//! How errors reach the user: one message on stderr, and an exit code that tells mistakes from failures.

use std::process::ExitCode;

/// The exit code when something failed while working.
const FAILED: u8 = 1;
/// The exit code when the command line or the configuration is wrong; clap uses it too.
const MISUSED: u8 = 2;

/// The command line or the configuration is wrong, and nothing was opened yet. The text says where and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Misuse(pub(crate) String);

/// An error that says: what was written is wrong.
pub(crate) fn misuse(message: impl Into<String>) -> anyhow::Error {
    Misuse(message.into()).into()
}

/// Prints the error with its causes, and tells the exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("sanwire: {error:#}");
    let is_misuse = error.chain().any(|cause| cause.is::<Misuse>());
    ExitCode::from(if is_misuse { MISUSED } else { FAILED })
}
