//! A file of a mounted file system as a device: where it lies, who may write it, and its end.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open as open_file};
use rustix::process::Signal;
use serde_json::Value;

use super::{TIMEOUT, dvd, dvd_ok, serve, urls};
use crate::harness::{
    Attached, Filesystem, Filler, Process, SERVER_ADDRESS, Server, World, pattern, run, run_ok, wait_until,
};

/// How soon it is known that a file has changed, and how much later the server ends a volume by itself, where nothing else is done.
const NOTICED: Duration = Duration::from_secs(5);
const ENDED: Duration = Duration::from_secs(35);

const TOOLS: [&str; 6] = ["mkfs.ext4", "fsck.ext4", "mkfs.xfs", "xfs_repair", "mount", "fallocate"];

/// How the server is asked to serve a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// On its own host, by its socket.
    Socket,
    /// In band, by an owner of the disk.
    InBand,
}

/// A host that has a file system on a volume, and the server of that.
struct Host {
    /// First, so that it is unmounted before the volume goes.
    filler: Option<Filler>,
    attached: Option<Attached>,
    server: Server,
    directory: PathBuf,
    kind: Filesystem,
    way: Way,
    world: World,
}

impl Host {
    fn new(test: &str, kind: Filesystem) -> Option<Host> {
        let world = World::new(test, 9000, &TOOLS)?;
        let block_bytes = if kind == Filesystem::Xfs { 4096 } else { 512 };
        let owner = run_ok(world.sanwire_of("owner", &["id"]), TIMEOUT);
        let disk = format!(
            "disk=file:{},size=320M,block={block_bytes},owner=key:{}",
            world.scratch.text("disk.img"),
            owner.trim()
        );
        let server = serve(&world, &[&disk, "other=ram:64M"], &["--control", &world.scratch.text("c.sock")]);
        let attached = Attached::device(&world, &format!("hs+ip://{SERVER_ADDRESS}/disk"));
        kind.make(&attached.place);
        let directory = world.scratch.path("mnt");
        let filler = kind.open(&attached.place, &directory);
        let way = Way::Socket;
        Some(Host { filler: Some(filler), attached: Some(attached), server, directory, kind, way, world })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes a file in so many pieces: what lies between them is taken out of it.
    fn scatter(&self, name: &str, seed: u64, pieces: usize, rest_bytes: usize) -> Vec<u8> {
        let content = pattern(seed, pieces * PIECE + rest_bytes);
        let mut file = File::create(self.path(name)).expect("a file");
        for (at, piece) in content.chunks(PIECE).enumerate() {
            file.write_all(piece).expect("a piece");
            if at + 1 < pieces {
                file.write_all(&[0xee; PIECE]).expect("what lies between");
            }
        }
        file.sync_all().expect("it is stable");
        for at in (1..pieces).rev() {
            let between = ((2 * at - 1) * PIECE) as u64;
            fallocate(&file, FallocateFlags::COLLAPSE_RANGE, between, PIECE as u64).expect("a piece less");
        }
        file.sync_all().expect("it is stable");
        content
    }

    /// Begins to serve a file as the volume `cam`.
    fn serve(&self, name: &str, options: &[&str]) -> Process {
        let mut watch = self.create(name, options);
        watch.wait_for("as long as this command runs", TIMEOUT);
        watch
    }

    fn create(&self, name: &str, options: &[&str]) -> Process {
        let path = self.path(name).display().to_string();
        let create = ["dvd", "create", "disk", "cam", "--file", &path, "--principal", "any"];
        let mut command = match self.way {
            Way::Socket => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
                command.args(create).args(["--socket", &self.world.scratch.text("c.sock")]);
                command
            }
            Way::InBand => {
                let mut command = self.world.sanwire_of("owner", &create);
                command.args(["--at", &format!("hs+ip://{SERVER_ADDRESS}")]);
                command
            }
        };
        command.args(options).env_remove("SANWIRE_LOG");
        let log = self.world.scratch.path("watch.log");
        let _ = fs::remove_file(&log);
        Process::spawn("watch", command, log)
    }

    fn has_volume(&self) -> bool {
        dvd_ok(&self.world.scratch, &["ls"]).contains("cam")
    }

    /// What the regions of the volume hold at the server.
    fn at_server(&self) -> Vec<u8> {
        let told: Value = serde_json::from_str(&dvd_ok(&self.world.scratch, &["show", "cam", "--json"])).expect("JSON");
        let store = File::open(self.world.scratch.path("disk.img")).expect("the store");
        let regions = told["dvd"]["derived"]["regions"].as_array().expect("regions");
        let number = |region: &Value, key: &str| region[key].as_u64().expect("a number");
        let read = |region: &Value| {
            let mut bytes = vec![0; number(region, "length_bytes") as usize];
            store.read_exact_at(&mut bytes, number(region, "offset_bytes")).expect("a region");
            bytes
        };
        regions.iter().flat_map(read).collect()
    }

    /// What is read of the volume over a wire.
    fn copied(&self, url: &str) -> Vec<u8> {
        let back = self.world.scratch.path("back");
        let _ = fs::remove_file(&back);
        run_ok(self.world.sanwire(&["cp", url, &back.display().to_string()]), TIMEOUT);
        fs::read(&back).expect("a copy")
    }

    /// Unmounts, checks what is there, and ends all.
    fn close(mut self) {
        let attached = self.attached.take().expect("it is attached");
        if let Some(filler) = self.filler.take() {
            filler.close();
        }
        self.kind.check(&attached.place);
        attached.detach(&self.world);
        assert!(self.server.stop().success(), "{}", self.server.log());
    }
}

/// Of a file in pieces, so much lies together.
const PIECE: usize = 64 << 10;

/// A file as it is on a disk of whole blocks.
fn padded(mut content: Vec<u8>, block_bytes: usize) -> Vec<u8> {
    content.resize(content.len().next_multiple_of(block_bytes), 0);
    content
}

fn is_served_where_it_lies(test: &str, kind: Filesystem, block_bytes: usize, way: Way) {
    let Some(host) = Host::new(test, kind) else { return };
    let host = Host { way, ..host };
    let content = padded(host.scatter("movie", 1, 24, 1000), block_bytes);
    let mut watch = host.serve("movie", &[]);
    assert!(host.at_server() == content, "the regions are the file");
    let told = dvd_ok(&host.world.scratch, &["show", "cam"]);
    assert!(told.contains("read, copy-source") && told.contains("read-only"), "{told}");
    assert!(watch.log().contains(" pieces, as long"), "{}", watch.log());
    let pieces = watch.log().split(" pieces,").next().and_then(|text| text.rsplit(' ').next()?.parse().ok());
    assert!(pieces.is_some_and(|pieces: u32| pieces > 20), "{}", watch.log());
    let image = host.world.scratch.path("image");
    fs::write(&image, vec![9; PIECE]).expect("an image");
    for (wire, url) in urls(&host.world, "cam") {
        assert!(host.copied(&url) == content, "over {wire}");
        let refused = run(host.world.sanwire(&["cp", "--overwrite", &image.display().to_string(), &url]), TIMEOUT);
        assert_eq!(refused.code, Some(1), "over {wire}: {}", refused.stdout);
    }
    // In place, from this host: it lies where it did.
    let file = OpenOptions::new().write(true).open(host.path("movie")).expect("the file");
    file.write_all_at(&[5; 8192], 4096).and_then(|()| file.sync_all()).expect("it is written");
    thread::sleep(Duration::from_secs(11));
    assert!(watch.is_alive() && host.has_volume(), "it is renewed: {}", watch.log());
    drop(file);
    assert!(host.at_server()[4096..12288] == [5; 8192]);
    watch.signal(Signal::TERM);
    assert!(watch.wait(TIMEOUT).success(), "{}", watch.log());
    assert!(!host.has_volume(), "it ends with the command");
    host.close();
}

#[test]
fn a_file_of_ext4_is_served_where_it_lies() {
    is_served_where_it_lies("a_file_of_ext4_is_served_where_it_lies", Filesystem::Ext4, 512, Way::Socket);
}

#[test]
fn a_file_of_xfs_is_served_where_it_lies() {
    is_served_where_it_lies("a_file_of_xfs_is_served_where_it_lies", Filesystem::Xfs, 4096, Way::Socket);
}

/// The host that has the file system is another one than the server's, as a rule: it asks over the wire, and need not manage the server.
#[test]
fn a_file_is_served_where_it_lies_by_an_owner_of_the_disk_in_band() {
    let test = "a_file_is_served_where_it_lies_by_an_owner_of_the_disk_in_band";
    is_served_where_it_lies(test, Filesystem::Ext4, 512, Way::InBand);
}

#[test]
fn a_volume_whose_file_is_watched_from_elsewhere_ends_when_that_host_does_not_reach_the_server() {
    let test = "a_volume_whose_file_is_watched_from_elsewhere_ends_when_that_host_does_not_reach_the_server";
    let Some(host) = Host::new(test, Filesystem::Ext4) else { return };
    let host = Host { way: Way::InBand, ..host };
    let content = padded(host.scatter("movie", 11, 2, 0), 512);
    let mut watch = host.serve("movie", &[]);
    host.world.cut_link();
    assert!(host.has_volume(), "it has its time");
    wait_until("it is over", TIMEOUT, || !host.has_volume());
    assert_eq!(watch.wait(TIMEOUT).code(), Some(1), "{}", watch.log());
    let said = watch.log();
    assert!(said.contains("volume cam ends soon unless its server can be told"), "it has said so before: {said}");
    let parts = ["volume cam, which was the file", "has ended by itself: its server could not be told"];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    host.world.restore_link();
    // The disk is there again, and the file can be served again.
    let mut watch = host.serve("movie", &[]);
    assert!(host.at_server() == content, "it lies where it did");
    // Away for a moment, when it should be renewed, is not long enough.
    host.world.cut_link();
    thread::sleep(Duration::from_secs(12));
    host.world.restore_link();
    thread::sleep(ENDED - Duration::from_secs(8));
    assert!(watch.is_alive() && host.has_volume(), "it is renewed: {}", watch.log());
    watch.signal(Signal::TERM);
    assert!(watch.wait(TIMEOUT).success(), "{}", watch.log());
    assert!(!host.has_volume(), "it ends with the command");
    host.close();
}

#[test]
fn a_file_on_a_partition_is_served_where_it_lies() {
    let test = "a_file_on_a_partition_is_served_where_it_lies";
    let Some(world) = World::new(test, 9000, &["mkfs.ext4", "mount", "parted", "partx"]) else { return };
    let disk = format!("disk=file:{},size=64M", world.scratch.text("disk.img"));
    let mut server = serve(&world, &[&disk], &["--control", &world.scratch.text("c.sock")]);
    let attached = Attached::device(&world, &format!("hs+ip://{SERVER_ADDRESS}/disk"));
    let device = attached.place.display().to_string();
    let partitions = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments);
        run(command, TIMEOUT)
    };
    let made = partitions("parted", &["-s", &device, "mklabel", "gpt", "mkpart", "p", "ext4", "5MiB", "50MiB"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    // Where the first one did not tell the kernel.
    partitions("partx", &["--update", &device]);
    let partition = PathBuf::from(format!("{device}p1"));
    wait_until("the partition is there", TIMEOUT, || partition.exists());
    Filesystem::Ext4.make(&partition);
    let host = Host {
        filler: Some(Filesystem::Ext4.open(&partition, &world.scratch.path("mnt"))),
        attached: None,
        directory: world.scratch.path("mnt"),
        kind: Filesystem::Ext4,
        way: Way::Socket,
        server,
        world,
    };
    let content = padded(host.scatter("movie", 2, 3, 0), 512);
    let mut watch = host.serve("movie", &[]);
    assert!(host.at_server() == content, "the regions are the file");
    watch.signal(Signal::TERM);
    assert!(watch.wait(TIMEOUT).success(), "{}", watch.log());
    let Host { filler, world, server: left, .. } = host;
    server = left;
    filler.expect("it is mounted").close();
    partitions("partx", &["--delete", &device]);
    attached.detach(&world);
    assert!(server.stop().success(), "{}", server.log());
}

fn is_written_in_place(test: &str, kind: Filesystem) {
    let Some(mut host) = Host::new(test, kind) else { return };
    let before = host.scatter("movie", 3, 12, 4096);
    let path = host.path("movie");
    assert!(fs::read(&path).expect("the file") == before);
    let mut watch = host.serve("movie", &["--writable"]);
    assert!(OpenOptions::new().append(true).open(&path).is_err(), "it is pinned");
    assert!(fs::rename(&path, host.path("x")).is_err(), "it is pinned");
    let image = host.world.scratch.path("image");
    let after = pattern(4, before.len());
    fs::write(&image, &after).expect("an image");
    for (wire, url) in urls(&host.world, "cam") {
        run_ok(host.world.sanwire(&["cp", "--overwrite", &image.display().to_string(), &url]), TIMEOUT);
        assert!(host.at_server() == after, "over {wire}");
    }
    assert!(watch.is_alive() && host.has_volume(), "{}", watch.log());
    watch.signal(Signal::TERM);
    assert!(watch.wait(TIMEOUT).success(), "{}", watch.log());
    assert!(fs::read(&path).expect("the file") == after, "this host sees what was written elsewhere");
    host.filler.take().expect("it is mounted").close();
    let place = host.attached.as_ref().expect("it is attached").place.clone();
    host.kind.check(&place);
    host.filler = Some(host.kind.open(&place, &host.directory));
    assert!(fs::read(&path).expect("the file") == after);
    OpenOptions::new().append(true).open(&path).expect("it is not pinned any more");
    host.close();
}

#[test]
fn a_file_of_ext4_is_written_in_place() {
    is_written_in_place("a_file_of_ext4_is_written_in_place", Filesystem::Ext4);
}

#[test]
fn a_file_of_xfs_is_written_in_place() {
    is_written_in_place("a_file_of_xfs_is_written_in_place", Filesystem::Xfs);
}

/// What a program does to a file.
fn program(name: &str, arguments: &[&str], path: &Path) {
    let mut command = Command::new(name);
    command.args(arguments).arg(path);
    run_ok(command, TIMEOUT);
}

/// What somebody does to the file, given its path.
type Change = fn(&Path);

fn ends_when_the_file_changes(test: &str, kind: Filesystem) {
    let Some(mut host) = Host::new(test, kind) else { return };
    let changes: [(&str, &[&str], Change, &str); 8] = [
        ("truncate", &[], |path| open(path).set_len(8192).expect("shorter"), "it has 8192 bytes now, and had"),
        ("append", &[], |path| open(path).write_all_at(&[1], 4 * PIECE as u64).expect("longer"), "bytes now, and had"),
        (
            "punch",
            &[],
            |path| program("fallocate", &["--punch-hole", "--offset", "65536", "--length", "65536"], path),
            "it has a hole at its byte 65536",
        ),
        (
            "collapse",
            &[],
            |path| program("fallocate", &["--collapse-range", "--offset", "65536", "--length", "65536"], path),
            "bytes now, and had",
        ),
        ("unlink", &[], |path| fs::remove_file(path).expect("deleted"), "it is not there any more"),
        (
            "rename",
            &[],
            |path| fs::rename(path, path.with_extension("old")).expect("renamed"),
            "it is not there any more",
        ),
        ("replace", &[], replace, "another file has its name now"),
        (
            "look",
            &["--writable", "--pin", "off"],
            |path| drop(fs::read(path).expect("read")),
            "somebody opens it on this host",
        ),
    ];
    for (name, options, change, part) in changes {
        host.scatter(name, 5, 4, 0);
        let mut watch = host.serve(name, options);
        change(&host.path(name));
        let ended = watch.wait(TIMEOUT);
        assert_eq!(ended.code(), Some(1), "{name}: {}", watch.log());
        let said = watch.log();
        assert!(said.contains(part) && said.contains("volume cam is revoked"), "{name}: {said}");
        assert!(!host.has_volume(), "{name}");
    }
    host.scatter("unpinned", 6, 2, 0);
    for is_immutable in [false, true] {
        if is_immutable {
            // As one stays that was killed.
            program("chattr", &["+i"], &host.path("unpinned"));
        }
        let mut watch = host.serve("unpinned", &["--pin", "on"]);
        program("chattr", &["-i"], &host.path("unpinned"));
        assert_eq!(watch.wait(TIMEOUT).code(), Some(1), "{}", watch.log());
        assert!(watch.log().contains("it is not immutable any more"), "{}", watch.log());
    }
    // As the last one: the file system goes while a file is served.
    host.scatter("umount", 7, 2, 0);
    let mut watch = host.serve("umount", &[]);
    let mut unmount = Command::new("umount");
    unmount.arg(&host.directory);
    let busy = run(unmount, TIMEOUT);
    assert!(busy.code != Some(0) && busy.stderr.contains("busy"), "{}", busy.stderr);
    program("umount", &["--lazy"], &host.directory);
    assert_eq!(watch.wait(TIMEOUT).code(), Some(1), "{}", watch.log());
    assert!(watch.log().contains("its file system unmounted"), "{}", watch.log());
    assert!(!host.has_volume());
    let place = host.attached.as_ref().expect("it is attached").place.clone();
    wait_until("the file system is free", TIMEOUT, || is_free(&place));
    // It is unmounted already.
    std::mem::forget(host.filler.take());
    host.filler = Some(host.kind.open(&place, &host.directory));
    host.close();
}

/// Whether nobody has a device mounted any more.
fn is_free(device: &Path) -> bool {
    open_file(device, OFlags::RDONLY | OFlags::EXCL, Mode::empty()).is_ok()
}

fn open(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).expect("the file")
}

fn replace(path: &Path) {
    let new = path.with_extension("new");
    fs::write(&new, vec![3; 4 * PIECE]).expect("another file");
    fs::rename(new, path).expect("it takes its place");
}

#[test]
fn a_volume_ends_when_its_file_of_ext4_changes() {
    ends_when_the_file_changes("a_volume_ends_when_its_file_of_ext4_changes", Filesystem::Ext4);
}

#[test]
fn a_volume_ends_when_its_file_of_xfs_changes() {
    ends_when_the_file_changes("a_volume_ends_when_its_file_of_xfs_changes", Filesystem::Xfs);
}

#[test]
fn a_volume_ends_when_its_file_is_moved_on_the_disk() {
    let test = "a_volume_ends_when_its_file_is_moved_on_the_disk";
    if !crate::harness::can_run(test, &["e4defrag"]) {
        return;
    }
    let Some(host) = Host::new(test, Filesystem::Ext4) else { return };
    let content = host.scatter("movie", 8, 24, 0);
    let mut watch = host.serve("movie", &[]);
    program("e4defrag", &[], &host.path("movie"));
    assert_eq!(watch.wait(TIMEOUT).code(), Some(1), "{}", watch.log());
    assert!(watch.log().contains("at another place on its disk"), "{}", watch.log());
    assert!(!host.has_volume());
    // A pinned one stays where it is.
    host.scatter("pinned", 9, 24, 0);
    let mut watch = host.serve("pinned", &["--pin", "on"]);
    let mut defragment = Command::new("e4defrag");
    defragment.arg(host.path("pinned"));
    run(defragment, TIMEOUT);
    thread::sleep(NOTICED);
    assert!(watch.is_alive() && host.has_volume(), "{}", watch.log());
    watch.signal(Signal::TERM);
    assert!(watch.wait(TIMEOUT).success(), "{}", watch.log());
    assert!(fs::read(host.path("movie")).expect("the file") == content);
    host.close();
}

#[test]
fn a_volume_whose_file_nobody_watches_ends_by_itself() {
    let Some(host) = Host::new("a_volume_whose_file_nobody_watches_ends_by_itself", Filesystem::Ext4) else { return };
    host.scatter("movie", 10, 2, 0);
    let mut watch = host.serve("movie", &[]);
    watch.kill();
    assert!(host.has_volume(), "it has its time");
    wait_until("it is over", TIMEOUT, || !host.has_volume());
    let mut events = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    events.args(["ctl", "--socket", &host.world.scratch.text("c.sock"), "events", "--json"]);
    let told = run_ok(events, TIMEOUT);
    assert!(told.contains("dvd-expired") && !told.contains("dvd-changed"), "{told}");
    // One that stands still, and goes on when it is too late.
    let mut watch = host.serve("movie", &[]);
    watch.signal(Signal::STOP);
    wait_until("it is over", TIMEOUT, || !host.has_volume());
    watch.signal(Signal::CONT);
    assert_eq!(watch.wait(TIMEOUT).code(), Some(1), "{}", watch.log());
    assert!(watch.log().contains("is not served any more"), "{}", watch.log());
    // And one that somebody else has revoked.
    let mut watch = host.serve("movie", &[]);
    dvd_ok(&host.world.scratch, &["revoke", "cam"]);
    assert_eq!(watch.wait(TIMEOUT).code(), Some(1), "{}", watch.log());
    host.close();
}

#[test]
fn files_that_are_no_disks_are_refused() {
    let Some(host) = Host::new("files_that_are_no_disks_are_refused", Filesystem::Xfs) else { return };
    let other = Attached::device(&host.world, &format!("hs+ip://{SERVER_ADDRESS}/other"));
    Filesystem::Ext4.make(&other.place);
    let elsewhere = Filesystem::Ext4.open(&other.place, &host.world.scratch.path("elsewhere"));
    fs::write(host.world.scratch.path("elsewhere/file"), vec![1; PIECE]).expect("a file");
    let plain = |name: &str| {
        let mut file = File::create(host.path(name)).expect("a file");
        file.write_all(&[1; PIECE]).and_then(|()| file.sync_all()).expect("it is written");
        file
    };
    plain("sparse").set_len(4 * PIECE as u64).expect("a hole");
    program("fallocate", &["--length", "65536"], &host.path("reserved"));
    drop(File::create(host.path("empty")).expect("a file"));
    fs::create_dir(host.path("directory")).expect("a directory");
    drop(plain("plain"));
    std::os::unix::fs::symlink(host.path("plain"), host.path("link")).expect("a link");
    let (from, to) = (host.path("plain").display().to_string(), host.path("shared"));
    program("cp", &["--reflink=always", &from], &to);
    let held = plain("held");
    fs::write(host.world.scratch.path("outside"), vec![1; PIECE]).expect("a file");
    for (name, options, part) in [
        ("sparse", &[][..], "it has a hole at its byte 65536"),
        ("reserved", &[], "was reserved and never written"),
        ("empty", &[], "it is empty"),
        ("directory", &[], "no regular file"),
        ("link", &[], "symbolic link"),
        ("nobody", &[], "cannot be opened"),
        ("shared", &["--writable"], "shared with other files"),
        ("held", &["--writable"], "somebody has it open"),
        ("held", &["--pin", "on"], "somebody has it open for writing"),
        ("../elsewhere/file", &[], "is another volume than disk"),
        ("../elsewhere/file", &["--device-is-parent"], "is another volume than disk"),
        ("../outside", &[], "cannot be served as a device"),
        ("plain", &["--allow-ops", "read,write"], "is for --writable"),
        ("plain", &["--writable", "--allow-ops", "read,discard"], "does not go with --file"),
        ("plain", &["--no-wait"], "--no-wait does not go with --file"),
        ("plain", &["--until", "2h"], "cannot be used with"),
        ("plain", &["--region", "0+1M"], "cannot be used with"),
    ] {
        let mut refused = host.create(name, options);
        let ended = refused.wait(TIMEOUT);
        assert!(matches!(ended.code(), Some(1 | 2)), "{name} {options:?}: {}", refused.log());
        assert!(refused.log().contains(part), "{name} {options:?}: {}", refused.log());
        assert!(!host.has_volume(), "{name}");
    }
    drop(held);
    let refused = dvd(&host.world.scratch, &["create", "disk", "cam", "--principal", "any", "--writable"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    // What is only told is not done.
    let mut told = host.create("held", &["--writable", "--dry-run"]);
    assert!(told.wait(TIMEOUT).success(), "{}", told.log());
    assert!(told.log().contains("volume cam would be served") && !host.has_volume(), "{}", told.log());
    open(&host.path("held")).write_all_at(&[2], 0).expect("it is not pinned");
    // What others have too may be read.
    let mut shared = host.serve("shared", &[]);
    assert!(host.at_server() == [1; PIECE]);
    shared.signal(Signal::INT);
    assert!(shared.wait(TIMEOUT).success(), "{}", shared.log());
    elsewhere.close();
    other.detach(&host.world);
    host.close();
}
