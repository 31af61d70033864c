//! Class 3, always sealed: acknowledgements, gaps, and how much may be sent.
//!
//! ```text
//! 1 ACK      4 bytes Group ID: all groups before it are here; 2 bytes: so many of its packets are here, from the first on;
//!            4 bytes Group ID and 2 bytes Serial Number of the newest packet, 4 bytes microseconds since it came;
//!            4 bytes room: packets that the receiver takes beyond those that it has acknowledged
//! 2 NACK     4 bytes Group ID, 1 byte ranges (1 to 64), of each 2 bytes first and 2 bytes last Serial Number
//! 3 change   4 bytes W, 2 bytes N, 8 bytes rate in bytes for each second (0: none): what the receiver takes from now on
//! ```

use super::pdu::{GROUP_PACKETS_MAX, GROUPS_MAX};
use super::{Malformed, Reader};

const ACK: u8 = 1;
const NACK: u8 = 2;
const CHANGE: u8 = 3;

/// Ranges in a NACK.
pub const RANGES_MAX: usize = 64;

/// A packet by its group and serial number.
pub type Place = (u32, u16);

/// What a receiver says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Flow {
    /// What it has.
    Ack(Ack),
    /// What it misses of a group.
    Nack {
        /// Which.
        group: u32,
        /// First and last packet of each gap, in order.
        ranges: Vec<(u16, u16)>,
    },
    /// What it takes from now on.
    Change {
        /// W.
        window_packets: u32,
        /// N.
        group_packets: u16,
        /// Bytes for each second; 0 for as many as come.
        rate_bytes_per_second: u64,
    },
}

/// What a receiver has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// The first packet that is not there.
    pub next: Place,
    /// The newest packet.
    pub newest: Place,
    /// How long ago that came, in microseconds.
    pub delay_us: u32,
    /// Packets that fit behind `next`.
    pub room_packets: u32,
}

fn place(reader: &mut Reader<'_>) -> Result<Place, Malformed> {
    let place = (reader.u32()?, reader.u16()?);
    if place.0 < GROUPS_MAX && place.1 < GROUP_PACKETS_MAX { Ok(place) } else { Err(Malformed::Field("packet")) }
}

fn put_place(out: &mut Vec<u8>, (group, serial): Place) {
    out.extend_from_slice(&group.to_be_bytes());
    out.extend_from_slice(&serial.to_be_bytes());
}

impl Flow {
    /// Reads operation code and what follows.
    ///
    /// # Errors
    /// [`Malformed`] when they are none.
    pub fn read(operation: &[u8]) -> Result<Flow, Malformed> {
        let mut reader = Reader::new(operation);
        let flow = match reader.u8()? {
            ACK => Flow::Ack(Ack {
                next: place(&mut reader)?,
                newest: place(&mut reader)?,
                delay_us: reader.u32()?,
                room_packets: reader.u32()?,
            }),
            NACK => {
                let (group, count) = (reader.u32()?, reader.u8()?);
                let ranges =
                    (0..count).map(|_| Ok((reader.u16()?, reader.u16()?))).collect::<Result<Vec<_>, Malformed>>()?;
                if !are_ranges(&ranges) || group >= GROUPS_MAX {
                    return Err(Malformed::Field("ranges"));
                }
                Flow::Nack { group, ranges }
            }
            CHANGE => {
                let (window_packets, group_packets) = (reader.u32()?, reader.u16()?);
                if window_packets == 0 || !(1..=GROUP_PACKETS_MAX).contains(&group_packets) {
                    return Err(Malformed::Field("W or N"));
                }
                Flow::Change { window_packets, group_packets, rate_bytes_per_second: reader.u64()? }
            }
            _ => return Err(Malformed::Field("Operation Code")),
        };
        reader.end().map(|()| flow).map_err(Into::into)
    }

    /// The bytes.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Flow::Ack(Ack { next, newest, delay_us, room_packets }) => {
                out.push(ACK);
                put_place(&mut out, *next);
                put_place(&mut out, *newest);
                out.extend_from_slice(&delay_us.to_be_bytes());
                out.extend_from_slice(&room_packets.to_be_bytes());
            }
            Flow::Nack { group, ranges } => {
                debug_assert!(are_ranges(ranges));
                out.push(NACK);
                out.extend_from_slice(&group.to_be_bytes());
                out.push(ranges.len() as u8);
                for (first, last) in ranges {
                    out.extend_from_slice(&first.to_be_bytes());
                    out.extend_from_slice(&last.to_be_bytes());
                }
            }
            Flow::Change { window_packets, group_packets, rate_bytes_per_second } => {
                out.push(CHANGE);
                out.extend_from_slice(&window_packets.to_be_bytes());
                out.extend_from_slice(&group_packets.to_be_bytes());
                out.extend_from_slice(&rate_bytes_per_second.to_be_bytes());
            }
        }
        out
    }
}

/// Whether they are in order, apart, and neither too few nor too many.
fn are_ranges(ranges: &[(u16, u16)]) -> bool {
    (1..=RANGES_MAX).contains(&ranges.len())
        && ranges.iter().all(|(first, last)| first <= last && *last < GROUP_PACKETS_MAX)
        && ranges.windows(2).all(|pair| pair[0].1 < pair[1].0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_field_has_its_bytes() {
        let ack = Flow::Ack(Ack { next: (1, 2), newest: (3, 4), delay_us: 5, room_packets: 6 });
        assert_eq!(ack.write(), [1, 0, 0, 0, 1, 0, 2, 0, 0, 0, 3, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6]);
        let nack = Flow::Nack { group: 1, ranges: vec![(0, 3), (5, 255)] };
        assert_eq!(nack.write(), [2, 0, 0, 0, 1, 2, 0, 0, 0, 3, 0, 5, 0, 255]);
        let change = Flow::Change { window_packets: 1, group_packets: 256, rate_bytes_per_second: 2 };
        assert_eq!(change.write(), [3, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        for flow in [ack, nack, change] {
            assert_eq!(Flow::read(&flow.write()), Ok(flow));
        }
    }

    #[test]
    fn windows_of_nothing_and_ranges_in_disorder_are_refused() {
        for bytes in [
            &[3, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &[3, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
            &[2, 0, 0, 0, 1, 0],
            &[2, 0, 0, 0, 1, 1, 0, 3, 0, 2],
            &[2, 0, 0, 0, 1, 2, 0, 0, 0, 3, 0, 3, 0, 4],
            &[2, 0, 0, 0, 1, 1, 0, 0, 1, 0],
            &[2, 0x80, 0, 0, 1, 1, 0, 0, 0, 0],
        ] {
            assert!(Flow::read(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_again(bytes in proptest::collection::vec(any::<u8>(), 0..40), code in 1u8..4) {
            let bytes = [&[code][..], &bytes].concat();
            if let Ok(flow) = Flow::read(&bytes) {
                prop_assert_eq!(flow.write(), bytes);
            }
        }
    }
}
