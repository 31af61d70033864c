//! The driver's port. A link that goes away and comes back is an outage like any other: the client seeks on.

use std::io;
use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, Path, Peer};
use sanwire_io::{LocalAddress, Port, interface};

use crate::endpoint::{self, Endpoint};
use crate::url::Server;

/// How often the port is looked after while there is no connection.
const TEND_EVERY: Duration = Duration::from_secs(2);

/// A port, and what it takes to open it again.
pub(super) struct Wire {
    pub(super) port: Port,
    path: Path,
    server: Server,
    tend_at: Instant,
    is_broken: bool,
}

impl Wire {
    pub(super) fn new(endpoint: Endpoint, server: Server) -> Self {
        Wire { port: endpoint.port, path: endpoint.path, server, tend_at: Instant::ZERO, is_broken: false }
    }

    pub(super) fn receive(&mut self, budget: usize, handler: &mut dyn FnMut(Peer, &[u8])) -> usize {
        let result = self.port.receive(budget, handler);
        self.note(result).unwrap_or(0)
    }

    pub(super) fn queue(&mut self, to: Peer, packet: Packet) {
        if let Err(packet) = self.port.queue(to, packet) {
            self.flush();
            // An empty batch takes a packet.
            drop(self.port.queue(to, packet));
        }
    }

    pub(super) fn flush(&mut self) {
        let result = self.port.flush();
        self.note(result);
    }

    fn note<T>(&mut self, result: io::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                if !self.is_broken {
                    tracing::warn!("the network port towards {} does not work any more: {error}", self.server);
                }
                self.is_broken = true;
                None
            }
        }
    }

    /// Opens the port again if it leads nowhere. To be called while there is no connection.
    pub(super) fn tend(&mut self, now: Instant) {
        if now < self.tend_at {
            return;
        }
        self.tend_at = now + TEND_EVERY;
        if !self.is_stale() {
            return;
        }
        match endpoint::open_port(&self.server, self.path.peer) {
            Ok(port) => {
                tracing::warn!("the network port towards {} is open again", self.server);
                self.port = port;
                self.is_broken = false;
            }
            Err(error) => tracing::debug!("the network port cannot be opened again yet: {error}"),
        }
    }

    fn is_stale(&mut self) -> bool {
        if self.port.refresh().is_err() || self.is_broken {
            return true;
        }
        match (self.port.local_address(), self.path.peer) {
            (LocalAddress::Udp(local), Peer::Udp(server)) => {
                interface::route_to(server).is_ok_and(|route| route.source != local.ip())
            }
            _ => false,
        }
    }
}
