//! Copies from one iSCSI target to another, in their initiator's name: EXTENDED COPY, and tokens.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::{AUTHORITY, Client, Initiator, Scratch, Server, pattern, port, run_ok, wait_until};
use crate::manage::ctl_ok;

const HOST: &str = "iqn.2026-11.org.example:host";
const OTHER: &str = "iqn.2026-11.org.example:other";
const TIMEOUT: Duration = Duration::from_secs(90);
const BYTES: usize = 8192;
const BLOCKS: u8 = (BYTES / 512) as u8;

/// COPY ABORTED, and why.
const NOT_REACHABLE: Option<(u8, u8, u8)> = Some((0x0a, 0x0d, 0x02));
const THIRD_PARTY_FAILURE: Option<(u8, u8, u8)> = Some((0x0a, 0x0d, 0x01));
const NO_ACCESS: Option<(u8, u8, u8)> = Some((0x0a, 0x20, 0x02));
const WRITE_PROTECTED: Option<(u8, u8, u8)> = Some((0x0a, 0x27, 0x00));

/// ILLEGAL REQUEST, and why.
const UNKNOWN_TOKEN: Option<(u8, u8, u8)> = Some((0x05, 0x23, 0x04));
const CANCELLED_TOKEN: Option<(u8, u8, u8)> = Some((0x05, 0x23, 0x08));
const TOKEN_FROM_ELSEWHERE: Option<(u8, u8, u8)> = Some((0x05, 0x23, 0x02));

/// A server on this host.
struct World {
    server: Server,
    address: String,
    scratch: Scratch,
}

impl World {
    fn new(volumes: &[&str], targets: &str) -> World {
        let scratch = Scratch::new();
        let address = format!("127.0.0.1:{}", port());
        fs::write(scratch.path("sanwire.toml"), targets).expect("a configuration");
        let options = ["--config", &scratch.text("sanwire.toml"), "--control", &scratch.text("c.sock")];
        let wire = format!("iscsi:{address}");
        let server = Server::start_on(&scratch, &[&wire], volumes, &options.map(str::to_owned));
        World { server, address, scratch }
    }

    fn session(&self, initiator: &str, volume: &str) -> Initiator {
        Initiator::log_in(&self.address, initiator, &format!("{AUTHORITY}:{volume}"), 1).expect("a session")
    }

    fn ctl(&self, arguments: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        command.arg("ctl").arg("--socket").arg(self.scratch.path("c.sock")).args(arguments);
        run_ok(command, TIMEOUT);
    }

    fn stop(mut self) {
        assert!(self.server.stop().success(), "{}", self.server.log());
    }
}

/// The NAA designator of the unit (SPC-5 7.7.6).
fn naa(session: &mut Initiator) -> Vec<u8> {
    let page = session.good(&[0x12, 1, 0x83, 1, 0, 0], &[], 256);
    let mut rest = &page[4..];
    loop {
        let (descriptor, after) = rest.split_at(4 + usize::from(rest[3]));
        if descriptor[1] & 0x3f == 3 {
            return descriptor[4..].to_vec();
        }
        rest = after;
    }
}

/// Copies the first blocks of one unit over those of another (SPC-3 6.3, segment type 02h).
fn copy(session: &mut Initiator, from: &[u8], to: &[u8]) -> Option<(u8, u8, u8)> {
    copy_blocks(session, from, to, BLOCKS.into())
}

fn copy_blocks(session: &mut Initiator, from: &[u8], to: &[u8], blocks: u16) -> Option<(u8, u8, u8)> {
    let mut list = vec![0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    for naa in [from, to] {
        list.extend([0xe4, 0, 0, 0, 1, 3, 0, naa.len() as u8]);
        list.extend(naa);
        list.resize(list.len().next_multiple_of(16), 0);
        list.resize(if list.len() < 48 { 48 } else { 80 }, 0);
    }
    list.extend([2, 0, 0, 24, 0, 0, 0, 1, 0, 0]);
    list.extend(blocks.to_be_bytes());
    list.resize(80 + 28, 0);
    let cdb = [0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0, 0];
    let answer = session.command(&cdb, &list, 0);
    assert_eq!(answer.status == 0, answer.sense.is_none(), "{answer:?}");
    answer.sense
}

fn write(session: &mut Initiator, bytes: &[u8]) {
    session.good(&[0x2a, 0, 0, 0, 0, 0, 0, 0, BLOCKS, 0], bytes, 0);
}

fn read(session: &mut Initiator) -> Vec<u8> {
    session.good(&[0x28, 0, 0, 0, 0, 0, 0, 0, BLOCKS, 0], &[], BYTES as u32)
}

#[test]
fn a_copy_goes_from_the_target_of_one_volume_to_that_of_another() {
    let world = World::new(&["one=ram:8M", "two=ram:8M", "ro=ram:8M,readonly"], "");
    let [mut one, mut two, mut read_only] = ["one", "two", "ro"].map(|volume| world.session(HOST, volume));
    let (from, to, protected) = (naa(&mut one), naa(&mut two), naa(&mut read_only));
    write(&mut one, &pattern(1, BYTES));
    assert_eq!(copy(&mut one, &from, &to), None);
    assert!(read(&mut two) == pattern(1, BYTES));
    write(&mut one, &pattern(2, BYTES));
    assert_eq!(copy(&mut read_only, &from, &to), None, "whoever of its units is asked");
    assert!(read(&mut two) == pattern(2, BYTES));
    assert_eq!(copy(&mut one, &from, &protected), WRITE_PROTECTED);
    world.ctl(&["remove-volume", "two", "--force"]);
    assert_eq!(copy(&mut one, &from, &to), NOT_REACHABLE, "it is gone");
    world.ctl(&["add-volume", "three=ram:8M"]);
    let to = naa(&mut world.session(HOST, "three"));
    assert_eq!(copy(&mut one, &from, &to), None);
    drop((one, two, read_only));
    world.stop();
}

/// CVE-2020-28374 was this: a copy manager that looked its units up among all that the machine had.
#[test]
fn a_copy_to_a_unit_that_is_not_mapped_to_its_initiator_is_refused() {
    let target = |volume: &str, allowed: &str| {
        format!("[[target]]\nname = '{AUTHORITY}:{volume}'\nlun.0 = '{volume}'\nallow = [{allowed}]\n")
    };
    let both = format!("'{HOST}', '{OTHER}'");
    let targets = [target("one", &both), target("two", &both), target("secret", &format!("'{OTHER}'"))].concat();
    let world = World::new(&["one=ram:8M", "two=ram:8M", "secret=ram:8M"], &targets);
    let mut session = world.session(HOST, "one");
    let [mut two, mut secret] = ["two", "secret"].map(|volume| world.session(OTHER, volume));
    let (one, to, hidden) = (naa(&mut session), naa(&mut two), naa(&mut secret));
    write(&mut secret, &pattern(3, BYTES));
    assert_eq!(copy(&mut session, &one, &hidden), NOT_REACHABLE, "to it");
    assert_eq!(copy(&mut session, &hidden, &one), NOT_REACHABLE, "nor from it");
    assert!(read(&mut secret) == pattern(3, BYTES));
    assert_eq!(copy(&mut world.session(OTHER, "one"), &hidden, &to), None, "another initiator may");
    assert!(read(&mut two) == pattern(3, BYTES));
    drop((session, two, secret));
    world.stop();
}

#[test]
fn a_copy_meets_reservations_as_its_initiator_would() {
    let world = World::new(&["one=ram:8M", "two=ram:8M"], "");
    let (mut one, mut own) = (world.session(HOST, "one"), world.session(HOST, "two"));
    let (from, to) = (naa(&mut one), naa(&mut own));
    let mut other = world.session(OTHER, "two");
    other.good(&[0x16, 0, 0, 0, 0, 0], &[], 0);
    assert_eq!(copy(&mut one, &from, &to), THIRD_PARTY_FAILURE);
    other.good(&[0x17, 0, 0, 0, 0, 0], &[], 0);
    own.good(&[0x16, 0, 0, 0, 0, 0], &[], 0);
    assert_eq!(copy(&mut one, &from, &to), None, "reserved by the same initiator's session there");
    drop(own);
    // The server hears of it on another connection than the next commands'.
    let is_free = || other.command(&[0; 6], &[], 0).status == 0;
    wait_until("the reservation went with its session", TIMEOUT, is_free);
    assert_eq!(copy(&mut one, &from, &to), None, "nobody holds it");

    // PERSISTENT RESERVE OUT: REGISTER, RESERVE as write exclusive, registrants only.
    let out = |session: &mut Initiator, action: u8, kind: u8, [key, new_key]: [u8; 2]| {
        let mut list = [0; 24];
        (list[7], list[15]) = (key, new_key);
        session.good(&[0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], &list, 0);
    };
    out(&mut other, 0, 0, [0, 1]);
    out(&mut other, 1, 5, [1, 0]);
    assert_eq!(copy(&mut one, &from, &to), THIRD_PARTY_FAILURE);
    let mut own = world.session(HOST, "two");
    assert_eq!(copy(&mut one, &from, &to), THIRD_PARTY_FAILURE, "not registered");
    out(&mut own, 0, 0, [0, 2]);
    assert_eq!(copy(&mut one, &from, &to), None, "registered there");
    out(&mut other, 4, 5, [1, 2]);
    assert_eq!(copy(&mut one, &from, &to), THIRD_PARTY_FAILURE, "preempted");
    drop((one, own, other));
    world.stop();
}

/// A token of the first blocks of a unit (SBC-4 5.12).
fn token(session: &mut Initiator) -> Vec<u8> {
    let list = [&[0, 30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16][..], &FIRST_BLOCKS].concat();
    session.good(&[0x83, 0x10, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, list.len() as u8, 0, 0], &list, 0);
    let told = session.good(&[0x84, 0x07, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0], &[], 1024);
    assert_eq!((told.len(), &told[4..6], told[23]), (550, &[0x10, 1][..], BLOCKS));
    told[38..].to_vec()
}

const FIRST_BLOCKS: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, BLOCKS, 0, 0, 0, 0];

/// Writes it over the first blocks of another one (SBC-4 5.59).
fn write_token(session: &mut Initiator, token: &[u8]) -> Option<(u8, u8, u8)> {
    let mut list = vec![2, 0x26];
    list.resize(16, 0);
    list.extend(token);
    list.extend([0, 0, 0, 0, 0, 0, 0, 16]);
    list.extend(FIRST_BLOCKS);
    let cdb = [0x83, 0x11, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 2, 0x28, 0, 0];
    let answer = session.command(&cdb, &list, 0);
    assert_eq!(answer.status == 0, answer.sense.is_none(), "{answer:?}");
    answer.sense
}

#[test]
fn a_token_of_one_target_serves_its_initiator_at_another_and_nobody_else() {
    let target = |volume: &str, allowed: &str| {
        format!("[[target]]\nname = '{AUTHORITY}:{volume}'\nlun.0 = '{volume}'\nallow = [{allowed}]\n")
    };
    let both = format!("'{HOST}', '{OTHER}'");
    let targets = [target("one", &both), target("two", &both), target("secret", &format!("'{OTHER}'"))].concat();
    let world = World::new(&["one=ram:8M", "two=ram:8M", "secret=ram:8M"], &targets);
    let [mut one, mut two] = ["one", "two"].map(|volume| world.session(HOST, volume));
    let [mut others, mut secret] = ["two", "secret"].map(|volume| world.session(OTHER, volume));
    write(&mut one, &pattern(1, BYTES));
    let of_one = token(&mut one);
    assert_eq!(write_token(&mut two, &of_one), None);
    assert!(read(&mut two) == pattern(1, BYTES));
    write(&mut two, &pattern(2, BYTES));
    assert_eq!(write_token(&mut others, &of_one), UNKNOWN_TOKEN, "it was made for somebody else");
    write(&mut secret, &pattern(3, BYTES));
    let of_secret = token(&mut secret);
    assert_eq!(write_token(&mut two, &of_secret), TOKEN_FROM_ELSEWHERE, "its unit is not there for this host");
    assert!(read(&mut two) == pattern(2, BYTES), "nothing was written");
    assert_eq!(write_token(&mut others, &of_secret), None);
    assert!(read(&mut two) == pattern(3, BYTES));
    write(&mut one, &pattern(4, BYTES));
    assert_eq!(write_token(&mut two, &of_one), CANCELLED_TOKEN, "its data has changed");
    drop((one, two, others, secret));
    world.stop();
}

#[test]
fn a_copy_goes_to_and_from_a_derived_volume_as_that_allows() {
    let part = |name: &str, region: &str, more: &str, who: &str| {
        format!("{name}=dvd:disk,region={region}{more},principal=claimed:{who}")
    };
    let volumes = [
        "disk=ram:8M".to_owned(),
        part("both", "4M+64K", "", HOST),
        part("target", "5M+64K", ",allow-ops=read+write+copy-target", HOST),
        part("source", "6M+64K", ",allow-ops=read+write+copy-source", HOST),
        part("others", "7M+64K", "", OTHER),
    ];
    let world = World::new(&volumes.each_ref().map(String::as_str), "");
    let mut disk = world.session(HOST, "disk");
    let [mut both, mut target, mut source] = ["both", "target", "source"].map(|volume| world.session(HOST, volume));
    let mut others = world.session(OTHER, "others");
    let [of_disk, of_both, of_target, of_source, of_others] =
        [&mut disk, &mut both, &mut target, &mut source, &mut others].map(naa);
    write(&mut disk, &pattern(5, BYTES));
    assert_eq!(copy(&mut disk, &of_disk, &of_both), None, "from the parent");
    assert!(read(&mut both) == pattern(5, BYTES));
    assert_eq!(copy(&mut both, &of_both, &of_target), None, "from one to another");
    assert!(read(&mut target) == pattern(5, BYTES));
    write(&mut source, &pattern(6, BYTES));
    assert_eq!(copy(&mut disk, &of_target, &of_disk), NO_ACCESS, "it is no source");
    assert_eq!(copy(&mut disk, &of_disk, &of_source), NO_ACCESS, "it is no target");
    assert!(read(&mut disk) == pattern(5, BYTES) && read(&mut source) == pattern(6, BYTES), "nothing was copied");
    assert_eq!(copy(&mut disk, &of_source, &of_disk), None, "to the parent");
    assert!(read(&mut disk) == pattern(6, BYTES));
    write(&mut others, &pattern(7, BYTES));
    assert_eq!(copy(&mut disk, &of_others, &of_disk), NOT_REACHABLE, "by who is no principal");
    assert_eq!(copy(&mut disk, &of_disk, &of_others), NOT_REACHABLE);
    assert_eq!(copy(&mut both, &of_both, &of_others), NOT_REACHABLE);
    assert!(read(&mut others) == pattern(7, BYTES) && read(&mut disk) == pattern(6, BYTES), "nothing was copied");
    drop((disk, both, target, source, others));
    world.stop();
}

/// What has passed the wires of a front end, in bytes.
fn passed(socket: &Path, front: &str) -> u64 {
    let metrics = ctl_ok(socket, &["metrics"]);
    let is_of_front = |line: &&str| line.starts_with("sanwire_wire_bytes_total") && line.contains(front);
    let of_front = metrics.lines().filter(is_of_front);
    of_front.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
}

#[test]
fn a_copy_goes_to_a_derived_volume_of_another_server_and_not_through_its_initiator() {
    let far = Scratch::new();
    let copier = Client::new(&far, "copier");
    let port = port();
    let store = far.path("disk.img");
    let volumes = [
        format!("disk=file:{},size=16M", store.display()),
        format!("part=dvd:disk,region=4M+8M,principal=key:{}", copier.id()),
    ];
    let wire = format!("hs-ip:127.0.0.1:{port}");
    let control = ["--control".to_owned(), far.text("c.sock")];
    let mut behind = Server::start_on(&far, &[&wire], &volumes.each_ref().map(String::as_str), &control);
    // The key with which the copier is known there.
    let key = far.path("copier").join("sanwire/client.key");
    let away = format!("away=hs+ip://127.0.0.1:{port}/part,key-file={}", key.display());
    let world = World::new(&["disk=ram:8M", &away], "");
    let [mut disk, mut away] = ["disk", "away"].map(|volume| world.session(HOST, volume));
    let (from, to) = (naa(&mut disk), naa(&mut away));
    const LARGE: usize = 4 << 20;
    let content = pattern(9, LARGE);
    for (number, piece) in (0..).zip(content.chunks(64 << 10)) {
        let lba = (number * (64 << 10) / 512) as u32;
        let [a, b, c, d] = lba.to_be_bytes();
        disk.good(&[0x2a, 0, a, b, c, d, 0, 0, 128, 0], piece, 0);
    }
    let before = (passed(&world.scratch.path("c.sock"), "iscsi"), passed(&far.path("c.sock"), "hs-ip"));
    assert_eq!(copy_blocks(&mut disk, &from, &to, (LARGE / 512) as u16), None);
    let after = (passed(&world.scratch.path("c.sock"), "iscsi"), passed(&far.path("c.sock"), "hs-ip"));
    let (by_initiator, by_server) = (after.0 - before.0, after.1 - before.1);
    assert!(by_initiator < 64 << 10, "{by_initiator} bytes have passed the initiator's wire");
    assert!(by_server >= LARGE as u64, "{by_server} bytes have come to the other server");
    assert!(fs::read(&store).expect("the store")[4 << 20..][..LARGE] == content, "it is there");
    drop((disk, away));
    world.stop();
    assert!(behind.stop().success(), "{}", behind.log());
}
