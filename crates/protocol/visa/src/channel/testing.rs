//! Ends of connections for tests.

use std::net::{Ipv4Addr, SocketAddr};

use sanwire_buffer::{Head, Recycler, Slice, Slices};
use sanwire_core::{LinkId, Peer};
use sanwire_security::ring::KeyRing;

use super::*;

pub(crate) const START: Instant = Instant::from_nanos(1_000_000_000);

pub(crate) fn terms() -> Terms {
    Terms {
        mode: Mode::Modern,
        is_unchecked: false,
        is_resumed: false,
        payload_bytes: 1000,
        window_packets_in: 64,
        window_packets_out: 64,
        protection_min: Protection::Checksum,
    }
}

pub(crate) fn end(from_device: bool, terms: Terms, is_stream: bool) -> Channel {
    let keys = if from_device { ([1; 32], [2; 32]) } else { ([2; 32], [1; 32]) };
    let guard = Guard::new(KeyRing::new(keys.0.into(), keys.1.into()).unwrap(), Recycler::new());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, crate::PORT));
    let path = Path { link: LinkId(0), peer: Peer::Udp(address) };
    let patience = Patience { silence: Duration::from_secs(1), answer: Duration::from_secs(1) };
    Channel::new(Setup { path, connection: 9, from_device, guard, terms, is_stream, patience }, START)
}

pub(crate) fn message(data_bytes: usize, protection: Protection) -> Message {
    let data = (data_bytes > 0).then(|| Slices::from(Slice::from(vec![7; data_bytes])));
    let mut head = Head::new();
    head.extend(b"head");
    Message { tag: 1, protection, head, data, cookie: Some(1) }
}
