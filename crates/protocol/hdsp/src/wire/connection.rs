//! Class 2: the three-way handshake, with Noise XX laid over it, and the release of a connection.
//!
//! ```text
//! 1 request     client: 8 bytes attempt, 16 bytes client id, 8 bytes run, 4 bytes epoch, text server name (empty: any),
//!               32 bytes Noise message 1, 1 byte length (0 or 16) and cookie, zeroes up to 416 bytes
//! 2 challenge   server: 8 bytes attempt, 16 bytes mark, Noise message 2 with the server's offer
//! 3 proof       client: 8 bytes attempt, 16 bytes client id, Noise message 3 with the client's offer
//! 4 accepted    server, sealed: see [`super::offer::Agreement`]
//! 5 cookie      server: 8 bytes attempt, 16 bytes cookie, to be repeated in the same request
//! 6 refusal     server, with E: 8 bytes attempt, 0 or 16 bytes proof
//! 7 release     either end, sealed
//! 8 released    either end, sealed: the answer to it
//! 9 elsewhere   server: 8 bytes attempt, 2 bytes shards, 2 bytes shard: the client's port, modulo the first, is to be the second
//! ```
//!
//! 1, 2, 3, 5, 6 and 9 are open. A session is a client id and a run; that of a higher epoch takes the place of those before.

use std::time::Duration;

use sanwire_core::ClientId;
use sanwire_security::Cookie;
use sanwire_security::handshake::{Mark, Proof};

use super::discovery::REQUEST_BYTES;
use super::{Malformed, NAME_MAX_BYTES, Reader, put_text};

const REQUEST: u8 = 1;
const CHALLENGE: u8 = 2;
const PROOF: u8 = 3;
const COOKIE: u8 = 5;
const REFUSAL: u8 = 6;

/// The operation code of what a server seals when it has accepted a client.
pub const ACCEPTED: u8 = 4;

/// The operation code by which either end releases a connection.
pub const RELEASE: u8 = 7;

/// That of the answer.
pub const RELEASED: u8 = 8;

/// A server waits so long for the proof after its challenge; no proof is accepted later.
pub const PROOF_MAX: Duration = Duration::from_secs(5);

const ELSEWHERE: u8 = 9;

/// What all prologues begin with: no other protocol's handshake can be taken for one of HDSP.
const PROLOGUE: &[u8] = b"sanwire hdsp 1";

/// Which session of which run of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionName {
    /// Whose.
    pub client: ClientId,
    /// Drawn when the client begins.
    pub run: u64,
    /// How many it has abandoned in this run.
    pub epoch: u32,
}

/// The first step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// Which attempt of the client.
    pub attempt: u64,
    /// The session that is to have the connection.
    pub session: SessionName,
    /// Which server is meant; empty for any.
    pub server_name: &'a str,
    /// Noise message 1.
    pub noise: [u8; 32],
    /// What the server has asked to be sent back.
    pub cookie: Option<Cookie>,
}

/// What is said openly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// The first step.
    Request(Request<'a>),
    /// The second.
    Challenge {
        /// Which attempt is answered.
        attempt: u64,
        /// By which a client that knows the server's key knows it.
        mark: Mark,
        /// Noise message 2.
        noise: &'a [u8],
    },
    /// The third.
    Proof {
        /// Of which attempt.
        attempt: u64,
        /// Who the client is.
        client: ClientId,
        /// Noise message 3.
        noise: &'a [u8],
    },
    /// The server has many handshakes to begin.
    Cookie {
        /// Which attempt is answered.
        attempt: u64,
        /// To be repeated.
        cookie: Cookie,
    },
    /// The server does not go on; the common header says why. Without a proof it is a hint: anybody can have said so.
    Refusal {
        /// Which attempt is answered; 0 outside a handshake.
        attempt: u64,
        /// That the server has said so which has made the challenge.
        proof: Option<Proof>,
    },
    /// All sessions of this client are with another shard of the server.
    Elsewhere {
        /// Which attempt is answered.
        attempt: u64,
        /// Where.
        home: Home,
    },
}

/// The shard of a server that has all sessions of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    /// How many shards there are, at least one.
    pub shards: u16,
    /// Which one it is: a smaller number.
    pub shard: u16,
}

impl Home {
    /// Where a client is at home in a server of so many shards.
    #[must_use]
    pub fn of(client: ClientId, shards: u32) -> Home {
        let ClientId([a, b, c, d, ..]) = client;
        // A server has far fewer shards.
        let shards = u16::try_from(shards).unwrap_or(u16::MAX).max(1);
        Home { shards, shard: (u32::from_be_bytes([a, b, c, d]) % u32::from(shards)) as u16 }
    }

    /// Whether a client's first packets go there from this port.
    #[must_use]
    pub fn has(self, client_port: u16) -> bool {
        client_port % self.shards == self.shard
    }

    /// The port next to this one from which they do, but not 0; `None` where there is none.
    #[must_use]
    pub fn nearest(self, client_port: u16) -> Option<u16> {
        let base = client_port - client_port % self.shards;
        let above = base.checked_add(self.shard);
        let candidates =
            [above, base.checked_sub(self.shards - self.shard), above.and_then(|port| port.checked_add(self.shards))];
        candidates.into_iter().flatten().find(|port| *port != 0 && self.has(*port))
    }
}

impl Request<'_> {
    /// What both ends bind into the handshake: all but the cookie.
    #[must_use]
    pub fn prologue(&self, client_port: u16) -> Vec<u8> {
        let mut out = PROLOGUE.to_vec();
        out.extend_from_slice(&client_port.to_be_bytes());
        self.put(&mut out);
        out
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.attempt.to_be_bytes());
        out.extend_from_slice(&self.session.client.0);
        out.extend_from_slice(&self.session.run.to_be_bytes());
        out.extend_from_slice(&self.session.epoch.to_be_bytes());
        put_text(out, self.server_name, NAME_MAX_BYTES);
    }
}

impl<'a> Step<'a> {
    /// Reads operation code and what follows.
    ///
    /// # Errors
    /// [`Malformed`] when they are none, or one that must be sealed.
    pub fn read(operation: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(operation);
        let code = reader.u8()?;
        let attempt = reader.u64()?;
        match code {
            REQUEST if operation.len() < REQUEST_BYTES => Err(Malformed::Truncated),
            REQUEST => {
                let client = ClientId(reader.array()?);
                let session = SessionName { client, run: reader.u64()?, epoch: reader.u32()? };
                let (server_name, noise) = (reader.text("server name", NAME_MAX_BYTES)?, reader.array()?);
                let cookie = optional(&mut reader)?;
                Ok(Step::Request(Request { attempt, session, server_name, noise, cookie }))
            }
            CHALLENGE => Ok(Step::Challenge { attempt, mark: reader.array()?, noise: noise(reader)? }),
            PROOF => Ok(Step::Proof { attempt, client: ClientId(reader.array()?), noise: noise(reader)? }),
            COOKIE => {
                let cookie = reader.array()?;
                reader.end().map(|()| Step::Cookie { attempt, cookie }).map_err(Into::into)
            }
            REFUSAL => {
                let proof = optional(&mut reader)?;
                reader.end().map(|()| Step::Refusal { attempt, proof }).map_err(Into::into)
            }
            ELSEWHERE => {
                let home = Home { shards: reader.u16()?, shard: reader.u16()? };
                reader.end()?;
                if home.shard >= home.shards {
                    Err(Malformed::Field("shard"))
                } else {
                    Ok(Step::Elsewhere { attempt, home })
                }
            }
            _ => Err(Malformed::Field("Operation Code")),
        }
    }

    /// The bytes.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(REQUEST_BYTES);
        let mut begin = |code: u8, attempt: u64| {
            out.push(code);
            out.extend_from_slice(&attempt.to_be_bytes());
        };
        match self {
            Step::Request(request) => {
                out.push(REQUEST);
                request.put(&mut out);
                out.extend_from_slice(&request.noise);
                put_optional(&mut out, request.cookie);
                out.resize(REQUEST_BYTES, 0);
            }
            Step::Challenge { attempt, mark, noise } => {
                begin(CHALLENGE, *attempt);
                out.extend_from_slice(mark);
                put_noise(&mut out, noise);
            }
            Step::Proof { attempt, client, noise } => {
                begin(PROOF, *attempt);
                out.extend_from_slice(&client.0);
                put_noise(&mut out, noise);
            }
            Step::Cookie { attempt, cookie } => {
                begin(COOKIE, *attempt);
                out.extend_from_slice(cookie);
            }
            Step::Refusal { attempt, proof } => {
                begin(REFUSAL, *attempt);
                put_optional(&mut out, *proof);
            }
            Step::Elsewhere { attempt, home } => {
                begin(ELSEWHERE, *attempt);
                out.extend_from_slice(&home.shards.to_be_bytes());
                out.extend_from_slice(&home.shard.to_be_bytes());
            }
        }
        out
    }
}

fn optional(reader: &mut Reader<'_>) -> Result<Option<[u8; 16]>, Malformed> {
    match reader.u8()? {
        0 => Ok(None),
        16 => Ok(Some(reader.array()?)),
        _ => Err(Malformed::Field("length of a cookie or proof")),
    }
}

fn put_optional(out: &mut Vec<u8>, value: Option<[u8; 16]>) {
    out.push(if value.is_some() { 16 } else { 0 });
    out.extend_from_slice(value.as_ref().map_or(&[], |value| &value[..]));
}

fn noise(mut reader: Reader<'_>) -> Result<&[u8], Malformed> {
    let length = usize::from(reader.u16()?);
    let noise = reader.bytes(length)?;
    reader.end().map(|()| noise).map_err(Into::into)
}

fn put_noise(out: &mut Vec<u8>, noise: &[u8]) {
    out.extend_from_slice(&(noise.len() as u16).to_be_bytes());
    out.extend_from_slice(noise);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(cookie: Option<Cookie>) -> Request<'static> {
        let session = SessionName { client: ClientId([1; 16]), run: 2, epoch: 3 };
        Request { attempt: 4, session, server_name: "vault", noise: [5; 32], cookie }
    }

    #[test]
    fn every_step_is_read_as_written() {
        for step in [
            Step::Request(request(None)),
            Step::Request(request(Some([6; 16]))),
            Step::Challenge { attempt: 7, mark: [8; 16], noise: &[9; 200] },
            Step::Proof { attempt: 7, client: ClientId([1; 16]), noise: &[9; 200] },
            Step::Cookie { attempt: u64::MAX, cookie: [6; 16] },
            Step::Refusal { attempt: 0, proof: None },
            Step::Refusal { attempt: 1, proof: Some([7; 16]) },
            Step::Elsewhere { attempt: 2, home: Home { shards: 300, shard: 299 } },
        ] {
            let bytes = step.write();
            assert_eq!(Step::read(&bytes), Ok(step));
            for length in 0..bytes.len() {
                assert!(Step::read(&bytes[..length]).is_err(), "{step:?} cut to {length}");
            }
        }
    }

    #[test]
    fn the_cookie_is_not_bound_and_all_else_is() {
        let plain = request(None);
        assert_eq!(plain.prologue(1), request(Some([6; 16])).prologue(1));
        let epoch = SessionName { epoch: 4, ..plain.session };
        for other in
            [Request { attempt: 5, ..plain }, Request { server_name: "", ..plain }, Request { session: epoch, ..plain }]
        {
            assert_ne!(plain.prologue(1), other.prologue(1));
        }
        assert_ne!(plain.prologue(1), plain.prologue(2));
    }

    #[test]
    fn from_every_port_there_is_one_at_hand_that_leads_home() {
        for shards in [1, 2, 3, 7, 64, 1000] {
            for shard in [0, shards / 2, shards - 1] {
                let home = Home { shards, shard };
                for port in (0..=u16::MAX).step_by(97).chain([0, 1, u16::MAX]) {
                    let near = home.nearest(port).unwrap();
                    assert!(
                        near != 0 && home.has(near) && near.abs_diff(port) <= 2 * shards,
                        "{port} {home:?}: {near}"
                    );
                }
            }
        }
        let told = [&[9][..], &7_u64.to_be_bytes(), &[0, 2, 0, 2]].concat();
        assert_eq!(Step::read(&told), Err(Malformed::Field("shard")), "there is no such one");
        let client = ClientId([0, 0, 0, 5, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]);
        assert_eq!(Home::of(client, 3), Home { shards: 3, shard: 2 });
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_again(bytes in proptest::collection::vec(any::<u8>(), 0..500), code in 1u8..10) {
            let bytes = [&[code][..], &bytes].concat();
            if let Ok(step) = Step::read(&bytes) {
                let written = step.write();
                prop_assert_eq!(Step::read(&written), Ok(step));
            }
        }
    }
}
