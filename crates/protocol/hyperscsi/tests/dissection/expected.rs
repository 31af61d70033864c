//! What our dissector must show of a packet, by this crate's own reading of it.

use std::collections::BTreeMap;

use sanwire_hyperscsi::wire::command::{Answer, Ask, Fragment, ReplyHead, RequestHead};
use sanwire_hyperscsi::wire::packet::TAG_BYTES;
use sanwire_hyperscsi::wire::setup::{AdnRequest, Discovery, SecondStep, read_adn_reply};
use sanwire_hyperscsi::wire::{Opcode, Prefix, Protection};

/// The fields of the Lua dissector, and what they must show for a packet.
#[derive(Default)]
pub(crate) struct Expected(pub(crate) BTreeMap<&'static str, String>);

pub(crate) const BODY_FIELDS: [&str; 48] = [
    "sanwire.protection",
    "sanwire.epoch",
    "sanwire.length",
    "sanwire.connection",
    "sanwire.steering",
    "sanwire.number",
    "sanwire.checksum",
    "sanwire.checksum.status",
    "sanwire.sealed",
    "sanwire.tag",
    "sanwire.sequence",
    "sanwire.data_offset",
    "sanwire.data_length",
    "sanwire.acknowledgement",
    "sanwire.head_length",
    "sanwire.flags.answer_at_once",
    "sanwire.flags.expanded_kib",
    "sanwire.data",
    "sanwire.command",
    "sanwire.settled_below",
    "sanwire.receipts",
    "sanwire.receipt",
    "sanwire.lun.number",
    "sanwire.room",
    "sanwire.request_kind",
    "sanwire.cdb",
    "sanwire.cdb.opcode",
    "sanwire.function",
    "sanwire.task",
    "sanwire.reply_kind",
    "sanwire.status",
    "sanwire.done",
    "sanwire.demanded",
    "sanwire.incompressible",
    "sanwire.sense",
    "sanwire.revision",
    "sanwire.flags.announce_only",
    "sanwire.client",
    "sanwire.session",
    "sanwire.instance",
    "sanwire.packet_max",
    "sanwire.server_name",
    "sanwire.noise",
    "sanwire.adn_kind",
    "sanwire.adn.connection",
    "sanwire.reason",
    "sanwire.cookie",
    "sanwire.mark",
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn flag(value: bool) -> String {
    u8::from(value).to_string()
}

impl Expected {
    fn set(&mut self, field: &'static str, value: impl ToString) {
        assert!(BODY_FIELDS.contains(&field), "{field}");
        self.0.insert(field, value.to_string());
    }

    pub(crate) fn of(packet: &[u8]) -> Self {
        let (prefix, checksum, body) = Prefix::read(packet).unwrap();
        let opcode = prefix.header.opcode;
        let mut expected = Expected::default();
        expected.set("sanwire.protection", prefix.protection as u8);
        expected.set("sanwire.epoch", prefix.epoch);
        expected.set("sanwire.length", body.len());
        let steered = opcode == Opcode::DeviceDiscovery;
        let place = if steered { "sanwire.steering" } else { "sanwire.connection" };
        expected.set(place, format!("0x{:08x}", prefix.connection));
        expected.set("sanwire.number", prefix.number);
        expected.set("sanwire.checksum", format!("0x{checksum:08x}"));
        if prefix.protection != Protection::Checksum {
            expected.set("sanwire.checksum.status", "None (protected by a key)");
            let (covered, tag) = body.split_at(body.len() - TAG_BYTES);
            expected.set("sanwire.tag", hex(tag));
            if prefix.protection.encrypts() {
                expected.set("sanwire.sealed", hex(covered));
            } else {
                expected.data(opcode, covered);
            }
            return expected;
        }
        match opcode {
            Opcode::HcbeRequest | Opcode::HcbeReply => {
                expected.set("sanwire.checksum.status", "Unverified (keyed with the connection's secret)");
                expected.data(opcode, body);
            }
            _ => {
                expected.set("sanwire.checksum.status", "Good");
                expected.setup(opcode, body);
            }
        }
        expected
    }

    fn data(&mut self, opcode: Opcode, body: &[u8]) {
        let (fragment, head, data) = Fragment::read(body).unwrap();
        self.set("sanwire.sequence", fragment.sequence);
        self.set("sanwire.data_offset", fragment.data_offset);
        self.set("sanwire.data_length", fragment.data_length);
        self.set("sanwire.acknowledgement", fragment.acknowledgement);
        self.set("sanwire.head_length", fragment.head_length);
        self.set("sanwire.flags.answer_at_once", flag(fragment.answer_at_once));
        self.set("sanwire.flags.expanded_kib", fragment.expanded_kib);
        self.set("sanwire.data", hex(data));
        if head.is_empty() {
            return;
        }
        if opcode == Opcode::HcbeReply {
            let head = ReplyHead::read(head).unwrap();
            self.set("sanwire.command", head.number);
            self.set("sanwire.demanded", head.unit.protection as u8);
            self.set("sanwire.incompressible", flag(!head.unit.is_compressible));
            self.set("sanwire.receipt", head.receipt);
            match head.answer {
                Some(Answer::Command { status, sense }) => {
                    self.set("sanwire.reply_kind", 0);
                    self.set("sanwire.status", format!("0x{:02x}", status as u8));
                    self.set("sanwire.sense", hex(&sense));
                }
                Some(Answer::Managed { done }) => {
                    self.set("sanwire.reply_kind", 1);
                    self.set("sanwire.done", flag(done));
                }
                None => self.set("sanwire.reply_kind", 2),
                // It is sealed.
                Some(Answer::Administered) => {}
            }
            return;
        }
        let head = RequestHead::read(head).unwrap();
        self.set("sanwire.command", head.number);
        self.set("sanwire.settled_below", head.settled_below);
        self.set("sanwire.receipts", head.receipts);
        self.set("sanwire.lun.number", head.logical_unit().unwrap());
        self.set("sanwire.room", head.data_in_max_bytes);
        match head.ask {
            Ask::Command(cdb) => {
                self.set("sanwire.request_kind", 0);
                self.set("sanwire.cdb", hex(&cdb));
                self.set("sanwire.cdb.opcode", format!("0x{:02x}", cdb.operation_code()));
            }
            Ask::Manage { function, task } => {
                self.set("sanwire.request_kind", 1);
                self.set("sanwire.function", function as u8);
                self.set("sanwire.task", task);
            }
            Ask::Administer => {}
        }
    }

    fn setup(&mut self, opcode: Opcode, body: &[u8]) {
        match opcode {
            Opcode::DeviceDiscovery => {
                let (discovery, _) = Discovery::read(body).unwrap();
                self.set("sanwire.revision", 3);
                self.set("sanwire.flags.announce_only", flag(discovery.announce_only));
                self.set("sanwire.client", discovery.client);
                self.set("sanwire.session", format!("0x{:016x}", discovery.session));
                self.set("sanwire.packet_max", discovery.packet_max_bytes);
                self.set("sanwire.server_name", discovery.server_name);
                self.set("sanwire.noise", hex(discovery.noise));
                if let Some(cookie) = discovery.cookie {
                    self.set("sanwire.cookie", hex(cookie));
                }
            }
            Opcode::AdnRequest => match AdnRequest::read(body).unwrap() {
                AdnRequest::Handshake(SecondStep { connection, noise, mark }) => {
                    self.set("sanwire.adn_kind", 1);
                    self.set("sanwire.adn.connection", format!("0x{connection:08x}"));
                    self.set("sanwire.noise", hex(noise));
                    self.set("sanwire.mark", hex(&mark));
                }
                AdnRequest::Announcement { packet_max_bytes, instance, server_name } => {
                    self.set("sanwire.adn_kind", 2);
                    self.set("sanwire.packet_max", packet_max_bytes);
                    self.set("sanwire.instance", format!("0x{instance:016x}"));
                    self.set("sanwire.server_name", server_name);
                }
                AdnRequest::Refusal(reason, proof) => {
                    self.set("sanwire.adn_kind", 3);
                    self.set("sanwire.reason", reason as u8);
                    if let Some(proof) = proof {
                        self.set("sanwire.proof", hex(&proof));
                    }
                }
                AdnRequest::Cookie(cookie) => {
                    self.set("sanwire.adn_kind", 4);
                    self.set("sanwire.cookie", hex(&cookie));
                }
            },
            Opcode::AdnReply => {
                self.set("sanwire.adn_kind", 1);
                self.set("sanwire.noise", hex(read_adn_reply(body).unwrap()));
            }
            _ => panic!("{opcode:?} is always sealed"),
        }
    }
}
