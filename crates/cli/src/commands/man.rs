//! `sanwire man`.

use std::fs;

use anyhow::Context;
use clap::CommandFactory;

use crate::args::{Cli, ManArgs};

/// Writes one page for the program and one for each command.
pub(crate) fn run(args: &ManArgs) -> anyhow::Result<()> {
    let directory = &args.directory;
    let written = fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
    written.with_context(|| format!("cannot write manual pages into {}", directory.display()))
}
