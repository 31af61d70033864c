//! `sanwire ctl`.

use crate::args::CtlArgs;
use crate::{administration, control, output};

/// Asks the server and prints its answer.
pub(crate) fn run(args: &CtlArgs) -> anyhow::Result<()> {
    let request = administration::request(&args.command)?;
    let socket = args.socket.clone().map_or_else(control::only_socket, Ok)?;
    let answer = control::ask(&socket, &request)?;
    Ok(output::print(&administration::show(&answer, args.json)?)?)
}
