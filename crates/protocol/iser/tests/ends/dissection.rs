//! What Wireshark reads in the stream of both ends: MPA, DDP and RDMAP, and with our script iSER and iSCSI. Skipped where `tshark` is not
//! installed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use sanwire_iscsi::wire::{LoginRequest, ScsiResponse};
use sanwire_iser::wire::{HeaderForm, IserHeader};
use sanwire_iwarp::{Config, Connection, Order, SendKind, Stag};
use sanwire_testing::{skip, this_test};

use super::raw::{NORMAL, message_as, of_blocks, opened, window};
use super::world::{BLOCK_BYTES, World, config, name};

/// A segment of TCP over Ethernet.
const SEGMENT_BYTES: usize = 1448;

/// The stream as a capture of Ethernet frames, in which nothing was lost.
fn write_capture(sent: &[(bool, Vec<u8>)], file: &Path) {
    let mut out = Vec::new();
    out.extend_from_slice(&0xa1b2_c3d4_u32.to_le_bytes());
    out.extend_from_slice(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&65_535_u32.to_le_bytes());
    out.extend_from_slice(&1_u32.to_le_bytes());
    let mut sequences = [1000_u32, 5000];
    for (index, (to_server, bytes)) in sent.iter().enumerate() {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        frame.extend_from_slice(&(40 + bytes.len() as u16).to_be_bytes());
        frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
        let hosts: [[u8; 4]; 2] = [[10, 0, 0, 2], [10, 0, 0, 1]];
        let ports: [u16; 2] = [40_000, 3260];
        let (from, to) = if *to_server { (0, 1) } else { (1, 0) };
        frame.extend([hosts[from], hosts[to]].concat());
        frame.extend([ports[from].to_be_bytes(), ports[to].to_be_bytes()].concat());
        frame.extend([sequences[from].to_be_bytes(), sequences[to].to_be_bytes()].concat());
        frame.extend_from_slice(&[0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend_from_slice(bytes);
        sequences[from] = sequences[from].wrapping_add(bytes.len() as u32);
        for field in [index as u32 / 1000, index as u32 % 1000 * 1000, frame.len() as u32, frame.len() as u32] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&frame);
    }
    std::fs::write(file, out).unwrap();
}

/// What `tshark` makes of it, a line for each frame; `None` where it is not installed.
fn dissected(sent: &[(bool, Vec<u8>)], name: &str, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let file = std::env::temp_dir().join(format!("sanwire-iser-{}-{name}.pcap", std::process::id()));
    write_capture(sent, &file);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/wireshark/sanwire-iser.lua");
    let mut command = Command::new("tshark");
    command.arg("-X").arg(format!("lua_script:{}", script.display())).arg("-r").arg(&file).args(["-T", "fields"]);
    fields.iter().for_each(|field| _ = command.args(["-e", field]));
    let output = command.output();
    if std::env::var_os("SANWIRE_KEEP_CAPTURES").is_none() {
        std::fs::remove_file(&file).unwrap();
    }
    let output = output.ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
    let lines = String::from_utf8(output.stdout).unwrap();
    Some(lines.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

#[test]
fn wireshark_reads_what_was_sent() {
    let mut alone = config(Some(name()));
    alone.wishes.connections = 1;
    let mut world = World::new(alone, SEGMENT_BYTES);
    world.order(0x2a, 0, Some(vec![1; 4 * BLOCK_BYTES]), 0);
    world.settle();
    world.order(0x2a, 0, Some(vec![2; 100 * BLOCK_BYTES]), 0);
    world.settle();
    world.order(0x28, 0, None, 100 * BLOCK_BYTES);
    world.settle();
    world.client.disconnect(world.now);
    world.run(usize::MAX);
    let fields =
        ["iwarp_mpa.req", "iwarp_mpa.rep", "iwarp_rdma.opcode", "sanwire_iser.kind", "iscsi.opcode", "_ws.malformed"];
    let Some(lines) = dissected(&world.sent, "session", &fields) else {
        return skip(&this_test(), "the program tshark is not installed");
    };
    let found = |column: usize| {
        let mut counts: BTreeMap<u8, usize> = BTreeMap::new();
        for value in lines.iter().flat_map(|line| line[column].split(',')).filter(|value| !value.is_empty()) {
            *counts.entry(number(value)).or_default() += 1;
        }
        counts
    };
    assert!(lines.iter().all(|line| line[5].is_empty()), "malformed: {lines:?}");
    assert_eq!((found(0).len(), found(1).len()), (1, 1), "a request and a reply");
    // Writes, a read of what did not come with its command and the response to that; messages, two of which close memory.
    let operations = found(2);
    assert!(operations[&0] == 1 && operations[&1] == 1 && operations[&2] == 1, "{operations:?}");
    assert_eq!((operations[&5], operations[&6]), (10, 2), "{operations:?}");
    assert_eq!(found(3), BTreeMap::from([(1, 12)]), "a header in front of each PDU");
    // Logins, commands and a logout, with their answers, and nothing else.
    assert_eq!(found(4), BTreeMap::from([(0x01, 3), (0x03, 2), (0x06, 1), (0x21, 3), (0x23, 2), (0x26, 1)]));
}

/// What one end has to send arrives at the other one.
fn pass(from: &mut Connection, to: &mut Connection, to_server: bool, sent: &mut Vec<(bool, Vec<u8>)>) {
    while let Some(packet) = from.poll_transmit() {
        to.take(&packet.to_vec());
        sent.push((to_server, packet.to_vec()));
    }
    while to.poll_event().is_some() {}
}

fn say(from: &mut Connection, bytes: Vec<u8>) {
    from.order(Order::Send { kind: SendKind::default(), head: bytes.into(), data: None }, None).unwrap();
}

#[test]
fn wireshark_reads_the_headers_of_rfc_5046_too() {
    let form = HeaderForm::Rfc5046;
    let mut client = Connection::initiator(Config { seed: [1; 16], ..Config::default() }, &NORMAL.write()).unwrap();
    let mut server = Connection::responder(Config { seed: [2; 16], ..Config::default() }).unwrap();
    let mut sent = Vec::new();
    pass(&mut client, &mut server, true, &mut sent);
    server.accept(&NORMAL.write()).unwrap();
    for end in [&mut client, &mut server] {
        (0..4).for_each(|_| end.post_receive(vec![0; 4096].into()).unwrap());
    }
    pass(&mut server, &mut client, false, &mut sent);
    let login =
        LoginRequest { is_immediate: true, transits: true, current_stage: 1, next_stage: 3, ..LoginRequest::default() };
    say(&mut client, message_as(form, IserHeader::PLAIN, login.write(), b"InitiatorName=iqn.2026-11.org.raw:x\0"));
    let control = opened(None, Some(window(Stag(0x1234_5678))));
    say(&mut client, message_as(form, control, of_blocks(1, 16, false).write(), &[]));
    say(&mut client, IserHeader::Hello { versions: (1, 1), ird: 1 }.write_short().to_vec());
    pass(&mut client, &mut server, true, &mut sent);
    let response = ScsiResponse { is_final: true, task_tag: 1, ..ScsiResponse::default() };
    say(&mut server, message_as(form, IserHeader::PLAIN, response.write(), &[]));
    pass(&mut server, &mut client, false, &mut sent);
    let fields = ["sanwire_iser.kind", "sanwire_iser.write_stag", "iscsi.opcode", "_ws.malformed"];
    let Some(lines) = dissected(&sent, "older", &fields) else {
        return skip(&this_test(), "the program tshark is not installed");
    };
    assert!(lines.iter().all(|line| line[3].is_empty()), "malformed: {lines:?}");
    let column = |at: usize| -> Vec<&str> {
        lines.iter().flat_map(|line| line[at].split(',')).filter(|value| !value.is_empty()).collect()
    };
    assert_eq!(column(0).into_iter().map(number).collect::<Vec<_>>(), [1, 1, 2, 1], "{lines:?}");
    assert_eq!(column(1), ["0x00000000", "0x12345678", "0x00000000"], "{lines:?}");
    assert_eq!(column(2).into_iter().map(number).collect::<Vec<_>>(), [0x03, 0x01, 0x21], "{lines:?}");
}

fn number(field: &str) -> u8 {
    match field.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).expect("a number"),
        None => field.parse().unwrap_or(1),
    }
}
