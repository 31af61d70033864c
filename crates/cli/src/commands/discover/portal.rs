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
        let portals: Vec<(String, u16)> = addresses.iter().filter_map(|(address, _)| place_of(address)).collect();
        match portals.first() {
            Some((host, port)) if !portals.iter().any(|portal| self.addresses.contains(portal)) => {
                IscsiServer { host: host.clone(), port: *port, ..self.asked.clone() }
            }
            _ => self.asked.clone(),
        }
    }

    /// Where it is in another way: at this host, if one of these portals is there, and else at the first of them; `None` without any.
    pub(super) fn of_other(&self, addresses: &[&str], is_iser: bool) -> Option<IscsiServer> {
        let portals: Vec<(String, u16)> = addresses.iter().filter_map(|address| place_of(address)).collect();
        let is_here = |host: &String| self.addresses.iter().any(|(known, _)| known == host);
        let (host, port) = match portals.iter().find(|(host, _)| is_here(host)) {
            Some((_, port)) => (self.asked.host.clone(), *port),
            None => portals.first()?.clone(),
        };
        Some(IscsiServer { host, port, is_iser, ..self.asked.clone() })
    }
}

/// The host and the port of a portal's address.
pub(super) fn place_of(address: &str) -> Option<(String, u16)> {
    match format!("iscsi://{address}").parse::<Url>().ok()?.server {
        Server::Iscsi(portal) => Some((portal.host, portal.port)),
        _ => None,
    }
}
