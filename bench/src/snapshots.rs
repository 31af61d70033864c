//! What snapshots cost: of a volume of 1 TiB on XFS while it is written, and reads through our own layers.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde_json::json;

use crate::link::call;
use crate::mounted::{Device, Mounted};
use crate::random::Random;
use crate::report::{Found, Outcome};
use crate::run::Settings;
use crate::scale::{IscsiSession, ScaleServer, TARGET, ms};
use crate::servers::{Files, check_interrupted, fill};

const BLOCK_BYTES: u64 = 512;
/// The volume of which snapshots are taken. Its blocks are allocated; few of them are written, so that this takes no disk of that size.
const BIG_BYTES: u64 = 1 << 40;
/// Blocks of it that are written, before and while snapshots are taken. Each makes two more extents of the file, and the kernel shares a
/// file extent by extent: what that takes is measured beside the snapshots.
const WRITTEN: usize = 2000;
/// The same of a second one, of which next to nothing is written: what a snapshot takes that shares few extents.
const LITTLE_WRITTEN: usize = 64;
const SNAPSHOTS: usize = 9;
/// The volumes that are read, and what of one is written between two snapshots of it.
const READ_VOLUME_BYTES: u64 = 256 << 20;
const CHANGED_PERCENT: u64 = 5;
const READ_10: u8 = 0x28;
const WRITE_10: u8 = 0x2a;
const READ_BYTES: u32 = 64 << 10;
const WRITE_BYTES: usize = 4096;
const WINDOWS: usize = 8;
const WINDOW: Duration = Duration::from_millis(1000);
/// LUNs. The one that is busy is written here and there, 4 KiB at a time, while snapshots of it are taken.
const BIG: u16 = 0;
const PLAIN: u16 = 1;
const LAYERED: u16 = 2;
const BUSY: u16 = 3;
const FRESH: u16 = 4;
/// Of the places that are written in the big volumes.
const SEED: u64 = 7;

/// The targets.
const SNAPSHOT_MS: f64 = 100.0;
const PAUSE_MS: f64 = 50.0;
/// Nine tenths of the speed.
const READ_TIME: f64 = 1.0 / 0.9;

/// # Errors
/// When there is no XFS with 3 TiB to be had in a file of `--disk`, or the server refuses something.
pub(crate) fn measure(settings: &Settings, files: &Files) -> Result<Outcome> {
    let disk = SparseDisk::new(&settings.args.disk, 3 * BIG_BYTES)?;
    call("mkfs.xfs", &["-q", "-m", "reflink=1", &disk.path])?;
    let mounted = Mounted::new(Device::over(&disk.path)?, &files.path("xfs"))?;
    let directories = ["shared", "plain", "layers"].map(|name| format!("{}/{name}", mounted.directory));
    for directory in &directories {
        fs::create_dir(directory)?;
    }
    make_big(&format!("{}/big.img", directories[0]), WRITTEN)?;
    make_big(&format!("{}/fresh.img", directories[0]), LITTLE_WRITTEN)?;
    for (directory, name) in [(1, "plain"), (2, "layered"), (2, "busy")] {
        fill(&format!("{}/{name}.img", directories[directory]), READ_VOLUME_BYTES)?;
    }
    let server = ScaleServer::start_with(&settings.programs[0], files, "snapshots", |head| {
        let mut text = head.to_owned();
        for (name, directory) in ["shared", "plain", "layers"].iter().zip(&directories) {
            let way = if *name == "layers" { "layers" } else { "auto" };
            write!(text, "[[pool]]\nname = \"{name}\"\ndirectory = \"{directory}\"\nsnapshots = \"{way}\"\n")?;
        }
        let volumes =
            [("big", "shared"), ("plain", "plain"), ("layered", "layers"), ("busy", "layers"), ("fresh", "shared")];
        for (name, pool) in volumes {
            write!(text, "[[volume]]\nname = \"{name}\"\nstore = \"pool:{pool}\"\n")?;
        }
        write!(text, "[[target]]\nname = \"{TARGET}\"\n[target.lun]\n")?;
        for (lun, (name, _)) in volumes.iter().enumerate() {
            writeln!(text, "{lun} = \"{name}\"")?;
        }
        Ok(text)
    })?;
    let mut found = Found::default();
    let taken = take(&server, "big", BIG, "by reflink, 1 TiB", Some(SNAPSHOT_MS), &mut found)?;
    let bare = share(&format!("{}/big.img", directories[0]))?;
    found.add("sharing that file, without Sanwire", ms(bare), "ms", None);
    found.add("a snapshot by reflink, part of sharing the file", taken.as_secs_f64() / bare.as_secs_f64(), "", None);
    take(&server, "fresh", FRESH, "by reflink, 1 TiB, little written", Some(SNAPSHOT_MS), &mut found)?;
    check_interrupted(&settings.interrupted)?;
    take(&server, "busy", BUSY, "by layers", None, &mut found)?;
    check_interrupted(&settings.interrupted)?;
    read(&server, &mut found)?;
    drop(server);
    Ok(found.outcome("snapshots"))
}

/// A file in which a file system is made, gone with the value.
struct SparseDisk {
    path: String,
}

impl SparseDisk {
    fn new(directory: &std::path::Path, bytes: u64) -> Result<Self> {
        let path = directory.join(format!("sanwire-bench-{}.xfs", std::process::id()));
        let disk = SparseDisk { path: path.display().to_string() };
        File::create(&disk.path)?.set_len(bytes)?;
        Ok(disk)
    }
}

impl Drop for SparseDisk {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            eprintln!("sanwire-bench: {}: {error}", self.path);
        }
    }
}

/// The content of a big volume, of which so many blocks are written.
fn make_big(path: &str, written: usize) -> Result<()> {
    call("fallocate", &["--length", &BIG_BYTES.to_string(), path])?;
    let file = File::options().write(true).open(path)?;
    for place in places_of_big(written) {
        file.write_all_at(&[1; WRITE_BYTES], place)?;
    }
    Ok(file.sync_all()?)
}

/// Where it is written.
fn places_of_big(written: usize) -> Vec<u64> {
    let mut random = Random::new(SEED);
    (0..written).map(|_| random.below(BIG_BYTES / WRITE_BYTES as u64) * WRITE_BYTES as u64).collect()
}

/// How long the kernel takes to make a file that shares all blocks of this one, and to make that stable: the middle of several.
fn share(path: &str) -> Result<Duration> {
    let of = File::open(path)?;
    let mut times = Vec::new();
    for number in 0..SNAPSHOTS {
        let shared = format!("{path}.{number}");
        let file = File::create_new(&shared)?;
        let begun = Instant::now();
        rustix::fs::ioctl_ficlone(&file, &of)?;
        file.sync_all()?;
        times.push(begun.elapsed());
        fs::remove_file(&shared)?;
    }
    times.sort_unstable();
    Ok(times[SNAPSHOTS / 2])
}

/// Takes snapshots of a volume that is written meanwhile, here and there, one block at a time. Gives how long one takes.
fn take(
    server: &ScaleServer,
    volume: &str,
    lun: u16,
    how: &str,
    bound: Option<f64>,
    found: &mut Found,
) -> Result<Duration> {
    let places = match lun {
        BIG => places_of_big(WRITTEN),
        FRESH => places_of_big(LITTLE_WRITTEN),
        _ => (0..READ_VOLUME_BYTES).step_by(WRITE_BYTES).collect(),
    };
    let mut session = ready(server, lun)?;
    let is_over = AtomicBool::new(false);
    let (mut took, writes) = thread::scope(|scope| {
        let writer = scope.spawn(|| write_on(&mut session, lun, &places, &is_over));
        let taken: Result<Vec<_>> = (0..SNAPSHOTS).map(|number| one(server, volume, number)).collect();
        is_over.store(true, Ordering::Relaxed);
        let writes = writer.join().map_err(|_| anyhow!("the writer has panicked"))??;
        Ok::<_, anyhow::Error>((taken?, writes))
    })?;
    // The longest write that was under way during a snapshot is how long that has stopped them.
    let pause = |begun: Instant, length: Duration| {
        let during = writes.iter().filter(|(from, took)| *from < begun + length && *from + *took > begun);
        during.map(|(_, took)| *took).max().unwrap_or_default()
    };
    let mut pauses: Vec<_> = took.iter().map(|(begun, length)| pause(*begun, *length)).collect();
    pauses.sort_unstable();
    took.sort_unstable_by_key(|(_, length)| *length);
    let middle = SNAPSHOTS / 2;
    found.add(&format!("a snapshot {how}"), ms(took[middle].1), "ms", bound);
    found.add(&format!("the longest write during a snapshot {how}"), ms(pauses[middle]), "ms", Some(PAUSE_MS));
    found.add(&format!("the longest write during any of {SNAPSHOTS} {how}"), ms(pauses[SNAPSHOTS - 1]), "ms", None);
    Ok(took[middle].1)
}

/// A session that has been told of whatever there was to tell. A further one for the same volume takes its place.
fn ready(server: &ScaleServer, lun: u16) -> Result<IscsiSession> {
    let mut session = IscsiSession::log_in(server.iscsi, TARGET, 1 + u32::from(lun))?;
    let read = command(READ_10, 0, 1);
    while session.execute(lun, &read, BLOCK_BYTES as u32)?.0 != 0 {}
    Ok(session)
}

/// One snapshot: when it was asked for, and how long the answer took.
fn one(server: &ScaleServer, volume: &str, number: usize) -> Result<(Instant, Duration)> {
    thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    let took = server.manage(&json!({ "do": "snapshot", "volumes": [volume], "name": format!("s{number}") }))?;
    Ok((begun, took))
}

/// Writes until it is told to end; when each write began, and how long it took.
fn write_on(
    session: &mut IscsiSession,
    lun: u16,
    places: &[u64],
    is_over: &AtomicBool,
) -> Result<Vec<(Instant, Duration)>> {
    let (mut random, mut writes) = (Random::new(11), Vec::new());
    let data = [2; WRITE_BYTES];
    while !is_over.load(Ordering::Relaxed) {
        let place = places[random.below(places.len() as u64) as usize];
        let begun = Instant::now();
        let status = session.write(lun, &command(WRITE_10, place, WRITE_BYTES as u64), &data)?;
        ensure!(status == 0, "a write ends with status {status}");
        writes.push((begun, begun.elapsed()));
    }
    Ok(writes)
}

/// Reads at random places of a volume without snapshots, and of one whose blocks lie in as many layers as there are snapshots, in turn.
fn read(server: &ScaleServer, found: &mut Found) -> Result<()> {
    let mut session = ready(server, LAYERED)?;
    ready(server, PLAIN)?;
    let mut random = Random::new(5);
    let pieces = READ_VOLUME_BYTES / u64::from(READ_BYTES);
    for number in 0..SNAPSHOTS {
        for _ in 0..pieces * CHANGED_PERCENT / 100 {
            let place = random.below(pieces) * u64::from(READ_BYTES);
            let write = command(WRITE_10, place, u64::from(READ_BYTES));
            let status = session.write(LAYERED, &write, &[3; READ_BYTES as usize])?;
            ensure!(status == 0, "a write ends with status {status}");
        }
        server.manage(&json!({ "do": "snapshot", "volumes": ["layered"], "name": format!("r{number}") }))?;
    }
    let mut times = [Vec::new(), Vec::new()];
    let mut plain = ready(server, PLAIN)?;
    for _ in 0..WINDOWS {
        times[0].push(time_of_read(&mut plain, PLAIN, &mut random)?);
        times[1].push(time_of_read(&mut session, LAYERED, &mut random)?);
    }
    let [plain, layered] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[WINDOWS / 2]
    });
    found.add("a read of 64 KiB without layers", plain, "us", None);
    found.add("a read of 64 KiB through layers", layered, "us", None);
    found.add("a read through layers, part of one without", layered / plain, "", Some(READ_TIME));
    Ok(())
}

/// The mean time of a read in a window, in microseconds.
fn time_of_read(session: &mut IscsiSession, lun: u16, random: &mut Random) -> Result<f64> {
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < WINDOW {
        let place = random.below(READ_VOLUME_BYTES / u64::from(READ_BYTES)) * u64::from(READ_BYTES);
        let (status, data) = session.execute(lun, &command(READ_10, place, u64::from(READ_BYTES)), READ_BYTES)?;
        ensure!(status == 0 && data.len() == READ_BYTES as usize, "a read ends with status {status}");
        count += 1;
    }
    Ok(1e6 * begun.elapsed().as_secs_f64() / f64::from(count))
}

/// READ (10) or WRITE (10) of so many bytes at this place.
fn command(code: u8, place_bytes: u64, bytes: u64) -> [u8; 10] {
    let (lba, blocks) = ((place_bytes / BLOCK_BYTES) as u32, (bytes / BLOCK_BYTES) as u16);
    let ([a, b, c, d], [high, low]) = (lba.to_be_bytes(), blocks.to_be_bytes());
    [code, 0, a, b, c, d, 0, high, low, 0]
}
