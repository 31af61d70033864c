//! `sanwire dvd`: derived virtual devices, and their programs.

mod asked;
mod principal;
mod test;

use crate::args::{DvdArgs, DvdCommand};

/// Does what is wanted with derived virtual devices.
pub(crate) fn run(args: &DvdArgs) -> anyhow::Result<()> {
    match &args.command {
        DvdCommand::Test(args) => test::run(args),
    }
}
