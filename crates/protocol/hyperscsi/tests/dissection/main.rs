//! What Wireshark, which knows nothing of this crate, reads in the packets of both ends: its built-in dissector the
//! header, ours in `packaging/wireshark/` the bodies. Skipped where `tshark` is not installed.

#[path = "../common/mod.rs"]
mod common;
mod expected;
mod talk;

use std::collections::BTreeMap;
use std::path::{Path as FilePath, PathBuf};
use std::process::Command;

use common::Sent;
use expected::{BODY_FIELDS, Expected};
use sanwire_hyperscsi::wire::{Opcode, Prefix};
use sanwire_hyperscsi::{ETHERTYPE, UDP_PORT};
use sanwire_testing::{skip, this_test};
use talk::{Wire, talk};

const ETHERNET_MIN_BYTES: usize = 60;

/// A capture file (libpcap's format, link type Ethernet).
fn write_capture(wire: Wire, sent: &[Sent], file: &FilePath) {
    let mut out = Vec::new();
    out.extend_from_slice(&0xa1b2_c3d4_u32.to_le_bytes());
    out.extend_from_slice(&[2, 0, 4, 0]);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&65_535_u32.to_le_bytes());
    out.extend_from_slice(&1_u32.to_le_bytes());
    for (index, packet) in sent.iter().enumerate() {
        let frame = frame(wire, packet);
        for field in [0, index as u32, frame.len() as u32, frame.len() as u32] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&frame);
    }
    std::fs::write(file, out).unwrap();
}

fn frame(wire: Wire, packet: &Sent) -> Vec<u8> {
    let (from, to) = if packet.from_client { (1, 2) } else { (2, 1) };
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from];
    match wire {
        Wire::Ethernet => frame.extend_from_slice(&ETHERTYPE.to_be_bytes()),
        Wire::Udp => {
            let length = packet.bytes.len() as u16;
            frame.extend_from_slice(&[0x08, 0, 0x45, 0]);
            frame.extend_from_slice(&(length + 28).to_be_bytes());
            frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
            // No checksum: UDP allows that over IPv4.
            for field in [UDP_PORT, UDP_PORT, length + 8, 0] {
                frame.extend_from_slice(&field.to_be_bytes());
            }
        }
    }
    frame.extend_from_slice(&packet.bytes);
    frame.resize(frame.len().max(ETHERNET_MIN_BYTES), 0);
    frame
}

/// The columns that `tshark` prints for each packet; `None` where it is not installed.
fn tshark(file: &FilePath, script: Option<&FilePath>, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(file).args(["-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]);
    if let Some(script) = script {
        command.arg("-X").arg(format!("lua_script:{}", script.display()));
    }
    for field in fields {
        command.args(["-e", field]);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skip(&this_test(), "the program tshark is not installed");
            return None;
        }
        Err(error) => panic!("tshark: {error}"),
    };
    let (text, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{complaints}");
    assert!(!complaints.contains("Lua"), "{complaints}");
    Some(text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
}

fn capture(wire: Wire) -> (Vec<Sent>, PathBuf) {
    let sent = talk(wire);
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("dissection-{wire:?}.pcap"));
    write_capture(wire, &sent, &file);
    (sent, file)
}

fn script() -> PathBuf {
    FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/wireshark/sanwire-hyperscsi.lua")
}

const HEADER_FIELDS: [&str; 6] = [
    "hyperscsi.reserved",
    "hyperscsi.tagno",
    "hyperscsi.lastfrag",
    "hyperscsi.fragno",
    "hyperscsi.version",
    "hyperscsi.cmd",
];

fn header_as_printed(bytes: &[u8]) -> Vec<String> {
    let (prefix, ..) = Prefix::read(bytes).unwrap();
    let header = prefix.header;
    let last = if header.last { "1" } else { "0" };
    let numbers = [header.fragment.to_string(), "0".into(), (header.opcode as u8).to_string()];
    ["0".into(), header.tag.number().to_string(), last.into()].into_iter().chain(numbers).collect()
}

#[test]
fn wiresharks_own_dissector_reads_every_header_as_it_was_sent() {
    let (sent, file) = capture(Wire::Ethernet);
    let Some(lines) = tshark(&file, None, &HEADER_FIELDS) else { return };
    assert_eq!(lines.len(), sent.len());
    let mut seen = BTreeMap::new();
    for (index, (line, packet)) in lines.iter().zip(&sent).enumerate() {
        assert_eq!(*line, header_as_printed(&packet.bytes), "packet {}", index + 1);
        *seen.entry(Prefix::read(&packet.bytes).unwrap().0.header.opcode).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 8, "every operation code was sent: {seen:?}");
    assert!(lines.iter().any(|line| line[3].parse::<u16>().unwrap() > 255), "a high fragment number was sent");
}

fn our_dissector_reads_every_body(wire: Wire) {
    let (sent, file) = capture(wire);
    let fields: Vec<&str> =
        HEADER_FIELDS.into_iter().chain(BODY_FIELDS).chain(["sanwire.illegal", "_ws.malformed"]).collect();
    let Some(lines) = tshark(&file, Some(&script()), &fields) else { return };
    assert_eq!(lines.len(), sent.len());
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, (line, packet)) in lines.iter().zip(&sent).enumerate() {
        let place = format!("packet {} of {wire:?}", index + 1);
        assert_eq!(line[..HEADER_FIELDS.len()], header_as_printed(&packet.bytes), "{place}");
        let expected = Expected::of(&packet.bytes).0;
        for (field, shown) in fields.iter().zip(line).skip(HEADER_FIELDS.len()) {
            let wanted = expected.get(field).map_or("", String::as_str);
            assert_eq!(shown, wanted, "{field} of {place}");
            *seen.entry(field).or_default() += usize::from(!shown.is_empty());
        }
    }
    for field in BODY_FIELDS {
        assert!(seen[field] > 0, "{field} was never shown");
    }
}

#[test]
fn our_dissector_reads_every_body_on_ethernet() {
    our_dissector_reads_every_body(Wire::Ethernet);
}

#[test]
fn our_dissector_reads_every_body_over_udp() {
    our_dissector_reads_every_body(Wire::Udp);
}

#[test]
fn a_damaged_handshake_packet_is_shown_as_such() {
    let (mut sent, _) = capture(Wire::Ethernet);
    sent.retain(|packet| Prefix::read(&packet.bytes).unwrap().0.header.opcode == Opcode::DeviceDiscovery);
    sent.truncate(1);
    sent[0].bytes[30] ^= 1;
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dissection-damaged.pcap");
    write_capture(Wire::Ethernet, &sent, &file);
    let Some(lines) = tshark(&file, Some(&script()), &["sanwire.checksum.status"]) else { return };
    assert!(lines[0][0].starts_with("Bad, should be 0x"), "{lines:?}");
}
