//! How errors reach the user: one message on stderr, and an exit code that tells mistakes from failures.

use std::process::ExitCode;

use sanwire_core::text::printable_lines;

use crate::{log, service};

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
    let text = describe(error);
    let text = printable_lines(&text);
    eprintln!("{}", log::line(tracing::Level::ERROR, &format!("sanwire: {text}")));
    service::status(&text);
    let is_misuse = error.chain().any(|cause| cause.is::<Misuse>());
    ExitCode::from(if is_misuse { MISUSED } else { FAILED })
}

/// The error and its causes. Many messages tell their cause themselves: it is not told twice.
fn describe(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cause_is_told_twice() {
        let cause = || std::io::Error::other("the disk is wet");
        let telling = anyhow::Error::new(cause()).context("cannot write: the disk is wet; dry it");
        assert_eq!(describe(&telling), "cannot write: the disk is wet; dry it");
        assert_eq!(describe(&anyhow::Error::new(cause()).context("cannot write")), "cannot write: the disk is wet");
    }
}
