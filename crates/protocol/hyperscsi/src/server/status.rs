//! How connections are doing, for people.

use std::time::Duration;

use sanwire_core::quota::Usage;
use sanwire_core::{ClientId, NexusId, Path, Protection};

use super::Server;
use crate::channel::LinkStatus;
use crate::wire::flow::Windows;

/// One connection as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionStatus {
    /// The nexus of its session.
    pub nexus: NexusId,
    /// Where the client is.
    pub path: Path,
    /// The links that it goes by.
    pub links: usize,
    /// How its data packets are guarded at least.
    pub protection: Protection,
    /// Packets of all kinds that went to it.
    pub sent_packets: u64,
    /// Packets of all kinds that came from it, also such as were not taken.
    pub received_packets: u64,
    /// Data packets that were sent again.
    pub resent_packets: u64,
    /// How often nothing was acknowledged in time on a link: then the client is asked what has arrived.
    pub timeouts: u64,
    /// The windows in force.
    pub windows: Windows,
    /// The round trip, smoothed, once it was measured.
    pub round_trip: Option<Duration>,
}

impl Server {
    /// How the quotas are used that this shard keeps.
    #[must_use]
    pub fn quotas(&self) -> Vec<Usage> {
        let strangers = self.gate.usages().into_iter().chain(self.throttle.usages()).chain(self.half_opens.usages());
        strangers
            .chain(self.places.usages())
            .chain(self.accounts.usages())
            .chain([self.config.memory.usage()])
            .collect()
    }

    /// The links of all connections, with the nexuses of their sessions.
    pub fn link_statuses(&self) -> impl Iterator<Item = (NexusId, LinkStatus)> {
        self.connections
            .values()
            .flat_map(|connection| connection.channel.links().map(move |link| (connection.nexus, link)))
    }

    /// All connections, with their clients.
    #[must_use]
    pub fn connection_statuses(&self) -> Vec<(ClientId, ConnectionStatus)> {
        let status = |connection: &super::Connection| {
            let client = self.sessions.get(&connection.nexus)?.client;
            let channel = &connection.channel;
            let status = ConnectionStatus {
                nexus: connection.nexus,
                path: channel.path(),
                links: channel.links().count(),
                protection: channel.floor(),
                sent_packets: connection.sent_packets,
                received_packets: connection.received_packets,
                resent_packets: channel.links().map(|link| link.resent_packets).sum(),
                timeouts: channel.links().map(|link| link.timeouts).sum(),
                windows: channel.windows(),
                round_trip: channel.round_trip(),
            };
            Some((client, status))
        };
        self.connections.values().filter_map(status).collect()
    }
}
