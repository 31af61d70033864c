//! `sanwire id`.

use crate::args::IdArgs;
use crate::connect::identity;
use crate::output;

/// Prints the client's id: what `serve --allow` takes.
pub(crate) fn run(args: &IdArgs) -> anyhow::Result<()> {
    Ok(output::print(&format!("{}\n", identity(args.key_file.as_deref())?.client_id()))?)
}
