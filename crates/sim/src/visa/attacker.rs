//! Somebody on the way who hears every packet, and has no key: he sends packets again, changed, and ones of his own.

use sanwire_core::ClientId;
use sanwire_security::handshake::SecondStep;
use sanwire_visa::Found;
use sanwire_visa::wire::header::{RawPacket, open_packet};
use sanwire_visa::wire::setup::{Accept, Confirm, Connect, Refusal};
use sanwire_visa::wire::{HEADER_BYTES, Kind};

use crate::hyperscsi::link::damage;
use crate::random::Random;

/// Packets that are remembered.
const HEARD_MAX: usize = 128;

/// A packet on its way: of which client, and whether to the server.
pub(super) type Passing = (usize, bool, Vec<u8>);

/// What he has heard.
pub(super) struct Attacker {
    random: Random,
    heard: Vec<Passing>,
}

impl Attacker {
    pub(super) fn new(random: Random) -> Self {
        Attacker { random, heard: Vec::new() }
    }

    /// A packet passes.
    pub(super) fn hear(&mut self, passing: Passing) {
        if self.heard.len() < HEARD_MAX {
            return self.heard.push(passing);
        }
        let place = self.random.range(0..=HEARD_MAX as u64 - 1) as usize;
        self.heard[place] = passing;
    }

    fn any(&mut self) -> Option<Passing> {
        let last = (self.heard.len() as u64).checked_sub(1)?;
        self.heard.get(self.random.range(0..=last) as usize).cloned()
    }

    /// A packet of his, in the name of the sender of one that he has heard, to whom that was for.
    pub(super) fn strike(&mut self) -> Option<Passing> {
        let (client, to_server, mut bytes) = self.any()?;
        match self.random.range(0..=6) {
            0 | 1 => {}
            2 => damage(&mut bytes, &mut self.random),
            3 => {
                // The header of one, and the body of another.
                let (_, _, other) = self.any()?;
                let cut = self.random.choose(&[8usize, 12, 16, HEADER_BYTES]).min(bytes.len()).min(other.len());
                bytes = [&bytes[..cut], &other[cut..]].concat();
            }
            4 => {
                // What would be believed if nobody looked.
                let guarding = bytes.get_mut(3)?;
                *guarding = self.random.choose(&[0, 1, 15]);
            }
            _ => bytes = self.open(&bytes)?,
        }
        Some((client, to_server, bytes))
    }

    /// An open packet with a good check, as if of who has sent this one.
    fn open(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let raw = RawPacket::read(bytes).ok()?;
        let random = &mut self.random;
        let attempt = random.choose(&[0, 1, u64::MAX]);
        let (noise, client) = ([random.u64() as u8; 200], ClientId([random.u64() as u8; 16]));
        let connection = raw.header.connection;
        let (kind, payload) = match random.range(0..=6) {
            0 => {
                let reason = random.choose(&[Refusal::UnknownConnection, Refusal::NotAuthentic, Refusal::Outdated]);
                (Kind::Accept, Accept::Refusal { attempt, reason, proof: None }.write())
            }
            1 => {
                let step = SecondStep { connection, noise: &noise, mark: [1; 16] };
                (Kind::Accept, Accept::Challenge { attempt, step }.write())
            }
            2 => (Kind::Accept, Accept::Cookie { attempt, cookie: [2; 16] }.write()),
            3 => {
                let found = Found { instance: 1, packet_max_bytes: 1472, name: "x".to_owned() };
                (Kind::Accept, Accept::Found { attempt, found }.write())
            }
            4 => (Kind::Confirm, Confirm { attempt, client, noise: &noise }.write()),
            _ => {
                let noise = [random.u64() as u8; 32];
                let (is_query, server_name) = (random.chance(500_000), "");
                let connect = Connect { is_query, attempt, client, session: 1, server_name, noise, cookie: None };
                (Kind::Connect, connect.write())
            }
        };
        Some(open_packet(kind, raw.header.from_device, connection, &payload))
    }
}
