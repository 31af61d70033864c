//! VISA over TCP: the same packets, each with its length in front, in 4 bytes.

use sanwire_buffer::{Head, Packet};

use crate::wire::HEADER_BYTES;

/// Bytes of a length.
pub const LENGTH_BYTES: usize = 4;

/// The longest packet over TCP, in bytes: header, 60 KiB of payload, tag.
pub const PACKET_MAX_BYTES: usize = HEADER_BYTES + 60 * 1024 + 16;

/// What is received at once, at the most, in bytes.
const SPACE_BYTES: usize = PACKET_MAX_BYTES + LENGTH_BYTES;

/// The stream holds something that is no packet: the connection cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a packet of {0} bytes cannot be")]
pub struct BadLength(pub u32);

/// A packet with its length in front.
#[must_use]
pub fn framed(packet: Packet) -> Packet {
    let mut framed = Head::new();
    framed.extend(&(packet.length_bytes() as u32).to_be_bytes());
    framed.extend(&packet.head);
    Packet { head: framed, ..packet }
}

/// The bytes of a stream, as packets.
#[derive(Debug, Default)]
pub struct Deframer {
    buffer: Vec<u8>,
    /// Bytes in it that have come.
    filled: usize,
    /// Those that were taken out.
    taken: usize,
}

impl Deframer {
    /// Where the next bytes go.
    pub fn space(&mut self) -> &mut [u8] {
        if self.taken > 0 {
            self.buffer.copy_within(self.taken..self.filled, 0);
            (self.filled, self.taken) = (self.filled - self.taken, 0);
        }
        if self.buffer.is_empty() {
            self.buffer = vec![0; SPACE_BYTES];
        }
        &mut self.buffer[self.filled..]
    }

    /// So many bytes have come.
    pub fn filled(&mut self, bytes: usize) {
        self.filled = (self.filled + bytes).min(self.buffer.len());
    }

    /// The next packet that is whole.
    ///
    /// # Errors
    /// [`BadLength`] when none can be.
    pub fn poll(&mut self) -> Result<Option<&[u8]>, BadLength> {
        let here = &self.buffer[self.taken..self.filled];
        let Some((length, rest)) = here.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length);
        let bytes = length as usize;
        if !(HEADER_BYTES..=PACKET_MAX_BYTES).contains(&bytes) {
            return Err(BadLength(length));
        }
        if rest.len() < bytes {
            return Ok(None);
        }
        let at = self.taken + LENGTH_BYTES;
        self.taken = at + bytes;
        Ok(Some(&self.buffer[at..at + bytes]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(bytes: &[u8]) -> Vec<u8> {
        super::framed(Packet::new(bytes.to_vec().into(), None)).to_vec()
    }

    #[test]
    fn packets_come_out_as_they_went_in_however_the_stream_is_cut() {
        let packets: Vec<Vec<u8>> =
            [24, 100, 60_000, 24, PACKET_MAX_BYTES].iter().map(|bytes| vec![*bytes as u8; *bytes]).collect();
        let stream: Vec<u8> = packets.iter().flat_map(|packet| framed(packet)).collect();
        for piece in [1, 7, 1460, 100_000] {
            let (mut deframer, mut out) = (Deframer::default(), Vec::new());
            let mut rest = &stream[..];
            while !rest.is_empty() {
                let space = deframer.space();
                let bytes = piece.min(space.len()).min(rest.len());
                space[..bytes].copy_from_slice(&rest[..bytes]);
                rest = &rest[bytes..];
                deframer.filled(bytes);
                while let Some(packet) = deframer.poll().unwrap() {
                    out.push(packet.to_vec());
                }
            }
            assert_eq!(out, packets, "{piece}");
        }
    }

    #[test]
    fn a_length_that_cannot_be_ends_it() {
        for length in [0u32, 23, PACKET_MAX_BYTES as u32 + 1, u32::MAX] {
            let mut deframer = Deframer::default();
            deframer.space()[..4].copy_from_slice(&length.to_be_bytes());
            deframer.filled(4);
            assert_eq!(deframer.poll(), Err(BadLength(length)));
        }
    }
}
