//! What is sealed beside the data: acknowledgements, signs of life, the end.
//!
//! ```text
//! ACK     4 bytes sequence: all before it are here; 4 bytes: the newest packet; 4 bytes microseconds since it came;
//!         4 bytes room: packets that are taken from that sequence on; then a bit for each packet behind the first that is
//!         missing, the first of a byte in bit 7: 1 for those that are here
//! NAK     4 bytes sequence: that which is missing. All before it are here, and nothing after it is kept
//! PING    1 byte: 0 question, 1 answer; 8 bytes, which the answer repeats
//! CLOSE   1 byte: 0 the session is over, 1 the connection only
//! AGREE   of the device: see `offer::Terms`; of the client: 2 bytes count and so many numbers of 8 bytes, ascending: the
//!         commands whose answers it waits for
//! ```

use super::{Malformed, Reader};

/// Packets that an acknowledgement tells of behind the first that is missing.
pub const MAP_MAX_PACKETS: u32 = 4096;

/// Commands that a client tells it waits for.
const WAITING_MAX: u16 = 256;

/// What has arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ack {
    /// The first packet that is not here.
    pub next: u32,
    /// The one that came last.
    pub newest: u32,
    /// How long ago that was, in microseconds.
    pub delay_us: u32,
    /// Packets that are taken from `next` on.
    pub room_packets: u32,
    /// Which of those behind `next` are here.
    pub map: Vec<u8>,
}

impl Ack {
    /// Reads the body.
    ///
    /// # Errors
    /// [`Malformed`] when it is none.
    pub fn read(body: &[u8]) -> Result<Ack, Malformed> {
        let mut reader = Reader::new(body);
        let (next, newest, delay_us, room_packets) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let map = reader.rest().to_vec();
        if map.len() > (MAP_MAX_PACKETS / 8) as usize {
            return Err(Malformed::Field("map"));
        }
        Ok(Ack { next, newest, delay_us, room_packets, map })
    }

    /// The body.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + self.map.len());
        for field in [self.next, self.newest, self.delay_us, self.room_packets] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out.extend_from_slice(&self.map);
        out
    }

    /// The packets behind `next` that are here.
    pub fn beyond(&self) -> impl Iterator<Item = u32> + '_ {
        let bits = (0u32..)
            .zip(&self.map)
            .flat_map(|(at, byte)| (0..8).filter(move |bit| byte & (0x80 >> bit) != 0).map(move |bit| at * 8 + bit));
        bits.filter_map(|place| self.next.checked_add(1 + place))
    }

    /// Marks a packet behind `next` as being here.
    pub fn mark(&mut self, sequence: u32) {
        let Some(place) = sequence.checked_sub(self.next + 1).filter(|place| *place < MAP_MAX_PACKETS) else { return };
        let byte = (place / 8) as usize;
        if self.map.len() <= byte {
            self.map.resize(byte + 1, 0);
        }
        self.map[byte] |= 0x80 >> (place % 8);
    }
}

/// The body of a NAK.
#[must_use]
pub fn write_nak(expected: u32) -> Vec<u8> {
    expected.to_be_bytes().to_vec()
}

/// The packet that a NAK misses.
///
/// # Errors
/// [`Malformed`] when it is none.
pub fn read_nak(body: &[u8]) -> Result<u32, Malformed> {
    let mut reader = Reader::new(body);
    let expected = reader.u32()?;
    reader.end()?;
    Ok(expected)
}

/// A sign of life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ping {
    /// Whether it answers another one.
    pub is_answer: bool,
    /// Which one.
    pub nonce: u64,
}

impl Ping {
    /// Reads the body.
    ///
    /// # Errors
    /// [`Malformed`] when it is none.
    pub fn read(body: &[u8]) -> Result<Ping, Malformed> {
        let mut reader = Reader::new(body);
        let (kind, nonce) = (reader.u8()?, reader.u64()?);
        reader.end()?;
        if kind > 1 { Err(Malformed::Field("kind of ping")) } else { Ok(Ping { is_answer: kind == 1, nonce }) }
    }

    /// The body.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        [&[u8::from(self.is_answer)][..], &self.nonce.to_be_bytes()].concat()
    }
}

/// What ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Close {
    /// The session: its client is gone for good.
    Session = 0,
    /// The connection: its client may come again.
    Connection = 1,
}

impl Close {
    /// Reads the body.
    ///
    /// # Errors
    /// [`Malformed`] when it is none.
    pub fn read(body: &[u8]) -> Result<Close, Malformed> {
        match body {
            [0] => Ok(Close::Session),
            [1] => Ok(Close::Connection),
            _ => Err(Malformed::Field("what is closed")),
        }
    }
}

/// What a client says it waits for.
#[must_use]
pub fn write_waiting(numbers: &[u64]) -> Vec<u8> {
    let count = numbers.len().min(usize::from(WAITING_MAX));
    let mut out = (count as u16).to_be_bytes().to_vec();
    numbers.iter().take(count).for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
    out
}

/// The numbers of the commands that a client waits for.
///
/// # Errors
/// [`Malformed`] when they are too many, or not in order.
pub fn read_waiting(body: &[u8]) -> Result<Vec<u64>, Malformed> {
    let mut reader = Reader::new(body);
    let count = reader.u16()?;
    if count > WAITING_MAX {
        return Err(Malformed::Field("commands that are waited for"));
    }
    let numbers = (0..count).map(|_| reader.u64()).collect::<Result<Vec<u64>, _>>()?;
    reader.end()?;
    if numbers.is_sorted() { Ok(numbers) } else { Err(Malformed::Field("commands that are waited for")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_survive_the_wire_with_their_maps() {
        let mut ack = Ack { next: 7, newest: 30, delay_us: 9, room_packets: 64, map: Vec::new() };
        [9, 30, 8, 7, 3, u32::MAX].into_iter().for_each(|sequence| ack.mark(sequence));
        let read = Ack::read(&ack.write()).unwrap();
        assert_eq!((&read, read.beyond().collect::<Vec<_>>()), (&ack, vec![8, 9, 30]));
        assert!(Ack::read(&[0; 16 + 513]).is_err() && Ack::read(&[0; 15]).is_err());
        let last = Ack { next: u32::MAX, map: vec![0xff], ..ack };
        assert_eq!(last.beyond().count(), 0);
    }

    #[test]
    fn the_others_survive_too() {
        assert_eq!(read_nak(&write_nak(77)), Ok(77));
        for is_answer in [true, false] {
            let ping = Ping { is_answer, nonce: 1 << 50 };
            assert_eq!(Ping::read(&ping.write()), Ok(ping));
        }
        assert_eq!(Close::read(&[Close::Connection as u8]), Ok(Close::Connection));
        assert!(Close::read(&[2]).is_err() && Close::read(&[]).is_err());
        assert_eq!(read_waiting(&write_waiting(&[1, 5, 9])), Ok(vec![1, 5, 9]));
        assert!(read_waiting(&write_waiting(&[5, 1])).is_err());
        assert!(read_waiting(&[0xff, 0xff]).is_err());
    }
}
