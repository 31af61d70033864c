//! Two who share one disk and do not trust each other: each has a part of it, with a file system of a stock kernel, over iSCSI.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::is_long;
use super::iscsi::{Rig, SOCKET};
use crate::harness::{AUTHORITY, GUEST_LINKS, Random, Scratch, pattern, run_ok};

/// It takes less than 200 s where nothing else is done.
const LIMIT: Duration = Duration::from_secs(2400);

const MIB: u64 = 1 << 20;
const DISK_MIB: u32 = 256;
/// What each of them has: ext4, and an XFS of the smallest kind. The rest is nobody's.
const SHARES: [(&str, u64); 2] = [("alice", 64 * MIB), ("bob", 128 * MIB)];
const SECRETS: [&str; 2] = ["alice has a secret", "bob has another one"];
/// Parts of the disk begin and end at whole pages of file systems.
const PAGE: u64 = 4096;

/// Does not end for reads from the second MiB to the tenth: not where one looks for file systems.
const SPINNING: &str = r#"(module
  (memory (export "memory") 1)
  (global (export "sanwire_abi_1") i32 (i32.const 0))
  (data (i32.const 0)
    "\00\04\00\00" "\00\08\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00"
    "\02\00\00\00" "\00\00\00\00\00\00\00\00\00\00\00\00")
  (func (export "judge") (result i32)
    (if (i64.lt_u (i64.sub (i64.load (i32.const 1064)) (i64.const 4096)) (i64.const 16384))
      (then (loop $spin (br $spin))))
    (i32.const 1)))"#;
/// So many of such reads the job has seen to fail at least, and each takes all the fuel of a call.
const SPINNING_CALLS: u64 = 100;
const SPINNING_FUEL: u64 = 100_000;

/// How many layouts are tried, each with the other one as the attacker.
fn seeds() -> u64 {
    if is_long() { 4 } else { 1 }
}

/// A part of the disk: offset and length.
type Extent = (u64, u64);

/// So many pieces of random lengths, which are so long together.
fn pieces(random: &mut Random, count: u64, length: u64) -> Vec<u64> {
    let mut cuts: Vec<u64> = (1..count).map(|_| random.below(length / PAGE - 1) + 1).collect();
    cuts.extend([0, length / PAGE]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|cut| (cut[1] - cut[0]) * PAGE).collect()
}

fn shuffle<T>(random: &mut Random, items: &mut [T]) {
    for at in (1..items.len()).rev() {
        items.swap(at, random.below(at as u64 + 1) as usize);
    }
}

/// The extents of each of them, in the order in which its unit has them, and last those of nobody.
fn layout(seed: u64) -> [Vec<Extent>; 3] {
    let random = &mut Random::new(seed);
    let free = u64::from(DISK_MIB) * MIB - SHARES.iter().map(|(_, length)| length).sum::<u64>();
    let mut all = Vec::new();
    for (owner, length) in [SHARES[0].1, SHARES[1].1, free].into_iter().enumerate() {
        let count = random.below(5) + 2;
        all.extend(pieces(random, count, length).into_iter().map(|length| (owner, length)));
    }
    shuffle(random, &mut all);
    let (mut extents, mut offset) = ([const { Vec::new() }; 3], 0);
    for (owner, length) in all {
        extents[owner].push((offset, length));
        offset += length;
    }
    extents.iter_mut().for_each(|extents| shuffle(random, extents));
    extents
}

/// The parts of both, and a part of each of them that this program judges; a target for each with the secret of its user, and one for both.
fn configuration(extents: &[Vec<Extent>; 3], program: &str) -> String {
    let mut text = String::new();
    let mut users = Vec::new();
    for (((name, _), secret), extents) in SHARES.iter().zip(SECRETS).zip(extents) {
        let regions: Vec<String> = extents.iter().map(|(offset, length)| format!("\"{offset}+{length}\"")).collect();
        let user = format!("{{ user = \"{name}\", secret = \"{secret}\" }}");
        text += &format!(
            "[[volume]]\nname = \"{name}\"\nstore = \"dvd:disk\"\nregion = [{}]\nprincipal = [\"chap:{name}\"]\n\
             [[volume]]\nname = \"{name}-spinning\"\nstore = \"dvd:{name}\"\nregion = [\"0+12M\"]\nprincipal = [\"chap:{name}\"]\n\
             program = \"{program}\"\n\
             [[target]]\nname = \"{AUTHORITY}:{name}\"\nlun = {{ 0 = \"{name}\", 1 = \"{name}-spinning\" }}\nchap = [{user}]\n",
            regions.join(", ")
        );
        users.push(user);
    }
    let [(first, _), (second, _)] = SHARES;
    text += &format!(
        "[[target]]\nname = \"{AUTHORITY}:both\"\nlun = {{ 0 = \"{first}\", 1 = \"{second}\" }}\nchap = [{}]\n",
        users.join(", ")
    );
    text
}

fn read(disk: &Path, extents: &[Extent]) -> Vec<u8> {
    let mut file = File::open(disk).expect("the disk");
    let mut bytes = Vec::new();
    for (offset, length) in extents {
        file.seek(SeekFrom::Start(*offset)).expect("a place");
        let read = Read::by_ref(&mut file).take(*length).read_to_end(&mut bytes).expect("the disk can be read");
        assert_eq!(read as u64, *length);
    }
    bytes
}

/// What `b2sum` says of these bytes.
fn digest(place: &Path, bytes: &[u8]) -> String {
    File::create(place).and_then(|mut file| file.write_all(bytes)).expect("a file");
    let mut command = Command::new("b2sum");
    command.arg(place);
    run_ok(command, LIMIT).split(' ').next().unwrap_or_default().to_owned()
}

/// The program of this part of somebody's has spun until its fuel was gone, again and again.
fn expect_spun(rig: &Rig, name: &str) {
    let mut show = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    show.args(["dvd", "show", &format!("{name}-spinning"), "--json", "--socket"]);
    show.arg(rig.world.scratch.path(SOCKET)).env_remove("SANWIRE_LOG");
    let told: Value = serde_json::from_str(&run_ok(show, LIMIT)).expect("JSON");
    let [failed, fuel] = ["failed", "fuel"].map(|count| told["dvd"]["program"][count].as_u64().expect("a count"));
    assert!(failed >= SPINNING_CALLS && fuel >= failed * SPINNING_FUEL, "{told}");
}

#[test]
#[ignore = "boots a Linux guest"]
fn neither_of_two_who_share_a_disk_reads_changes_reserves_resets_or_stalls_what_is_the_others() {
    let test = "neither_of_two_who_share_a_disk_reads_changes_reserves_resets_or_stalls_what_is_the_others";
    let scratch = Scratch::new();
    let program = scratch.text("spinning.wasm");
    fs::write(&program, wat::parse_str(SPINNING).expect("a module")).expect("a file");
    for seed in 0..seeds() {
        let extents = layout(seed);
        println!("seed {seed}: {extents:?}");
        let volumes = [("disk", DISK_MIB)];
        let Some(mut rig) = Rig::new(test, &volumes, Some(&configuration(&extents, &program))) else { return };
        let disk = rig.world.scratch.path("disk.img");
        let before = pattern(seed, DISK_MIB as usize * MIB as usize);
        // Nobody is there yet.
        File::options().write(true).open(&disk).and_then(|mut file| file.write_all(&before)).expect("a full disk");
        let portal = GUEST_LINKS[0].server;
        let first = seed as usize % 2;
        let [first, second] = [first, 1 - first].map(|number| SHARES[number].0);
        // There and back takes half an hour on a machine that has other things to do.
        let attackers = if is_long() { "2" } else { "1" };
        let arguments = [portal, AUTHORITY, SECRETS[0], SECRETS[1], first, second, attackers];
        let said = rig.guest.run("isolation", &arguments, LIMIT);
        expect_spun(&rig, first);
        assert!(rig.server.stop().success(), "{}", rig.server.log());
        for ((name, _), extents) in SHARES.iter().zip(&extents) {
            let found = digest(&rig.world.scratch.path("part"), &read(&disk, extents));
            assert!(said.contains(&format!("{name} {found}\n")), "{name} read {found}:\n{said}");
        }
        let free = &extents[2];
        let is_same = |(offset, length): &Extent| {
            let range = *offset as usize..(*offset + *length) as usize;
            read(&disk, &[(*offset, *length)]) == before[range]
        };
        assert!(free.iter().all(is_same), "what is nobody's is as it was");
    }
}
