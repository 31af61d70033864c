//! Where the targets are that an iSCSI portal tells of.

use std::net::ToSocketAddrs;

use sanwire_initiator::{IscsiServer, Server, Url};

/// A host that was asked for its targets, with its addresses: it is looked up once for all of them.
pub(super) struct Portal<'a> {
    pub(super) asked: &'a IscsiServer,
    addresses: Vec<(String, u16)>,
}

impl<'a> Portal<'a> {
    pub(super) fn new(asked: &'a IscsiServer) -> Self {
        let found = (&*asked.host, asked.port).to_socket_addrs().into_iter().flatten();
        let found = found.map(|address| (address.ip().to_string(), address.port()));
        let addresses = std::iter::once((asked.host.clone(), asked.port)).chain(found).collect();
        Portal { asked, addresses }
    }

    /// Where a target is: here, if this is one of its portals, and else at the first of these.
    pub(super) fn of_target(&self, addresses: &[(String, u16)]) -> IscsiServer {
        let portals = addresses.iter().filter_map(|(address, _)| {
            match format!("iscsi://{address}").parse::<Url>().ok()?.server {
                Server::Iscsi(portal) => Some((portal.host, portal.port)),
                _ => None,
            }
        });
        let portals: Vec<(String, u16)> = portals.collect();
        match portals.first() {
            Some((host, port)) if !portals.iter().any(|portal| self.addresses.contains(portal)) => {
                IscsiServer { host: host.clone(), port: *port, ..self.asked.clone() }
            }
            _ => self.asked.clone(),
        }
    }
}
