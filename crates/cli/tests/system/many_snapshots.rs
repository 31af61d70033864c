//! Hundreds of snapshots of one volume, taken while it is written: cloned and compared, listed, kept through a restart, deleted.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{
    AUTHORITY, Ends, Http, Initiator, Random, SERVER_ADDRESS, Server, Tmpfs, World, Xfs, can_run, pattern, stamp,
    wait_until,
};
use sanwire_testing::tell;

const TIMEOUT: Duration = Duration::from_secs(60);

const BLOCK_BYTES: usize = 4096;
const BLOCKS: u64 = 256;
const READ_10: u8 = 0x28;
const WRITE_10: u8 = 0x2a;

/// How many are taken where nobody waits for long.
const MANY: usize = 200;
/// How many of them are cloned and compared.
const COMPARED: usize = 5;
/// How many are left when the others are deleted.
const LEFT: usize = 3;

/// READ or WRITE of a block of [`BLOCK_BYTES`].
fn cdb(code: u8, block: u64) -> [u8; 10] {
    let [a, b, c, d] = (block as u32 * 8).to_be_bytes();
    [code, 0, a, b, c, d, 0, 0, 8, 0]
}

/// The block that a write of this number goes to.
fn place(number: u64) -> u64 {
    Random::new(number).below(BLOCKS)
}

/// What it writes there: its number, and bytes that no other write has; of no write zeroes.
fn content(number: u64) -> Vec<u8> {
    match number {
        0 => vec![0; BLOCK_BYTES],
        _ => [number.to_le_bytes().to_vec(), pattern(number, BLOCK_BYTES - 8)].concat(),
    }
}

/// What the volume holds after so many writes: the number of the last one of each block.
fn after(writes: u64) -> BTreeMap<u64, u64> {
    (1..=writes).map(|number| (place(number), number)).collect()
}

struct Bed<'a> {
    world: &'a World,
    server: Server,
    http: Http,
    /// The last write that was begun, and the last one that was answered.
    begun: AtomicU64,
    done: AtomicU64,
}

/// A snapshot, and the writes that were done before it was asked for and begun before it was there.
struct Taken {
    name: String,
    done: u64,
    begun: u64,
}

impl Bed<'_> {
    fn new<'a>(world: &'a World, pool: &str) -> Bed<'a> {
        let (control, http) = (world.scratch.text("ctl.sock"), format!("unix:{}", world.scratch.text("http.sock")));
        let portal = format!("iscsi:{SERVER_ADDRESS}");
        let options = ["--allow", "any", "--control", &control, "--http", &http, "--pool", pool, "--wire", &portal];
        let size = format!("a=pool:p,size={}", BLOCKS * BLOCK_BYTES as u64);
        let server = Server::start_alone(world, &[&size], &options);
        let http = Http(world.scratch.path("http.sock"));
        Bed { world, server, http, begun: AtomicU64::new(0), done: AtomicU64::new(0) }
    }

    fn log_in(&self, volume: &str) -> Initiator {
        let target = format!("{AUTHORITY}:{volume}");
        let log_in =
            || Initiator::log_in(&format!("{SERVER_ADDRESS}:3260"), "iqn.2026-11.org.example:host", &target, 1);
        self.world.as_client(log_in).expect("a session")
    }

    fn write(&self, ends: &AtomicBool) {
        let mut session = self.log_in("a");
        while !ends.load(Ordering::Relaxed) {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            session.good(&cdb(WRITE_10, place(number)), &content(number), 0);
            self.done.store(number, Ordering::SeqCst);
        }
    }

    /// Takes so many snapshots while the volume is written; gives how long each tenth of them took.
    fn take(&self, numbers: std::ops::Range<usize>, taken: &mut Vec<Taken>) -> Vec<Duration> {
        let ends = AtomicBool::new(false);
        let tenth = numbers.len().div_ceil(10);
        let mut times = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| self.write(&ends));
            let _ends = Ends(&ends);
            let mut since = Instant::now();
            for number in numbers {
                let (name, done) = (format!("s{number:04}"), self.done.load(Ordering::SeqCst));
                self.http.done("POST", "/volumes/a/snapshots", &json!({ "name": name }).to_string());
                taken.push(Taken { name, done, begun: self.begun.load(Ordering::SeqCst) });
                if taken.len().is_multiple_of(tenth) {
                    times.push(since.elapsed());
                    since = Instant::now();
                }
            }
        });
        times
    }

    /// All snapshots, page by page, and how long that took.
    fn list(&self) -> (Vec<String>, Duration) {
        let (mut names, mut after, begun) = (Vec::new(), String::new(), Instant::now());
        loop {
            let page = self.http.done("GET", &format!("/volumes/a/snapshots?limit=1000{after}"), "");
            let items = page["items"].as_array().expect("a list").iter();
            names.extend(items.map(|item| item["name"].as_str().expect("a name").to_owned()));
            match &page["next"] {
                Value::String(next) => after = format!("&after={}", next.replace(' ', "%20")),
                _ => return (names, begun.elapsed()),
            }
        }
    }

    /// Compares what a clone of a snapshot holds, byte for byte, with what the volume held at one moment while it was taken.
    fn compare(&self, Taken { name, done, begun }: &Taken) {
        self.http.done("POST", "/volumes", &json!({ "name": "c", "source": format!("a@{name}") }).to_string());
        let mut session = self.log_in("c");
        let blocks: Vec<Vec<u8>> =
            (0..BLOCKS).map(|block| session.good(&cdb(READ_10, block), &[], BLOCK_BYTES as u32)).collect();
        drop(session);
        // Which writes it has follows from the last of them.
        let last = blocks.iter().map(|block| stamp(block)).max().unwrap_or_default();
        assert!(
            (*done..=*begun).contains(&last),
            "{name} has write {last}, and not what was there from {done} to {begun}"
        );
        let expected = after(last);
        for (block, is) in (0..BLOCKS).zip(&blocks) {
            let should = expected.get(&block).copied().unwrap_or_default();
            assert!(*is == content(should), "{name}: block {block} is not that of write {should} of {last}");
        }
        wait_until("the clone is deleted", TIMEOUT, || {
            self.http.ask("DELETE", "/volumes/c?content=delete", "").0 < 300
        });
        wait_until("it is gone", TIMEOUT, || self.http.ask("GET", "/volumes/c", "").0 == 404);
    }
}

/// Some of them, the first and the last one too.
fn some<T>(all: &[T], count: usize) -> impl Iterator<Item = &T> {
    let last = all.len() - 1;
    (0..count).map(move |number| &all[number * last / (count - 1)])
}

/// Takes so many, with a restart in between; gives how long each tenth of either half took, and the longest list.
fn take_compare_and_delete(world: &World, pool: &str, count: usize) -> (Vec<Duration>, Duration) {
    let mut bed = Bed::new(world, pool);
    let mut taken = Vec::new();
    let mut times = bed.take(0..count / 2, &mut taken);
    assert!(bed.server.stop().success(), "{}", bed.server.log());
    bed.server.restart();
    bed.http.wait();
    times.extend(bed.take(count / 2..count, &mut taken));

    let (names, listing) = bed.list();
    assert!(names.iter().eq(taken.iter().map(|taken| &taken.name)), "{names:?}");
    let comparing = Instant::now();
    some(&taken, COMPARED).for_each(|taken| bed.compare(taken));
    let comparing = comparing.elapsed();

    let left: Vec<&Taken> = some(&taken, LEFT).collect();
    let deleting = Instant::now();
    for Taken { name, .. } in taken.iter().filter(|one| !left.iter().any(|left| left.name == one.name)) {
        bed.http.done("DELETE", &format!("/volumes/a/snapshots/{name}"), "");
    }
    tell(&format!(
        "{pool}: {count} snapshots: by tenths {times:.2?}, a list {listing:.2?}, comparing {comparing:.2?}, deletion {:.2?}",
        deleting.elapsed()
    ));
    assert!(bed.list().0.iter().eq(left.iter().map(|left| &left.name)));
    left.iter().for_each(|left| bed.compare(left));
    wait_until("nobody uses it", TIMEOUT, || {
        bed.http.ask("DELETE", "/volumes/a?content=delete&snapshots=true", "").0 < 300
    });
    wait_until("it is gone", TIMEOUT, || bed.http.ask("GET", "/volumes/a", "").0 == 404);
    assert!(bed.server.stop().success(), "{}", bed.server.log());
    (times, listing)
}

/// Nothing is left of volumes, snapshots and layers in a pool.
fn expect_empty(world: &World) {
    let names = |directory: &str| -> Vec<_> {
        let entries = fs::read_dir(world.scratch.path(directory)).into_iter().flatten();
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    };
    let left: Vec<_> = names("pool").into_iter().filter(|name| !name.starts_with(".sanwire")).collect();
    assert!(
        left.is_empty() && names("pool/.sanwire-layers").is_empty(),
        "{left:?} {:?}",
        names("pool/.sanwire-layers")
    );
}

/// What the pools' file systems may hold, in MiB, with so many snapshots, between two of which the whole volume may be written. They are in memory,
/// since each step of a snapshot is made stable, and the disk of this machine is not what is tested.
fn size_mib(count: usize) -> u64 {
    300 + 2 * count as u64
}

/// So many of a pool whose snapshots are layers; `None`: this machine cannot.
pub fn by_layers(test: &str, count: usize) -> Option<(Vec<Duration>, Duration)> {
    let world = World::new(test, 9000, &["mount"])?;
    let memory = Tmpfs::mount(&world.scratch.path("pool"), &format!("{}m", size_mib(count)));
    let taken = take_compare_and_delete(&world, &format!("p={},snapshots=layers", memory.0.display()), count);
    expect_empty(&world);
    Some(taken)
}

/// The same of one whose file system shares blocks.
pub fn by_reflink(test: &str, count: usize) -> Option<(Vec<Duration>, Duration)> {
    if !can_run(test, &Xfs::TOOLS) {
        return None;
    }
    let world = World::new(test, 9000, &[])?;
    let memory = Tmpfs::mount(&world.scratch.path("memory"), &format!("{}m", size_mib(count) + 100));
    let xfs = Xfs::in_file(&world, &memory.0.join("xfs.img"), size_mib(count));
    let taken = take_compare_and_delete(&world, &format!("p={}", xfs.0.display()), count);
    expect_empty(&world);
    Some(taken)
}

#[test]
fn many_snapshots_by_layers_of_a_volume_that_is_written_hold_what_was_there() {
    by_layers("many_snapshots_by_layers_of_a_volume_that_is_written_hold_what_was_there", MANY);
}

#[test]
fn many_snapshots_by_reflink_of_a_volume_that_is_written_hold_what_was_there() {
    by_reflink("many_snapshots_by_reflink_of_a_volume_that_is_written_hold_what_was_there", MANY);
}
