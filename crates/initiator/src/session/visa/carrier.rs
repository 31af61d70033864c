//! What carries the packets of a session: UDP, or TCP.

use std::io;
use std::net::SocketAddr;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, LinkId, Path, Peer};
use sanwire_io::{Clock, Waker};
use sanwire_visa::framing::PACKET_MAX_BYTES;
use sanwire_visa::{Client, LinkLimits};

use super::streams::Streams;
use crate::endpoint::{ConnectError, Endpoint, addresses};
use crate::options::ClientOptions;
use crate::ports::{Door, Ports};
use crate::session::table::{VISA, VISA_TCP};
use crate::url::VisaServer;

/// Packets taken from the ports before the driver looks at anything else.
const RECEIVE_BUDGET: usize = 64;

/// Packets under way to a client over TCP: enough for the buffers of the connection.
const STREAM_WINDOW_PACKETS: u32 = 64;

pub(super) enum Carrier {
    Datagrams(Ports),
    Streams(Streams),
}

impl Carrier {
    /// The carrier that the URL says, and where the server is sought through it.
    pub(super) fn open(server: &VisaServer, options: &ClientOptions) -> Result<(Self, Vec<Path>), ConnectError> {
        let VisaServer { host, port, is_stream } = server;
        if !is_stream {
            let endpoint = Endpoint::fragmenting_ip((host, *port), VISA, &options.name_servers)?;
            return Ok((Carrier::Datagrams(endpoint.ports), endpoint.places));
        }
        let places = addresses(host, *port, VISA_TCP, &options.name_servers)?;
        Ok((Carrier::Streams(Streams::default()), places.into_iter().map(stream_to).collect()))
    }

    /// Our end of each of its links.
    pub(super) fn link(&self) -> LinkLimits {
        match self {
            Carrier::Datagrams(ports) => {
                let limits = ports.limits();
                let packet_max_bytes = (limits.packet_max_bytes as usize).min(PACKET_MAX_BYTES) as u16;
                let window_packets = limits.receive_capacity_packets.max(1);
                LinkLimits { packet_max_bytes, window_packets, is_stream: false }
            }
            Carrier::Streams(_) => LinkLimits {
                packet_max_bytes: PACKET_MAX_BYTES as u16,
                window_packets: STREAM_WINDOW_PACKETS,
                is_stream: true,
            },
        }
    }

    /// How the server is reached at an address.
    pub(super) fn way_to(&mut self, address: SocketAddr) -> Option<Path> {
        match self {
            Carrier::Datagrams(ports) => {
                let link = Door::fragmenting_udp(address).and_then(|door| ports.add(door));
                link.ok().map(|link| Path { link, peer: Peer::Udp(address) })
            }
            Carrier::Streams(_) => Some(stream_to(address)),
        }
    }

    /// Looks after the ways while the server is sought.
    pub(super) fn tend(&mut self, now: Instant) {
        match self {
            Carrier::Datagrams(ports) => ports.tend(),
            Carrier::Streams(streams) => streams.tend(now),
        }
    }

    /// Why there is none, as far as what carries it knows.
    pub(super) fn failed(&self) -> Option<&str> {
        match self {
            Carrier::Datagrams(_) => None,
            Carrier::Streams(streams) => streams.failed(),
        }
    }

    /// There is a connection: other ways lead nowhere.
    pub(super) fn keep_only(&mut self, path: Path) {
        if let Carrier::Streams(streams) = self {
            streams.keep_only(path);
        }
    }

    /// The connection is lost: what carried it is not asked again.
    pub(super) fn start_anew(&mut self) {
        if let Carrier::Streams(streams) = self {
            streams.close_all();
        }
    }

    pub(super) fn receive(&mut self, protocol: &mut Client, now: Instant) -> usize {
        match self {
            Carrier::Datagrams(ports) => {
                ports.receive(RECEIVE_BUDGET, &mut |path, bytes| protocol.handle_input(path, bytes, now))
            }
            Carrier::Streams(streams) => streams.receive(protocol, now),
        }
    }

    /// Whether it takes packets. Ports always do, and drop what is too much.
    pub(super) fn has_room(&self) -> bool {
        match self {
            Carrier::Datagrams(_) => true,
            Carrier::Streams(streams) => streams.has_room(),
        }
    }

    pub(super) fn queue(&mut self, path: Path, packet: Packet, now: Instant) {
        match self {
            Carrier::Datagrams(ports) => ports.queue(path, packet),
            Carrier::Streams(streams) => streams.queue(path, packet, now),
        }
    }

    /// Sends what was queued; tells of how many connections that were found to be lost.
    pub(super) fn flush(&mut self, protocol: &mut Client, now: Instant) -> usize {
        match self {
            Carrier::Datagrams(ports) => {
                ports.flush();
                0
            }
            Carrier::Streams(streams) => streams.flush(protocol, now),
        }
    }

    pub(super) fn wait(&mut self, waker: &Waker, deadline: Option<Instant>) -> io::Result<()> {
        match self {
            Carrier::Datagrams(ports) => ports.wait(Some(waker), deadline, &Clock::new()),
            Carrier::Streams(streams) => streams.wait(waker, deadline),
        }
    }
}

/// All connections of TCP are one link.
fn stream_to(address: SocketAddr) -> Path {
    Path { link: LinkId(0), peer: Peer::Udp(address) }
}
