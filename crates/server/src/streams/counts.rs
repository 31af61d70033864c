//! The bytes of connections: of those that are there their own counters, of the others what they came to.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::AddAssign;

use sanwire_core::NexusId;

use super::Streams;
use super::connection::Connection;
use crate::channel::PortalPath;

/// Bytes in both directions, with all that a protocol adds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ByteCount {
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

impl AddAssign for ByteCount {
    fn add_assign(&mut self, other: ByteCount) {
        self.received += other.received;
        self.sent += other.sent;
    }
}

/// What was counted at one address of this host.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct PortalCount {
    /// Connections that are there.
    pub(crate) connections: u64,
    pub(crate) bytes: ByteCount,
}

impl AddAssign for PortalCount {
    fn add_assign(&mut self, other: PortalCount) {
        self.connections += other.connections;
        self.bytes += other.bytes;
    }
}

/// What connections came to that are closed.
#[derive(Default)]
pub(super) struct Closed {
    /// By addresses of this host, of which there are few.
    portals: BTreeMap<(SocketAddr, PortalPath), ByteCount>,
    /// For who counts for nexuses, until it was asked for.
    nexuses: Vec<(NexusId, ByteCount)>,
}

impl Closed {
    pub(super) fn note(&mut self, connection: &Connection) {
        if let Some(portal) = connection.portal {
            *self.portals.entry(portal).or_default() += connection.bytes();
        }
        self.nexuses.push((connection.nexus, connection.bytes()));
    }
}

impl Streams {
    /// A nexus, and the bytes of a connection of its that is closed.
    pub(crate) fn poll_closed(&mut self) -> Option<(NexusId, ByteCount)> {
        self.closed.nexuses.pop()
    }

    /// What was counted by the addresses of this host at which connections came in.
    pub(crate) fn portals(&self) -> BTreeMap<(SocketAddr, PortalPath), PortalCount> {
        let before = self.closed.portals.iter().map(|(portal, bytes)| (*portal, 0, *bytes));
        let there = self.connections().filter_map(|own| Some((own.portal?, 1, own.bytes())));
        let mut portals = BTreeMap::<(SocketAddr, PortalPath), PortalCount>::new();
        for (portal, connections, bytes) in before.chain(there) {
            *portals.entry(portal).or_default() += PortalCount { connections, bytes };
        }
        portals
    }

    /// The bytes of the connections that nexuses have now.
    pub(crate) fn bytes_by_nexus(&self) -> BTreeMap<NexusId, ByteCount> {
        let mut nexuses = BTreeMap::<NexusId, ByteCount>::new();
        for connection in self.connections() {
            *nexuses.entry(connection.nexus).or_default() += connection.bytes();
        }
        nexuses
    }

    fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().filter_map(|(_, connection)| connection.as_ref())
    }
}
