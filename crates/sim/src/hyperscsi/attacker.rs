//! An attacker on the links that sees all packets, removes some of them, and sends its own, without knowing any key.

use std::collections::VecDeque;

use sanwire_buffer::Head;
use sanwire_hyperscsi::wire::command::{FRAGMENT_BYTES, Fragment};
use sanwire_hyperscsi::wire::packet::{COVERED_BYTES, PREFIX_BYTES, checksum, put_checksum};
use sanwire_hyperscsi::wire::setup::{AdnRequest, Refusal};
use sanwire_hyperscsi::wire::{Header, Opcode, Prefix, Protection, Tag};

use super::link::damage;
use crate::random::Random;

const HEARD_MAX: usize = 128;

/// Where a packet says how it is guarded, and of which connection it is.
const GUARD: usize = 5;
const CONNECTION: std::ops::Range<usize> = 8..12;

/// Packets of one kind that are taken off in a row, at the most.
const PREY_MAX: u64 = 8;

/// A packet on a link.
#[derive(Clone, Debug)]
pub struct Passing {
    /// Between this client and the server.
    pub client: usize,
    /// By this link.
    pub link: usize,
    /// Which way.
    pub to_server: bool,
    /// What.
    pub bytes: Vec<u8>,
}

/// What the attacker sends.
#[derive(Debug)]
pub struct Strike {
    /// The packet.
    pub passing: Passing,
    /// It belongs to an established connection, and nobody who has its keys made it: who gets it must refuse and count it.
    pub is_forged: bool,
}

/// The attacker.
#[derive(Debug)]
pub struct Attacker {
    random: Random,
    links: usize,
    heard: VecDeque<Passing>,
    /// What is taken off the links, and how many more of it.
    prey: Option<(Opcode, u64)>,
}

impl Attacker {
    /// An attacker on so many links of each client, who has not heard anything yet.
    #[must_use]
    pub fn new(random: Random, links: usize) -> Self {
        Attacker { random, links, heard: VecDeque::new(), prey: None }
    }

    /// Keeps some of what passes.
    pub fn overhear(&mut self, passing: Passing) {
        if self.heard.len() == HEARD_MAX {
            let oldest = self.random.range(0..=HEARD_MAX as u64 - 1) as usize;
            self.heard.remove(oldest);
        }
        self.heard.push_back(passing);
    }

    /// Whether a packet is taken off its link.
    pub fn takes(&mut self, bytes: &[u8]) -> bool {
        let Some((opcode, left)) = &mut self.prey else { return false };
        let is_prey = Prefix::read(bytes).is_ok_and(|(prefix, ..)| prefix.header.opcode == *opcode);
        *left -= u64::from(is_prey);
        if *left == 0 {
            self.prey = None;
        }
        is_prey
    }

    /// Leaves alone what passes.
    pub fn rest(&mut self) {
        self.prey = None;
    }

    /// Does something; gives the packet that is sent, if it is that.
    pub fn strike(&mut self) -> Option<Strike> {
        if self.heard.is_empty() {
            return None;
        }
        let index = self.random.range(0..=self.heard.len() as u64 - 1) as usize;
        let mut passing = self.heard[index].clone();
        if self.random.chance(250_000) {
            passing.link = self.random.range(0..=self.links as u64 - 1) as usize;
        }
        let seen = std::mem::take(&mut passing.bytes);
        let (mut to_server, mut is_forged) = (passing.to_server, false);
        let bytes = match self.random.range(0..=17) {
            0..=2 => seen,
            3 => {
                to_server = !to_server;
                seen
            }
            4 => self.damaged(seen),
            5 | 6 => {
                to_server = false;
                self.refusal(&seen)?
            }
            7 => self.truncated(seen),
            8 => self.spliced(seen)?,
            9 => self.reguarded(seen)?,
            10 => self.garbage(),
            11 => {
                self.prey = Some((self.random.choose(&Opcode::ALL), self.random.range(1..=PREY_MAX)));
                return None;
            }
            12 | 13 => {
                is_forged = true;
                self.rewritten(seen)?
            }
            _ => {
                to_server = self.random.chance(500_000);
                let (bytes, is_of_connection) = self.forged(&seen)?;
                is_forged = is_of_connection;
                bytes
            }
        };
        Some(Strike { passing: Passing { to_server, bytes, ..passing }, is_forged })
    }

    fn damaged(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        damage(&mut bytes, &mut self.random);
        bytes
    }

    fn truncated(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.truncate(self.random.range(0..=bytes.len() as u64) as usize);
        bytes
    }

    /// A packet of one connection in the name of another.
    fn spliced(&mut self, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let index = self.random.range(0..=self.heard.len() as u64 - 1) as usize;
        let other = self.heard.get(index)?.bytes.get(CONNECTION)?;
        bytes.get_mut(CONNECTION)?.copy_from_slice(other);
        Some(bytes)
    }

    /// A packet that says to be guarded otherwise, or under other keys.
    fn reguarded(&mut self, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        *bytes.get_mut(GUARD)? = self.random.u64() as u8 & 0x17;
        Some(bytes)
    }

    /// A refusal with a right checksum, for a connection or a handshake that is under way.
    fn refusal(&mut self, seen: &[u8]) -> Option<Vec<u8>> {
        let (prefix, _, _) = Prefix::read(seen).ok()?;
        let all = [Refusal::UnknownConnection, Refusal::NotAuthentic, Refusal::Full, Refusal::Options];
        let (reason, proof) = (self.random.choose(&all), self.random.choose(&[None, Some([7; 16])]));
        let header = Header::single(Opcode::AdnRequest, Tag::default());
        Some(loose(Prefix { header, ..prefix }, &AdnRequest::Refusal(reason, proof).write()))
    }

    /// A packet of any kind for what was seen, with a right checksum or with noise for a seal; whether it can only be one of an
    /// established connection.
    fn forged(&mut self, seen: &[u8]) -> Option<(Vec<u8>, bool)> {
        let (prefix, _, _) = Prefix::read(seen).ok()?;
        let opcode = self.random.choose(&Opcode::ALL);
        let header = Header::single(opcode, Tag::default());
        let later = prefix.number.saturating_add(self.random.range(0..=1000));
        let number = self.random.choose(&[prefix.number, later, u64::MAX]);
        let protection = self.random.choose(&Protection::ALL);
        let prefix = Prefix { header, protection, number, ..prefix };
        if protection == Protection::Checksum {
            let is_setup = matches!(opcode, Opcode::DeviceDiscovery | Opcode::AdnRequest | Opcode::AdnReply);
            let body = [self.random.choose(&[0, 1, 2, 3, 16, 17, 18, 19]); 40];
            let length = self.random.choose(&[0, 1, 9, 17, 40]);
            return Some((loose(prefix, &body[..length]), !is_setup));
        }
        let length = self.random.choose(&[0, 1, 17, 24, 200]);
        let mut bytes = prefix.write(length).to_vec();
        bytes.extend((0..length).map(|_| self.random.u64() as u8));
        Some((bytes, true))
    }

    /// A packet of data in the open with something else in its header, and a checksum that is as right as the one that was seen.
    fn rewritten(&mut self, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let (prefix, _, body) = Prefix::read(&bytes).ok()?;
        let is_data = matches!(prefix.header.opcode, Opcode::HcbeRequest | Opcode::HcbeReply);
        let (fragment, ..) =
            Fragment::read(body).ok().filter(|_| is_data && prefix.protection == Protection::Checksum)?;
        let length = PREFIX_BYTES + body.len();
        let header_bytes = (FRAGMENT_BYTES + usize::from(fragment.head_length)) as u64;
        let sum = |bytes: &[u8]| checksum(&bytes[..COVERED_BYTES], &[&bytes[PREFIX_BYTES..length]]);
        let seen = sum(&bytes);
        let at = match self.random.chance(200_000) {
            true => self.random.range(CONNECTION.start as u64..=COVERED_BYTES as u64 - 1) as usize,
            false => PREFIX_BYTES + self.random.range(0..=header_bytes - 1) as usize,
        };
        bytes[at] ^= self.random.range(1..=255) as u8;
        let change = (seen ^ sum(&bytes)).to_be_bytes();
        bytes[COVERED_BYTES..PREFIX_BYTES].iter_mut().zip(change).for_each(|(byte, change)| *byte ^= change);
        Some(bytes)
    }

    fn garbage(&mut self) -> Vec<u8> {
        let length = self.random.range(0..=200) as usize;
        (0..length).map(|_| self.random.u64() as u8).collect()
    }
}

/// A packet in the open, with the checksum of those that belong to no connection.
pub(super) fn loose(prefix: Prefix, body: &[u8]) -> Vec<u8> {
    let mut head = Head::new();
    head.extend(&Prefix { protection: Protection::Checksum, epoch: 0, ..prefix }.write(body.len()));
    head.extend(body);
    put_checksum(None, &mut head, &[]);
    head.to_vec()
}
