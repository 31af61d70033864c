//! What Wireshark reads in the packets of both ends with our dissector, over UDP and TCP. Skipped where `tshark` is not installed.

use std::path::Path;
use std::process::Command;

use sanwire_core::Protection;
use sanwire_testing::{skip, this_test};
use sanwire_visa::PORT;
use sanwire_visa::wire::header::RawPacket;
use sanwire_visa::wire::message::Prologue;
use sanwire_visa::wire::setup::{Confirm, Connect};
use sanwire_visa::wire::{Guarding, Kind};

use crate::world::{Habits, World};

const FIELDS: [&str; 14] = [
    "visa.kind",
    "visa.first",
    "visa.last",
    "visa.from_device",
    "visa.guarding",
    "visa.tag",
    "visa.length",
    "visa.sequence",
    "visa.offset",
    "visa.data_length",
    "visa.opcode",
    "visa.attempt",
    "visa.short",
    "visa.illegal",
];

fn frame(from_client: bool, is_stream: bool, packet: &[u8], at: &mut [u32; 2]) -> Vec<u8> {
    let (from, to) = if from_client { (1, 2) } else { (2, 1) };
    let (from_port, to_port) = if from_client { (40_000, PORT) } else { (PORT, 40_000) };
    let mut body = Vec::new();
    if is_stream {
        let (own, other) = if from_client { (0, 1) } else { (1, 0) };
        for port in [from_port, to_port] {
            body.extend_from_slice(&port.to_be_bytes());
        }
        body.extend_from_slice(&at[own].to_be_bytes());
        body.extend_from_slice(&at[other].to_be_bytes());
        body.extend_from_slice(&[0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        body.extend_from_slice(&(packet.len() as u32).to_be_bytes());
        at[own] += packet.len() as u32 + 4;
    } else {
        for field in [from_port, to_port, packet.len() as u16 + 8, 0] {
            body.extend_from_slice(&field.to_be_bytes());
        }
    }
    body.extend_from_slice(packet);
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x08, 0, 0x45, 0];
    frame.extend_from_slice(&(body.len() as u16 + 20).to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, if is_stream { 6 } else { 17 }, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
    frame.extend_from_slice(&body);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// The lines of `tshark`; `None` where it is not installed.
fn dissected(sent: &[(bool, Vec<u8>)], is_stream: bool, name: &str) -> Option<Vec<Vec<String>>> {
    let file = std::env::temp_dir().join(format!("sanwire-visa-{}-{name}.pcap", std::process::id()));
    let mut out = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    out.extend_from_slice(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&262_144_u32.to_le_bytes());
    out.extend_from_slice(&1_u32.to_le_bytes());
    let mut at = [1, 1];
    for (index, (from_client, packet)) in (0u32..).zip(sent) {
        let frame = frame(*from_client, is_stream, packet, &mut at);
        for field in [0, index, frame.len() as u32, frame.len() as u32] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&frame);
    }
    std::fs::write(&file, out).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/wireshark/sanwire-visa.lua");
    let mut command = Command::new("tshark");
    command.arg("-X").arg(format!("lua_script:{}", script.display())).arg("-r").arg(&file).args(["-T", "fields"]);
    FIELDS.iter().for_each(|field| _ = command.args(["-e", field]));
    let output = command.output();
    std::fs::remove_file(&file).unwrap();
    let output = output.ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
    let lines = String::from_utf8(output.stdout).unwrap();
    Some(lines.lines().map(|line| line.split('\t').map(normal).collect()).collect())
}

fn expected(packet: &[u8]) -> Vec<String> {
    let raw = RawPacket::read(packet).unwrap();
    let header = raw.header;
    let bit = |is: bool| u8::from(is).to_string();
    let mut fields = vec![(header.kind as u8).to_string()];
    fields.extend([header.first, header.last, header.from_device].map(bit));
    let guarding = match header.guarding {
        Guarding::None => 15,
        Guarding::By(protection) => protection as u8,
    };
    let numbers = [guarding.into(), header.tag.into(), header.payload_bytes.into(), header.sequence, header.offset];
    fields.extend(numbers.map(|number: u32| number.to_string()));
    let is_plain = matches!(header.guarding, Guarding::None | Guarding::By(Protection::Checksum | Protection::Hash));
    let (mut data_length, mut opcode, mut attempt) = (String::new(), String::new(), String::new());
    match header.kind {
        Kind::Data if header.first && is_plain => {
            let (prologue, head, _) = Prologue::read(raw.payload).unwrap();
            data_length = prologue.data_bytes.to_string();
            if !header.from_device {
                opcode = format!("0x{:02x}", head[32]);
            }
        }
        Kind::Connect => attempt = format!("0x{:016x}", Connect::read(raw.payload).unwrap().attempt),
        Kind::Accept => attempt = format!("0x{:016x}", u64::from_be_bytes(raw.payload[1..9].try_into().unwrap())),
        Kind::Confirm => attempt = format!("0x{:016x}", Confirm::read(raw.payload).unwrap().attempt),
        _ => {}
    }
    fields.extend([data_length, opcode, attempt, String::new(), String::new()]);
    fields
}

#[test]
fn wireshark_reads_what_was_sent() {
    for (protection, is_stream) in [
        (Protection::Hash, false),
        (Protection::Checksum, false),
        (Protection::Aes256Gcm, false),
        (Protection::Hash, true),
    ] {
        let mut world = World::new(Habits { protection, is_stream, ..Habits::default() });
        world.run_for(std::time::Duration::from_secs(1));
        world.write(5, &[7; 5 * 512]);
        world.read(5, 5 * 512);
        world.run_for(std::time::Duration::from_secs(1));
        world.client.disconnect();
        world.drain();
        let name = format!("{protection:?}-{is_stream}");
        let Some(lines) = dissected(&world.sent, is_stream, &name) else {
            return skip(&this_test(), "the program tshark is not installed");
        };
        assert_eq!(lines.len(), world.sent.len());
        for (line, (_, packet)) in lines.iter().zip(&world.sent) {
            assert_eq!(line, &expected(packet), "{name} {packet:02x?}");
        }
    }
}

/// Newer versions write bits as words.
fn normal(field: &str) -> String {
    match field {
        "True" => "1".to_owned(),
        "False" => "0".to_owned(),
        _ => field.to_owned(),
    }
}
