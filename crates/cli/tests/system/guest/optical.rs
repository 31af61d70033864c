//! A drive with discs, as the kernel's own driver (`sr`) uses it.

use std::process::Command;

use crate::harness::{GUEST_LINKS, Guest, Server, World, run, run_ok};

use super::LIMIT;

const BLOCK_BYTES: usize = 2048;
/// Volume descriptors begin at block 16; then their end, two path tables, the root directory, and the file.
const PATH_TABLES: [u32; 2] = [18, 19];
const ROOT: u32 = 20;
const FILE: u32 = 21;

/// Shares the guest of another test.
pub fn linux_mounts_a_disc_ejects_it_and_finds_another_one(world: &World, guest: &mut Guest) {
    let (first, second) = (disc(world, "first.iso", 3_000_000), disc(world, "second.iso", 5_000_001));
    let (portal, socket) = (GUEST_LINKS[0].server, world.scratch.text("control.sock"));
    let volume = format!("cd0=file:{},type=optical", first.path);
    let wire = format!("iscsi:{portal}");
    let mut server = Server::start_with(world, &[&volume], &["--allow", "any", "--wire", &wire, "--control", &socket]);
    let ctl = |arguments: &[&str]| {
        let mut ctl = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        ctl.args(["ctl", "--socket", &socket]).args(arguments);
        ctl
    };
    let name = "iqn.2026-11.org.sanwire:cd0";
    guest.run("login", &[portal, name], LIMIT);
    guest.run("optical", &["mount", &first.bytes.to_string(), &first.sum], LIMIT);
    let locked = run(ctl(&["eject-volume", "cd0"]), LIMIT);
    assert!(locked.stderr.contains("an initiator has locked its medium"), "{}", locked.stderr);
    guest.run("optical", &["asked"], LIMIT);
    guest.run("optical", &["release"], LIMIT);
    run_ok(ctl(&["load-volume", "cd0", &format!("file:{}", second.path)]), LIMIT);
    guest.run("optical", &["mount", &second.bytes.to_string(), &second.sum], LIMIT);
    guest.run("optical", &["release"], LIMIT);
    run_ok(ctl(&["load-volume", "cd0"]), LIMIT);
    guest.run("optical", &["mount", &second.bytes.to_string(), &second.sum], LIMIT);
    guest.run("optical", &["release"], LIMIT);
    guest.run("logout", &[portal, name], LIMIT);
    assert!(server.stop().success(), "{}", server.log());
}

/// An image with one file, `data.bin`.
struct Disc {
    path: String,
    bytes: usize,
    /// The BLAKE2b sum of the file.
    sum: String,
}

/// Writes a small ISO 9660 file system (ECMA-119), with a file of so many bytes.
fn disc(world: &World, name: &str, file_bytes: usize) -> Disc {
    let content: Vec<u8> = (0..file_bytes).map(|at| (at * 31 % 251) as u8).collect();
    let blocks = FILE as usize + file_bytes.div_ceil(BLOCK_BYTES);
    let mut image = vec![0; blocks * BLOCK_BYTES];
    let mut put = |block: u32, at: usize, bytes: &[u8]| {
        let from = block as usize * BLOCK_BYTES + at;
        image[from..from + bytes.len()].copy_from_slice(bytes);
    };
    let root = record(ROOT, BLOCK_BYTES as u32, 2, &[0]);
    put(16, 0, b"\x01CD001\x01");
    put(16, 8, &[b' '; 64]);
    put(16, 80, &both_32(blocks as u32));
    put(16, 120, &both_16(1));
    put(16, 124, &both_16(1));
    put(16, 128, &both_16(BLOCK_BYTES as u16));
    put(16, 132, &both_32(10));
    put(16, 140, &PATH_TABLES[0].to_le_bytes());
    put(16, 148, &PATH_TABLES[1].to_be_bytes());
    put(16, 156, &root);
    put(16, 881, &[1]);
    put(17, 0, b"\xffCD001\x01");
    put(PATH_TABLES[0], 0, &[1, 0, ROOT as u8, 0, 0, 0, 1, 0]);
    put(PATH_TABLES[1], 0, &[1, 0, 0, 0, 0, ROOT as u8, 0, 1]);
    put(ROOT, 0, &root);
    put(ROOT, root.len(), &record(ROOT, BLOCK_BYTES as u32, 2, &[1]));
    put(ROOT, 2 * root.len(), &record(FILE, file_bytes as u32, 0, b"DATA.BIN;1"));
    put(FILE, 0, &content);
    let path = world.scratch.text(name);
    std::fs::write(&path, &image).expect("an image");
    let file = world.scratch.text("content");
    std::fs::write(&file, &content).expect("its file");
    let mut sum = Command::new("b2sum");
    sum.arg(&file);
    let sum = run_ok(sum, LIMIT).split_whitespace().next().expect("a sum").to_owned();
    Disc { path, bytes: image.len(), sum }
}

/// A directory record (ECMA-119 9.1), of even length.
fn record(block: u32, bytes: u32, flags: u8, name: &[u8]) -> Vec<u8> {
    let length = (33 + name.len()).next_multiple_of(2);
    let mut record = vec![length as u8, 0];
    record.extend(both_32(block));
    record.extend(both_32(bytes));
    record.extend([126, 11, 23, 0, 0, 0, 0, flags, 0, 0]);
    record.extend(both_16(1));
    record.push(name.len() as u8);
    record.extend(name);
    record.resize(length, 0);
    record
}

fn both_16(value: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (value.to_le_bytes(), value.to_be_bytes());
    [a, b, c, d]
}

fn both_32(value: u32) -> Vec<u8> {
    [value.to_le_bytes(), value.to_be_bytes()].concat()
}
