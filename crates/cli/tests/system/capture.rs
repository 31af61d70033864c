//! What Wireshark makes of a conversation: the header of every packet as it was sent, and the bodies.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Process, Server, Wire, World, pattern, run, run_ok, skip, wait_until};

const TIMEOUT: Duration = Duration::from_secs(60);
const ETHERNET_HEADER_BYTES: usize = 14;
const ETHERTYPE: [u8; 2] = [0x88, 0x9a];
/// The length of the file header and of a packet's header in the original pcap format.
const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;

#[test]
fn wireshark_reads_every_header_as_sent() {
    let test = "wireshark_reads_every_header_as_sent";
    let Some(world) = World::new(test, 1500, &["tcpdump", "tshark"]) else { return };
    let file = converse(&world, Wire::Ethernet, "disk=ram:8M");
    let sent = headers(&std::fs::read(&file).expect("a capture"));
    let fields = ["hyperscsi.cmd", "hyperscsi.tagno", "hyperscsi.fragno", "hyperscsi.lastfrag", "hyperscsi.version"];
    let read = tshark(&file, &[], &fields);
    assert_eq!(read.len(), sent.len(), "packets");
    for (number, (read, sent)) in read.iter().zip(&sent).enumerate() {
        let read: Vec<u32> = read.iter().map(|field| parse_number(field)).collect();
        assert_eq!(read, *sent, "packet {number}: operation, tag, fragment, last, version");
    }
    let operations: BTreeSet<u32> = sent.iter().map(|header| header[0]).collect();
    let expected = [0x00, 0x01, 0x10, 0x11, 0x12, 0x13, 0x20, 0x21];
    assert!(expected.iter().all(|operation| operations.contains(operation)), "{operations:x?}");
    let fragments = sent.iter().map(|header| header[2]).max();
    assert!(fragments > Some(100), "long messages have many fragments, not {fragments:?}");
}

#[test]
fn the_dissector_reads_every_body() {
    let test = "the_dissector_reads_every_body";
    let Some(world) = World::new(test, 9000, &["tcpdump", "tshark"]) else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/wireshark/sanwire-hyperscsi.lua");
    let Ok(script) = script.canonicalize() else {
        return skip(test, "packaging/wireshark/sanwire-hyperscsi.lua is absent");
    };
    for wire in [Wire::Ethernet, Wire::Ip] {
        let file = converse(&world, wire, "disk=ram:8M");
        let options = ["-X".to_owned(), format!("lua_script:{}", script.display())];
        let fields =
            ["hyperscsi.cmd", "sanwire.protection", "sanwire.checksum.status", "_ws.malformed", "_ws.lua.error"];
        let read = tshark(&file, &options, &fields);
        assert!(read.len() > 100, "{} packets over {wire:?}", read.len());
        for (number, packet) in read.iter().enumerate() {
            assert!(packet[3].is_empty() && packet[4].is_empty(), "{wire:?}, packet {number}: {packet:?}");
            assert!(!packet[1].is_empty(), "{wire:?}, packet {number} has no body: {packet:?}");
            let status = packet[2].to_lowercase();
            assert!(!status.contains("bad") && !status.contains("wrong"), "{wire:?}, packet {number}: {packet:?}");
        }
    }
}

#[test]
fn a_protected_volume_shows_its_headers_and_no_plaintext() {
    let test = "a_protected_volume_shows_its_headers_and_no_plaintext";
    let Some(world) = World::new(test, 1500, &["tcpdump", "tshark"]) else { return };
    for (level, wire, is_readable) in [
        ("none", Wire::Ip, true),
        ("hash", Wire::Ethernet, true),
        ("aes-128-gcm", Wire::Ethernet, false),
        ("aes-256-gcm", Wire::Ethernet, false),
        ("aes-256-gcm", Wire::Ip, false),
        ("chacha20-poly1305", Wire::Ethernet, false),
    ] {
        let file = converse(&world, wire, &format!("disk=ram:8M,security={level}"));
        let capture = std::fs::read(&file).expect("a capture");
        let content = content();
        let samples: Vec<&[u8]> = content.chunks(16).step_by(1000).collect();
        let is_shown = capture.windows(16).any(|bytes| samples.contains(&bytes));
        assert_eq!(is_shown, is_readable, "{level}");
        if wire == Wire::Ethernet {
            let read = tshark(&file, &[], &["hyperscsi.cmd", "hyperscsi.fragno"]);
            assert!(read.len() > 1000 && read.iter().all(|row| !row[0].is_empty() && !row[1].is_empty()), "{level}");
        }
    }
}

/// What is copied to the volume and back.
fn content() -> Vec<u8> {
    pattern(4, 1 << 20)
}

/// Captures a discovery, a listing and a copy of a mebibyte.
fn converse(world: &World, wire: Wire, volume: &str) -> PathBuf {
    let mut server = Server::start(world, &[volume]);
    let file = world.scratch.path("capture.pcap");
    let mut tcpdump = world.on_client("tcpdump");
    tcpdump.args(["-i", world.interface(), "-s", "0", "-B", "65536", "-U", "-Z", "root", "-w"]).arg(&file);
    tcpdump.arg(if wire == Wire::Ethernet { "ether proto 0x889a" } else { "udp port 5674" });
    let mut capture = Process::spawn("tcpdump", tcpdump, world.scratch.path("tcpdump.log"));
    capture.wait_for("listening on", TIMEOUT);
    let image = world.scratch.path("image.raw");
    std::fs::write(&image, content()).expect("an image");
    if wire == Wire::Ethernet {
        // A server that is held up may answer later than is waited for.
        wait_until("the server is found", TIMEOUT, || {
            run(world.sanwire(&["discover", "--interface", world.interface()]), TIMEOUT).code == Some(0)
        });
    }
    run_ok(world.sanwire(&["ls", "--wait", "60", &wire.server_url()]), TIMEOUT);
    let [image, disk, back] = [image.display().to_string(), wire.url("disk"), world.scratch.text("back.raw")];
    for [from, to] in [[&image, &disk], [&disk, &back]] {
        run_ok(world.sanwire(&["cp", "--overwrite", "--wait", "60", from, to]), TIMEOUT);
    }
    assert!(server.stop().success(), "{}", server.log());
    // The last packets pass through the kernel's buffer.
    std::thread::sleep(Duration::from_secs(1));
    capture.signal(Signal::INT);
    capture.wait(TIMEOUT);
    assert!(capture.log().contains("0 packets dropped by kernel"), "{}", capture.log());
    file
}

/// One row of fields for each packet.
pub(crate) fn tshark(file: &Path, options: &[String], fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(options).arg("-r").arg(file).args(["-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let text = run_ok(command, TIMEOUT);
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// The packets of a capture.
pub(crate) fn frames(capture: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    let mut rest = &capture[FILE_HEADER_BYTES..];
    while let Some((record, after)) = rest.split_at_checked(RECORD_HEADER_BYTES) {
        let length = u32::from_le_bytes([record[8], record[9], record[10], record[11]]) as usize;
        let (frame, after) = after.split_at(length);
        frames.push(frame);
        rest = after;
    }
    frames
}

/// The headers of the packets as they stand in the capture: operation, tag, fragment, last, version (HyperSCSI 5.1).
fn headers(capture: &[u8]) -> Vec<Vec<u32>> {
    let header = |frame: &[u8]| {
        assert_eq!(frame[12..ETHERNET_HEADER_BYTES], ETHERTYPE);
        let [b0, b1, b2, version, operation] =
            frame[ETHERNET_HEADER_BYTES..].first_chunk().map(|b| b.map(u32::from)).expect("a header");
        let word = b0 << 16 | b1 << 8 | b2;
        vec![operation & 0x7f, word >> 11 & 0x1ff, word & 0x3ff, word >> 10 & 1, version]
    };
    frames(capture).into_iter().map(header).collect()
}

/// A number as tshark writes it: decimal, hexadecimal or a truth value.
pub(crate) fn parse_number(text: &str) -> u32 {
    match text {
        "True" => 1,
        "False" => 0,
        _ => match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).expect("a number"),
            None => text.parse().unwrap_or_else(|_| panic!("'{text}' is no number")),
        },
    }
}
