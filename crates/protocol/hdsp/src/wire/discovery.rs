//! Class 1, always open: who is there.
//!
//! ```text
//! 1 query    16 bytes client id, text server name (empty: any), zeroes up to 416 bytes
//! 2 answer   16 bytes instance, 2 bytes largest packet that the server's link takes, text server name
//! text       1 byte length, that many bytes of UTF-8
//! ```
//!
//! A query is no shorter than its answer: a forged sender address amplifies nothing.

use sanwire_core::ClientId;

use super::{Malformed, NAME_MAX_BYTES, Reader, put_text};

/// Bytes of every query, and of every request of a handshake.
pub const REQUEST_BYTES: usize = 416;

const QUERY: u8 = 1;
const ANSWER: u8 = 2;

/// What a server draws when it starts: by it a client sees that it was restarted.
pub type Instance = [u8; 16];

/// What is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discovery<'a> {
    /// A client asks.
    Query {
        /// Who it says it is.
        client: ClientId,
        /// Which server is to answer; empty for all.
        server_name: &'a str,
    },
    /// A server answers.
    Answer {
        /// Which one.
        instance: Instance,
        /// The largest packet that its link takes, in bytes.
        packet_max_bytes: u16,
        /// Its name.
        server_name: &'a str,
    },
}

impl<'a> Discovery<'a> {
    /// Reads operation code and what follows.
    ///
    /// # Errors
    /// [`Malformed`] when they are none.
    pub fn read(operation: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(operation);
        match reader.u8()? {
            QUERY if operation.len() < REQUEST_BYTES => Err(Malformed::Truncated),
            QUERY => Ok(Discovery::Query {
                client: ClientId(reader.array()?),
                server_name: reader.text("server name", NAME_MAX_BYTES)?,
            }),
            ANSWER => Ok(Discovery::Answer {
                instance: reader.array()?,
                packet_max_bytes: reader.u16()?,
                server_name: reader.text("server name", NAME_MAX_BYTES)?,
            }),
            _ => Err(Malformed::Field("Operation Code")),
        }
    }

    /// The bytes.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(REQUEST_BYTES);
        match self {
            Discovery::Query { client, server_name } => {
                out.push(QUERY);
                out.extend_from_slice(&client.0);
                put_text(&mut out, server_name, NAME_MAX_BYTES);
                out.resize(REQUEST_BYTES, 0);
            }
            Discovery::Answer { instance, packet_max_bytes, server_name } => {
                out.push(ANSWER);
                out.extend_from_slice(instance);
                out.extend_from_slice(&packet_max_bytes.to_be_bytes());
                put_text(&mut out, server_name, NAME_MAX_BYTES);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_read_as_written_and_no_answer_is_longer_than_a_query() {
        let query = Discovery::Query { client: ClientId([1; 16]), server_name: "vault" };
        let name = "n".repeat(super::super::NAME_MAX_BYTES);
        let answer = Discovery::Answer { instance: [2; 16], packet_max_bytes: 9000, server_name: &name };
        for said in [query, answer] {
            assert_eq!(Discovery::read(&said.write()), Ok(said));
            assert!(said.write().len() <= REQUEST_BYTES);
        }
        let bytes = query.write();
        assert_eq!(bytes[..23], [&[1][..], &[1; 16], &[5], b"vault"].concat());
        assert_eq!(Discovery::read(&bytes[..REQUEST_BYTES - 1]), Err(Malformed::Truncated));
    }
}
