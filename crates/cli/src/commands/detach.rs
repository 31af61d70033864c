//! `sanwire detach`.

use sanwire_attach::Registry;

use super::device;
use crate::args::DetachArgs;
use crate::output;

/// Ends an attachment of this host.
pub(crate) fn run(args: &DetachArgs) -> anyhow::Result<()> {
    let detached = Registry::open(device::helper)?.detach(&args.what, args.wait)?;
    let volume = &detached.record.volume;
    Ok(output::print(&if detached.was_dead {
        format!("{volume}: its process had died; what it left behind is removed\n")
    } else {
        format!("{volume} is detached\n")
    })?)
}
