//! Whose a frame is, and what is in it.

use sanwire_buffer::Arrival;
use sanwire_core::{MacAddress, Peer};

use super::ETHERNET_HEADER_BYTES;

/// The sender and the payload of a frame for us, or for everybody. On a promiscuous interface, and on the parent of a macvlan, others'
/// frames come as well, and multicast is nobody's here.
pub(super) fn parse(frame: Arrival<'_>, own: MacAddress) -> Option<(Peer, Arrival<'_>)> {
    let header = frame.bytes().get(..ETHERNET_HEADER_BYTES)?;
    if header[..6] != own.0 && header[..6] != MacAddress::BROADCAST.0 {
        return None;
    }
    let source = header[6..12].try_into().ok()?;
    Some((Peer::Ethernet(MacAddress(source)), frame.behind(ETHERNET_HEADER_BYTES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_stands_before_the_payload() {
        let frame = [1, 1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 0x88, 0x9a, 42];
        let own = MacAddress([1; 6]);
        let (peer, payload) = parse(frame[..].into(), own).unwrap();
        assert_eq!((peer, payload.bytes()), (Peer::Ethernet(MacAddress([2, 3, 4, 5, 6, 7])), &[42][..]));
        assert!(parse(frame[..13].into(), own).is_none());
    }

    #[test]
    fn only_frames_for_us_or_for_everybody_are_taken() {
        let own = MacAddress([2, 0, 0, 0, 0, 1]);
        let taken = |to: [u8; 6]| parse([&to[..], &[2; 6], &[0x88, 0x9a, 42]].concat()[..].into(), own).is_some();
        assert!(taken(own.0) && taken([0xff; 6]));
        assert!(!taken([2, 0, 0, 0, 0, 2]), "another's");
        assert!(!taken([0x01, 0, 0x5e, 0, 0, 1]), "a group's");
    }
}
