use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use sanwire_core::Lun;
use sanwire_store::VOLUME_MARK;

use super::*;
use crate::config::Origin;
use crate::records::fnv1a_128;

mod layered;
mod versions;

/// A host: where its volumes are, and what its server remembers.
struct Host(PathBuf);

/// Opens a volume, and puts it among the others.
fn add_volume(
    units: &LogicalUnits,
    volume: &VolumeConfig,
    opening: &Opening<'_>,
    slot: u16,
) -> Result<bool, StartError> {
    let mut batch = Batch::default();
    let is_first = batch.open(units, volume, opening, slot)?;
    batch.put(units).map(|()| is_first)
}

/// How volumes are opened that are in no pool, nor derived.
fn opening(state: Option<&Path>, acceptance: Acceptance, until: Option<Instant>) -> Opening<'_> {
    static GROUND: LazyLock<(Pools, WallClock, Programs)> = LazyLock::new(Default::default);
    let (pools, clock, programs) = &*GROUND;
    Opening { state, pools, clock, programs, seen: SystemTime::UNIX_EPOCH, acceptance, until }
}

impl Host {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sanwire-volumes-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("mounted")).unwrap();
        Host(path)
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    fn file(&self) -> PathBuf {
        self.0.join("mounted/a.img")
    }

    /// A start of the server: the identity of its only volume, or why it cannot be served.
    fn start(&self, acceptance: Acceptance) -> Result<[u8; 16], String> {
        self.start_with(",size=1M", acceptance, Some(&self.state()))
    }

    fn start_with(&self, keys: &str, acceptance: Acceptance, state: Option<&Path>) -> Result<[u8; 16], String> {
        let units = LogicalUnits::new();
        let opening = opening(state, acceptance, None);
        add_volume(&units, &self.volume(keys), &opening, 0).map_err(|error| error.to_string())?;
        Ok(units.get(Lun::default()).unwrap().identity().uuid())
    }

    fn volume(&self, keys: &str) -> VolumeConfig {
        self.volume_called("a", keys)
    }

    fn volume_called(&self, name: &str, keys: &str) -> VolumeConfig {
        sanwire_store_file::register();
        let spec = format!("{name}=file:{}{keys}", self.file().display()).parse().unwrap();
        VolumeConfig { lun: Lun::default(), spec, origin: Origin::CommandLine }
    }

    /// Puts another file of that length in the place of the volume's.
    fn replace_file(&self, length: u64) {
        fs::rename(self.file(), self.0.join("elsewhere")).unwrap();
        File::create(self.file()).unwrap().set_len(length).unwrap();
    }

    fn legacy(&self) -> [u8; 16] {
        let path = self.file().canonicalize().unwrap();
        fnv1a_128(format!("sanwire volume\0a\0{}", path.display()).as_bytes()).to_be_bytes()
    }

    fn has_marks(&self) -> bool {
        let known = Record::new("a", &self.file(), Some(&self.state())).load().unwrap();
        known.expect("a record").is_marked
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_volume_whose_file_is_missing_is_not_made_anew() {
    let host = Host::new("missing");
    let first = host.start(Acceptance::Known).expect("a first start makes the file");
    assert_eq!(host.start(Acceptance::Known), Ok(first), "the same volume after a restart");
    fs::rename(host.file(), host.0.join("elsewhere")).unwrap();
    let refused = host.start(Acceptance::Known).unwrap_err();
    assert!(refused.contains("does not exist, though it held the volume a before: mount its file system"), "{refused}");
    assert!(refused.contains("--renew a"), "it says how to go on: {refused}");
    assert!(!host.file().exists(), "nothing was made");
    fs::rename(host.0.join("elsewhere"), host.file()).unwrap();
    assert_eq!(host.start(Acceptance::Known), Ok(first), "it is back");
}

#[test]
fn a_renewed_volume_is_another_one() {
    let host = Host::new("renewed");
    let first = host.start(Acceptance::Known).unwrap();
    fs::remove_file(host.file()).unwrap();
    let second = host.start(Acceptance::Renewed).expect("made anew");
    assert_ne!(first, second, "no client takes it for the former");
    assert_eq!(host.start(Acceptance::Known), Ok(second));
    let third = host.start(Acceptance::Renewed).expect("what is there is taken");
    assert!(third != first && third != second);
    assert_eq!(host.start(Acceptance::Known), Ok(third));
}

#[test]
fn another_file_or_less_of_it_is_not_taken_for_the_volume() {
    let host = Host::new("another");
    let first = host.start(Acceptance::Known).unwrap();
    if host.has_marks() {
        host.replace_file(1 << 20);
        let refused = host.start(Acceptance::Known).unwrap_err();
        assert!(refused.contains("is not what held the volume a before"), "{refused}");
        fs::rename(host.0.join("elsewhere"), host.file()).unwrap();
    }
    for length in [0, 4096] {
        File::options().write(true).open(host.file()).unwrap().set_len(length).unwrap();
        for keys in [",size=1M", ",size=1M,grow", ""] {
            let refused = host.start_with(keys, Acceptance::Known, Some(&host.state())).unwrap_err();
            assert!(refused.contains("and had 1 MiB (1048576 bytes) when it held the volume a"), "{keys}: {refused}");
        }
        assert_eq!(fs::metadata(host.file()).unwrap().len(), length, "as it was found");
    }
    assert_ne!(host.start_with("", Acceptance::Renewed, Some(&host.state())).unwrap(), first);
}

#[test]
fn a_volume_that_was_served_before_anything_was_remembered_keeps_its_identity() {
    let host = Host::new("legacy");
    File::create(host.file()).unwrap().set_len(1 << 20).unwrap();
    let legacy = host.legacy();
    assert_eq!(host.start(Acceptance::Known), Ok(legacy));
    assert_eq!(host.start(Acceptance::Known), Ok(legacy));
    fs::remove_file(host.file()).unwrap();
    assert!(host.start(Acceptance::Known).is_err(), "from now on it is remembered");
}

#[test]
fn a_file_carries_its_identity_to_other_servers_and_paths() {
    let host = Host::new("carried");
    let first = host.start(Acceptance::Known).unwrap();
    if !host.has_marks() {
        return;
    }
    fs::remove_dir_all(host.state()).unwrap();
    assert_eq!(host.start(Acceptance::Known), Ok(first), "what the server remembers is lost");
    let moved = Host::new("carried-elsewhere");
    fs::rename(host.file(), moved.file()).unwrap();
    assert_eq!(moved.start(Acceptance::Known), Ok(first));
}

#[test]
fn a_volume_is_served_where_nothing_can_be_remembered() {
    let host = Host::new("forgetful");
    fs::write(host.state(), "not a directory").unwrap();
    assert!(
        host.start_with(",size=1M", Acceptance::Known, Some(&host.state())).unwrap_err().contains("cannot be read")
    );
    let first = host.start_with(",size=1M", Acceptance::Known, None).unwrap();
    assert_eq!(host.start_with(",size=1M", Acceptance::Known, None), Ok(first), "the same volume after a restart");
}

#[test]
fn a_record_that_cannot_be_read_is_not_passed_over() {
    let host = Host::new("damaged");
    let first = host.start(Acceptance::Known).unwrap();
    let place = Record::new("a", &host.file(), Some(&host.state())).place();
    let content = fs::read(&place).unwrap();
    fs::write(&place, "{").unwrap();
    fs::remove_file(host.file()).unwrap();
    let refused = host.start(Acceptance::Known).unwrap_err();
    assert!(refused.contains("what is remembered of it in") && refused.contains("a.img is the right one"), "{refused}");
    assert!(refused.contains("--renew a"), "{refused}");
    assert!(host.start(Acceptance::Adopted).is_err(), "nobody knows what it was");
    fs::write(&place, content).unwrap();
    assert_ne!(host.start(Acceptance::Renewed).unwrap(), first);
}

#[test]
fn a_volume_is_renewed_though_its_record_cannot_be_read() {
    let host = Host::new("renewed-damaged");
    let first = host.start(Acceptance::Known).unwrap();
    fs::write(Record::new("a", &host.file(), Some(&host.state())).place(), "{").unwrap();
    let second = host.start(Acceptance::Renewed).unwrap();
    assert_ne!(first, second);
    assert_eq!(host.start(Acceptance::Known), Ok(second));
}

/// A copy of the file has lost its mark, or has that of another volume of this name.
#[test]
fn a_file_that_its_owner_adopts_is_the_same_volume() {
    let host = Host::new("adopted");
    let first = host.start(Acceptance::Known).unwrap();
    if !host.has_marks() {
        return;
    }
    host.replace_file(1 << 20);
    let refused = host.start(Acceptance::Known).unwrap_err();
    assert!(refused.contains("If it is the right one") && refused.contains("`--adopt a` once"), "{refused}");
    assert_eq!(host.start(Acceptance::Adopted), Ok(first), "clients go on");
    assert_eq!(host.start(Acceptance::Known), Ok(first), "from now on it is known");
    let (lost, other) = (host.start_with("", Acceptance::Known, None), Host::new("adopted-other"));
    assert_eq!(lost, Ok(first), "it carries its identity");
    let others = other.start(Acceptance::Known).unwrap();
    fs::rename(other.file(), host.file()).unwrap();
    assert!(others != first && host.start(Acceptance::Known).is_err());
    assert_eq!(host.start(Acceptance::Adopted), Ok(first));
    assert_eq!(host.start(Acceptance::Known), Ok(first));
}

#[test]
fn nothing_and_less_than_there_was_cannot_be_adopted() {
    let host = Host::new("not-adopted");
    let first = host.start(Acceptance::Known).unwrap();
    File::options().write(true).open(host.file()).unwrap().set_len(4096).unwrap();
    assert!(host.start_with("", Acceptance::Adopted, Some(&host.state())).unwrap_err().contains("and had 1 MiB"));
    fs::remove_file(host.file()).unwrap();
    assert!(host.start(Acceptance::Adopted).unwrap_err().contains("does not exist, though it held"));
    assert!(!host.file().exists());
    assert_ne!(host.start(Acceptance::Renewed), Ok(first));
}

#[test]
fn a_file_is_known_again_under_each_of_its_names() {
    let host = Host::new("names");
    let first = host.start(Acceptance::Known).unwrap();
    if !host.has_marks() {
        return;
    }
    let start_other = || {
        let (units, state) = (LogicalUnits::new(), host.state());
        let opening = opening(Some(&state), Acceptance::Known, None);
        add_volume(&units, &host.volume_called("b", ""), &opening, 0).map_err(|error| error.to_string())?;
        Ok::<_, String>(units.get(Lun::default()).unwrap().identity().uuid())
    };
    let other = start_other().expect("another volume");
    assert_ne!(other, first);
    assert_eq!((start_other(), host.start(Acceptance::Known)), (Ok(other), Ok(first)));
    host.replace_file(1 << 20);
    assert!(start_other().unwrap_err().contains("is not what held the volume b before"));
    assert!(host.start(Acceptance::Known).is_err());
}

#[test]
fn a_volume_that_cannot_be_added_is_not_remembered() {
    let host = Host::new("not-added");
    let (units, state) = (LogicalUnits::new(), host.state());
    let opening = opening(Some(&state), Acceptance::Known, None);
    add_volume(
        &units,
        &VolumeConfig { lun: Lun::default(), spec: "z=ram:1M".parse().unwrap(), origin: Origin::CommandLine },
        &opening,
        0,
    )
    .unwrap();
    add_volume(&units, &host.volume(",size=1M"), &opening, 1).expect_err("the number is taken");
    fs::remove_file(host.file()).unwrap();
    host.start(Acceptance::Known).expect("it was never served");
}

#[test]
fn the_length_that_a_volume_has_grown_to_is_remembered() {
    let host = Host::new("grown");
    host.start(Acceptance::Known).unwrap();
    let volume = host.volume(",size=1M");
    volume.spec.store.open().unwrap().resize(2 << 20).unwrap();
    remember_length(&volume.spec, Some(&host.state()), 2 << 20);
    File::options().write(true).open(host.file()).unwrap().set_len(1 << 20).unwrap();
    assert!(host.start(Acceptance::Known).unwrap_err().contains("and had 2 MiB"), "it is cut short");
}

#[test]
fn what_a_disk_holds_is_for_its_owner_alone() {
    let host = Host::new("mode");
    host.start(Acceptance::Known).unwrap();
    assert_eq!(fs::metadata(host.file()).unwrap().permissions().mode() & 0o777, 0o600);
}

/// As after the end of a server that was killed while it wrote.
#[test]
fn a_file_that_is_still_in_use_is_waited_for() {
    let host = Host::new("waiting");
    host.start(Acceptance::Known).unwrap();
    let former = File::open(host.file()).unwrap();
    former.lock().unwrap();
    assert!(
        host.start(Acceptance::Known).unwrap_err().contains("in use by another server"),
        "a running server does not wait"
    );
    let (volume, state) = (host.volume(""), host.state());
    let starts = thread::spawn(move || {
        let until = Some(Instant::now() + Duration::from_secs(600));
        let opening = opening(Some(&state), Acceptance::Known, until);
        add_volume(&LogicalUnits::new(), &volume, &opening, 0)
    });
    thread::sleep(3 * LOCK_INTERVAL);
    former.unlock().unwrap();
    starts.join().unwrap().expect("it has the file now");
}

#[test]
fn what_another_server_makes_of_a_file_meanwhile_stays_as_it_is() {
    let host = Host::new("beside");
    host.start(Acceptance::Known).unwrap();
    if !host.has_marks() {
        return;
    }
    let other = File::open(host.file()).unwrap();
    other.lock().unwrap();
    let (volume, state) = (host.volume(""), host.state());
    let starts = thread::spawn(move || {
        let until = Some(Instant::now() + 8 * LOCK_INTERVAL);
        let opening = opening(Some(&state), Acceptance::Adopted, until);
        add_volume(&LogicalUnits::new(), &volume, &opening, 0)
    });
    thread::sleep(3 * LOCK_INTERVAL);
    let mark = "00000000000000000000000000000007 other";
    rustix::fs::fsetxattr(&other, VOLUME_MARK, mark.as_bytes(), rustix::fs::XattrFlags::empty()).unwrap();
    assert!(starts.join().unwrap().unwrap_err().to_string().contains("in use by another server"));
    let mut bytes = [0; 64];
    let length = rustix::fs::fgetxattr(&other, VOLUME_MARK, &mut bytes).unwrap();
    assert_eq!(&bytes[..length], mark.as_bytes());
}

/// Two servers may have a drive of the same name each: a host that sees both must not take them for two ways to one.
#[test]
fn a_drive_is_the_same_at_one_server_and_no_other_ones() {
    let (host, other) = (Host::new("drive"), Host::new("other-drive"));
    sanwire_store_file::register();
    let start = |store: &str, state: Option<&Path>| {
        let spec = format!("cd0={store},type=optical").parse().unwrap();
        let volume = VolumeConfig { lun: Lun::default(), spec, origin: Origin::CommandLine };
        let (units, opening) = (LogicalUnits::new(), opening(state, Acceptance::Known, None));
        let is_first = add_volume(&units, &volume, &opening, 0).unwrap();
        (units.get(Lun::default()).unwrap().identity().uuid(), is_first)
    };
    let image = host.file();
    fs::write(&image, vec![0; 4096]).unwrap();
    let image = format!("file:{}", image.display());
    let (first, is_first) = start("none:", Some(&host.state()));
    assert!(is_first);
    assert_eq!(start(&image, Some(&host.state())), (first, false), "whichever disc is in it");
    assert_ne!(start("none:", Some(&other.state())).0, first);
    assert_eq!(start("none:", None), start(&image, None));
    fs::write(Record::elsewhere("cd0", "drive", Some(&host.state())).place(), "{").unwrap();
    let spec = "cd0=none:,type=optical".parse().unwrap();
    let volume = VolumeConfig { lun: Lun::default(), spec, origin: Origin::CommandLine };
    let state = host.state();
    let opening = opening(Some(&state), Acceptance::Known, None);
    assert!(add_volume(&LogicalUnits::new(), &volume, &opening, 0).is_err(), "who it was cannot be read");
}

#[test]
fn volumes_are_put_in_together_or_not_at_all() {
    let (units, opening) = (LogicalUnits::new(), opening(None, Acceptance::Known, None));
    let volume = |name: &str, number: u16| VolumeConfig {
        lun: Lun::new(number).unwrap(),
        spec: format!("{name}=ram:1M").parse().unwrap(),
        origin: Origin::CommandLine,
    };
    let put = |volumes: &[&VolumeConfig]| {
        let open = |volume: &VolumeConfig| open_volume(volume, None, &opening, volume.lun.number()).unwrap().unit;
        put_among(&units, volumes.iter().map(|volume| (*volume, open(volume))).collect())
    };
    let names = || units.iter().iter().map(|(_, unit)| unit.identity().name().to_owned()).collect::<Vec<_>>();
    let [a, b, c, taken] = [("a", 0), ("b", 1), ("c", 2), ("taken", 1)].map(|(name, number)| volume(name, number));
    put(&[&a, &b]).unwrap();
    let refused = put(&[&c, &taken]).unwrap_err().to_string();
    assert!(refused.starts_with("volume taken: logical unit 1 is already there"), "{refused}");
    assert_eq!(names(), ["a", "b"]);
    let twice = put(&[&c, &volume("d", 2)]).unwrap_err();
    assert!(twice.to_string().contains("logical unit 2"), "{twice}");
    put(&[&c]).unwrap();
    assert_eq!(names(), ["a", "b", "c"]);
    let [e, f] = ["e", "f"].map(|name| volume(name, 3));
    let mut batch = Batch::default();
    batch.open(&units, &e, &opening, 3).unwrap();
    assert!(batch.open(&units, &f, &opening, 4).is_err() && batch.open(&units, &c, &opening, 4).is_err());
    assert_eq!(names(), ["a", "b", "c"], "nobody finds what is not put in yet");
    batch.put(&units).unwrap();
    assert_eq!(names(), ["a", "b", "c", "e"]);
}
