//! Bodies of ADN_REQUEST, ADN_REPLY and DISCONNECT on a connection that lives. Always sealed: a forger, who lacks the
//! connection's key, cannot make one.
//!
//! ```text
//! ADN_REQUEST   1 byte kind: 16 keep-alive (8 bytes nonce), 17 the server goes away
//! ADN_REPLY     1 byte kind: 16 keep-alive (8 bytes nonce, repeated)
//! DISCONNECT    1 byte kind: 16
//! ```

use super::{Malformed, Reader};

const KEEP_ALIVE: u8 = 16;
const FAREWELL: u8 = 17;

/// What a server says on a living connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LiveRequest {
    /// Are you there?
    KeepAlive {
        /// To be repeated.
        nonce: u64,
    },
    /// The server stops; come back when it is up again.
    Farewell,
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
            _ => Err(Malformed::Field("kind of ADN_REQUEST")),
        }
    }

    /// The body.
    #[must_use]
    pub fn write(self) -> Vec<u8> {
        match self {
            LiveRequest::KeepAlive { nonce } => write_keep_alive(nonce),
            LiveRequest::Farewell => vec![FAREWELL],
        }
    }
}

/// Reads the nonce that a client repeats.
///
/// # Errors
/// [`Malformed`] for unknown kinds.
pub fn read_live_reply(body: &[u8]) -> Result<u64, Malformed> {
    let mut reader = Reader::new(body);
    if reader.u8()? != KEEP_ALIVE {
        return Err(Malformed::Field("kind of ADN_REPLY"));
    }
    reader.u64()
}

/// The body that answers a keep-alive.
#[must_use]
pub fn write_live_reply(nonce: u64) -> Vec<u8> {
    write_keep_alive(nonce)
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
        for request in [LiveRequest::KeepAlive { nonce: 5 }, LiveRequest::Farewell] {
            assert_eq!(LiveRequest::read(&request.write()), Ok(request));
        }
        assert_eq!(read_live_reply(&write_live_reply(u64::MAX)), Ok(u64::MAX));
        assert_eq!(read_disconnect(&write_disconnect()), Ok(()));
        assert!(LiveRequest::read(&[1]).is_err() && read_disconnect(&[]).is_err());
    }
}
