//! Bodies of ADN_REQUEST, ADN_REPLY and DISCONNECT on a connection that lives. Always sealed: a forger, who lacks the
//! connection's key, cannot make one.
//!
//! ```text
//! ADN_REQUEST   1 byte kind: 16 keep-alive (8 bytes nonce), 17 the server goes away,
//!               18 new keys (8 bytes epoch, 32 bytes public key), 19 options (4 bytes number of the change, options);
//!               19 from either end, the others from the server
//! ADN_REPLY     1 byte kind: 16 keep-alive (8 bytes nonce, repeated), 18 new keys (as above),
//!               19 options (4 bytes number of the change that is answered, 4 bytes number of the sender's own last change, options)
//! DISCONNECT    1 byte kind: 16
//! ```

pub use sanwire_security::ring::NewKeys;

use super::options::Options;
use super::{Malformed, Reader};

const KEEP_ALIVE: u8 = 16;
const FAREWELL: u8 = 17;
const NEW_KEYS: u8 = 18;
const OPTIONS: u8 = 19;

fn read_keys(mut reader: Reader<'_>) -> Result<NewKeys, Malformed> {
    Ok(NewKeys { epoch: reader.u64()?, public: reader.array()? })
}

fn write_keys(keys: NewKeys) -> Vec<u8> {
    let mut out = vec![NEW_KEYS];
    out.extend_from_slice(&keys.epoch.to_be_bytes());
    out.extend_from_slice(&keys.public);
    out
}

/// The options of an end, from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewOptions {
    /// The end counts the changes of its options, from 1; those of its offer have 0.
    pub change: u32,
    /// All of the end's options.
    pub options: Options,
}

impl NewOptions {
    fn read(mut reader: Reader<'_>) -> Result<NewOptions, Malformed> {
        Ok(NewOptions { change: reader.u32()?, options: Options::read(&mut reader)? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.change.to_be_bytes());
        self.options.write(out);
    }
}

/// What is asked on a living connection: by the server; by either end, if it is options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LiveRequest {
    /// Are you there?
    KeepAlive {
        /// To be repeated.
        nonce: u64,
    },
    /// The server stops; come back when it is up again.
    Farewell,
    /// Let us have new keys.
    NewKeys(NewKeys),
    /// The sender's options are these from now on.
    Options(NewOptions),
}

impl LiveRequest {
    /// Reads the unsealed body.
    ///
    /// # Errors
    /// [`Malformed`] for unknown kinds.
    pub fn read(body: &[u8]) -> Result<LiveRequest, Malformed> {
        let mut reader = Reader::new(body);
        match reader.u8()? {
            KEEP_ALIVE => Ok(LiveRequest::KeepAlive { nonce: reader.u64()? }),
            FAREWELL => Ok(LiveRequest::Farewell),
            NEW_KEYS => read_keys(reader).map(LiveRequest::NewKeys),
            OPTIONS => NewOptions::read(reader).map(LiveRequest::Options),
            _ => Err(Malformed::Field("kind of ADN_REQUEST")),
        }
    }

    /// The body.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        match self {
            LiveRequest::KeepAlive { nonce } => write_keep_alive(*nonce),
            LiveRequest::Farewell => vec![FAREWELL],
            LiveRequest::NewKeys(keys) => write_keys(*keys),
            LiveRequest::Options(options) => {
                let mut out = vec![OPTIONS];
                options.write(&mut out);
                out
            }
        }
    }
}

/// What is answered on a living connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LiveReply {
    /// It is there.
    KeepAlive {
        /// The request's.
        nonce: u64,
    },
    /// It agrees to new keys.
    NewKeys(NewKeys),
    /// The sender's options, in answer to those of the other end.
    Options {
        /// The change that is answered.
        change: u32,
        /// The sender's own.
        options: NewOptions,
    },
}

impl LiveReply {
    /// Reads the unsealed body.
    ///
    /// # Errors
    /// [`Malformed`] for unknown kinds.
    pub fn read(body: &[u8]) -> Result<LiveReply, Malformed> {
        let mut reader = Reader::new(body);
        match reader.u8()? {
            KEEP_ALIVE => Ok(LiveReply::KeepAlive { nonce: reader.u64()? }),
            NEW_KEYS => read_keys(reader).map(LiveReply::NewKeys),
            OPTIONS => Ok(LiveReply::Options { change: reader.u32()?, options: NewOptions::read(reader)? }),
            _ => Err(Malformed::Field("kind of ADN_REPLY")),
        }
    }

    /// The body.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        match self {
            LiveReply::KeepAlive { nonce } => write_keep_alive(*nonce),
            LiveReply::NewKeys(keys) => write_keys(*keys),
            LiveReply::Options { change, options } => {
                let mut out = vec![OPTIONS];
                out.extend_from_slice(&change.to_be_bytes());
                options.write(&mut out);
                out
            }
        }
    }
}

/// Reads the body of DISCONNECT.
///
/// # Errors
/// [`Malformed`] for unknown kinds.
pub fn read_disconnect(body: &[u8]) -> Result<(), Malformed> {
    if body == write_disconnect() { Ok(()) } else { Err(Malformed::Field("kind of DISCONNECT")) }
}

/// The body of DISCONNECT.
#[must_use]
pub fn write_disconnect() -> Vec<u8> {
    vec![KEEP_ALIVE]
}

fn write_keep_alive(nonce: u64) -> Vec<u8> {
    let mut out = vec![KEEP_ALIVE];
    out.extend_from_slice(&nonce.to_be_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_survive_the_wire() {
        let keys = NewKeys { epoch: 7, public: [9; 32] };
        let options = NewOptions { change: 3, options: Options::default() };
        let of_server = [
            LiveRequest::KeepAlive { nonce: 5 },
            LiveRequest::Farewell,
            LiveRequest::NewKeys(keys),
            LiveRequest::Options(options.clone()),
        ];
        for request in of_server {
            assert_eq!(LiveRequest::read(&request.write()), Ok(request));
        }
        let options = LiveReply::Options { change: 2, options };
        for reply in [LiveReply::KeepAlive { nonce: u64::MAX }, LiveReply::NewKeys(keys), options] {
            assert_eq!(LiveReply::read(&reply.write()), Ok(reply));
        }
        assert_eq!(read_disconnect(&write_disconnect()), Ok(()));
        assert!(LiveRequest::read(&[1]).is_err() && read_disconnect(&[]).is_err());
    }
}
