//! Bodies of FC_ACK_SNR and FC_ACK_REPLY: windows, what has arrived, and the width of the path. Always sealed.
//!
//! ```text
//! FC_ACK_SNR    1 byte kind: 1 set windows, 2 query, 3 probe, 4 pause
//!   1  1 byte flags (bit 0: the session goes on), 4 bytes number, sent back in the answer, then the windows (8 bytes),
//!      then 2 bytes weight, 1 to 16
//!   2  8 bytes marker, sent back in the answer
//!   3  2 bytes size of this packet, then zeroes up to it
//!   4  4 bytes number, sent back in the answer; 1 byte: 1 pause, 0 go on; 1 byte reason: 0 the owner's wish, 1 no room;
//!      8 bytes: the lowest sequence without room
//! FC_ACK_REPLY  1 byte kind: 0 nothing more, 1 windows accepted, 2 answer to a query, 3 answer to a probe, 4 pause
//!   then as above (no flags, no weight, no zeroes; of a pause its number), then always
//!      8 bytes  cumulative: the lowest sequence that has not come
//!      2 bytes  length of the map in bytes, at most 512
//!               map: bit i (the highest bit of a byte first) tells whether sequence cumulative + i has arrived
//! windows       2 bytes packets in a window, 2 bytes windows in flight, from the sender of this packet;
//!               2 and 2 bytes towards it
//! ```

use super::{Malformed, Reader};

/// The longest map of received packets, in bytes.
pub const MAP_MAX_BYTES: usize = 512;

/// Packets that one direction has in flight at the most: what a map can describe.
pub const IN_FLIGHT_MAX_PACKETS: u32 = (MAP_MAX_BYTES * 8) as u32;

/// No connection takes more on the way than so many others would.
pub const WEIGHT_MAX: u16 = 16;

/// The ACK window of one direction: credits are counted in whole windows, several may be in flight (HyperSCSI 5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    packets: u16,
    in_flight: u16,
}

impl Window {
    /// A window of `packets`, `in_flight` of them at once: each at least 1, together at most
    /// [`IN_FLIGHT_MAX_PACKETS`].
    #[must_use]
    pub const fn new(packets: u16, in_flight: u16) -> Option<Window> {
        if packets == 0 || in_flight == 0 || packets as u32 * in_flight as u32 > IN_FLIGHT_MAX_PACKETS {
            return None;
        }
        Some(Window { packets, in_flight })
    }

    /// Packets in one window.
    #[must_use]
    pub const fn packets(self) -> u16 {
        self.packets
    }

    /// Windows in flight.
    #[must_use]
    pub const fn in_flight(self) -> u16 {
        self.in_flight
    }

    /// Packets in flight.
    #[must_use]
    pub const fn in_flight_packets(self) -> u32 {
        self.packets as u32 * self.in_flight as u32
    }

    /// The largest window of this grain that keeps at most `packets` in flight; at least one packet.
    #[must_use]
    pub fn fitting(packets: u32) -> Window {
        let packets = packets.clamp(1, IN_FLIGHT_MAX_PACKETS);
        let window = (packets / 8).clamp(1, 64) as u16;
        Window { packets: window, in_flight: (packets / u32::from(window)) as u16 }
    }

    /// This window, with fewer windows in flight if `packets` are all that the receiver has room for.
    #[must_use]
    pub fn limited_to(self, packets: u32) -> Window {
        let most = packets.max(1);
        if u32::from(self.packets) > most {
            return Window::fitting(most);
        }
        let in_flight = (most / u32::from(self.packets)).min(u32::from(self.in_flight));
        Window { packets: self.packets, in_flight: in_flight.max(1) as u16 }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Window, Malformed> {
        let (packets, in_flight) = (reader.u16()?, reader.u16()?);
        Window::new(packets, in_flight).ok_or(Malformed::Field("window"))
    }

    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.packets.to_be_bytes());
        out.extend_from_slice(&self.in_flight.to_be_bytes());
    }
}

/// The windows of both directions, as the sender of the packet sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Windows {
    /// For what the sender of this packet sends.
    pub outward: Window,
    /// For what it receives.
    pub inward: Window,
}

/// The body of FC_ACK_SNR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Snr {
    /// Set the windows. The first one of a server accepts the connection.
    SetWindows {
        /// The server knows the session and its commands in doubt.
        resumed: bool,
        /// Counts what the sender asks of this kind: what has a lower one than the last is late.
        number: u32,
        /// What is proposed.
        windows: Windows,
        /// How many connections of weight 1 the connection stands for on the way, 1 to [`WEIGHT_MAX`].
        weight: u16,
    },
    /// What has arrived? The answer repeats the marker.
    Query {
        /// Any number of the asker's.
        marker: u64,
    },
    /// Does a packet of this size come through?
    Probe {
        /// Bytes of this whole packet.
        size_bytes: u16,
    },
    /// Send no data packets, or go on.
    Pause {
        /// Counts what the sender asks of this kind: of two the higher one holds, whichever comes first.
        number: u32,
        /// What it asks.
        pause: Pause,
    },
}

/// What an end asks the other about its data packets. The two reasons stand side by side: one says nothing of the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause {
    /// Its owner wants it: none at all while this is `true`.
    Owner(bool),
    /// There was no room for this sequence: none of those from there on that belong to messages with data. `None`: there is room again.
    Room(Option<u64>),
}

impl Pause {
    fn read(reader: &mut Reader<'_>) -> Result<Pause, Malformed> {
        let (is_paused, reason, sequence) = (reader.u8()?, reader.u8()?, reader.u64()?);
        match (is_paused, reason) {
            (0 | 1, 0) => Ok(Pause::Owner(is_paused == 1)),
            (0, 1) => Ok(Pause::Room(None)),
            (1, 1) => Ok(Pause::Room(Some(sequence))),
            _ => Err(Malformed::Field("pause")),
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        let (is_paused, reason, sequence) = match self {
            Pause::Owner(is_paused) => (is_paused, 0, 0),
            Pause::Room(from) => (from.is_some(), 1, from.unwrap_or(0)),
        };
        out.extend_from_slice(&[u8::from(is_paused), reason]);
        out.extend_from_slice(&sequence.to_be_bytes());
    }
}

impl Snr {
    /// Reads the unsealed body of a packet of `packet_bytes`.
    ///
    /// # Errors
    /// [`Malformed`] for kinds or windows that are not allowed.
    pub fn read(body: &[u8]) -> Result<Snr, Malformed> {
        let mut reader = Reader::new(body);
        match reader.u8()? {
            1 => {
                let (resumed, number) = (reader.u8()? & 1 != 0, reader.u32()?);
                let outward = Window::read(&mut reader)?;
                let windows = Windows { outward, inward: Window::read(&mut reader)? };
                let weight = reader.u16()?;
                if !(1..=WEIGHT_MAX).contains(&weight) {
                    return Err(Malformed::Field("weight"));
                }
                Ok(Snr::SetWindows { resumed, number, windows, weight })
            }
            2 => Ok(Snr::Query { marker: reader.u64()? }),
            3 => Ok(Snr::Probe { size_bytes: reader.u16()? }),
            4 => Ok(Snr::Pause { number: reader.u32()?, pause: Pause::read(&mut reader)? }),
            _ => Err(Malformed::Field("kind of FC_ACK_SNR")),
        }
    }

    /// The body; a probe's is stretched to `probe_body_bytes`.
    #[must_use]
    pub fn write(&self, probe_body_bytes: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(16.max(probe_body_bytes));
        match self {
            Snr::SetWindows { resumed, number, windows, weight } => {
                out.extend_from_slice(&[1, u8::from(*resumed)]);
                out.extend_from_slice(&number.to_be_bytes());
                windows.outward.write(&mut out);
                windows.inward.write(&mut out);
                out.extend_from_slice(&weight.to_be_bytes());
            }
            Snr::Query { marker } => {
                out.push(2);
                out.extend_from_slice(&marker.to_be_bytes());
            }
            Snr::Probe { size_bytes } => {
                out.push(3);
                out.extend_from_slice(&size_bytes.to_be_bytes());
                out.resize(probe_body_bytes.max(out.len()), 0);
            }
            Snr::Pause { number, pause } => {
                out.push(4);
                out.extend_from_slice(&number.to_be_bytes());
                pause.write(&mut out);
            }
        }
        out
    }
}

/// What FC_ACK_REPLY answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckKind {
    /// Nothing: it only says what has arrived.
    Plain,
    /// A request for windows.
    Windows {
        /// The request's number.
        number: u32,
        /// Those that are in force now.
        windows: Windows,
    },
    /// A query.
    Query {
        /// The query's marker.
        marker: u64,
    },
    /// A probe.
    Probe {
        /// The probe's size.
        size_bytes: u16,
    },
    /// A request to pause or to go on.
    Pause {
        /// The request's number.
        number: u32,
    },
}

/// The body of FC_ACK_REPLY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack<'a> {
    /// What it answers.
    pub kind: AckKind,
    /// The lowest sequence that has not come.
    pub cumulative: u64,
    /// Which of the sequences from `cumulative` on have arrived, one bit each.
    pub map: &'a [u8],
}

impl<'a> Ack<'a> {
    /// Reads the unsealed body.
    ///
    /// # Errors
    /// [`Malformed`] for kinds, windows or lengths that are not allowed.
    pub fn read(body: &'a [u8]) -> Result<Ack<'a>, Malformed> {
        let mut reader = Reader::new(body);
        let kind = match reader.u8()? {
            0 => AckKind::Plain,
            1 => {
                let (number, outward) = (reader.u32()?, Window::read(&mut reader)?);
                AckKind::Windows { number, windows: Windows { outward, inward: Window::read(&mut reader)? } }
            }
            2 => AckKind::Query { marker: reader.u64()? },
            3 => AckKind::Probe { size_bytes: reader.u16()? },
            4 => AckKind::Pause { number: reader.u32()? },
            _ => return Err(Malformed::Field("kind of FC_ACK_REPLY")),
        };
        let cumulative = reader.u64()?;
        let map_length = usize::from(reader.u16()?);
        if map_length > MAP_MAX_BYTES {
            return Err(Malformed::Field("map length"));
        }
        Ok(Ack { kind, cumulative, map: reader.bytes(map_length)? })
    }

    /// The body.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(20 + self.map.len());
        match self.kind {
            AckKind::Plain => out.push(0),
            AckKind::Windows { number, windows } => {
                out.push(1);
                out.extend_from_slice(&number.to_be_bytes());
                windows.outward.write(&mut out);
                windows.inward.write(&mut out);
            }
            AckKind::Query { marker } => {
                out.push(2);
                out.extend_from_slice(&marker.to_be_bytes());
            }
            AckKind::Probe { size_bytes } => {
                out.push(3);
                out.extend_from_slice(&size_bytes.to_be_bytes());
            }
            AckKind::Pause { number } => {
                out.push(4);
                out.extend_from_slice(&number.to_be_bytes());
            }
        }
        out.extend_from_slice(&self.cumulative.to_be_bytes());
        out.extend_from_slice(&(self.map.len() as u16).to_be_bytes());
        out.extend_from_slice(self.map);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_windows_have_no_value() {
        assert_eq!(Window::new(0, 1), None);
        assert_eq!(Window::new(1, 0), None);
        assert_eq!(Window::new(u16::MAX, u16::MAX), None);
        assert!(Window::new(64, 64).is_some());
    }

    #[test]
    fn a_window_shrinks_to_the_room_there_is() {
        for room in [0, 1, 7, 63, 64, 100, 5000] {
            for window in [Window::new(64, 16).unwrap(), Window::fitting(room)] {
                let fits = window.limited_to(room);
                let total = u32::from(fits.packets()) * u32::from(fits.in_flight());
                assert!(total >= 1 && (total <= room.max(1)), "{window:?} limited to {room} is {fits:?}");
            }
        }
    }

    #[test]
    fn bodies_survive_the_wire() {
        let windows = Windows { outward: Window::new(8, 4).unwrap(), inward: Window::new(64, 1).unwrap() };
        for snr in [
            Snr::SetWindows { resumed: true, number: 9, windows, weight: WEIGHT_MAX },
            Snr::Query { marker: u64::MAX },
            Snr::Probe { size_bytes: 9000 },
            Snr::Pause { number: 1, pause: Pause::Owner(true) },
            Snr::Pause { number: 2, pause: Pause::Room(Some(1 << 40)) },
            Snr::Pause { number: u32::MAX, pause: Pause::Room(None) },
        ] {
            assert_eq!(Snr::read(&snr.write(100)), Ok(snr));
        }
        for kind in [
            AckKind::Plain,
            AckKind::Windows { number: 9, windows },
            AckKind::Query { marker: 3 },
            AckKind::Probe { size_bytes: 1500 },
            AckKind::Pause { number: 7 },
        ] {
            let ack = Ack { kind, cumulative: 1 << 50, map: &[0x80, 1] };
            assert_eq!(Ack::read(&ack.write()), Ok(ack));
        }
        assert!(Ack::read(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]).is_err());
    }
}
