//! What many volumes and many sessions take: memory for each, the time of a login, and that of adding and removing a volume beside
//! a load.

mod hyperscsi;
mod iscsi;
mod server;

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use self::hyperscsi::HyperScsiSession;
pub(crate) use self::iscsi::IscsiSession;
use self::server::Usage;
pub(crate) use self::server::{ScaleServer, TARGET};
use crate::random::Random;
use crate::report::{Found, Outcome};
use crate::run::Settings;
use crate::servers::{Files, check_interrupted};

pub(crate) const VOLUMES: usize = 10_000;

/// Sessions of iSCSI and of HyperSCSI, each of which is a handshake with exchanges of keys, and a session that is tended.
const SESSIONS: (u32, u32) = (1000, 200);
/// The same of a quick run.
const SESSIONS_QUICK: (u32, u32) = (40, 8);
/// Sessions that ask all volumes.
const CURIOUS: usize = 4;
/// Volumes that are added and removed.
const CHANGES: usize = 10;

const TEST_UNIT_READY: [u8; 6] = [0; 6];
pub(crate) const READ_BYTES: u32 = 4096;
pub(crate) const READ_10: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0];
/// REPORT LUNS for all there may be.
const REPORT_LUNS: [u8; 12] = [0xa0, 0, 0, 0, 0, 0, 0, 2, 0, 8, 0, 0];
const REPORT_LUNS_BYTES: u32 = 0x20008;

/// The targets.
const LOGIN_CPU_MS: f64 = 1.0;
const ADD_MS: f64 = 10.0;
const SESSION_KIB: f64 = 100.0;
const VOLUME_KIB: f64 = 8.0;
/// With all its volumes a server starts within a few seconds, and it takes them over as fast.
const START_S: f64 = 5.0;
/// What a monitoring system asks every few seconds.
const METRICS_MS: f64 = 200.0;

/// Once: what is counted is the sum of thousands.
///
/// # Errors
/// When the server does not come up, or does not do what it is asked.
pub(crate) fn measure(settings: &Settings, files: &Files) -> Result<Outcome> {
    let sanwire = &settings.programs[0];
    let mut found = Found::default();
    let small = ScaleServer::start(sanwire, files, 1)?;
    let empty = small.usage()?;
    let reload = small.reload(1 + VOLUMES)?;
    drop(small);
    let server = ScaleServer::start(sanwire, files, VOLUMES)?;
    let begun = server.usage()?;
    found.add("start with 10,000 volumes", server.start.as_secs_f64(), "s", Some(START_S));
    found.add("reload with 10,000 new volumes", reload.as_secs_f64(), "s", Some(START_S));
    found.add("memory of a volume", kib(empty, begun) / (VOLUMES - 1) as f64, "KiB", Some(VOLUME_KIB));
    check_interrupted(&settings.interrupted)?;
    let (iscsi, hyperscsi) = if settings.args.quick { SESSIONS_QUICK } else { SESSIONS };
    let mut sessions = log_in(&server, iscsi, &mut found)?;
    check_interrupted(&settings.interrupted)?;
    ask_all(&server, &mut sessions, &mut found)?;
    check_interrupted(&settings.interrupted)?;
    let mut connected = connect(&server, hyperscsi, &mut found)?;
    check_interrupted(&settings.interrupted)?;
    change(&server, &mut sessions, &mut connected, &mut found)?;
    list(sanwire, files, &server, &mut found)?;
    Ok(found.outcome("scale"))
}

fn log_in(server: &ScaleServer, count: u32, found: &mut Found) -> Result<Vec<IscsiSession>> {
    let (before, begun) = (server.usage()?, Instant::now());
    let sessions = (0..count).map(|number| IscsiSession::log_in(server.iscsi, TARGET, number));
    let mut sessions = sessions.collect::<Result<Vec<_>>>()?;
    let (took, after) = (begun.elapsed(), server.usage()?);
    let count = f64::from(count);
    found.add(
        "iSCSI login, processor time of the server",
        ms(after.cpu - before.cpu) / count,
        "ms",
        Some(LOGIN_CPU_MS),
    );
    found.add("iSCSI login", ms(took) / count, "ms", None);
    let first = |session: &mut IscsiSession| session.execute(0, &TEST_UNIT_READY, 0).map(drop);
    sessions.iter_mut().try_for_each(first)?;
    found.add("memory of an iSCSI session", kib(before, server.usage()?) / count, "KiB", Some(SESSION_KIB));
    Ok(sessions)
}

/// Some sessions list all units, and use each of them.
fn ask_all(server: &ScaleServer, sessions: &mut [IscsiSession], found: &mut Found) -> Result<()> {
    let before = server.usage()?;
    let curious = sessions.iter_mut().take(CURIOUS);
    let mut listing = Duration::ZERO;
    for session in curious {
        let begun = Instant::now();
        let (status, list) = session.execute(0, &REPORT_LUNS, REPORT_LUNS_BYTES)?;
        listing += begun.elapsed();
        ensure!(status == 0 && list.len() == 8 + 8 * VOLUMES, "REPORT LUNS gives {} bytes", list.len());
        for lun in 0..VOLUMES as u16 {
            while session.execute(lun, &TEST_UNIT_READY, 0)?.0 != 0 {}
        }
    }
    let after = server.usage()?;
    found.add("REPORT LUNS", ms(listing) / CURIOUS as f64, "ms", None);
    found.add(
        "memory of a session and a volume that it uses",
        1024.0 * kib(before, after) / (CURIOUS * VOLUMES) as f64,
        "bytes",
        None,
    );
    Ok(())
}

fn connect(server: &ScaleServer, count: u32, found: &mut Found) -> Result<Vec<HyperScsiSession>> {
    let (before, begun) = (server.usage()?, Instant::now());
    let mut random = Random::new(13);
    let mut sessions: Vec<HyperScsiSession> = Vec::new();
    for number in 0..count {
        sessions.push(HyperScsiSession::connect(server.hyperscsi, number, &mut random)?);
        sessions.iter_mut().try_for_each(HyperScsiSession::tend)?;
    }
    let (took, after) = (begun.elapsed(), server.usage()?);
    let count = f64::from(count);
    found.add(
        "HyperSCSI handshake, processor time of the server",
        ms(after.cpu - before.cpu) / count,
        "ms",
        Some(LOGIN_CPU_MS),
    );
    found.add("HyperSCSI handshake", ms(took) / count, "ms", None);
    sessions.iter_mut().try_for_each(|session| session.touch((VOLUMES - 1) as u16))?;
    found.add("memory of a HyperSCSI session", kib(before, server.usage()?) / count, "KiB", Some(SESSION_KIB));
    Ok(sessions)
}

/// Adds and removes volumes, while nothing else happens and while one session reads without end.
fn change(
    server: &ScaleServer,
    sessions: &mut Vec<IscsiSession>,
    connected: &mut [HyperScsiSession],
    found: &mut Found,
) -> Result<()> {
    let before = server.cpu_with_ended()?;
    change_all(server, "quiet", connected, found)?;
    let cpu = server.cpu_with_ended()? - before;
    found.add("adding and removing a volume, processor time", ms(cpu) / CHANGES as f64, "ms", None);
    let Some(mut reader) = sessions.pop() else { return Ok(()) };
    let (is_over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                reader.execute(1, &READ_10, READ_BYTES)?;
                reads.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
        let begun = Instant::now();
        let changed = change_all(server, "beside a reader", connected, found);
        let took = begun.elapsed();
        is_over.store(true, Ordering::Relaxed);
        let read = reading.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the reader has panicked")));
        found.add("reads meanwhile", reads.load(Ordering::Relaxed) as f64 / took.as_secs_f64(), "IOPS", None);
        changed.and(read)
    })
}

fn change_all(server: &ScaleServer, when: &str, connected: &mut [HyperScsiSession], found: &mut Found) -> Result<()> {
    let (mut adding, mut removing) = (Duration::ZERO, Duration::ZERO);
    for number in 0..CHANGES {
        let name = format!("new{number}");
        adding += server.add(&name)?;
        connected.iter_mut().try_for_each(HyperScsiSession::tend)?;
        removing += server.remove(&name)?;
        connected.iter_mut().try_for_each(HyperScsiSession::tend)?;
    }
    found.add(&format!("adding a volume, {when}"), ms(adding) / CHANGES as f64, "ms", Some(ADD_MS));
    found.add(&format!("removing a volume, {when}"), ms(removing) / CHANGES as f64, "ms", None);
    Ok(())
}

/// What people do: all volumes, one of them, and what the server says of itself.
fn list(sanwire: &str, files: &Files, server: &ScaleServer, found: &mut Found) -> Result<()> {
    let url = server.url();
    let key = files.path("client.key");
    for (what, arguments) in
        [("sanwire ls", vec!["ls", &url]), ("sanwire info of the last volume", vec!["info", &format!("{url}/v9999")])]
    {
        let begun = Instant::now();
        let output = Command::new(sanwire).args(arguments).args(["--key-file", &key]).output()?;
        ensure!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        found.add(what, begun.elapsed().as_secs_f64(), "s", None);
    }
    found.add("sanwire ctl status", ms(server.manage(&json!({ "do": "status" }))?), "ms", None);
    found.add("sanwire ctl statistics", ms(server.manage(&json!({ "do": "statistics" }))?), "ms", None);
    let before = server.usage()?;
    found.add("metrics of all volumes", ms(server.manage(&json!({ "do": "metrics" }))?), "ms", Some(METRICS_MS));
    found.add("metrics of all volumes, processor time", ms(server.usage()?.cpu - before.cpu), "ms", None);
    Ok(())
}

fn kib(before: Usage, after: Usage) -> f64 {
    (after.resident_bytes as f64 - before.resident_bytes as f64) / 1024.0
}

/// In milliseconds.
pub(crate) fn ms(duration: Duration) -> f64 {
    1000.0 * duration.as_secs_f64()
}
