//! Somebody on the link who hears every packet, and has no key: he sends packets again, changed, and ones of his own.

use sanwire_core::{ClientId, Path};
use sanwire_hdsp::wire::connection::{Request, SessionName, Step};
use sanwire_hdsp::wire::discovery::Discovery;
use sanwire_hdsp::wire::{Class, ErrorCode, Header, Pcu};

use crate::random::Random;

/// Packets that are remembered.
const HEARD_MAX: usize = 200;

/// What he has heard, and for whom it was.
#[derive(Default)]
pub(super) struct Attacker {
    heard: Vec<(Path, Vec<u8>)>,
}

impl Attacker {
    /// A packet passes, to there and from here.
    pub(super) fn hear(&mut self, path: Path, packet: &[u8], random: &mut Random) {
        if self.heard.len() < HEARD_MAX {
            self.heard.push((path, packet.to_vec()));
        } else {
            let place = random.range(0..=HEARD_MAX as u64 - 1) as usize;
            self.heard[place] = (path, packet.to_vec());
        }
    }

    /// A packet of his, in the name of the sender of one that he has heard, to whom that was for.
    pub(super) fn forge(&self, random: &mut Random) -> Option<(Path, Vec<u8>)> {
        if self.heard.is_empty() {
            return None;
        }
        let (path, packet) = &self.heard[random.range(0..=self.heard.len() as u64 - 1) as usize];
        let forged = match random.range(0..=5) {
            0 | 1 => packet.clone(),
            2 => {
                let mut changed = packet.clone();
                for _ in 0..random.range(1..=3) {
                    let bit = random.range(0..=changed.len() as u64 * 8 - 1) as usize;
                    changed[bit / 8] ^= 1 << (bit % 8);
                }
                changed
            }
            3 => packet[..random.range(0..=packet.len() as u64) as usize].to_vec(),
            4 => open(packet, random)?,
            // The header of one, and the body of another.
            _ => {
                let (_, other) = &self.heard[random.range(0..=self.heard.len() as u64 - 1) as usize];
                let cut = random.choose(&[8usize, 16, 18, 28]).min(packet.len()).min(other.len());
                [&packet[..cut], &other[cut..]].concat()
            }
        };
        Some((*path, forged))
    }
}

/// An open packet with a good checksum, as if of who has sent this one.
fn open(packet: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut header = Header::read(packet).ok()?;
    header.packet_type = sanwire_hdsp::wire::PacketType::Pcu;
    let attempt = random.choose(&[0, 1, u64::MAX]);
    let session = SessionName { client: ClientId([random.u64() as u8; 16]), run: 1, epoch: 1 };
    let noise = [random.u64() as u8; 200];
    let (class, operation) = match random.range(0..=5) {
        0 => {
            header.error = Some(ErrorCode::UnknownConnection);
            (Class::Connection, Step::Refusal { attempt: 0, proof: None }.write())
        }
        1 => (Class::Connection, Step::Challenge { attempt, mark: [1; 16], noise: &noise }.write()),
        2 => (Class::Connection, Step::Cookie { attempt, cookie: [2; 16] }.write()),
        3 => {
            let noise = [9; 32];
            (
                Class::Connection,
                Step::Request(Request { attempt, session, server_name: "", noise, cookie: None }).write(),
            )
        }
        4 => (Class::Connection, Step::Proof { attempt, client: session.client, noise: &noise }.write()),
        _ => (Class::Discovery, Discovery::Query { client: session.client, server_name: "" }.write()),
    };
    Some(Pcu { header, class, is_sealed: false, number: 0 }.open_packet(&operation))
}
