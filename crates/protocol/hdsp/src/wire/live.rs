//! Classes 4 and 5, always sealed: how far the other end has come, and whether it is there.
//!
//! ```text
//! class 4   1 query        4 bytes Group ID and 2 bytes Serial Number of the newest packet that was sent; answered by ACK and NACK
//! class 5   1 keep-alive   8 bytes nonce
//!           2 answer       the same nonce
//! ```

use super::flow::Place;
use super::pcu::Class;
use super::pdu::{GROUP_PACKETS_MAX, GROUPS_MAX};
use super::{Malformed, Reader};

/// What is asked on a living connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Live {
    /// What has come, of all up to this packet?
    Query(Place),
    /// Are you there?
    KeepAlive(u64),
    /// Yes.
    Alive(u64),
}

impl Live {
    /// Reads operation code and what follows.
    ///
    /// # Errors
    /// [`Malformed`] when they are none of this class.
    pub fn read(class: Class, operation: &[u8]) -> Result<Live, Malformed> {
        let mut reader = Reader::new(operation);
        let live = match (class, reader.u8()?) {
            (Class::Query, 1) => Live::Query((reader.u32()?, reader.u16()?)),
            (Class::KeepAlive, 1) => Live::KeepAlive(reader.u64()?),
            (Class::KeepAlive, 2) => Live::Alive(reader.u64()?),
            _ => return Err(Malformed::Field("Operation Code")),
        };
        match live {
            Live::Query((group, serial)) if group >= GROUPS_MAX || serial >= GROUP_PACKETS_MAX => {
                Err(Malformed::Field("packet"))
            }
            _ => reader.end().map(|()| live).map_err(Into::into),
        }
    }

    /// The class.
    #[must_use]
    pub fn class(&self) -> Class {
        if matches!(self, Live::Query(_)) { Class::Query } else { Class::KeepAlive }
    }

    /// The bytes.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        match self {
            Live::Query((group, serial)) => [&[1][..], &group.to_be_bytes(), &serial.to_be_bytes()].concat(),
            Live::KeepAlive(nonce) => [&[1][..], &nonce.to_be_bytes()].concat(),
            Live::Alive(nonce) => [&[2][..], &nonce.to_be_bytes()].concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_read_as_written() {
        for live in [Live::Query((7, 255)), Live::KeepAlive(u64::MAX), Live::Alive(1)] {
            assert_eq!(Live::read(live.class(), &live.write()), Ok(live));
        }
        assert_eq!(Live::Query((1, 2)).write(), [1, 0, 0, 0, 1, 0, 2]);
        assert!(Live::read(Class::Query, &[1, 0, 0, 0, 1, 1, 0]).is_err(), "no such serial number");
        assert!(Live::read(Class::Flow, &[1]).is_err());
    }
}
