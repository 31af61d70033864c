//! What it costs to be managed: HTTP when nobody asks, a scrape of the metrics of 10,000 volumes, and what a reader loses beside
//! scrapes and beside a storm of requests.

mod http;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use self::http::HttpClient;
use crate::latency::Latencies;
use crate::report::{Found, Outcome};
use crate::run::Settings;
use crate::scale::{IscsiSession, READ_10, READ_BYTES, ScaleServer, TARGET, VOLUMES, ms};
use crate::servers::{Files, check_interrupted};

/// Volumes of the server that is stormed.
const FEW_VOLUMES: usize = 100;
/// Connections of a storm.
const STORM: usize = 4;
/// The niceness of those who ask: the greatest there is.
const LEAST: i32 = 19;
const METRICS: &str = "/metrics";
/// What a page with all volumes asks for.
const LIST: &str = "/api/v1/volumes?limit=100";
const SCRAPES: usize = 7;
/// A server that has just begun tidies up.
const SETTLE: Duration = Duration::from_secs(2);
/// Windows are alternated, so that the machine's drift meets both.
const WINDOWS: usize = 8;
const WINDOW: Duration = Duration::from_millis(1500);

/// The targets.
const IDLE_PERCENT: f64 = 0.005;
const IDLE_MIB: f64 = 20.0;
const SCRAPE_MS: f64 = 200.0;
const SCRAPE_P99: f64 = 1.01;
const STORM_P99: f64 = 1.2;

/// # Errors
/// When the server does not come up, or does not answer.
pub(crate) fn measure(settings: &Settings, files: &Files) -> Result<Outcome> {
    let sanwire = &settings.programs[0];
    let mut found = Found::default();
    let quiet = if settings.args.quick { Duration::from_secs(2) } else { Duration::from_secs(10) };
    idle(&ScaleServer::start(sanwire, files, 1)?, quiet, &mut found)?;
    check_interrupted(&settings.interrupted)?;
    let few = ScaleServer::start(sanwire, files, FEW_VOLUMES)?;
    let asking = |end| ask(&few, LIST, end);
    let machine = beside(&few, "programs that compute", STORM, &|end| Ok(compute(end)), None, &mut found)?;
    let storm = beside(&few, "a storm of requests", STORM, &asking, None, &mut found)?;
    // Whoever asks needs a processor here, which a reader notices whatever is asked.
    found.add("the storm, part of beside programs that compute", storm / machine, "", None);
    if few.part()? {
        in_thread(|| beside(&few, "a storm of requests, apart", STORM, &asking, Some(STORM_P99), &mut found))?;
    }
    drop(few);
    check_interrupted(&settings.interrupted)?;
    let many = ScaleServer::start(sanwire, files, VOLUMES)?;
    scrape(&many, &mut found)?;
    let one = beside(&many, "one program that computes", 1, &|end| Ok(compute(end)), None, &mut found)?;
    let scraping = |end| ask(&many, METRICS, end);
    let scrapes = beside(&many, "scrapes of 10,000 volumes", 1, &scraping, None, &mut found)?;
    found.add("scrapes, part of beside one program that computes", scrapes / one, "", None);
    if many.part()? {
        in_thread(|| beside(&many, "scrapes of 10,000 volumes, apart", 1, &scraping, Some(SCRAPE_P99), &mut found))?;
    }
    Ok(found.outcome("management"))
}

/// In a thread of its own, so that where it is put holds for nothing that comes after it.
fn in_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| scope.spawn(work).join()).map_err(|_| anyhow!("a thread that measures has panicked"))?
}

/// With a listener, and nobody who connects.
fn idle(server: &ScaleServer, quiet: Duration, found: &mut Found) -> Result<()> {
    thread::sleep(SETTLE);
    let before = server.usage()?;
    thread::sleep(quiet);
    let after = server.usage()?;
    let percent = 100.0 * (after.cpu - before.cpu).as_secs_f64() / quiet.as_secs_f64();
    found.add("processor time of an idle server with HTTP", percent, "%", Some(IDLE_PERCENT));
    found.add("memory of an idle server with HTTP", after.resident_bytes as f64 / 1048576.0, "MiB", Some(IDLE_MIB));
    Ok(())
}

fn scrape(server: &ScaleServer, found: &mut Found) -> Result<()> {
    let mut client = HttpClient::connect(&server.http)?;
    let mut times = Vec::new();
    let mut bytes = 0;
    let before = server.usage()?;
    for _ in 0..SCRAPES {
        let begun = Instant::now();
        bytes = client.get(METRICS)?.len();
        times.push(begun.elapsed());
    }
    let cpu = server.usage()?.cpu - before.cpu;
    times.sort_unstable();
    found.add("a scrape of 10,000 volumes", ms(times[SCRAPES / 2]), "ms", Some(SCRAPE_MS));
    found.add("a scrape of 10,000 volumes, processor time", ms(cpu) / SCRAPES as f64, "ms", None);
    found.add("a scrape of 10,000 volumes, length", bytes as f64 / 1048576.0, "MiB", None);
    Ok(())
}

/// A reader of 4 KiB, one at a time, alone and beside so many threads that do something until the end of a window. They give how
/// often they have done it. Gives the p99 beside them, as a part of that alone.
fn beside(
    server: &ScaleServer,
    what: &str,
    threads: usize,
    work: &(impl Fn(Instant) -> Result<u64> + Sync),
    bound: Option<f64>,
    found: &mut Found,
) -> Result<f64> {
    let mut reader = IscsiSession::log_in(server.iscsi, TARGET, 1)?;
    server.join_reader()?;
    while reader.execute(1, &READ_10, READ_BYTES)?.0 != 0 {}
    let (mut alone, mut accompanied) = (Vec::new(), Vec::new());
    let mut done = 0;
    // They are other hosts in fact, so they must not take the processor from the reader here.
    let work = |end| {
        server.join_askers()?;
        rustix::process::nice(LEAST)?;
        work(end)
    };
    for _ in 0..WINDOWS {
        alone.push(read(&mut reader)?);
        let end = Instant::now() + WINDOW;
        accompanied.push(thread::scope(|scope| {
            let working: Vec<_> = (0..threads).map(|_| scope.spawn(|| work(end))).collect();
            let latency = read(&mut reader);
            for one in working {
                done += one.join().map_err(|_| anyhow!("a client has panicked"))??;
            }
            latency
        })?);
    }
    let (alone, accompanied) = (median(alone), median(accompanied));
    found.add(&format!("p99 of a reader alone ({what})"), 1000.0 * ms(alone), "us", None);
    found.add(&format!("p99 of a reader beside {what}"), 1000.0 * ms(accompanied), "us", None);
    let rate = done as f64 / WINDOW.as_secs_f64() / WINDOWS as f64;
    found.add(&format!("done in a second ({what})"), rate, "/s", None);
    let ratio = accompanied.as_secs_f64() / alone.as_secs_f64();
    found.add(&format!("p99 beside {what}, part of alone"), ratio, "", bound);
    Ok(ratio)
}

/// The p99 of one window.
fn read(reader: &mut IscsiSession) -> Result<Duration> {
    let (end, mut latencies) = (Instant::now() + WINDOW, Latencies::default());
    let mut begun = Instant::now();
    while begun < end {
        let (status, data) = reader.execute(1, &READ_10, READ_BYTES)?;
        ensure!(status == 0 && data.len() == READ_BYTES as usize, "a read ends with status {status}");
        latencies.record(begun.elapsed());
        begun = Instant::now();
    }
    Ok(latencies.quantile(0.99))
}

/// Asks for this path again and again, and gives how often.
fn ask(server: &ScaleServer, path: &str, end: Instant) -> Result<u64> {
    let mut client = HttpClient::connect(&server.http)?;
    let mut count = 0;
    while Instant::now() < end {
        client.get(path)?;
        count += 1;
    }
    Ok(count)
}

/// Does nothing else than to keep a processor busy: what a reader loses beside that, it loses to the machine.
fn compute(end: Instant) -> u64 {
    let mut count = 0;
    while Instant::now() < end {
        count += 1;
    }
    count
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort_unstable();
    values[values.len() / 2]
}
