//! `sanwire ctl`.

use crate::args::CtlArgs;
use crate::{administration, control, output};

/// Asks the server and prints its answer.
pub(crate) fn run(args: &CtlArgs) -> anyhow::Result<()> {
    let socket = args.socket.clone().map_or_else(control::only_socket, Ok)?;
    let answer = administration::pursue(&args.command, args.no_wait, |request| control::ask(&socket, request))?;
    Ok(output::print(&administration::show(&answer, args.json)?)?)
}
