//! What passes, counted as an onlooker sees it.

use std::collections::BTreeMap;

use sanwire_hyperscsi::wire::command::Fragment;
use sanwire_hyperscsi::wire::{Opcode, Prefix};

/// What was sent in a world.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Packets of all kinds.
    pub packets: u64,
    /// Data packets, retransmissions included.
    pub data_packets: u64,
    /// Data packets that had been sent before.
    pub retransmissions: u64,
    /// Data packets of messages that are compressed, as far as that can be seen.
    pub compressed_packets: u64,
    /// Acknowledgements in packets of their own, answers to queries included.
    pub acknowledgements: u64,
    /// Queries, probes and windows.
    pub requests: u64,
    /// Bytes of all packets.
    pub bytes: u64,
    /// Deadlines that came.
    pub timeouts: u64,
    /// Times that the server was killed.
    pub kills: u64,
    /// Bytes of data packets by link, and whether to the server.
    pub data_bytes: BTreeMap<(usize, bool), u64>,
    highest: BTreeMap<(u32, bool), u64>,
}

impl Stats {
    /// What came since `before`.
    #[must_use]
    pub fn since(&self, before: &Stats) -> Stats {
        Stats {
            packets: self.packets - before.packets,
            data_packets: self.data_packets - before.data_packets,
            retransmissions: self.retransmissions - before.retransmissions,
            compressed_packets: self.compressed_packets - before.compressed_packets,
            acknowledgements: self.acknowledgements - before.acknowledgements,
            requests: self.requests - before.requests,
            bytes: self.bytes - before.bytes,
            timeouts: self.timeouts - before.timeouts,
            kills: self.kills - before.kills,
            data_bytes: BTreeMap::new(),
            highest: BTreeMap::new(),
        }
    }

    /// Counts a packet on a link.
    pub fn note(&mut self, link: usize, to_server: bool, bytes: &[u8]) {
        self.packets += 1;
        self.bytes += bytes.len() as u64;
        let Ok((prefix, _, body)) = Prefix::read(bytes) else { return };
        match prefix.header.opcode {
            Opcode::HcbeRequest | Opcode::HcbeReply => {
                self.data_packets += 1;
                *self.data_bytes.entry((link, to_server)).or_default() += bytes.len() as u64;
                // Of what is encrypted an onlooker sees that it is data, no more.
                let fragment = Fragment::read(body).ok().filter(|_| !prefix.protection.encrypts());
                let Some((fragment, ..)) = fragment else { return };
                self.compressed_packets += u64::from(fragment.expanded_kib > 0);
                let next = self.highest.entry((prefix.connection, to_server)).or_default();
                if fragment.sequence < *next {
                    self.retransmissions += 1;
                } else {
                    *next = fragment.sequence + 1;
                }
            }
            Opcode::AckReply => self.acknowledgements += 1,
            Opcode::AckSnr => self.requests += 1,
            _ => {}
        }
    }
}
