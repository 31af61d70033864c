//! Ten thousand volumes that are derived from one disk: how long it takes to derive each, and whether reads notice the others.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::load::{ClientCommand, Load, read_sanwire, sanwire_bench};
use crate::report::{Found, Section};
use crate::run::Settings;
use crate::scale::{ScaleServer, ms};
use crate::servers::{Files, check_interrupted, state_directory};

use super::DISK;

const VOLUMES: usize = 10_000;
const VOLUMES_QUICK: usize = 300;
/// Those of which the time is told besides that of all.
const SOME: usize = 100;
/// So many are derived by one request.
const LISTED: usize = 1000;
const LISTED_QUICK: usize = 100;
/// No more are derived after this.
const TIME_MAX: Duration = Duration::from_secs(120);
const LOAD: Load = Load::random_read(4096, 32);
/// Each begins somewhere else.
const STEP_KIB: usize = 16;

/// The target.
const CREATION_MS: f64 = 1.0;

const TITLE: &str = "many volumes derived from one disk";

/// # Errors
/// When a server does not come up, or refuses something.
pub(super) fn measure(settings: &Settings, files: &Files) -> Result<(Section, Value)> {
    if !settings.is_named(TITLE) {
        return Ok((Section::default(), Value::Null));
    }
    let sanwire = &settings.programs[0];
    let mut found = Found::default();
    // What is derived is kept before the answer: in memory that costs no time, on a disk it does.
    let on_disk = StateDirectory::new(settings)?;
    let server = start(sanwire, files, "derived-disk", Some(&on_disk))?;
    let took = mean(&create(&server, 0..SOME)?);
    found.add(&format!("each of the first {SOME}, kept on the disk"), ms(took), "ms", Some(CREATION_MS));
    let listed = if settings.args.quick { LISTED_QUICK } else { LISTED };
    let took = server.manage(&list(SOME..SOME + listed))?;
    found.add(
        &format!("each of {listed} by one request, kept on the disk"),
        ms(took / listed as u32),
        "ms",
        Some(CREATION_MS),
    );
    drop(server);
    let server = start(sanwire, files, "derived-list", None)?;
    let took = server.manage(&list(0..listed))?;
    found.add(&format!("each of {listed} by one request, kept in memory"), ms(took / listed as u32), "ms", None);
    drop(server);
    let few = start(sanwire, files, "derived-few", None)?;
    create(&few, 0..1)?;
    let many = start(sanwire, files, "derived-many", None)?;
    let before = many.usage()?;
    let mut took = vec![];
    let wanted = if settings.args.quick { VOLUMES_QUICK } else { VOLUMES };
    let begun = Instant::now();
    while took.len() < wanted && begun.elapsed() < TIME_MAX {
        check_interrupted(&settings.interrupted)?;
        took.extend(create(&many, took.len()..(took.len() + SOME).min(wanted))?);
    }
    let count = took.len();
    found.add("volumes derived from one disk", count as f64, "", None);
    found.add(&format!("each of the first {SOME}, kept in memory"), ms(mean(&took[..SOME])), "ms", None);
    found.add(&format!("each of the last {SOME}, kept in memory"), ms(mean(&took[count - SOME..])), "ms", None);
    found.add("each of all, kept in memory", ms(mean(&took)), "ms", Some(CREATION_MS));
    let kib = (many.usage()?.resident_bytes as f64 - before.resident_bytes as f64) / 1024.0;
    found.add("memory of a derived volume", kib / count as f64, "KiB", None);
    read_beside(settings, files, [&few, &many], count, &mut found)?;
    Ok(found.section(TITLE))
}

/// Reads of the same volumes with one derived volume and with all of them, in turns: the disk, and what was derived first.
fn read_beside(
    settings: &Settings,
    files: &Files,
    [few, many]: [&ScaleServer; 2],
    count: usize,
    found: &mut Found,
) -> Result<()> {
    for (what, volume) in [("the disk", DISK), ("a derived volume", "d0")] {
        let key = files.path("client.key");
        let client = |server: &ScaleServer| {
            let url = format!("{}/{volume}", server.url());
            sanwire_bench(&settings.programs[0], &LOAD, settings.seconds, &url, &key, "")
        };
        let (mut ratios, mut noises, mut speeds) = (vec![], vec![], vec![]);
        for _ in 0..settings.rounds * 2 {
            check_interrupted(&settings.interrupted)?;
            let [one, all, again] = [few, many, few].map(|server| iops(&client(server)));
            let (one, all, again) = (one?, all?, again?);
            // The machine's drift is that between the two.
            ratios.push((one + again) / 2.0 / all);
            noises.push((one / again - 1.0).abs());
            speeds.push(all);
        }
        let [ratio, noise, speed] = [ratios, noises, speeds].map(middle);
        found.add(&format!("reads of {what} beside {count} derived volumes"), speed, "IOPS", None);
        found.add(
            &format!("a read of {what} beside {count} derived volumes, times beside one; within noise"),
            ratio,
            "",
            Some(1.0 + noise),
        );
    }
    Ok(())
}

fn iops((program, arguments): &ClientCommand) -> Result<f64> {
    let output = Command::new(program).args(arguments).env("XDG_STATE_HOME", state_directory()).output()?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    let (_, sample) = read_sanwire(&String::from_utf8_lossy(&output.stdout))?;
    Ok(sample.iops.unwrap_or_default())
}

/// Derives those with these numbers, one after the other.
fn create(server: &ScaleServer, numbers: std::ops::Range<usize>) -> Result<Vec<Duration>> {
    let request = |number| {
        let mut request = volume(number);
        request["do"] = "create-dvd".into();
        request
    };
    numbers.map(|number| server.manage(&request(number))).collect()
}

/// The volume with this number.
fn volume(number: usize) -> Value {
    json!({
        "parent": DISK, "name": format!("d{number}"),
        "regions": [format!("{}K+64M", number * STEP_KIB)], "principals": ["any"],
    })
}

/// A request for those with these numbers together.
fn list(numbers: std::ops::Range<usize>) -> Value {
    json!({ "do": "create-dvds", "dvds": numbers.map(volume).collect::<Vec<_>>() })
}

fn start(sanwire: &str, files: &Files, name: &str, state: Option<&StateDirectory>) -> Result<ScaleServer> {
    ScaleServer::start_with(sanwire, files, name, |head| {
        let mut text = String::new();
        for line in head.lines() {
            match state {
                Some(StateDirectory(path)) if line.starts_with("state-directory") => {
                    writeln!(text, "state-directory = \"{}\"", path.display())?;
                }
                _ => writeln!(text, "{line}")?,
            }
        }
        write!(text, "[[volume]]\nname = \"{DISK}\"\nstore = \"ram:256M\"\n")?;
        Ok(text)
    })
}

fn mean(times: &[Duration]) -> Duration {
    times.iter().sum::<Duration>() / times.len().max(1) as u32
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// A directory on the local disk, gone with the value.
struct StateDirectory(PathBuf);

impl StateDirectory {
    fn new(settings: &Settings) -> Result<Self> {
        let path = settings.args.disk.join(format!("sanwire-bench-{}.state", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(StateDirectory(path))
    }
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("sanwire-bench: {}: {error}", self.0.display());
        }
    }
}
