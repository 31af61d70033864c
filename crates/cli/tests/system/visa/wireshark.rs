//! What Wireshark makes of VISA by the dissector that comes with it: each field is what stands where docs/protocols/visa.md says.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::{CLASSIC, TIMEOUT, capture, copy_and_compare, serve, url};
use crate::capture::{frames, parse_number, tshark};
use crate::harness::World;

/// Of Ethernet, IPv4 and UDP.
const OUTER_BYTES: usize = 14 + 20 + 8;
const HEADER_BYTES: usize = 24;
/// What stands in front of the head of a message.
const PROLOGUE_BYTES: usize = 8;
const SEAL_BYTES: u32 = 16;

// Kinds of packets.
const CONNECT: u8 = 0;
const ACCEPT: u8 = 1;
const CONFIRM: u8 = 2;
const DATA: u8 = 3;
const ACK: u8 = 4;
const AGREE: u8 = 8;

// How they are guarded.
const CHECKSUM: u8 = 0;
const HASH: u8 = 1;
const AES_256_GCM: u8 = 2;
const NO_CHECK: u8 = 15;

// Flags.
const FIRST: u8 = 1;
const FROM_DEVICE: u8 = 4;

/// A field of the header: its name, its first byte, how many it has, how many bits of them stand behind it, and its own (section 2).
type Field = (&'static str, usize, usize, u32, u32);

const HEADER: [Field; 13] = [
    ("visa.version", 1, 1, 4, 0xf),
    ("visa.kind", 1, 1, 0, 0xf),
    ("visa.first", 2, 1, 0, 1),
    ("visa.last", 2, 1, 1, 1),
    ("visa.from_device", 2, 1, 2, 1),
    ("visa.ack_now", 2, 1, 3, 1),
    ("visa.guarding", 3, 1, 0, 0xff),
    ("visa.tag", 4, 2, 0, 0xffff),
    ("visa.length", 6, 2, 0, 0xffff),
    ("visa.connection", 8, 4, 0, u32::MAX),
    ("visa.sequence", 12, 4, 0, u32::MAX),
    ("visa.offset", 16, 4, 0, u32::MAX),
    ("visa.check", 20, 4, 0, u32::MAX),
];
/// Of the head of a message.
const HEAD: [&str; 3] = ["visa.number", "visa.opcode", "visa.status"];
/// No packet that is as it should be has one of these; but for the last one in CONNECT, which is filled up.
const FAULTS: [&str; 4] = ["_ws.malformed", "_ws.lua.error", "visa.illegal", "visa.rest"];

fn kind(packet: &[u8]) -> u8 {
    packet[1] & 0xf
}

/// What stands there.
fn value(packet: &[u8], (_, at, bytes, shift, mask): Field) -> u32 {
    let whole = packet[at..at + bytes].iter().fold(0_u32, |whole, byte| whole << 8 | u32::from(*byte));
    whole >> shift & mask
}

/// Number, operation code and status where the packet begins a message that can be read (section 3).
fn head(packet: &[u8]) -> [Option<u32>; 3] {
    let [flags, guarding] = [packet[2], packet[3]];
    if kind(packet) != DATA || flags & FIRST == 0 || ![CHECKSUM, HASH, NO_CHECK].contains(&guarding) {
        return [None; 3];
    }
    let head = &packet[HEADER_BYTES + PROLOGUE_BYTES..];
    let number = head.first_chunk().map(|bytes| u64::from_be_bytes(*bytes)).expect("a number");
    let number = u32::try_from(number).expect("a session has few commands");
    if flags & FROM_DEVICE == 0 {
        [Some(number), (head[28] == 0).then(|| u32::from(head[32])), None]
    } else {
        [Some(number), None, Some(u32::from(head[9]))]
    }
}

/// Captures what it takes to write to volumes and to read them, in both modes and guarded in different ways.
fn converse(world: &World, scheme: &str) -> PathBuf {
    let volumes = ["disk=ram:8M", "hashed=ram:8M,security=hash", "secret=ram:8M,security=aes-256-gcm"];
    let mut server = serve(world, &volumes, &["--visa-mode", "either"]);
    let mut tcpdump = capture(world, "visa.pcap");
    copy_and_compare(world, &url(scheme, "disk"), 4, &[]);
    copy_and_compare(world, &url(scheme, "disk"), 5, &[&CLASSIC[..], &["--visa-payload", "1K"]].concat());
    copy_and_compare(world, &url(scheme, "hashed"), 6, &[]);
    copy_and_compare(world, &url(scheme, "secret"), 7, &[]);
    tcpdump.signal(Signal::INT);
    tcpdump.wait(TIMEOUT);
    assert!(tcpdump.log().contains("0 packets dropped by kernel"), "{}", tcpdump.log());
    assert!(server.stop().success(), "{}", server.log());
    world.scratch.path("visa.pcap")
}

/// The options by which tshark knows VISA.
fn options() -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/wireshark/sanwire-visa.lua");
    vec!["-X".to_owned(), format!("lua_script:{}", script.display())]
}

#[test]
fn wireshark_reads_every_packet_of_visa_as_it_was_sent() {
    let test = "wireshark_reads_every_packet_of_visa_as_it_was_sent";
    let Some(world) = World::new(test, 1500, &["tcpdump", "tshark"]) else { return };
    let file = converse(&world, "visa");
    let captured = fs::read(&file).expect("a capture");
    let packets: Vec<&[u8]> = frames(&captured).into_iter().map(|frame| &frame[OUTER_BYTES..]).collect();
    let names = HEADER.map(|(name, ..)| name);
    let read = tshark(&file, &options(), &[&names[..], &HEAD, &FAULTS].concat());
    assert_eq!(read.len(), packets.len(), "packets");
    let (mut kinds, mut guardings) = (BTreeSet::new(), BTreeSet::new());
    for (number, (row, packet)) in read.iter().zip(packets).enumerate() {
        let (fields, faults) = row.split_at(HEADER.len() + HEAD.len());
        let fields = fields.iter().map(|field| (!field.is_empty()).then(|| parse_number(field)));
        let sent = HEADER.map(|field| Some(value(packet, field))).into_iter().chain(head(packet));
        let (fields, sent): (Vec<Option<u32>>, Vec<Option<u32>>) = (fields.collect(), sent.collect());
        assert_eq!(fields, sent, "packet {number}: {names:?}, {HEAD:?}");
        let kind = kind(packet);
        let is_well = faults[..3].iter().all(String::is_empty) && (kind == CONNECT || faults[3].is_empty());
        assert!(is_well, "packet {number} of kind {kind}: {FAULTS:?} {faults:?}");
        kinds.insert(kind);
        guardings.extend((kind == DATA).then_some(packet[3]));
    }
    assert!([CONNECT, ACCEPT, CONFIRM, DATA, ACK, AGREE].iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    assert!([CHECKSUM, HASH, AES_256_GCM].iter().all(|guarding| guardings.contains(guarding)), "{guardings:?}");
}

/// Where several packets may stand in a segment, and one in several.
#[test]
fn wireshark_finds_the_packets_of_visa_in_a_stream() {
    let test = "wireshark_finds_the_packets_of_visa_in_a_stream";
    let Some(world) = World::new(test, 1500, &["tcpdump", "tshark"]) else { return };
    let file = converse(&world, "visa+tcp");
    let shown = [options(), vec!["-Y".to_owned(), "visa".to_owned()]].concat();
    let fields = ["visa.packet_length", "visa.length", "visa.guarding", "visa.kind", FAULTS[0], FAULTS[1], FAULTS[2]];
    let read = tshark(&file, &shown, &fields);
    assert!(read.len() > 100, "{} segments", read.len());
    let mut kinds = BTreeSet::new();
    for (number, row) in read.iter().enumerate() {
        let numbers = |at: usize| row[at].split(',').map(parse_number).collect::<Vec<u32>>();
        let [lengths, payloads, guardings, of_kinds] = [0, 1, 2, 3].map(numbers);
        let seal = |guarding: u32| if guarding == u32::from(CHECKSUM) { 0 } else { SEAL_BYTES };
        let parts = payloads.iter().zip(&guardings);
        let sums = parts.map(|(payload, guarding)| HEADER_BYTES as u32 + payload + seal(*guarding));
        assert_eq!(lengths, sums.collect::<Vec<u32>>(), "segment {number}: {row:?}");
        assert!(row[4..].iter().all(String::is_empty), "segment {number}: {row:?}");
        kinds.extend(of_kinds);
    }
    assert!([CONNECT, ACCEPT, CONFIRM, DATA, AGREE].iter().all(|kind| kinds.contains(&u32::from(*kind))), "{kinds:?}");
}
