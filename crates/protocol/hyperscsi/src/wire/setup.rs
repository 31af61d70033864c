//! Bodies of the handshake (HyperSCSI 5.1): DISCOVERY, ADN_REQUEST, ADN_REPLY, with Noise XX laid over them.
//!
//! ```text
//! DEVICE_DISCOVERY   2 bytes revision (3), 1 byte flags (bit 0: only announce yourself), 1 byte reserved,
//!                    16 bytes client id, 8 bytes session, 4 bytes largest packet of the client's link,
//!                    text wanted server name (empty: any), 2 bytes length and Noise message 1,
//!                    1 byte length (0 or 16) and cookie, zeroes up to 416 bytes
//! ADN_REQUEST        1 byte kind: 1 handshake, 2 announcement, 3 refusal, 4 cookie
//!   1                4 bytes connection, 2 bytes length and Noise message 2 with the server's offer, 16 bytes mark
//!   2                4 bytes largest packet of the server's link, 8 bytes instance, text server name
//!   3                1 byte reason, and after a third step 16 bytes proof
//!   4                16 bytes cookie, to be repeated in the same DISCOVERY
//! ADN_REPLY          1 byte kind: 1 handshake; 2 bytes length and Noise message 3 with the client's offer
//! text               1 byte length, that many bytes of UTF-8
//! ```
//!
//! A discovery is padded so that no answer is longer than what asked: a forged sender address amplifies nothing.

use sanwire_core::ClientId;
pub use sanwire_security::Cookie;
pub use sanwire_security::handshake::{Mark, Proof, SecondStep};

use super::{Malformed, Reader, put_text};

/// What both ends speak. Other revisions are ignored.
pub const REVISION: u16 = 3;

/// Bytes of every DEVICE_DISCOVERY body.
pub const DISCOVERY_BYTES: usize = 416;

/// The smallest packet limit that a link may have, in bytes: with it, the largest transfer still fits into the fragments
/// of one message.
pub const PACKET_MIN_BYTES: u32 = 1200;

/// The longest name of a server or client, in bytes.
pub const NAME_MAX_BYTES: usize = 64;

/// What stands in the connection field before there is a connection: drivers of a server steer by it, so all packets of one
/// client meet at one shard.
#[must_use]
pub fn steering_word(client: ClientId) -> u32 {
    let [first, second, third, fourth, ..] = client.0;
    u32::from_be_bytes([first, second, third, fourth])
}

/// Bytes of the first Noise message.
const NOISE_FIRST_BYTES: usize = 32;

/// The body of DEVICE_DISCOVERY.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Discovery<'a> {
    /// Ask for an announcement only, not for a handshake.
    pub announce_only: bool,
    /// Who the client says it is; proven in the third step.
    pub client: ClientId,
    /// The client's session, kept through reconnections.
    pub session: u64,
    /// The largest packet that the client's link takes, in bytes.
    pub packet_max_bytes: u32,
    /// Which server is meant; empty for any.
    pub server_name: &'a str,
    /// Noise message 1; empty when only an announcement is asked for.
    pub noise: &'a [u8],
    /// What the server has asked to be sent back, if it did.
    pub cookie: Option<&'a Cookie>,
}

impl<'a> Discovery<'a> {
    /// Reads the body. The second part is what both ends bind into the handshake (the Noise prologue).
    ///
    /// # Errors
    /// [`Malformed`] for other revisions, short padding or lengths that do not fit. What begins a handshake costs the server most
    /// of all that a stranger can send, so it must look like one.
    pub fn read(body: &'a [u8]) -> Result<(Discovery<'a>, &'a [u8]), Malformed> {
        if body.len() < DISCOVERY_BYTES {
            return Err(Malformed::Truncated);
        }
        let mut reader = Reader::new(body);
        if reader.u16()? != REVISION {
            return Err(Malformed::Field("revision"));
        }
        let announce_only = reader.u8()? & 1 != 0;
        reader.u8()?;
        let client = ClientId(reader.array()?);
        let session = reader.u64()?;
        let packet_max_bytes = reader.u32()?;
        if packet_max_bytes < PACKET_MIN_BYTES {
            return Err(Malformed::Field("largest packet"));
        }
        let server_name = reader.text("server name", NAME_MAX_BYTES)?;
        let prologue = &body[..body.len() - reader.rest().len()];
        let noise_length = usize::from(reader.u16()?);
        let noise = reader.bytes(noise_length)?;
        if noise_length != NOISE_FIRST_BYTES && !announce_only {
            return Err(Malformed::Field("Noise message 1"));
        }
        let cookie = match reader.u8() {
            Ok(0) | Err(_) => None,
            Ok(length) => Some(reader.bytes(usize::from(length))?.try_into().map_err(|_| Malformed::Field("cookie"))?),
        };
        Ok((Discovery { announce_only, client, session, packet_max_bytes, server_name, noise, cookie }, prologue))
    }

    /// The fields before the Noise message: the prologue of the handshake.
    #[must_use]
    pub fn prologue(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(DISCOVERY_BYTES);
        out.extend_from_slice(&REVISION.to_be_bytes());
        out.extend_from_slice(&[u8::from(self.announce_only), 0]);
        out.extend_from_slice(&self.client.0);
        out.extend_from_slice(&self.session.to_be_bytes());
        out.extend_from_slice(&self.packet_max_bytes.to_be_bytes());
        put_text(&mut out, self.server_name, NAME_MAX_BYTES);
        out
    }

    /// The whole body.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = self.prologue();
        write_noise(&mut out, self.noise);
        if let Some(cookie) = self.cookie {
            out.push(cookie.len() as u8);
            out.extend_from_slice(cookie);
        }
        out.resize(DISCOVERY_BYTES.max(out.len()), 0);
        out
    }
}

/// Why a server does not go on with a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// The packet's connection is not known here (any more).
    UnknownConnection = 1,
    /// The third step of the handshake did not verify: another password, or another client than announced.
    NotAuthentic = 2,
    /// No room for another connection.
    Full = 3,
    /// An option that one end enforces is not to be had with the other.
    Options = 4,
}

impl Refusal {
    /// Whether it is only said of a third step, so by who has made the second one, and can prove it.
    #[must_use]
    pub fn must_be_proven(self) -> bool {
        matches!(self, Refusal::NotAuthentic | Refusal::Options)
    }
}

/// The body of an ADN_REQUEST that is not sealed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AdnRequest<'a> {
    /// Second step of the handshake.
    Handshake(SecondStep<'a>),
    /// Answer to a discovery that asked for no more.
    Announcement {
        /// The largest packet that the server's link takes, in bytes.
        packet_max_bytes: u32,
        /// The number that the server drew when it started: by it one server is known on several links.
        instance: u64,
        /// The server's name.
        server_name: &'a str,
    },
    /// The server does not go on. Without a proof it is a hint, not an order: anybody can have said so.
    Refusal(Refusal, Option<Proof>),
    /// The server has many handshakes to begin: it begins this one when the same discovery comes with this in it.
    Cookie(Cookie),
}

impl<'a> AdnRequest<'a> {
    /// Reads the body.
    ///
    /// # Errors
    /// [`Malformed`] for unknown kinds and lengths that do not fit.
    pub fn read(body: &'a [u8]) -> Result<AdnRequest<'a>, Malformed> {
        let mut reader = Reader::new(body);
        match reader.u8()? {
            1 => {
                let connection = reader.u32()?;
                let noise_length = usize::from(reader.u16()?);
                let noise = reader.bytes(noise_length)?;
                Ok(AdnRequest::Handshake(SecondStep { connection, noise, mark: reader.array()? }))
            }
            2 => Ok(AdnRequest::Announcement {
                packet_max_bytes: reader.u32()?,
                instance: reader.u64()?,
                server_name: reader.text("server name", NAME_MAX_BYTES)?,
            }),
            3 => {
                let reason = match reader.u8()? {
                    1 => Refusal::UnknownConnection,
                    2 => Refusal::NotAuthentic,
                    3 => Refusal::Full,
                    4 => Refusal::Options,
                    _ => return Err(Malformed::Field("reason")),
                };
                let proof = if reader.rest().is_empty() { None } else { Some(reader.array()?) };
                Ok(AdnRequest::Refusal(reason, proof))
            }
            4 => Ok(AdnRequest::Cookie(reader.array()?)),
            _ => Err(Malformed::Field("kind of ADN_REQUEST")),
        }
    }

    /// The body.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            AdnRequest::Handshake(SecondStep { connection, noise, mark }) => {
                out.push(1);
                out.extend_from_slice(&connection.to_be_bytes());
                write_noise(&mut out, noise);
                out.extend_from_slice(mark);
            }
            AdnRequest::Announcement { packet_max_bytes, instance, server_name } => {
                out.push(2);
                out.extend_from_slice(&packet_max_bytes.to_be_bytes());
                out.extend_from_slice(&instance.to_be_bytes());
                put_text(&mut out, server_name, NAME_MAX_BYTES);
            }
            AdnRequest::Refusal(reason, proof) => {
                out.extend_from_slice(&[3, *reason as u8]);
                out.extend_from_slice(proof.as_ref().map_or(&[], |proof| &proof[..]));
            }
            AdnRequest::Cookie(cookie) => {
                out.push(4);
                out.extend_from_slice(cookie);
            }
        }
        out
    }
}

/// Reads the body of an ADN_REPLY that is not sealed: Noise message 3, whose payload is an [`Offer`].
///
/// # Errors
/// [`Malformed`] for unknown kinds and lengths that do not fit.
pub fn read_adn_reply(body: &[u8]) -> Result<&[u8], Malformed> {
    let mut reader = Reader::new(body);
    if reader.u8()? != 1 {
        return Err(Malformed::Field("kind of ADN_REPLY"));
    }
    let noise_length = usize::from(reader.u16()?);
    Ok(reader.bytes(noise_length)?)
}

/// The body of an ADN_REPLY in the handshake.
#[must_use]
pub fn write_adn_reply(noise: &[u8]) -> Vec<u8> {
    let mut out = vec![1];
    write_noise(&mut out, noise);
    out
}

fn write_noise(out: &mut Vec<u8>, noise: &[u8]) {
    out.extend_from_slice(&(noise.len() as u16).to_be_bytes());
    out.extend_from_slice(noise);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_survive_the_wire() {
        let discovery = Discovery {
            announce_only: false,
            client: ClientId([3; 16]),
            session: 99,
            packet_max_bytes: 1500,
            server_name: "store-1",
            noise: &[7; NOISE_FIRST_BYTES],
            cookie: None,
        };
        let body = discovery.write();
        let (read, prologue) = Discovery::read(&body).unwrap();
        assert_eq!((read, prologue), (discovery.clone(), &discovery.prologue()[..]));
        assert!(Discovery::read(&body[..DISCOVERY_BYTES - 1]).is_err(), "short padding would amplify");
        let with_cookie = Discovery { cookie: Some(&[9; 16]), ..discovery.clone() };
        let body = with_cookie.write();
        assert_eq!(Discovery::read(&body).unwrap(), (with_cookie, &discovery.prologue()[..]));
        assert_eq!(body.len(), DISCOVERY_BYTES);
        let other_noise = Discovery { noise: &[7; NOISE_FIRST_BYTES - 1], ..discovery };
        assert!(Discovery::read(&other_noise.write()).is_err());

        for request in [
            AdnRequest::Handshake(SecondStep { connection: 5, noise: &[1; 150], mark: [2; 16] }),
            AdnRequest::Announcement { packet_max_bytes: 9000, instance: 7, server_name: "näme" },
            AdnRequest::Refusal(Refusal::UnknownConnection, None),
            AdnRequest::Refusal(Refusal::NotAuthentic, Some([6; 16])),
            AdnRequest::Cookie([5; 16]),
        ] {
            assert_eq!(AdnRequest::read(&request.write()), Ok(request));
        }
        assert_eq!(read_adn_reply(&write_adn_reply(&[9; 64])), Ok(&[9; 64][..]));
    }
}
