//! Every kind of file that a server keeps: made by the real program, and kept of each version in `tests/state`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::dvd::ONE_WRITE;
use crate::harness::{
    AUTHORITY, Http, Initiator, Ran, SERVER_ADDRESS, Server, Wire, World, expect_pattern, pattern, run, run_ok,
    wait_until,
};
use crate::manage::ctl_ok;

const TIMEOUT: Duration = Duration::from_secs(60);

/// What was kept by each version.
pub const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/state");

/// What a sample has besides the state directory: the volumes' files, with all that belongs to them.
const CONTENT: &str = "content.tar.gz";

/// Where a sample says that the volumes' files were.
const SAMPLED_AT: &str = "/srv";

/// The programs by which it is made.
pub const TOOLS: [&str; 3] = ["tar", "gzip", "aoecfg"];

const CLIENT: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";

/// What stands at the begin of the volumes, by seeds: of those with snapshots, at that of their snapshot and since then.
const IN_FILE: u64 = 41;
const IN_SNAPSHOT: u64 = 42;
const IN_POOL: u64 = 43;
const IN_PART: u64 = 44;

/// Where the volume begins that is a part of the one in a file.
const PART: &str = "512K";
const PART_BYTES: usize = 64 << 10;
const CONTENT_BYTES: usize = 8192;

/// The key of the reservation.
pub const KEY: u64 = 7;

/// The places of a server with everything: its state directory, its pool, and a volume's file.
pub struct Places<'a>(pub &'a World);

impl Places<'_> {
    /// The state directory.
    pub fn state(&self) -> PathBuf {
        self.0.scratch.path("state")
    }

    /// The control socket.
    pub fn socket(&self) -> PathBuf {
        self.0.scratch.path("ctl.sock")
    }

    fn http(&self) -> Http {
        Http(self.0.scratch.path("http.sock"))
    }

    /// What the server is given.
    pub fn options(&self) -> Vec<String> {
        let text = |name: &str| self.0.scratch.text(name);
        let options = [
            ["--allow", "any"],
            ["--control", &text("ctl.sock")],
            ["--state-directory", &text("state")],
            ["--http", &format!("unix:{}", text("http.sock"))],
            ["--http", SERVER_ADDRESS],
            ["--pool", &format!("p={},snapshots=layers", text("content/pool"))],
            ["--wire", &format!("iscsi:{SERVER_ADDRESS}")],
            ["--wire", &format!("aoe:{}", self.0.interface())],
            ["--wire", &format!("hdsp:{}", self.0.interface())],
            ["--wire", &format!("hs-ip:{SERVER_ADDRESS}")],
        ];
        options.concat().into_iter().map(str::to_owned).collect()
    }

    /// Its volumes: one for each kind of place, and one that is a part of another one.
    pub fn volumes(&self) -> [String; 5] {
        let text = |name: &str| self.0.scratch.text(name);
        let kept = format!("kept=file:{},size=1M", text("content/kept.img"));
        let layered = format!("layered=file:{},size=1M,layers=p", text("content/base.img"));
        let program = text("content/one_write.wasm");
        let part = format!("part=dvd:kept,region={PART}+64K,principal=any,program={program}");
        ["disk0=ram:1M".to_owned(), kept, "pooled=pool:p,size=1M".to_owned(), layered, part]
    }

    /// Serves them.
    pub fn serve(&self) -> Server {
        let (options, volumes) = (self.options(), self.volumes());
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Server::start_alone(self.0, &volumes.each_ref().map(String::as_str), &options)
    }

    fn log_in(&self) -> Initiator {
        let target = format!("{AUTHORITY}:kept");
        let address = format!("{SERVER_ADDRESS}:3260");
        let log_in = || Initiator::log_in(&address, "iqn.2026-11.org.example:host", &target, 1);
        self.0.as_client(log_in).expect("a session")
    }

    fn write(&self, volume: &str, seed: u64) {
        let ran = self.try_to_write(volume, seed);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }

    fn try_to_write(&self, volume: &str, seed: u64) -> Ran {
        let image = self.0.scratch.text("image.raw");
        // The whole part at once: its program lets one command through.
        let mut content = pattern(seed, if volume == "part" { PART_BYTES } else { CONTENT_BYTES });
        content.resize(if volume == "part" { PART_BYTES } else { 1 << 20 }, 0);
        fs::write(&image, content).expect("an image");
        run(self.0.sanwire(&["cp", "--overwrite", &image, &Wire::Ip.url(volume)]), TIMEOUT)
    }

    #[track_caller]
    fn expect(&self, volume: &str, seed: u64) {
        let copy = self.0.scratch.text("copy.raw");
        let _ = fs::remove_file(&copy);
        run_ok(self.0.sanwire(&["cp", &Wire::Ip.url(volume), &copy]), TIMEOUT);
        expect_pattern(volume, &fs::read(&copy).expect("a copy")[..CONTENT_BYTES], seed);
    }

    /// Has a server keep everything that it can, and end.
    fn keep_everything(&self) {
        fs::create_dir_all(self.0.scratch.path("content/pool")).expect("a directory");
        let program = self.0.scratch.path("content/one_write.wasm");
        fs::write(program, wat::parse_str(ONE_WRITE).expect("a module")).expect("a file");
        let (mut server, socket) = (self.serve(), self.socket());
        // What a reset puts aside.
        ctl_ok(&socket, &["add-volume", "aside=ram:1M"]);
        ctl_ok(&socket, &["add-client", CLIENT, "--name", "aside"]);
        ctl_ok(&socket, &["reload", "--reset"]);
        ctl_ok(&socket, &["add-volume", "disk1=ram:3M"]);
        ctl_ok(&socket, &["map-volume", "disk1", "--target", "iqn.2026-11.org.example:both", "--lun", "3"]);
        ctl_ok(&socket, &["set-volume", "disk0", "--security", "none"]);
        ctl_ok(&socket, &["set-volume", "disk0", "--owner", &format!("key:{CLIENT}")]);
        ctl_ok(&socket, &["add-client", CLIENT, "--name", "alice", "--volumes", "disk*"]);
        self.http().done("POST", "/tokens", r#"{"name":"program","role":"viewer"}"#);
        self.write("kept", IN_FILE);
        self.write("part", IN_PART);
        for volume in ["pooled", "layered"] {
            self.write(volume, IN_SNAPSHOT);
            ctl_ok(&socket, &["snapshot", volume, "first"]);
            self.write(volume, IN_POOL);
        }
        let mut session = self.log_in();
        let mut parameters = [0, KEY, 0].map(u64::to_be_bytes).concat();
        parameters[20] = 1;
        session.good(&[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], &parameters, 0);
        let mut aoecfg = self.0.on_client("aoecfg");
        aoecfg.args(["-c", "set", "-s", "ours", "1", "0", self.0.interface()]);
        run_ok(aoecfg, TIMEOUT);
        wait_until("it is kept", TIMEOUT, || self.state().join("aoe-settings-box.json").exists());
        assert!(server.stop().success(), "{}", server.log());
    }

    /// Puts a sample where the server finds it.
    pub fn install(&self, sample: &Path) {
        let content = self.0.scratch.path("content");
        fs::create_dir_all(&content).expect("a directory");
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--gzip", "--xattrs", "--file"])
            .arg(sample.join(CONTENT))
            .arg("--directory")
            .arg(content);
        run_ok(tar, TIMEOUT);
        for (name, path) in files(sample).iter().filter(|(name, _)| *name != CONTENT) {
            let record = fs::read(path).expect("a file");
            let copy = self.state().join(record_name(name, &record, &self.0.scratch.path("content")));
            fs::create_dir_all(copy.parent().expect("a directory")).expect("a directory");
            fs::write(&copy, record).expect("it is copied");
            // What git keeps of the mode is less.
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).expect("its mode");
        }
    }
}

/// What a record is called where the volumes' files are below this directory: it is found by their place.
fn record_name(name: &str, record: &[u8], content: &Path) -> String {
    if !name.starts_with("volumes/") {
        return name.to_owned();
    }
    let kept: Value = serde_json::from_slice(record).expect("a record");
    let [volume, at] = ["volume", "path"].map(|key| kept[key].as_str().expect("a text"));
    // That of a part of another volume is found by no place.
    let Some((_, at)) = at.split_once("/content/") else { return name.to_owned() };
    let at = content.join(at);
    format!("volumes/{:032x}.json", fnv1a_128(format!("sanwire volume\0{volume}\0{}", at.display()).as_bytes()))
}

/// FNV-1a with 128 bits (draft-eastlake-fnv).
fn fnv1a_128(bytes: &[u8]) -> u128 {
    let step = |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul((1 << 88) + 0x13b);
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step)
}

/// The files of a directory and those below, by their names there.
pub fn files(directory: &Path) -> BTreeMap<String, PathBuf> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            all.extend(files(&entry.path()).into_iter().map(|(below, path)| (format!("{name}/{below}"), path)));
        } else {
            all.insert(name, entry.path());
        }
    }
    all
}

/// The name of a file without the numbers in it, which are others each time.
pub fn kind(name: &str) -> String {
    let is_number = |word: &str| word.len() == 32 && word.chars().all(|c| c.is_ascii_hexdigit());
    let words = name.split_inclusive(['/', '.']).map(|word| {
        let bare = word.trim_end_matches(['/', '.']);
        if is_number(bare) { word.replace(bare, "*") } else { word.to_owned() }
    });
    words.collect()
}

/// A file that another one needs not find: who has it, and what is being written.
fn is_passing(name: &str) -> bool {
    name.ends_with(".lock") || name.ends_with(".sock")
}

fn kinds(directory: &Path) -> BTreeSet<String> {
    files(directory).keys().filter(|name| !is_passing(name)).map(|name| kind(name)).collect()
}

#[test]
fn the_sample_of_this_version_has_every_kind_of_file_that_a_server_keeps() {
    let test = "the_sample_of_this_version_has_every_kind_of_file_that_a_server_keeps";
    let Some(world) = World::new(test, 1500, &TOOLS) else { return };
    let places = Places(&world);
    places.keep_everything();
    let sample = Path::new(SAMPLES).join(env!("CARGO_PKG_VERSION"));
    if std::env::var_os("SANWIRE_WRITE_STATE_SAMPLE").is_some() {
        write_sample(&places, &sample);
    }
    let (kept, sampled) = (kinds(&places.state()), kinds(&sample));
    let missing: Vec<_> = kept.difference(&sampled).collect();
    assert!(
        missing.is_empty(),
        "run this with SANWIRE_WRITE_STATE_SAMPLE=1, so that {} has {missing:?}",
        sample.display()
    );
    assert!(kept.len() > 12, "{kept:?}");
}

/// Adds to a sample what it has not. What it has stays as it is.
fn write_sample(places: &Places<'_>, sample: &Path) {
    let sampled = kinds(sample);
    for (name, path) in files(&places.state()).iter().filter(|(name, _)| !is_passing(name)) {
        if !sampled.contains(&kind(name)) {
            let mut record = fs::read(path).expect("a file");
            if name.starts_with("volumes/") {
                let text = String::from_utf8(record).expect("JSON");
                record = text.replace(&places.0.scratch.directory().display().to_string(), SAMPLED_AT).into_bytes();
            }
            let copy = sample.join(record_name(name, &record, &Path::new(SAMPLED_AT).join("content")));
            fs::create_dir_all(copy.parent().expect("a directory")).expect("a directory");
            fs::write(copy, record).expect("it is copied");
        }
    }
    let content = places.0.scratch.path("content");
    // What is below layers is named there as it was written.
    for path in files(&content).into_values().filter(|path| path.ends_with("below.json")) {
        let text = fs::read_to_string(&path).expect("JSON");
        fs::write(&path, text.replace(&places.0.scratch.directory().display().to_string(), SAMPLED_AT))
            .expect("a file");
    }
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--xattrs", "--sparse", "--numeric-owner", "--owner=0", "--group=0", "--file"]);
    tar.arg(sample.join(CONTENT)).arg("--directory").arg(content).arg(".");
    run_ok(tar, TIMEOUT);
}

#[test]
fn all_that_each_version_has_kept_is_there_again() {
    let test = "all_that_each_version_has_kept_is_there_again";
    let versions = fs::read_dir(SAMPLES).expect("samples").flatten().filter(|entry| entry.path().is_dir());
    for sample in versions.map(|version| version.path()) {
        let Some(world) = World::new(test, 1500, &TOOLS) else { return };
        let places = Places(&world);
        places.install(&sample);
        let before = files(&places.state());
        let mut server = places.serve();
        let socket = places.socket();
        places.expect("kept", IN_FILE);
        for volume in ["pooled", "layered"] {
            places.expect(volume, IN_POOL);
            let clone = format!("{volume}-clone");
            ctl_ok(&socket, &["clone", &format!("{volume}@first"), &clone]);
            places.expect(&clone, IN_SNAPSHOT);
        }
        places.expect("part", IN_PART);
        let second = places.try_to_write("part", IN_PART);
        assert_eq!(second.code, Some(1), "its program remembers that it was written: {}", second.stderr);
        let mut session = places.log_in();
        let keys = session.good(&[0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0], &[], 64);
        assert_eq!(keys[8..16], KEY.to_be_bytes(), "the reservation's key: {keys:02x?}");
        assert!(ctl_ok(&socket, &["clients"]).contains("alice"));
        assert_eq!(places.http().done("GET", "/tokens", "")["items"][0]["name"], "program");
        let mut aoecfg = world.on_client("aoecfg");
        aoecfg.args(["1", "0", world.interface()]);
        assert!(run_ok(aoecfg, TIMEOUT).contains("ours"));
        let log = server.log();
        let warnings: Vec<&str> =
            log.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).collect();
        assert!(warnings.iter().all(|line| line.contains("AoE guards nothing")), "{warnings:#?}");
        assert!(server.stop().success(), "{}", server.log());
        // What that version finds when it is back.
        for (name, was) in &before {
            let now = places.state().join(name);
            assert!(now.exists(), "{name} is gone");
            let [was, now] = [was, &now].map(|path| form(&fs::read(path).expect("a file")));
            assert_eq!(now, was, "{name}: that version reads it again");
        }
    }
}

/// By what a program tells the form of a file: the version in its first line, or its first bytes.
fn form(content: &[u8]) -> Vec<u8> {
    let first = content.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let version = |line: &[u8]| serde_json::from_slice::<Value>(line).ok()?.get("sanwire").cloned();
    version(first).map_or_else(|| content.iter().take(4).copied().collect(), |version| version.to_string().into_bytes())
}
