//! What Wireshark reads in the stream of both ends: MPA, DDP and RDMAP, and with our script iSER and iSCSI. Skipped where `tshark` is not
//! installed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

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
fn dissected(sent: &[(bool, Vec<u8>)], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let file = std::env::temp_dir().join(format!("sanwire-iser-{}.pcap", std::process::id()));
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
    let Some(lines) = dissected(&world.sent, &fields) else {
        println!("skipped: tshark is not installed");
        return;
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

fn number(field: &str) -> u8 {
    match field.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).expect("a number"),
        None => field.parse().unwrap_or(1),
    }
}
