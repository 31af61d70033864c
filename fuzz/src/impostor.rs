//! An end of a HyperSCSI connection that knows the keys and keeps no rule: it shakes hands as the protocol says and
//! then seals, checks and numbers whatever it is told to.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use sanwire_buffer::Head;
use sanwire_hyperscsi::handshake::{Initiator, Responder, Secrets};
use sanwire_hyperscsi::wire::offer::Offer;
use sanwire_hyperscsi::wire::options::Stance;
use sanwire_hyperscsi::wire::packet::{HeaderKey, TAG_BYTES, put_checksum};
use sanwire_hyperscsi::wire::setup::{
    AdnRequest, Discovery, SecondStep as Second, read_adn_reply, steering_word, write_adn_reply,
};
use sanwire_hyperscsi::wire::{Header, Opcode, Prefix, Protection, Tag};
use sanwire_hyperscsi::{DesiredOptions, Identity, Psk, Randomness};

/// Both ends' shared secret in every target.
pub const PSK: Psk = [7; 32];
/// The client's private key.
pub const CLIENT_KEY: [u8; 32] = [1; 32];
/// The server's private key.
pub const SERVER_KEY: [u8; 32] = [2; 32];

/// The client's identity.
pub fn client_identity() -> Identity {
    Identity::from_private(CLIENT_KEY).unwrap()
}

/// The server's identity.
pub fn server_identity() -> Identity {
    Identity::from_private(SERVER_KEY).unwrap()
}

/// An offer that any end accepts, with compression or without.
pub fn offer(compresses: bool) -> Offer {
    Offer {
        packet_max_bytes: 9000,
        receive_capacity_packets: 256,
        commands_max: 64,
        transfer_max_bytes: 1 << 20,
        keep_alive_ms: 5000,
        instance: 1,
        name: "impostor".into(),
        unanswered: None,
        options: wishes(compresses).options(Protection::Checksum).unwrap(),
    }
}

/// What an end wants that is for compressing data, or not.
pub fn wishes(compresses: bool) -> DesiredOptions {
    DesiredOptions {
        compression: if compresses { Stance::Supported } else { Stance::Ignored },
        ..DesiredOptions::default()
    }
}

/// The keys of a connection.
pub struct Keys {
    /// Its id.
    pub connection: u32,
    header: HeaderKey,
    ours: LessSafeKey,
}

impl Keys {
    fn new(connection: u32, ours: &[u8; 32]) -> Self {
        let prk = Prk::new_less_safe(HKDF_SHA256, ours);
        let key: UnboundKey = prk.expand(&info(Protection::Aes256Gcm), &AES_256_GCM).unwrap().into();
        let mut header = [0; 16];
        prk.expand(&info(Protection::Checksum), &AES_128_GCM).unwrap().fill(&mut header).unwrap();
        Keys { connection, header: HeaderKey::new(&header), ours: LessSafeKey::new(key) }
    }

    /// A data packet whose checksum holds.
    pub fn data(&self, header: Header, number: u64, body: &[u8]) -> Vec<u8> {
        checked(Some(&self.header), header, self.connection, number, body)
    }

    /// A packet whose seal holds.
    pub fn sealed(&self, header: Header, number: u64, plain: &[u8]) -> Vec<u8> {
        let prefix =
            Prefix { header, protection: Protection::Aes256Gcm, epoch: 0, connection: self.connection, number };
        let mut body = plain.to_vec();
        let prefix = prefix.write(body.len() + TAG_BYTES);
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        self.ours.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(prefix), &mut body).unwrap();
        [&prefix[..], &body].concat()
    }
}

/// A packet whose checksum holds.
pub fn checked(key: Option<&HeaderKey>, header: Header, connection: u32, number: u64, body: &[u8]) -> Vec<u8> {
    let body = &body[..body.len().min(usize::from(u16::MAX))];
    let mut packet = Head::new();
    packet.extend(&Prefix { header, protection: Protection::Checksum, epoch: 0, connection, number }.write(body.len()));
    packet.extend(body);
    put_checksum(key, &mut packet, &[]);
    packet.to_vec()
}

/// What the key of a protection is made of, beside the secret.
fn info(protection: Protection) -> [&'static [u8]; 2] {
    const CODES: [u8; 3] = [0, 1, 2];
    [b"sanwire hyperscsi ", &CODES[protection as usize..][..1]]
}

/// The first step of a client, and what it needs for the third.
pub struct FirstStep {
    initiator: Initiator,
    random: Randomness,
    attempt: u64,
    /// The DISCOVERY packet.
    pub packet: Vec<u8>,
}

impl FirstStep {
    /// A discovery for this session.
    pub fn new(session: u64, attempt: u64, packet_max_bytes: u32) -> Self {
        let client = client_identity().client_id();
        let mut discovery = Discovery {
            announce_only: false,
            client,
            session,
            packet_max_bytes,
            server_name: "",
            noise: &[],
            cookie: None,
        };
        let prologue = discovery.prologue();
        let mut seed = [3; 32];
        seed[..8].copy_from_slice(&attempt.to_be_bytes());
        let mut random = Randomness::new(seed);
        let (initiator, first) = Initiator::new(&prologue, &mut random).unwrap();
        discovery.noise = &first;
        let header = Header::single(Opcode::DeviceDiscovery, Tag::default());
        let packet = checked(None, header, steering_word(client), attempt, &discovery.write());
        FirstStep { initiator, random, attempt, packet }
    }

    /// Reads the second step; gives the third and the keys that it leads to. `offer` are the bytes of the offer.
    pub fn third_step(mut self, second: &[u8], offer: &[u8]) -> Option<(Vec<u8>, Keys)> {
        let (_, _, body) = Prefix::read(second).ok()?;
        let Ok(AdnRequest::Handshake(second)) = AdnRequest::read(body) else { return None };
        let met = self.initiator.read(second).ok()?;
        let (third, Secrets { from_client, .. }) =
            met.answer((&client_identity(), &PSK), offer, &mut self.random).ok()?;
        let header = Header::single(Opcode::AdnReply, Tag::default());
        let packet = checked(None, header, second.connection, self.attempt, &write_adn_reply(&third));
        Some((packet, Keys::new(second.connection, &from_client)))
    }
}

/// The second step of a server, after a client's first.
pub struct SecondStep {
    responder: Responder,
    connection: u32,
    /// The ADN_REQUEST packet.
    pub packet: Vec<u8>,
}

impl SecondStep {
    /// Answers a DISCOVERY packet. `offer` are the bytes of the offer.
    pub fn answer(first: &[u8], connection: u32, offer: &[u8]) -> Option<Self> {
        let (prefix, _, body) = Prefix::read(first).ok()?;
        let (discovery, prologue) = Discovery::read(body).ok()?;
        let (identity, said) = (server_identity(), (connection, offer));
        let mut random = Randomness::new([5; 32]);
        let (responder, noise, mark) =
            Responder::new((&identity, &PSK), prologue, discovery.noise, said, &mut random).ok()?;
        let body = AdnRequest::Handshake(Second { connection, noise: &noise, mark }).write();
        let header = Header::single(Opcode::AdnRequest, Tag::default());
        let packet = checked(None, header, prefix.connection, prefix.number, &body);
        Some(SecondStep { responder, connection, packet })
    }

    /// Reads the client's third step.
    pub fn keys(mut self, third: &[u8]) -> Option<Keys> {
        let (_, _, body) = Prefix::read(third).ok()?;
        let noise = read_adn_reply(body).ok()?;
        let (_, Secrets { from_server, .. }) = self.responder.read(client_identity().client_id(), noise).ok()?;
        Some(Keys::new(self.connection, &from_server))
    }
}
