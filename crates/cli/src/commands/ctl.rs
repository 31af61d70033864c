//! `sanwire ctl`.

use crate::args::{Asked, CtlArgs};
use crate::{administration, control};

/// Asks the server and prints its answer.
pub(crate) fn run(args: &CtlArgs) -> anyhow::Result<()> {
    let socket = args.socket.clone().map_or_else(|| control::find_socket(args.server.as_ref()), Ok)?;
    administration::run(&args.command, Asked::Here, args.terms, |request| control::ask(&socket, request))
}
