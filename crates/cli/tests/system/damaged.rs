//! Every file that a server keeps, damaged in every way: the server refuses to start and says which file it is and what to do, or it warns
//! of it and goes on. Nothing that was there is lost unasked.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Process, World, pattern, run_ok};
use crate::state_sample::{Places, SAMPLES, TOOLS, files, kind};

const TIMEOUT: Duration = Duration::from_secs(90);

/// What is done to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Damage {
    Empty,
    Cut,
    Garbage,
    /// As a newer program would have written it, which says so.
    Newer,
    /// A directory stands in its place.
    Directory,
}

use Damage::{Cut, Directory, Empty, Garbage, Newer};

const DAMAGES: [Damage; 5] = [Empty, Cut, Garbage, Newer, Directory];

/// What becomes of a server that finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// It does not start, and says this with the name of the file.
    Refused(&'static str),
    /// It starts, and says this with the name of the file.
    Warned(&'static str),
    /// It starts: nothing depends on it, and it stays as it is.
    Served,
}

use End::{Refused, Served, Warned};

/// The kinds of files, with what becomes of each; `None` for another kind. Numbers in names are `*`.
fn end_of(kind: &str, damage: Damage) -> Option<End> {
    Some(match (kind, damage) {
        ("server.key", Directory) => Refused("is a directory, and no key file"),
        ("server.key", Newer) => Served,
        ("server.key", _) => Refused("is no key file"),
        // Lines are added to it, whatever stands there.
        ("audit-box.jsonl", Directory) => Warned("the audit log, cannot be written"),
        ("audit-box.jsonl" | "changes-box.json.old" | "clients-box.json.old", _) => Served,
        ("http-box.pem", Newer) => Served,
        ("http-box.pem", _) => Refused("another one with another fingerprint is made"),
        ("http-box.json", Newer) => Refused("were written by a newer version of Sanwire"),
        ("http-box.json", Directory) => Refused("cannot read the accounts"),
        ("http-box.json", _) => Refused("are damaged"),
        ("reservations/*", Newer) => Refused("newer version of Sanwire"),
        ("reservations/*", Directory) => Refused("cannot be read"),
        ("reservations/*", _) => Refused("restore the file, or remove it if no initiator relies on them"),
        ("volumes/*.json", Newer) => Refused("a newer version of Sanwire wrote it"),
        ("volumes/*.json", _) => Refused("cannot be read"),
        ("writes/*.json", Newer) => Refused("written by a newer version of Sanwire"),
        ("writes/*.json", _) => Warned("may be lost"),
        // A tenure is nothing but numbers.
        ("tenures/*", Newer | Garbage) => Served,
        ("tenures/*", _) => Warned("until it is replaced"),
        // Without its program nobody may use the volume: it is not served, and all others are.
        ("programs-box.d/*.state", Newer) => Served,
        ("programs-box.d/*.state", Directory) => Warned("cannot be read"),
        ("programs-box.d/*.state", _) => Warned("is no state of a program, or damaged"),
        (SENT_MODULE, Newer) => Served,
        (SENT_MODULE, Directory) => Warned("it is no regular file"),
        (SENT_MODULE, _) => Warned("is not served"),
        (_, Newer) if is_kept_as_state(kind) => Refused("written by a newer version of Sanwire"),
        (_, Directory) if is_kept_as_state(kind) => Refused("cannot be read"),
        _ if is_kept_as_state(kind) => Refused("is damaged"),
        _ => return None,
    })
}

fn is_kept_as_state(kind: &str) -> bool {
    let kinds = ["changes", "clients", "aoe", "aoe-settings", "hdsp", "pools", "uses"];
    kinds.iter().any(|name| kind == format!("{name}-box.json")) || kind == POOL
}

/// What a pool keeps of itself, in its directory.
const POOL: &str = ".sanwire-pool.json";

/// The module of a volume that was derived by who has sent it.
const SENT_MODULE: &str = "programs-box.d/sent.wasm";

/// Damages a file; gives whether it is another one now.
fn damage(path: &Path, damage: Damage) -> bool {
    let content = fs::read(path).expect("a file");
    let damaged = match damage {
        Empty => Vec::new(),
        Cut => content[..content.len() / 2].to_vec(),
        Garbage => pattern(9, content.len()),
        Newer => newer(&content),
        Directory => {
            fs::remove_file(path).and_then(|()| fs::create_dir(path)).expect("a directory");
            return true;
        }
    };
    fs::write(path, &damaged).expect("it is damaged");
    damaged != content
}

/// The same content as a newer program would write it, where it says by which one it was written.
fn newer(content: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(content);
    for (version, newer) in [
        ("{\"sanwire\":1", "{\"sanwire\":99"),
        ("{\"sanwire\":2", "{\"sanwire\":99"),
        ("\"version\": 1", "\"version\": 99"),
    ] {
        if text.contains(version) {
            return text.replacen(version, newer, 1).into_bytes();
        }
    }
    content.to_vec()
}

/// A start of the server: what it says until it serves or ends, and whether it serves.
fn start(places: &Places<'_>, log: &Path) -> (String, bool) {
    let _ = fs::remove_file(log);
    let mut command: Command = places.0.on_server(env!("CARGO_BIN_EXE_sanwire"));
    command.args(["serve", "--name", "box"]).args(places.options()).env_remove("SANWIRE_LOG");
    for volume in places.volumes() {
        command.args(["--volume", &volume]);
    }
    let mut server = Process::spawn("server", command, log.to_owned());
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let (said, is_alive) = (server.log(), server.is_alive());
        // What it says last stands behind the wires.
        if said.contains("HTTP API at https") || !is_alive {
            let said = server.log();
            if is_alive {
                server.signal(rustix::process::Signal::TERM);
                server.wait(TIMEOUT);
            }
            return (said, is_alive);
        }
        assert!(Instant::now() < deadline, "it neither serves nor ends:\n{said}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a path holds: a file's bytes, or that it is a directory.
fn holds(path: &Path) -> Option<Vec<u8>> {
    if path.is_dir() { Some(b"a directory".to_vec()) } else { fs::read(path).ok() }
}

/// What is wrong with what became of a damaged file.
fn judge(places: &Places<'_>, path: &Path, end: End) -> Option<String> {
    let before = holds(path).expect("it is there");
    let (said, is_served) = start(places, &places.0.scratch.path("damaged.log"));
    let shown = path.display().to_string();
    let tells = |part: &str| said.lines().any(|line| line.contains(&shown) && line.contains(part));
    let is_right = match end {
        Refused(part) => !is_served && tells(part),
        Warned(part) => is_served && tells(part),
        Served => is_served,
    };
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    // What is added to is not another one.
    let is_there = |place: &Path| holds(place).is_some_and(|now| now.starts_with(&before));
    let is_kept = is_there(path) || matches!(end, Warned(_)) && is_there(Path::new(&aside));
    let is_panic = said.contains("panicked");
    (!is_right || !is_kept || is_panic)
        .then(|| format!("wanted {end:?}, kept: {is_kept}, served: {is_served}:\n{said}"))
}

/// The files of the newest sample and, behind them, that of its pool: by kinds, with their places.
fn damageable(places: &Places<'_>) -> Vec<(String, PathBuf)> {
    let mut all: Vec<_> = files(&places.state()).into_iter().map(|(name, path)| (kind(&name), path)).collect();
    // Two volumes have a file of a kind each; one stands for both.
    all.sort();
    all.dedup_by(|one, other| one.0 == other.0);
    all.push((POOL.to_owned(), places.0.scratch.path("content/pool").join(POOL)));
    all
}

#[test]
fn a_damaged_file_of_any_kind_is_named_and_not_lost() {
    let test = "a_damaged_file_of_any_kind_is_named_and_not_lost";
    let Some(world) = World::new(test, 1500, &TOOLS) else { return };
    let (places, sample) = (Places(&world), Path::new(SAMPLES).join(env!("CARGO_PKG_VERSION")));
    let mut failures = String::new();
    let install = || {
        let _ = (fs::remove_dir_all(places.state()), fs::remove_dir_all(world.scratch.path("content")));
        places.install(&sample);
    };
    install();
    let kinds: Vec<String> = damageable(&places).into_iter().map(|(kind, _)| kind).collect();
    for name in &kinds {
        for how in DAMAGES {
            install();
            let (_, path) = damageable(&places).into_iter().find(|(kind, _)| kind == name).expect("it is there");
            let Some(end) = end_of(name, how) else { panic!("{name} is of a kind without a row") };
            let end = if damage(&path, how) { end } else { Served };
            if let Some(wrong) = judge(&places, &path, end) {
                let _ = writeln!(failures, "--- {name}, {how:?}: {wrong}");
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// It is found by its place, so that no sample has one.
#[test]
fn so_is_a_damaged_module_that_was_sent() {
    let test = "so_is_a_damaged_module_that_was_sent";
    let Some(world) = World::new(test, 1500, &TOOLS) else { return };
    let (places, sample) = (Places(&world), Path::new(SAMPLES).join(env!("CARGO_PKG_VERSION")));
    places.install(&sample);
    let mut server = places.serve();
    let module = world.scratch.text("content/one_write.wasm");
    let mut create = world.on_server(env!("CARGO_BIN_EXE_sanwire"));
    create.args(["dvd", "create", "pooled", "sent", "--region", "0+64K", "--principal", "any", "--program", &module]);
    create.arg("--socket").arg(places.socket());
    run_ok(create, TIMEOUT);
    assert!(server.stop().success(), "{}", server.log());
    let path = places.state().join(SENT_MODULE);
    for how in DAMAGES {
        damage(&path, how);
        let wrong = judge(&places, &path, end_of(SENT_MODULE, how).expect("a row"));
        assert_eq!(wrong, None, "{how:?}");
        let _ = (fs::remove_dir_all(&path), fs::remove_file(&path));
        fs::copy(&module, &path).expect("it is whole again");
    }
}
