//! What both ends say of themselves in the handshake, and on what they agree.
//!
//! ```text
//! offer    2 bytes largest packet; 4 bytes packets that are taken at once; 1 byte modes: bit 0 classic is allowed,
//!          bit 1 classic is wanted, bit 2 no check is allowed, bit 3 none is wanted; 4 bytes payload that is wanted in classic mode
//!          (0: that of the other end); 1 byte least protection;
//!          of the server besides: 2 bytes commands, 4 bytes largest transfer, 4 bytes keep-alive in ms, 8 bytes instance, text name
//! terms    1 byte: bit 0 classic, bit 1 no check, bit 2 the session goes on; 2 bytes payload; 4 bytes packets to the device at
//!          once; 4 bytes packets from it; 1 byte least protection
//! found    8 bytes instance, 2 bytes largest packet, text name
//! ```

use sanwire_core::Protection;

use super::{HEADER_BYTES, Malformed, NAME_MAX_BYTES, Reader, put_text};

/// What a payload may be in classic mode, in bytes (1 to 60 KiB).
pub const CLASSIC_PAYLOAD: std::ops::RangeInclusive<u32> = 1024..=60 * 1024;

/// The same where nothing is said: 8 KiB.
pub const CLASSIC_PAYLOAD_DEFAULT: u32 = 8 * 1024;

/// The largest payload in either mode, in bytes.
pub const PAYLOAD_MAX: u16 = 60 * 1024;

/// The least payload, in bytes: what is left of the 576 bytes that every host takes (RFC 791), and room for the head of a message.
pub const PAYLOAD_MIN: u16 = 508;

/// Bytes of a tag behind the payload.
const TAG_BYTES: u16 = 16;

/// How packets that are lost are found and sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// As of 1998: a fixed window of 48 KB, in order; what comes otherwise is refused and all from there on is sent again.
    Classic,
    /// Acknowledgements with maps, congestion control, packets that fit the path.
    #[default]
    Modern,
}

/// What an end says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The largest packet of its link, in bytes.
    pub packet_max_bytes: u16,
    /// Packets that it takes at once.
    pub window_packets: u32,
    /// It allows [`Mode::Classic`].
    pub allows_classic: bool,
    /// It wants that.
    pub wants_classic: bool,
    /// It allows packets without a check, where units demand no more.
    pub allows_unchecked: bool,
    /// It wants that.
    pub wants_unchecked: bool,
    /// The payload that it wants in classic mode, in bytes; 0: that of the other end.
    pub classic_payload_bytes: u32,
    /// Packets are never guarded less.
    pub protection_min: Protection,
}

const ALLOWS_CLASSIC: u8 = 1;
const WANTS_CLASSIC: u8 = 2;
const ALLOWS_UNCHECKED: u8 = 4;
const WANTS_UNCHECKED: u8 = 8;

impl Offer {
    fn put(&self, out: &mut Vec<u8>) {
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        out.extend_from_slice(&self.packet_max_bytes.to_be_bytes());
        out.extend_from_slice(&self.window_packets.to_be_bytes());
        out.push(
            flag(self.allows_classic, ALLOWS_CLASSIC)
                | flag(self.wants_classic, WANTS_CLASSIC)
                | flag(self.allows_unchecked, ALLOWS_UNCHECKED)
                | flag(self.wants_unchecked, WANTS_UNCHECKED),
        );
        out.extend_from_slice(&self.classic_payload_bytes.to_be_bytes());
        out.push(self.protection_min as u8);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Offer, Malformed> {
        let packet_max_bytes = reader.u16()?;
        let window_packets = reader.u32()?;
        let modes = reader.u8()?;
        let offer = Offer {
            packet_max_bytes,
            window_packets,
            allows_classic: modes & ALLOWS_CLASSIC != 0,
            wants_classic: modes & WANTS_CLASSIC != 0,
            allows_unchecked: modes & ALLOWS_UNCHECKED != 0,
            wants_unchecked: modes & WANTS_UNCHECKED != 0,
            classic_payload_bytes: reader.u32()?,
            protection_min: Protection::from_code(reader.u8()?).ok_or(Malformed::Field("protection"))?,
        };
        let is_payload = offer.classic_payload_bytes == 0 || CLASSIC_PAYLOAD.contains(&offer.classic_payload_bytes);
        let is_large = packet_max_bytes >= HEADER_BYTES as u16 + PAYLOAD_MIN + TAG_BYTES;
        match (window_packets > 0, is_large, is_payload) {
            (true, true, true) => Ok(offer),
            (false, ..) => Err(Malformed::Field("packets at once")),
            (_, false, _) => Err(Malformed::Field("largest packet")),
            _ => Err(Malformed::Field("payload")),
        }
    }

    /// Reads a client's offer.
    ///
    /// # Errors
    /// [`Malformed`] when it is none.
    pub fn read(bytes: &[u8]) -> Result<Offer, Malformed> {
        let mut reader = Reader::new(bytes);
        let offer = Offer::take(&mut reader)?;
        reader.end()?;
        Ok(offer)
    }

    /// Its bytes.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    /// On what this server agrees with a client's offer: modern, unless either end wants something else and the other allows it.
    #[must_use]
    pub fn agree(&self, client: &Offer, is_resumed: bool) -> Terms {
        let both = |wants: fn(&Offer) -> bool, allows: fn(&Offer) -> bool| {
            (wants(self) || wants(client)) && allows(self) && allows(client)
        };
        let is_classic = both(|offer| offer.wants_classic, |offer| offer.allows_classic);
        let protection_min = self.protection_min.max(client.protection_min);
        let is_unchecked = both(|offer| offer.wants_unchecked, |offer| offer.allows_unchecked)
            && protection_min == Protection::Checksum;
        let payload_bytes = if is_classic {
            let wanted =
                [client.classic_payload_bytes, self.classic_payload_bytes].into_iter().filter(|bytes| *bytes > 0);
            // 60 KiB are less than 2^16.
            wanted.min().unwrap_or(CLASSIC_PAYLOAD_DEFAULT) as u16
        } else {
            let packet_bytes = self.packet_max_bytes.min(client.packet_max_bytes);
            packet_bytes.saturating_sub(HEADER_BYTES as u16 + TAG_BYTES).clamp(PAYLOAD_MIN, PAYLOAD_MAX)
        };
        Terms {
            mode: if is_classic { Mode::Classic } else { Mode::Modern },
            is_unchecked,
            is_resumed,
            payload_bytes,
            window_packets_in: self.window_packets,
            window_packets_out: client.window_packets,
            protection_min,
        }
    }
}

/// What a server says of itself besides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerOffer {
    /// What a client says too.
    pub offer: Offer,
    /// Commands that a client may have in transit.
    pub commands_max: u16,
    /// The largest data transfer of a command, in bytes.
    pub transfer_max_bytes: u32,
    /// How often it asks for a sign of life, in milliseconds.
    pub keep_alive_ms: u32,
    /// Drawn when it started.
    pub instance: u64,
    /// Its name.
    pub name: String,
}

impl ServerOffer {
    /// Reads it.
    ///
    /// # Errors
    /// [`Malformed`] when it is none.
    pub fn read(bytes: &[u8]) -> Result<ServerOffer, Malformed> {
        let mut reader = Reader::new(bytes);
        let server = ServerOffer {
            offer: Offer::take(&mut reader)?,
            commands_max: reader.u16()?,
            transfer_max_bytes: reader.u32()?,
            keep_alive_ms: reader.u32()?,
            instance: reader.u64()?,
            name: reader.text("server name", NAME_MAX_BYTES)?.to_owned(),
        };
        reader.end()?;
        if server.commands_max == 0 { Err(Malformed::Field("commands in transit")) } else { Ok(server) }
    }

    /// Its bytes.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = self.offer.write();
        out.extend_from_slice(&self.commands_max.to_be_bytes());
        out.extend_from_slice(&self.transfer_max_bytes.to_be_bytes());
        out.extend_from_slice(&self.keep_alive_ms.to_be_bytes());
        out.extend_from_slice(&self.instance.to_be_bytes());
        put_text(&mut out, &self.name, NAME_MAX_BYTES);
        out
    }
}

/// On what both ends have agreed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// How lost packets are recovered.
    pub mode: Mode,
    /// Packets of units that demand no more have no check.
    pub is_unchecked: bool,
    /// The server knows the session.
    pub is_resumed: bool,
    /// Payload of a packet, in bytes, at the most.
    pub payload_bytes: u16,
    /// Packets under way to the device.
    pub window_packets_in: u32,
    /// Packets under way from it.
    pub window_packets_out: u32,
    /// Packets are never guarded less.
    pub protection_min: Protection,
}

const CLASSIC: u8 = 1;
const UNCHECKED: u8 = 2;
const RESUMED: u8 = 4;

impl Terms {
    /// Reads them.
    ///
    /// # Errors
    /// [`Malformed`] when they are none.
    pub fn read(bytes: &[u8]) -> Result<Terms, Malformed> {
        let mut reader = Reader::new(bytes);
        let bits = reader.u8()?;
        let terms = Terms {
            mode: if bits & CLASSIC != 0 { Mode::Classic } else { Mode::Modern },
            is_unchecked: bits & UNCHECKED != 0,
            is_resumed: bits & RESUMED != 0,
            payload_bytes: reader.u16()?,
            window_packets_in: reader.u32()?,
            window_packets_out: reader.u32()?,
            protection_min: Protection::from_code(reader.u8()?).ok_or(Malformed::Field("protection"))?,
        };
        reader.end()?;
        let is_payload = (PAYLOAD_MIN..=PAYLOAD_MAX).contains(&terms.payload_bytes);
        let is_good = is_payload && terms.window_packets_in > 0 && terms.window_packets_out > 0;
        if is_good { Ok(terms) } else { Err(Malformed::Field("terms")) }
    }

    /// Their bytes.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let classic = flag(self.mode == Mode::Classic, CLASSIC);
        let mut out = vec![classic | flag(self.is_unchecked, UNCHECKED) | flag(self.is_resumed, RESUMED)];
        out.extend_from_slice(&self.payload_bytes.to_be_bytes());
        out.extend_from_slice(&self.window_packets_in.to_be_bytes());
        out.extend_from_slice(&self.window_packets_out.to_be_bytes());
        out.push(self.protection_min as u8);
        out
    }

    /// Whether a client that has made this offer may have agreed.
    #[must_use]
    pub fn is_within(&self, client: &Offer) -> bool {
        let most = match self.mode {
            Mode::Classic if client.allows_classic => match client.classic_payload_bytes {
                0 => PAYLOAD_MAX,
                // At most 60 KiB, which are less than 2^16.
                wanted => wanted as u16,
            },
            Mode::Classic => return false,
            Mode::Modern => client.packet_max_bytes.saturating_sub(HEADER_BYTES as u16 + TAG_BYTES),
        };
        self.payload_bytes <= most
            && self.window_packets_out <= client.window_packets
            && self.protection_min >= client.protection_min
            && (!self.is_unchecked || client.allows_unchecked && self.protection_min == Protection::Checksum)
    }
}

/// A server that has answered the question who is there. Anybody on the way may have written it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Differs each time the server starts.
    pub instance: u64,
    /// The largest packet that its link takes, in bytes.
    pub packet_max_bytes: u16,
    /// Its name.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        Offer {
            packet_max_bytes: 1472,
            window_packets: 64,
            allows_classic: true,
            wants_classic: false,
            allows_unchecked: true,
            wants_unchecked: false,
            classic_payload_bytes: 0,
            protection_min: Protection::Checksum,
        }
    }

    #[test]
    fn offers_and_terms_survive_the_wire() {
        let client = Offer { wants_classic: true, classic_payload_bytes: 4096, ..offer() };
        assert_eq!(Offer::read(&client.write()), Ok(client));
        let server = ServerOffer {
            offer: offer(),
            commands_max: 64,
            transfer_max_bytes: 1 << 20,
            keep_alive_ms: 5000,
            instance: 9,
            name: "vault".to_owned(),
        };
        assert_eq!(ServerOffer::read(&server.write()), Ok(server));
        for is_resumed in [true, false] {
            let terms = offer().agree(&client, is_resumed);
            assert_eq!(Terms::read(&terms.write()), Ok(terms));
            assert!(terms.is_within(&client));
        }
        for bad in [
            Offer { packet_max_bytes: 500, ..offer() },
            Offer { window_packets: 0, ..offer() },
            Offer { classic_payload_bytes: 100, ..offer() },
            Offer { classic_payload_bytes: 62_000, ..offer() },
        ] {
            assert!(Offer::read(&bad.write()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn modern_unless_one_end_wants_otherwise_and_the_other_allows_it() {
        let wants = Offer { wants_classic: true, wants_unchecked: true, ..offer() };
        let refuses = Offer { allows_classic: false, allows_unchecked: false, ..offer() };
        let agreed = |server: &Offer, client: &Offer| {
            let terms = server.agree(client, false);
            (terms.mode, terms.is_unchecked, terms.payload_bytes)
        };
        assert_eq!(agreed(&offer(), &offer()), (Mode::Modern, false, 1472 - 40));
        assert_eq!(agreed(&wants, &offer()), (Mode::Classic, true, 8192));
        assert_eq!(agreed(&offer(), &wants), (Mode::Classic, true, 8192));
        assert_eq!(agreed(&refuses, &wants), (Mode::Modern, false, 1432));
        assert_eq!(agreed(&wants, &refuses), (Mode::Modern, false, 1432));
        let small = Offer { classic_payload_bytes: 2048, ..wants };
        assert_eq!(agreed(&wants, &small).2, 2048);
        let terms = wants.agree(&offer(), false);
        assert!(!terms.is_within(&refuses), "who allows nothing of it is not bound to it");
        let more = Terms { payload_bytes: 2049, ..wants.agree(&small, false) };
        assert!(!more.is_within(&small), "nor who wants less");
    }

    #[test]
    fn nothing_is_unchecked_where_an_end_wants_more_than_a_checksum() {
        let wants = Offer { wants_unchecked: true, ..offer() };
        let careful = Offer { protection_min: Protection::Hash, ..offer() };
        for terms in [wants.agree(&careful, false), careful.agree(&wants, false)] {
            assert_eq!((terms.is_unchecked, terms.protection_min), (false, Protection::Hash));
            assert!(terms.is_within(&careful) && !Terms { is_unchecked: true, ..terms }.is_within(&careful));
        }
    }

    #[test]
    fn payloads_are_what_every_link_takes_up_to_60_kib() {
        let link = |packet_max_bytes| Offer { packet_max_bytes, ..offer() };
        let agreed = |server: u16, client: u16| link(server).agree(&link(client), false).payload_bytes;
        assert_eq!([agreed(65_535, 65_535), agreed(548, 65_535), agreed(39, 1472)], [60 * 1024, 508, 508]);
        assert!(Offer::read(&link(548).write()).is_ok() && Offer::read(&link(547).write()).is_err());
        let long = Terms { payload_bytes: 60 * 1024 + 1, ..offer().agree(&offer(), false) };
        assert!(Terms::read(&long.write()).is_err());
    }
}
