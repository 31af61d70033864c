//! `sanwire completions`.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::output;

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sanwire", &mut script);
    Ok(output::print(&String::from_utf8_lossy(&script))?)
}
