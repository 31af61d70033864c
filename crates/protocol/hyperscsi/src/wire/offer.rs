//! What each end brings to a connection: the payload of the second and third step, encrypted by Noise.
//!
//! ```text
//! offer   4 bytes largest packet, 4 bytes packets it can take at once, 2 bytes commands in transit,
//!         4 bytes largest transfer, 4 bytes keep-alive in ms, 8 bytes instance, text name,
//!         unanswered commands: 2 bytes length (0xffff: nothing is said of them), then nothing, or 8 bytes the lowest
//!         number and for each other 2 bytes how far it is above the lowest,
//!         options
//! ```

use sanwire_core::limits::COMMANDS_IN_TRANSIT_MAX;

use super::options::Options;
use super::setup::{NAME_MAX_BYTES, PACKET_MIN_BYTES};
use super::{Malformed, Reader, put_text};

/// Every end takes transfers of so many bytes.
pub const TRANSFER_MIN_BYTES: u32 = 4096;

/// In place of a length: nothing is said of unanswered commands.
const NOT_SAID: u16 = u16::MAX;

/// What an end brings to a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The largest packet that its link takes, in bytes from the header on.
    pub packet_max_bytes: u32,
    /// How many packets of that size may be under way towards it before some are lost.
    pub receive_capacity_packets: u32,
    /// Commands in transit.
    pub commands_max: u16,
    /// The largest data transfer of a command, in bytes.
    pub transfer_max_bytes: u32,
    /// How often the server sends a keep-alive; 0 from a client.
    pub keep_alive_ms: u32,
    /// A number that the server draws when it starts; 0 from a client.
    pub instance: u64,
    /// The end's name.
    pub name: String,
    /// The numbers of the commands that a client still waits for, ascending; all others below the highest that it has
    /// used are settled. `None`: it does not say.
    pub unanswered: Option<Vec<u64>>,
    /// Its options.
    pub options: Options,
}

impl Offer {
    /// Reads an offer.
    ///
    /// # Errors
    /// [`Malformed`] for values that no end can mean.
    pub fn read(bytes: &[u8]) -> Result<Offer, Malformed> {
        let mut reader = Reader::new(bytes);
        let offer = Offer {
            packet_max_bytes: reader.u32()?,
            receive_capacity_packets: reader.u32()?,
            commands_max: reader.u16()?,
            transfer_max_bytes: reader.u32()?,
            keep_alive_ms: reader.u32()?,
            instance: reader.u64()?,
            name: reader.text("name", NAME_MAX_BYTES)?.to_owned(),
            unanswered: match reader.u16()? {
                NOT_SAID => None,
                length => Some(read_unanswered(reader.bytes(usize::from(length))?)?),
            },
            options: Options::read(&mut reader)?,
        };
        let is_possible = offer.commands_max > 0
            && offer.transfer_max_bytes >= TRANSFER_MIN_BYTES
            && offer.packet_max_bytes >= PACKET_MIN_BYTES;
        if is_possible { Ok(offer) } else { Err(Malformed::Field("offer")) }
    }

    /// The bytes of the offer.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        out.extend_from_slice(&self.packet_max_bytes.to_be_bytes());
        out.extend_from_slice(&self.receive_capacity_packets.to_be_bytes());
        out.extend_from_slice(&self.commands_max.to_be_bytes());
        out.extend_from_slice(&self.transfer_max_bytes.to_be_bytes());
        out.extend_from_slice(&self.keep_alive_ms.to_be_bytes());
        out.extend_from_slice(&self.instance.to_be_bytes());
        put_text(&mut out, &self.name, NAME_MAX_BYTES);
        match self.unanswered.as_deref().and_then(write_unanswered) {
            None => out.extend_from_slice(&NOT_SAID.to_be_bytes()),
            Some(value) => {
                out.extend_from_slice(&(value.len() as u16).to_be_bytes());
                out.extend_from_slice(&value);
            }
        }
        self.options.write(&mut out);
        out
    }
}

fn read_unanswered(value: &[u8]) -> Result<Vec<u64>, Malformed> {
    let Some((first, distances)) = value.split_first_chunk::<8>() else {
        return if value.is_empty() { Ok(Vec::new()) } else { Err(Malformed::Field("unanswered commands")) };
    };
    let first = u64::from_be_bytes(*first);
    let (distances, rest) = distances.as_chunks::<2>();
    if !rest.is_empty() || distances.len() >= COMMANDS_IN_TRANSIT_MAX {
        return Err(Malformed::Field("unanswered commands"));
    }
    let others = distances.iter().map(|bytes| first.checked_add(u64::from(u16::from_be_bytes(*bytes))));
    let all: Option<Vec<u64>> = std::iter::once(Some(first)).chain(others).collect();
    all.filter(|all| all.is_sorted()).ok_or(Malformed::Field("unanswered commands"))
}

/// `None` when they are too far apart or too many to be written; then nothing is said of them.
fn write_unanswered(numbers: &[u64]) -> Option<Vec<u8>> {
    let Some((&first, others)) = numbers.split_first() else { return Some(Vec::new()) };
    if numbers.len() > COMMANDS_IN_TRANSIT_MAX {
        return None;
    }
    let mut out = first.to_be_bytes().to_vec();
    for number in others {
        out.extend_from_slice(&u16::try_from(number.checked_sub(first)?).ok()?.to_be_bytes());
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        Offer {
            packet_max_bytes: 9000,
            receive_capacity_packets: 800,
            commands_max: 64,
            transfer_max_bytes: 1 << 20,
            keep_alive_ms: 5000,
            instance: 1,
            name: "a".into(),
            unanswered: None,
            options: Options::default(),
        }
    }

    #[test]
    fn offers_survive_the_wire() {
        assert_eq!(Offer::read(&offer().write()), Ok(offer()));
        for unanswered in [vec![], vec![1 << 40], vec![3, 4, 70, 1026]] {
            let offer = Offer { unanswered: Some(unanswered), ..offer() };
            assert_eq!(Offer::read(&offer.write()), Ok(offer));
        }
        let far = Offer { unanswered: Some(vec![3, 1 << 20]), ..offer() };
        assert_eq!(Offer::read(&far.write()), Ok(offer()), "too far apart to be said");
    }
}
