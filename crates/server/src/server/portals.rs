//! The portals of a server that starts.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use sanwire_io::tcp;
use sanwire_rdma::Rdma;

use crate::budget::Budget;
use crate::channel::{Listener, PortalPath};
use crate::error::StartError;
use crate::front::LoginService;
use crate::login_listener::Portal;
use crate::wire::{Wire, WireKind};

/// A port that takes connections.
pub(super) struct OpenPort {
    listener: Listener,
    group_tag: u16,
    address: SocketAddr,
    path: PortalPath,
    /// What is spoken there: one thing, or iSCSI and iSER.
    kinds: Vec<&'static WireKind>,
}

impl OpenPort {
    /// Whether what this wire speaks can be told from the others there by how a connection begins.
    fn has_room_for(&self, wire: &Wire) -> bool {
        let is_told_apart = |kind: &&WireKind| kind.front == wire.front() && kind.is_rdma() != wire.is_rdma();
        // By an adapter nothing is spoken but iSER.
        [self.path, wire.portal_path()] == [PortalPath::Tcp; 2]
            && wire.portal() == Some((self.address, self.group_tag))
            && wire.has_targets()
            && self.kinds.iter().all(is_told_apart)
    }

    /// As the login listener has it, with the logins of what is spoken there.
    pub(super) fn with(
        self,
        logins: impl FnOnce(&[&'static WireKind]) -> Option<Arc<dyn LoginService>>,
    ) -> Option<Portal> {
        Some(Portal { logins: logins(&self.kinds)?, listener: Some(self.listener), group_tag: self.group_tag })
    }
}

/// Opens the portals; those with port 0 learn which port they have. Two of iSCSI and iSER may be one port of TCP.
pub(super) fn listeners(wires: &mut [Wire], rdma: &Rdma) -> Result<Vec<OpenPort>, StartError> {
    let mut ports: Vec<OpenPort> = Vec::new();
    for wire in wires {
        let Some((address, group_tag)) = wire.portal() else { continue };
        if let Some(port) = ports.iter_mut().find(|port| port.has_room_for(wire)) {
            port.kinds.push(wire.kind());
            continue;
        }
        let failed = |source| StartError::Wire { wire: wire.clone(), source };
        let path = wire.portal_path();
        let listener = match path {
            PortalPath::Tcp => tcp::Listener::open(address).map(Listener::Tcp),
            PortalPath::Rdma => rdma.listen(address).map(|port| Listener::Rdma { port, rdma: rdma.clone() }),
        };
        let listener = listener.map_err(failed)?;
        let address = listener.local_address().map_err(failed)?;
        *wire = wire.clone().at(address);
        ports.push(OpenPort { listener, group_tag, address, path, kinds: vec![wire.kind()] });
    }
    Ok(ports)
}

/// Whether the address on which a wire of connections listens is one of this host now.
pub(super) fn is_there(portal: SocketAddr) -> bool {
    let mut any_port = portal;
    any_port.set_port(0);
    UdpSocket::bind(any_port).is_ok()
}

/// What the descriptors of this process are for when it has these.
pub(super) fn budget(wires: &[Wire]) -> Budget {
    Budget::of_process(wires.iter().any(Wire::is_by_adapter))
}

#[cfg(test)]
mod tests;
