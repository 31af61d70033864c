//! The handshake: connect, accept, confirm, with Noise XX laid over them.
//!
//! ```text
//! CONNECT   1 byte: 0 a connection, 1 who is there?; 8 bytes attempt, 16 bytes client id, 8 bytes session,
//!           text server name (empty: any), 32 bytes Noise message 1, 1 byte length (0 or 16) and cookie, zeroes up to 416 bytes
//! ACCEPT    1 byte kind, 8 bytes attempt, then
//!   0         4 bytes connection, 16 bytes mark, 2 bytes length and Noise message 2 with the server's offer
//!   1         16 bytes cookie, to be repeated in the same CONNECT
//!   2         1 byte reason, 1 byte length (0 or 16) and proof
//!   3         who is there: see `offer::Found`
//! CONFIRM   8 bytes attempt, 16 bytes client id, 2 bytes length and Noise message 3 with the client's offer
//! text      1 byte length, that many bytes of UTF-8
//! ```
//!
//! A CONNECT is no shorter than its answer: a forged sender address amplifies nothing.

use sanwire_core::ClientId;
use sanwire_security::Cookie;
use sanwire_security::handshake::{Mark, Proof, SecondStep};

use super::offer::Found;
use super::{Malformed, NAME_MAX_BYTES, Reader, put_text};

/// Bytes of every CONNECT.
pub const CONNECT_BYTES: usize = 416;

/// What all prologues begin with: no other protocol's handshake can be taken for one of VISA.
const PROLOGUE: &[u8] = b"sanwire visa 1";

/// What stands in the place of the connection before there is one: all of a client comes to one shard.
#[must_use]
pub fn steering_word(client: ClientId) -> u32 {
    let [first, second, third, fourth, ..] = client.0;
    u32::from_be_bytes([first, second, third, fourth])
}

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect<'a> {
    /// Who is there, and no more.
    pub is_query: bool,
    /// Which attempt of the client.
    pub attempt: u64,
    /// Who it says it is.
    pub client: ClientId,
    /// Its session, kept through reconnections.
    pub session: u64,
    /// Which server is meant; empty for any.
    pub server_name: &'a str,
    /// Noise message 1.
    pub noise: [u8; 32],
    /// What the server has asked to be sent back.
    pub cookie: Option<Cookie>,
}

impl<'a> Connect<'a> {
    /// Reads the payload.
    ///
    /// # Errors
    /// [`Malformed`] when it is none.
    pub fn read(payload: &'a [u8]) -> Result<Connect<'a>, Malformed> {
        if payload.len() < CONNECT_BYTES {
            return Err(Malformed::Truncated);
        }
        let mut reader = Reader::new(payload);
        let kind = reader.u8()?;
        if kind > 1 {
            return Err(Malformed::Field("kind of connect"));
        }
        Ok(Connect {
            is_query: kind == 1,
            attempt: reader.u64()?,
            client: ClientId(reader.array()?),
            session: reader.u64()?,
            server_name: reader.text("server name", NAME_MAX_BYTES)?,
            noise: reader.array()?,
            cookie: optional(&mut reader)?,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_query));
        out.extend_from_slice(&self.attempt.to_be_bytes());
        out.extend_from_slice(&self.client.0);
        out.extend_from_slice(&self.session.to_be_bytes());
        put_text(out, self.server_name, NAME_MAX_BYTES);
    }

    /// What both ends bind into the handshake.
    #[must_use]
    pub fn prologue(&self) -> Vec<u8> {
        let mut out = PROLOGUE.to_vec();
        self.put(&mut out);
        out
    }

    /// The payload.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(CONNECT_BYTES);
        self.put(&mut out);
        out.extend_from_slice(&self.noise);
        put_optional(&mut out, self.cookie);
        out.resize(CONNECT_BYTES, 0);
        out
    }
}

/// Why a server does not go on with a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// The packet's connection is not known here (any more).
    UnknownConnection = 1,
    /// The third step did not verify: another password, or another client than announced.
    NotAuthentic = 2,
    /// No room for another connection.
    Full = 3,
    /// This session has been given up for a later one.
    Outdated = 4,
}

impl Refusal {
    fn read(code: u8) -> Option<Refusal> {
        use Refusal::{Full, NotAuthentic, Outdated, UnknownConnection};
        [UnknownConnection, NotAuthentic, Full, Outdated].into_iter().find(|refusal| *refusal as u8 == code)
    }
}

/// What a server answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Accept<'a> {
    /// The second step.
    Challenge {
        /// Which attempt is answered.
        attempt: u64,
        /// It.
        step: SecondStep<'a>,
    },
    /// There are many handshakes to begin.
    Cookie {
        /// Which attempt is answered.
        attempt: u64,
        /// To be repeated.
        cookie: Cookie,
    },
    /// The server does not go on. Without a proof it is a hint: anybody can have said so.
    Refusal {
        /// Which attempt is answered; 0 outside a handshake.
        attempt: u64,
        /// Why.
        reason: Refusal,
        /// That the server has said so which has made the challenge.
        proof: Option<Proof>,
    },
    /// Who is there.
    Found {
        /// Which question is answered.
        attempt: u64,
        /// Who.
        found: Found,
    },
}

impl<'a> Accept<'a> {
    /// Reads the payload.
    ///
    /// # Errors
    /// [`Malformed`] when it is none.
    pub fn read(payload: &'a [u8]) -> Result<Accept<'a>, Malformed> {
        let mut reader = Reader::new(payload);
        let (kind, attempt) = (reader.u8()?, reader.u64()?);
        match kind {
            0 => {
                let connection = reader.u32()?;
                let mark: Mark = reader.array()?;
                Ok(Accept::Challenge { attempt, step: SecondStep { connection, mark, noise: noise(reader)? } })
            }
            1 => {
                let cookie = reader.array()?;
                reader.end()?;
                Ok(Accept::Cookie { attempt, cookie })
            }
            2 => {
                let reason = Refusal::read(reader.u8()?).ok_or(Malformed::Field("reason"))?;
                let proof = optional(&mut reader)?;
                reader.end()?;
                Ok(Accept::Refusal { attempt, reason, proof })
            }
            3 => {
                let (instance, packet_max_bytes) = (reader.u64()?, reader.u16()?);
                let name = reader.text("server name", NAME_MAX_BYTES)?.to_owned();
                Ok(Accept::Found { attempt, found: Found { instance, packet_max_bytes, name } })
            }
            _ => Err(Malformed::Field("kind of accept")),
        }
    }

    /// The payload.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut begin = |kind: u8, attempt: u64| {
            out.push(kind);
            out.extend_from_slice(&attempt.to_be_bytes());
        };
        match self {
            Accept::Challenge { attempt, step: SecondStep { connection, noise, mark } } => {
                begin(0, *attempt);
                out.extend_from_slice(&connection.to_be_bytes());
                out.extend_from_slice(mark);
                put_noise(&mut out, noise);
            }
            Accept::Cookie { attempt, cookie } => {
                begin(1, *attempt);
                out.extend_from_slice(cookie);
            }
            Accept::Refusal { attempt, reason, proof } => {
                begin(2, *attempt);
                out.push(*reason as u8);
                put_optional(&mut out, *proof);
            }
            Accept::Found { attempt, found: Found { instance, packet_max_bytes, name } } => {
                begin(3, *attempt);
                out.extend_from_slice(&instance.to_be_bytes());
                out.extend_from_slice(&packet_max_bytes.to_be_bytes());
                put_text(&mut out, name, NAME_MAX_BYTES);
            }
        }
        out
    }
}

/// The third step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Confirm<'a> {
    /// Of which attempt.
    pub attempt: u64,
    /// Who the client is.
    pub client: ClientId,
    /// Noise message 3.
    pub noise: &'a [u8],
}

impl<'a> Confirm<'a> {
    /// Reads the payload.
    ///
    /// # Errors
    /// [`Malformed`] when it is none.
    pub fn read(payload: &'a [u8]) -> Result<Confirm<'a>, Malformed> {
        let mut reader = Reader::new(payload);
        let (attempt, client) = (reader.u64()?, ClientId(reader.array()?));
        Ok(Confirm { attempt, client, noise: noise(reader)? })
    }

    /// The payload.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = self.attempt.to_be_bytes().to_vec();
        out.extend_from_slice(&self.client.0);
        put_noise(&mut out, self.noise);
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
    use super::*;

    #[test]
    fn all_steps_survive_the_wire() {
        for (is_query, cookie) in [(true, None), (false, Some([3; 16]))] {
            let client = ClientId([9; 16]);
            let connect =
                Connect { is_query, attempt: 7, client, session: 5, server_name: "vault", noise: [1; 32], cookie };
            let bytes = connect.write();
            assert_eq!((Connect::read(&bytes), bytes.len()), (Ok(connect), CONNECT_BYTES));
            assert!(Connect::read(&bytes[..CONNECT_BYTES - 1]).is_err());
        }
        let found = Found { instance: 3, packet_max_bytes: 1472, name: "vault".to_owned() };
        for accept in [
            Accept::Challenge { attempt: 1, step: SecondStep { connection: 2, noise: &[5; 200], mark: [6; 16] } },
            Accept::Cookie { attempt: 1, cookie: [4; 16] },
            Accept::Refusal { attempt: 1, reason: Refusal::Full, proof: Some([7; 16]) },
            Accept::Refusal { attempt: 0, reason: Refusal::UnknownConnection, proof: None },
            Accept::Found { attempt: 2, found },
        ] {
            let bytes = accept.write();
            assert_eq!(Accept::read(&bytes), Ok(accept));
            for length in 0..bytes.len() {
                assert!(Accept::read(&bytes[..length]).is_err());
            }
        }
        let confirm = Confirm { attempt: 1, client: ClientId([2; 16]), noise: &[8; 300] };
        assert_eq!(Confirm::read(&confirm.write()), Ok(confirm));
    }
}
