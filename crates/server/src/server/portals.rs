//! The portals of a server that starts.

use sanwire_io::tcp::Listener;

use crate::error::StartError;
use crate::wire::{Wire, WireKind};

/// Opens the portals; those with port 0 learn which port they have.
pub(super) fn listeners(wires: &mut [Wire]) -> Result<Vec<(Listener, u16, &'static WireKind)>, StartError> {
    let mut listeners = Vec::new();
    for wire in wires {
        let Some((address, group_tag)) = wire.portal() else { continue };
        let failed = |source| StartError::Wire { wire: wire.clone(), source };
        let listener = Listener::open(address).map_err(failed)?;
        let address = listener.local_address().map_err(failed)?;
        *wire = wire.clone().at(address);
        listeners.push((listener, group_tag, wire.kind()));
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests;
