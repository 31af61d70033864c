//! What Wireshark reads in the packets of both ends with our dissector. Skipped where `tshark` is not installed.

use std::path::Path;
use std::process::Command;

use sanwire_core::Protection;
use sanwire_hdsp::ETHERTYPE;
use sanwire_hdsp::wire::connection::Step;
use sanwire_hdsp::wire::pcu::RawPcu;
use sanwire_hdsp::wire::pdu::Fields;
use sanwire_hdsp::wire::{Class, DiskType, Header, PacketType, Pdu};
use sanwire_testing::{skip, this_test};

use crate::world::{Habits, World, read, write};

const FIELDS: [&str; 19] = [
    "hdsp.r",
    "hdsp.dtype",
    "hdsp.disk",
    "hdsp.server_port",
    "hdsp.client_port",
    "hdsp.w",
    "hdsp.last",
    "hdsp.group_end",
    "hdsp.count",
    "hdsp.lba",
    "hdsp.length",
    "hdsp.offset",
    "hdsp.command",
    "hdsp.group",
    "hdsp.serial",
    "hdsp.class",
    "hdsp.operation",
    "hdsp.attempt",
    "hdsp.short",
];

fn write_capture(sent: &[Vec<u8>], file: &Path) {
    let mut out = Vec::new();
    out.extend_from_slice(&0xa1b2_c3d4_u32.to_le_bytes());
    out.extend_from_slice(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&65_535_u32.to_le_bytes());
    out.extend_from_slice(&1_u32.to_le_bytes());
    for (index, packet) in sent.iter().enumerate() {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        frame.extend_from_slice(&ETHERTYPE.to_be_bytes());
        frame.extend_from_slice(packet);
        frame.resize(frame.len().max(60), 0);
        for field in [0, index as u32, frame.len() as u32, frame.len() as u32] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&frame);
    }
    std::fs::write(file, out).unwrap();
}

/// The lines of `tshark`; `None` where it is not installed.
fn dissected(sent: &[Vec<u8>], name: &str) -> Option<Vec<Vec<String>>> {
    let file = std::env::temp_dir().join(format!("sanwire-hdsp-{}-{name}.pcap", std::process::id()));
    write_capture(sent, &file);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/wireshark/sanwire-hdsp.lua");
    let mut command = Command::new("tshark");
    command.arg("-X").arg(format!("lua_script:{}", script.display())).arg("-r").arg(&file).args(["-T", "fields"]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = command.output();
    std::fs::remove_file(&file).unwrap();
    let output = output.ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
    let lines = String::from_utf8(output.stdout).unwrap();
    Some(lines.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

fn expected(packet: &[u8]) -> Vec<String> {
    let header = Header::read(packet).unwrap();
    let bit = |is: bool| u8::from(is).to_string();
    let mut fields = vec![bit(header.from_server), (header.disk_type as u8).to_string()];
    let numbers = [header.disk_address.into(), header.server_port, header.client_port];
    fields.extend(numbers.map(|number: u16| number.to_string()));
    match header.packet_type {
        PacketType::Pdu => {
            let pdu = Pdu::read(packet).unwrap();
            fields.extend([pdu.flags.write, pdu.flags.last, pdu.flags.group_end].map(bit));
            fields.extend(match pdu.fields {
                Fields::Ata(register) => {
                    [(register.count & 0xff).to_string(), register.lba.to_string(), String::new(), String::new()]
                }
                Fields::Scsi(scsi) => {
                    [String::new(), String::new(), scsi.length_bytes.to_string(), scsi.offset_bytes.to_string()]
                }
            });
            fields.extend([pdu.command.to_string(), pdu.group.to_string(), pdu.serial.to_string()]);
            fields.extend(std::iter::repeat_n(String::new(), 3));
        }
        PacketType::Pcu => {
            let raw = RawPcu::read(packet).unwrap();
            fields.extend(std::iter::repeat_n(String::new(), 10));
            let operation = if raw.pcu.is_sealed { String::new() } else { raw.operation[0].to_string() };
            let attempt = match (raw.pcu.is_sealed, Step::read(raw.operation)) {
                (false, Ok(Step::Request(request))) => request.attempt,
                (false, Ok(Step::Challenge { attempt, .. } | Step::Proof { attempt, .. })) => attempt,
                _ => 0,
            };
            let is_open = !raw.pcu.is_sealed && raw.pcu.class == Class::Connection;
            let attempt = if is_open { format!("0x{attempt:016x}") } else { String::new() };
            fields.extend([(raw.pcu.class as u8).to_string(), operation, attempt]);
        }
    }
    fields.push(String::new());
    fields
}

#[test]
fn wireshark_reads_what_was_sent() {
    for (protection, disk_type) in [(Protection::Hash, DiskType::Sata), (Protection::Checksum, DiskType::Scsi)] {
        let mut world = World::new(Habits { protection, disk_type, ..Habits::default() });
        world.ends(write(disk_type, 5, &[7; 5 * 512]));
        world.ends(read(disk_type, 5, 5));
        let Some(lines) = dissected(&world.sent, &format!("{disk_type:?}")) else {
            return skip(&this_test(), "the program tshark is not installed");
        };
        assert_eq!(lines.len(), world.sent.len());
        for (line, packet) in lines.iter().zip(&world.sent) {
            assert_eq!(line.iter().map(|field| normal(field)).collect::<Vec<_>>(), expected(packet), "{packet:02x?}");
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
