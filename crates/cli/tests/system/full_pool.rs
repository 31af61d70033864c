//! Snapshots by layers in a pool without room: writes fail and say why, and nothing is lost of the volume or of its snapshot.

use std::path::PathBuf;
use std::time::Duration;

use crate::harness::{AUTHORITY, Initiator, Scratch, Server, Tmpfs, can_run, pattern, port, wait_until};
use crate::manage::{ctl, ctl_ok};

const TIMEOUT: Duration = Duration::from_secs(60);

const PAGE_BYTES: usize = 4096;
const PAGES: usize = 1024;
/// Blocks of 512 bytes.
const PAGE_BLOCKS: usize = 8;
const CHECK_CONDITION: u8 = 2;
/// DATA PROTECT, SPACE ALLOCATION FAILED WRITE PROTECT.
const NO_ROOM: (u8, u8, u8) = (0x07, 0x27, 0x07);

struct Bed {
    server: Server,
    pool: Tmpfs,
    socket: PathBuf,
    address: String,
    _scratch: Scratch,
}

impl Bed {
    fn new() -> Bed {
        let (scratch, port) = (Scratch::new(), port());
        let pool = Tmpfs::mount(&scratch.path("pool"), "24m");
        let socket = scratch.path("ctl.sock");
        let place = format!("p={},snapshots=layers", pool.0.display());
        let options = ["--allow", "any", "--control", &scratch.text("ctl.sock"), "--pool", &place].map(str::to_owned);
        let address = format!("127.0.0.1:{port}");
        let server = Server::start_on(&scratch, &[&format!("iscsi:{address}")], &["a=pool:p,size=4M"], &options);
        Bed { server, pool, socket, address, _scratch: scratch }
    }

    fn log_in(&self, volume: &str) -> Initiator {
        let target = format!("{AUTHORITY}:{volume}");
        Initiator::log_in(&self.address, "iqn.2026-11.org.example:host", &target, 1).expect("a session")
    }

    fn start_again(&mut self) {
        self.server.restart();
        wait_until("it serves again", TIMEOUT, || ctl(&self.socket, &["status"]).code == Some(0));
    }

    /// The volume has what was written, and its snapshot what there was before.
    #[track_caller]
    fn expect(&self, what: &str, seeds: &[u64], snapshot: &[u64]) {
        expect_pages(what, &mut self.log_in("a"), seeds);
        ctl_ok(&self.socket, &["add-volume", "old=pool:p/a@s,readonly"]);
        expect_pages(&format!("{what}, the snapshot"), &mut self.log_in("old"), snapshot);
        let is_removed = || ctl(&self.socket, &["remove-volume", "old"]).code == Some(0);
        wait_until("nobody uses it", TIMEOUT, is_removed);
    }
}

fn transfer(code: u8, page: usize) -> [u8; 10] {
    let [a, b, c, d] = ((page * PAGE_BLOCKS) as u32).to_be_bytes();
    [code, 0, a, b, c, d, 0, 0, PAGE_BLOCKS as u8, 0]
}

/// Whether there was room for it.
#[track_caller]
fn write(session: &mut Initiator, page: usize, seed: u64) -> bool {
    let answer = session.command(&transfer(0x2a, page), &pattern(seed, PAGE_BYTES), 0);
    if answer.status == 0 {
        return true;
    }
    assert_eq!((answer.status, answer.sense), (CHECK_CONDITION, Some(NO_ROOM)), "page {page}");
    false
}

fn flush(session: &mut Initiator) {
    session.good(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[], 0);
}

#[track_caller]
fn expect_pages(what: &str, session: &mut Initiator, seeds: &[u64]) {
    for (page, seed) in seeds.iter().enumerate() {
        let found = session.good(&transfer(0x28, page), &[], PAGE_BYTES as u32);
        assert!(found == pattern(*seed, PAGE_BYTES), "{what}: page {page} is not that of {seed}");
    }
}

#[test]
fn writes_without_room_above_a_snapshot_fail_and_nothing_is_lost() {
    if !can_run("writes_without_room_above_a_snapshot_fail_and_nothing_is_lost", &["mount"]) {
        return;
    }
    let mut bed = Bed::new();
    let before: Vec<u64> = (1..=PAGES as u64).collect();
    let mut session = bed.log_in("a");
    for (page, seed) in before.iter().enumerate() {
        assert!(write(&mut session, page, *seed));
    }
    ctl_ok(&bed.socket, &["snapshot", "a", "s"]);
    let mut seeds = before.clone();
    for page in (0..PAGES).step_by(16) {
        seeds[page] = 5000 + page as u64;
        assert!(write(&mut session, page, seeds[page]));
    }

    let filled = bed.pool.fill();
    let mut refused = 0;
    for page in (0..PAGES).step_by(3) {
        let seed = 7000 + page as u64;
        if write(&mut session, page, seed) { seeds[page] = seed } else { refused += 1 }
    }
    assert!(refused > PAGES / 6, "{refused} writes were refused");
    flush(&mut session);
    bed.expect("without room", &seeds, &before);
    bed.server.kill();
    bed.start_again();
    bed.expect("without room, after a kill", &seeds, &before);

    drop(filled);
    let mut session = bed.log_in("a");
    for (page, seed) in seeds.iter_mut().enumerate().filter(|(page, _)| page % 2 == 0) {
        *seed = 9000 + page as u64;
        assert!(write(&mut session, page, *seed), "there is room again");
    }
    bed.expect("with room again", &seeds, &before);
    assert!(bed.server.stop().success(), "{}", bed.server.log());
    bed.start_again();
    bed.expect("after a restart", &seeds, &before);
    wait_until("nobody uses it", TIMEOUT, || ctl(&bed.socket, &["delete-snapshot", "a@s"]).code == Some(0));
    expect_pages("without the snapshot", &mut bed.log_in("a"), &seeds);
    assert!(bed.server.stop().success(), "{}", bed.server.log());
}
