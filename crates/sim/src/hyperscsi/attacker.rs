//! Somebody on the link who sees all packets and sends his own, without knowing any key.

use std::collections::VecDeque;

use sanwire_buffer::Head;
use sanwire_hyperscsi::wire::packet::{Salt, put_checksum};
use sanwire_hyperscsi::wire::setup::{AdnRequest, Refusal};
use sanwire_hyperscsi::wire::{Header, Opcode, Prefix, Protection, Tag};

use super::link::damage;
use crate::random::Random;

const HEARD_MAX: usize = 128;

/// Where a packet says how it is guarded, and of which connection it is.
const GUARD: usize = 5;
const CONNECTION: std::ops::Range<usize> = 8..12;

/// The attacker.
#[derive(Debug)]
pub struct Attacker {
    random: Random,
    heard: VecDeque<(usize, bool, Vec<u8>)>,
}

impl Attacker {
    /// An attacker who has not heard anything yet.
    #[must_use]
    pub fn new(random: Random) -> Self {
        Attacker { random, heard: VecDeque::new() }
    }

    /// Keeps some of what passes.
    pub fn overhear(&mut self, client: usize, to_server: bool, bytes: &[u8]) {
        if self.heard.len() == HEARD_MAX {
            let oldest = self.random.range(0..=HEARD_MAX as u64 - 1) as usize;
            self.heard.remove(oldest);
        }
        self.heard.push_back((client, to_server, bytes.to_vec()));
    }

    /// A packet to send: about which client, whether to the server, and what.
    pub fn strike(&mut self) -> Option<(usize, bool, Vec<u8>)> {
        if self.heard.is_empty() {
            return None;
        }
        let index = self.random.range(0..=self.heard.len() as u64 - 1) as usize;
        let (client, to_server, bytes) = self.heard[index].clone();
        match self.random.range(0..=12) {
            0..=2 => Some((client, to_server, bytes)),
            3 => Some((client, !to_server, bytes)),
            4 => Some((client, to_server, self.damaged(bytes))),
            5 => Some((client, true, self.forged_disconnect(&bytes)?)),
            6 | 7 => Some((client, false, self.forged_refusal(&bytes)?)),
            8 => Some((client, false, self.forged_farewell(&bytes)?)),
            9 => Some((client, to_server, self.truncated(bytes))),
            10 => Some((client, to_server, self.spliced(bytes)?)),
            11 => Some((client, to_server, self.reguarded(bytes)?)),
            _ => Some((client, to_server, self.garbage())),
        }
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
        let other = self.heard.get(index)?.2.get(CONNECTION)?;
        bytes.get_mut(CONNECTION)?.copy_from_slice(other);
        Some(bytes)
    }

    /// A packet that says to be guarded otherwise, or under other keys.
    fn reguarded(&mut self, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        *bytes.get_mut(GUARD)? = self.random.u64() as u8 & 0x17;
        Some(bytes)
    }

    /// A refusal with a right checksum, for a connection or a handshake that is under way.
    fn forged_refusal(&mut self, seen: &[u8]) -> Option<Vec<u8>> {
        let (prefix, _, _) = Prefix::read(seen).ok()?;
        let is_connected = matches!(prefix.header.opcode, Opcode::HcbeRequest | Opcode::HcbeReply);
        // A client that was never connected takes the word of somebody on its link that its password is wrong.
        let reason = match is_connected {
            true => self.random.choose(&[Refusal::UnknownConnection, Refusal::NotAuthentic, Refusal::Full]),
            false => self.random.choose(&[Refusal::UnknownConnection, Refusal::Full]),
        };
        loose(Opcode::AdnRequest, seen, &AdnRequest::Refusal(reason).write())
    }

    /// A DISCONNECT, sealed with noise or only with a checksum.
    fn forged_disconnect(&mut self, seen: &[u8]) -> Option<Vec<u8>> {
        if self.random.chance(500_000) {
            loose(Opcode::Disconnect, seen, &[])
        } else {
            self.sealed(Opcode::Disconnect, seen)
        }
    }

    fn forged_farewell(&mut self, seen: &[u8]) -> Option<Vec<u8>> {
        self.sealed(Opcode::AdnRequest, seen)
    }

    fn sealed(&mut self, opcode: Opcode, seen: &[u8]) -> Option<Vec<u8>> {
        let (prefix, _, _) = Prefix::read(seen).ok()?;
        let header = Header::single(opcode, Tag::default());
        let number = prefix.number + self.random.range(0..=1000);
        let mut bytes = Prefix { header, protection: Protection::Aes256Gcm, number, ..prefix }.write(24).to_vec();
        bytes.extend(self.random.seed().iter().take(24));
        Some(bytes)
    }

    fn garbage(&mut self) -> Vec<u8> {
        let length = self.random.range(0..=200) as usize;
        (0..length).map(|_| self.random.u64() as u8).collect()
    }
}

fn loose(opcode: Opcode, seen: &[u8], body: &[u8]) -> Option<Vec<u8>> {
    let (prefix, _, _) = Prefix::read(seen).ok()?;
    let header = Header::single(opcode, Tag::default());
    let mut head = Head::new();
    head.extend(&Prefix { header, protection: Protection::Checksum, epoch: 0, ..prefix }.write(body.len()));
    head.extend(body);
    put_checksum(Salt::default(), &mut head, &[]);
    Some(head.to_vec())
}
