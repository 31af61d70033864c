//! What Wireshark reads in what both ends send. Skipped where `tshark` is not installed.

use std::process::Command;

use sanwire_iwarp::wire::{Opcode, ReadRequest, Segment, Target, Terminate};
use sanwire_iwarp::{Config, Registration, Rtr, SendKind, Stag};
use sanwire_testing::{skip, this_test};

use crate::world::{World, bytes, frame};

const PORTS: [u16; 2] = [40_000, 3260];

fn ethernet_frame(from_initiator: bool, bytes: &[u8], at: &mut [u32; 2], flags: u8) -> Vec<u8> {
    let (own, other, from, to) = if from_initiator { (0, 1, 1, 2) } else { (1, 0, 2, 1) };
    let mut segment = Vec::new();
    [PORTS[own], PORTS[other]].iter().for_each(|port| segment.extend_from_slice(&port.to_be_bytes()));
    [at[own], at[other]].iter().for_each(|number| segment.extend_from_slice(&number.to_be_bytes()));
    segment.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend_from_slice(bytes);
    at[own] += bytes.len() as u32 + u32::from(flags & 2 != 0);
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x08, 0, 0x45, 0];
    frame.extend_from_slice(&(segment.len() as u16 + 20).to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
    frame.extend_from_slice(&segment);
    frame
}

/// What `tshark` prints, with these arguments; `None` where it is not installed.
fn dissected(sent: &[(bool, Vec<u8>)], name: &str, arguments: &[&str]) -> Option<String> {
    let file = std::env::temp_dir().join(format!("sanwire-iwarp-{}-{name}.pcap", std::process::id()));
    let mut out = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    out.extend_from_slice(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&262_144_u32.to_le_bytes());
    out.extend_from_slice(&1_u32.to_le_bytes());
    let mut at = [1, 1];
    let begin = [(true, Vec::new(), 0x02), (false, Vec::new(), 0x12)];
    let data = sent.iter().map(|(from_initiator, bytes)| (*from_initiator, bytes.clone(), 0x18));
    for (index, (from_initiator, bytes, flags)) in (0u32..).zip(begin.into_iter().chain(data)) {
        let frame = ethernet_frame(from_initiator, &bytes, &mut at, flags);
        for field in [0, index, frame.len() as u32, frame.len() as u32] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&frame);
    }
    std::fs::write(&file, out).unwrap();
    let mut command = Command::new("tshark");
    // What the messages say is not for these, which guess.
    ["rpcordma", "smb_direct"].iter().for_each(|protocol| _ = command.args(["--disable-protocol", protocol]));
    command.args(["-o", "tcp.try_heuristic_first:TRUE"]).args(arguments).arg("-r").arg(&file);
    let output = command.output();
    std::fs::remove_file(&file).unwrap();
    let output = output.ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The numbers in a line, field by field; nothing where a packet does not have one.
fn numbers(line: &str) -> Vec<Option<u64>> {
    let number = |text: &str| match text {
        "True" => Some(1),
        "False" => Some(0),
        hexadecimal if hexadecimal.starts_with("0x") => u64::from_str_radix(&hexadecimal[2..], 16).ok(),
        decimal => decimal.parse().ok(),
    };
    line.split('\t').map(number).collect()
}

const FIELDS: [&str; 20] = [
    "iwarp_mpa.ulpdulength",
    "iwarp_ddp.tagged_flag",
    "iwarp_ddp.last_flag",
    "iwarp_ddp.dv",
    "iwarp_rdma.version",
    "iwarp_rdma.opcode",
    "iwarp_ddp.stag",
    "iwarp_ddp.tagged_offset",
    "iwarp_ddp.qn",
    "iwarp_ddp.msn",
    "iwarp_ddp.mo",
    "iwarp_rdma.inval_stag",
    "iwarp_rdma.sinkstag",
    "iwarp_rdma.sinkto",
    "iwarp_rdma.rdmardsz",
    "iwarp_rdma.srcstag",
    "iwarp_rdma.srcto",
    "iwarp_rdma.term_layer",
    "iwarp_rdma.term_etype_rdma",
    "iwarp_rdma.term_errcode_rdma",
];

/// The same of an FPDU, as this crate reads it.
fn expected(fpdu: &[u8]) -> Vec<Option<u64>> {
    let segment = Segment::read(&fpdu[2..]).unwrap();
    let mut all = vec![Some(u64::from(u16::from_be_bytes([fpdu[0], fpdu[1]])))];
    all.extend([segment.is_tagged(), segment.is_last].map(|bit| Some(u64::from(bit))));
    all.extend([segment.ddp_version, segment.rdmap_version, segment.opcode].map(|number| Some(number.into())));
    let opcode = Opcode::from_code(segment.opcode).unwrap();
    match segment.target {
        Target::Tagged { stag, offset } => {
            all.extend([Some(stag.0.into()), Some(offset), None, None, None, None]);
        }
        Target::Untagged { invalidate, queue, sequence, offset } => {
            all.extend([None, None]);
            all.extend([queue, sequence, offset].map(|number| Some(number.into())));
            all.push(opcode.invalidates().then_some(invalidate.0.into()));
        }
    }
    let payload = &fpdu[2 + segment.length_bytes()..];
    all.extend(match opcode {
        Opcode::ReadRequest => {
            let asked = ReadRequest::read(payload.first_chunk().unwrap());
            let (length, source) = (asked.length_bytes.into(), asked.source.0.into());
            [asked.sink.0.into(), asked.sink_offset, length, source, asked.source_offset].map(Some)
        }
        _ => [None; 5],
    });
    all.extend(match opcode {
        Opcode::Terminate => {
            let (layer, kind, code) = Terminate::read(payload).unwrap().code;
            [layer, kind, code].map(|number| Some(number.into()))
        }
        _ => [None; 3],
    });
    all
}

/// One FPDU in each TCP segment, as a stream that is not loaded has it.
fn one_by_one(sent: &[(bool, Vec<u8>)]) -> Vec<(bool, Vec<u8>)> {
    let mut all = Vec::new();
    for (from_initiator, bytes) in sent {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let is_setup = rest.starts_with(b"MPA ID");
            let length = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
            let count = if is_setup { rest.len() } else { sanwire_iwarp::wire::fpdu_bytes(length) };
            all.push((*from_initiator, rest[..count].to_vec()));
            rest = &rest[count..];
        }
    }
    all
}

/// All operations, by both ends; the last is a Terminate message.
fn session(config: Config) -> World {
    let mut world = World::new(config.clone(), Config { rtr: Rtr::ALL, ..config });
    world.connect();
    let source = world.initiator.source(bytes(4, 3000));
    let sink = world.initiator.connection.register(Registration::of_frame(frame(3001)).with_invalidation()).unwrap();
    world.initiator.send(b"a Send");
    world.run();
    world.responder.read(1, 3000, source, 0);
    world.run();
    world.responder.write(sink, 0, bytes(6, 3001));
    world.responder.send_as(SendKind { solicited: true, invalidate: None }, b"a Send with Solicited Event", None);
    world.responder.send_as(SendKind { solicited: false, invalidate: Some(sink) }, b"with Invalidate", None);
    world.run();
    let sink = world.initiator.connection.register(Registration::of_frame(frame(10)).with_invalidation()).unwrap();
    world.responder.send_as(SendKind { solicited: true, invalidate: Some(sink) }, b"with both", None);
    world.run();
    world.responder.read(2, 10, Stag(0xbad), 0);
    world.run();
    assert!(world.responder.told.terminated.is_some());
    world
}

#[test]
fn wireshark_reads_what_was_sent() {
    for (name, crc, revision, peer_to_peer, rtr) in [
        ("crc", true, 2, false, Rtr::ALL),
        ("no-crc", false, 2, false, Rtr::ALL),
        ("revision-1", true, 1, false, Rtr::ALL),
        ("rtr-write", true, 2, true, Rtr { send: false, write: true, read: false }),
        ("rtr-read", true, 2, true, Rtr { send: false, write: false, read: true }),
        ("rtr-send", true, 2, true, Rtr { send: true, write: false, read: false }),
    ] {
        let config = Config { crc, revision, peer_to_peer, rtr, segment_bytes: 1460, ..Config::default() };
        let world = session(config);
        let sent = one_by_one(&world.sent);
        let mut arguments = vec!["-T", "fields", "-E", "occurrence=f"];
        FIELDS.iter().for_each(|field| arguments.extend(["-e", field]));
        let Some(lines) = dissected(&sent, name, &arguments) else {
            return skip(&this_test(), "the program tshark is not installed");
        };
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines.len(), sent.len() + 2);
        let mut opcodes = Vec::new();
        for (line, (_, bytes)) in lines[2..].iter().zip(&sent) {
            if bytes.starts_with(b"MPA ID") {
                assert!(numbers(line).iter().all(Option::is_none), "{name}");
                continue;
            }
            assert_eq!(numbers(line), expected(bytes), "{name} {bytes:02x?}");
            opcodes.push(bytes[3] & 0xf);
        }
        opcodes.sort_unstable();
        opcodes.dedup();
        assert_eq!(opcodes, (0..8).collect::<Vec<_>>(), "all operations");
        let text = dissected(&sent, name, &["-O", "iwarp_mpa,iwarp_ddp_rdmap"]).unwrap();
        assert!(!text.contains("Malformed") && !text.contains("Bad length"), "{text}");
        let good = if crc { sent.len() - 2 } else { 0 };
        let count = |of: &str| text.matches(of).count();
        assert_eq!((count("Good CRC32"), count("Bad CRC32")), (good, 0), "{text}");
        assert_eq!((count("Request frame header"), count("Reply frame header")), (1, 1), "{text}");
    }
}
