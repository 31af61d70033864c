//! `sanwire dvd`: derived virtual devices, and their programs.

mod asked;
mod derive;
mod file;
mod list;
mod principal;
mod test;

use crate::args::{DvdArgs, DvdCommand};

/// Does what is wanted with derived virtual devices.
pub(crate) fn run(args: &DvdArgs) -> anyhow::Result<()> {
    match &args.command {
        DvdCommand::Derive(command) => derive::run(command),
        DvdCommand::Test(args) => test::run(args),
    }
}
