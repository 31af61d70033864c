//! Snapshots of volumes in a pool whose file system shares no blocks: by layers, under writes over two wires, and with the server killed.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::{
    Attached, Ends, Process, Server, Wire, World, pattern, run, run_ok, stamp, wait_until, write_stamps,
};
use crate::manage::{ctl, ctl_ok};

const TIMEOUT: Duration = Duration::from_secs(60);

const SIZE: usize = 16 << 20;

/// A server with a pool of layers, on every wire.
fn serve(world: &World, volumes: &[&str]) -> (Server, PathBuf) {
    let (socket, directory) = (world.scratch.path("ctl.sock"), world.scratch.path("pool"));
    fs::create_dir_all(&directory).expect("a directory");
    let (control, pool) = (socket.display().to_string(), format!("p={},snapshots=layers", directory.display()));
    let portal = format!("iscsi:{}", crate::harness::SERVER_ADDRESS);
    let options = ["--allow", "any", "--control", &control, "--pool", &pool, "--wire", &portal];
    (Server::start_with(world, volumes, &options), socket)
}

/// What a volume holds, as a client reads it.
fn content(world: &World, url: &str) -> Vec<u8> {
    let copy = world.scratch.text("copy.raw");
    let _ = fs::remove_file(&copy);
    run_ok(world.sanwire(&["cp", url, &copy]), TIMEOUT);
    fs::read(&copy).expect("the copy")
}

/// What a snapshot holds.
fn of_snapshot(world: &World, socket: &std::path::Path, snapshot: &str) -> Vec<u8> {
    ctl_ok(socket, &["add-volume", &format!("old=pool:p/{snapshot},readonly")]);
    let content = content(world, &Wire::Ip.url("old"));
    ctl_ok(socket, &["remove-volume", "old"]);
    content
}

fn fill(world: &World, volume: &str, content: &[u8]) {
    let image = world.scratch.text("image.raw");
    fs::write(&image, content).expect("an image");
    run_ok(world.sanwire(&["cp", "--overwrite", &image, &Wire::Ip.url(volume)]), TIMEOUT);
}

#[test]
fn snapshots_by_layers_of_two_volumes_are_one_moment_and_are_cloned_and_put_back() {
    let test = "snapshots_by_layers_of_two_volumes_are_one_moment_and_are_cloned_and_put_back";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let (mut server, socket) = serve(&world, &["a=pool:,size=16M", "b=pool:p,size=16M"]);
    let first = pattern(5, SIZE);
    fill(&world, "a", &first);
    let attached = [Attached::file(&world, &Wire::Ip.url("a")), Attached::file(&world, &Wire::Iscsi.url("b"))];
    let open = |attached: &Attached| OpenOptions::new().read(true).write(true).open(&attached.place).expect("a file");
    let files = [open(&attached[0]), open(&attached[1])];
    let (reached, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut seen = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| write_stamps(&files, &reached, &ends));
        let _ends = Ends(&ends);
        wait_until("both are written", TIMEOUT, || reached.load(Ordering::Relaxed) > 3);
        for round in 0..6 {
            let before = reached.load(Ordering::Relaxed);
            let name = format!("s{round}");
            ctl_ok(&socket, &["snapshot", "a,b", &name]);
            seen.push((name, before));
            thread::sleep(Duration::from_millis(20 + 7 * round));
        }
    });
    for (name, before) in &seen[2..5] {
        let [a, b] = ["a", "b"].map(|volume| of_snapshot(&world, &socket, &format!("{volume}@{name}")));
        assert_eq!(a[4096..], first[4096..], "{name}");
        let [a, b] = [stamp(&a), stamp(&b)];
        assert!(b >= *before && (a == b || a == b + 1), "{name}: {a} and {b}, {before} was there");
    }
    drop(files);
    attached.into_iter().for_each(|attached| attached.detach(&world));
    let last = content(&world, &Wire::Ip.url("a"));
    wait_until("nobody uses it", TIMEOUT, || ctl(&socket, &["rollback", "a@s0", "--keep", "last"]).code == Some(0));
    let back = content(&world, &Wire::Iscsi.url("a"));
    assert!(back == of_snapshot(&world, &socket, "a@s0") && stamp(&back) < stamp(&last));
    ctl_ok(&socket, &["clone", "a@last", "c"]);
    assert!(content(&world, &Wire::Ethernet.url("c")) == last, "the clone is what it was cloned of");
    fill(&world, "c", &pattern(6, SIZE));
    ctl_ok(&socket, &["resize-volume", "c", "17M"]);
    for name in ["s0", "s3", "s5"] {
        ctl_ok(&socket, &["delete-snapshot", &format!("a@{name}")]);
    }
    assert!(server.stop().success(), "{}", server.log());
    server.restart();
    wait_until("it serves again", TIMEOUT, || ctl(&socket, &["status"]).code == Some(0));
    assert!(
        content(&world, &Wire::Ip.url("a")) == back && content(&world, &Wire::Ip.url("c"))[..SIZE] == pattern(6, SIZE)
    );
    assert!(of_snapshot(&world, &socket, "a@last") == last);
    ctl_ok(&socket, &["delete-volume", "a", "--snapshots", "--force"]);
    assert!(content(&world, &Wire::Ip.url("c"))[..SIZE] == pattern(6, SIZE), "it needs nothing of its source");
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_server_that_is_killed_while_it_rolls_layers_back_has_the_one_or_the_other() {
    let test = "a_server_that_is_killed_while_it_rolls_layers_back_has_the_one_or_the_other";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let (mut server, socket) = serve(&world, &["a=pool:p,size=16M"]);
    let contents = [11, 12].map(|seed| pattern(seed, SIZE));
    fill(&world, "a", &contents[0]);
    wait_until("nobody uses it", TIMEOUT, || ctl(&socket, &["snapshot", "a", "first"]).code == Some(0));
    let mut ends = [0, 0];
    for round in 0..5 {
        fill(&world, "a", &contents[1]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        let socket_text = socket.display().to_string();
        command.args(["ctl", "--socket", &socket_text, "rollback", "a@first", "--force", "--keep"]);
        command.arg(format!("kept{round}"));
        let rollback = Process::spawn("rollback", command, world.scratch.path("rollback.log"));
        thread::sleep(Duration::from_millis(15 * round));
        server.kill();
        drop(rollback);
        server.restart();
        wait_until("it serves again", TIMEOUT, || ctl(&socket, &["status"]).code == Some(0));
        let now = content(&world, &Wire::Ip.url("a"));
        let which = contents.iter().position(|content| *content == now);
        let which = which.unwrap_or_else(|| panic!("round {round}: it is neither the one nor the other"));
        ends[which] += 1;
        let is_kept = ctl_ok(&socket, &["snapshots", "a"]).contains(&format!("a@kept{round} "));
        assert_eq!(is_kept, which == 0, "what was there is kept when it is not there any more");
    }
    assert!(of_snapshot(&world, &socket, "a@first") == contents[0]);
    ctl_ok(&socket, &["delete-volume", "a", "--snapshots", "--force"]);
    let left = fs::read_dir(world.scratch.path("pool/.sanwire-layers")).expect("a directory").count();
    assert_eq!((ends[0] + ends[1], left), (5, 0));
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn what_was_written_to_layers_and_not_flushed_is_written_again_when_the_server_was_killed() {
    let test = "what_was_written_to_layers_and_not_flushed_is_written_again_when_the_server_was_killed";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let (mut server, socket) = serve(&world, &["a=pool:p,size=96M"]);
    ctl_ok(&socket, &["snapshot", "a", "first"]);
    let image = world.scratch.text("image.raw");
    for round in 0..4 {
        let content_of_a = pattern(41 + round, 96 << 20);
        fs::write(&image, &content_of_a).expect("an image");
        let command = world.sanwire(&["cp", "--overwrite", "--wait", "60", &image, &Wire::Ip.url("a")]);
        let mut copy = Process::spawn("cp", command, world.scratch.path("cp.log"));
        thread::sleep(Duration::from_millis(100 + 50 * round));
        server.kill();
        server.restart();
        assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
        assert!(content(&world, &Wire::Ip.url("a")) == content_of_a, "round {round}: what was answered is lost");
    }
    assert!(server.stop().success(), "{}", server.log());
}

/// A file system on a device with sectors of 4096 bytes, until the test ends.
struct LongSectors {
    device: String,
    directory: PathBuf,
}

impl LongSectors {
    fn new(world: &World) -> LongSectors {
        let (image, directory) = (world.scratch.path("sectors.img"), world.scratch.path("pool"));
        File::create(&image).and_then(|file| file.set_len(96 << 20)).expect("an image");
        let mut attach = Command::new("losetup");
        attach.args(["--find", "--show", "--sector-size", "4096"]).arg(&image);
        let device = run_ok(attach, TIMEOUT).trim().to_owned();
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-F", &device]);
        run_ok(make, TIMEOUT);
        fs::create_dir_all(&directory).expect("a mount point");
        let mut mount = Command::new("mount");
        mount.arg(&device).arg(&directory);
        run_ok(mount, TIMEOUT);
        LongSectors { device, directory }
    }
}

impl Drop for LongSectors {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        unmount.arg("--lazy").arg(&self.directory);
        run(unmount, TIMEOUT);
        let mut detach = Command::new("losetup");
        detach.args(["--detach", &self.device]);
        run(detach, TIMEOUT);
    }
}

#[test]
fn layers_of_a_volume_past_the_page_cache_are_served_again_also_where_they_began_without_it() {
    let test = "layers_of_a_volume_past_the_page_cache_are_served_again_also_where_they_began_without_it";
    let Some(world) = World::new(test, 1500, &["mkfs.ext4", "mount"]) else { return };
    let _mounted = LongSectors::new(&world);
    let volumes = ["a=pool:p,size=16M,block=4096,direct", "b=pool:p,size=1M,block=4096,direct"];
    let (mut server, socket) = serve(&world, &volumes);
    let content_of_a = pattern(21, SIZE);
    fill(&world, "a", &content_of_a);
    wait_until("nobody uses it", TIMEOUT, || ctl(&socket, &["remove-volume", "a"]).code == Some(0));
    // Nobody says now which blocks it has.
    ctl_ok(&socket, &["snapshot", "a", "first"]);
    ctl_ok(&socket, &["snapshot", "b", "first"]);
    ctl_ok(&socket, &["add-volume", volumes[0]]);
    fill(&world, "a", &pattern(22, SIZE));
    server.stop();
    server.restart();
    wait_until("it serves again", TIMEOUT, || ctl(&socket, &["status"]).code == Some(0));
    assert!(
        content(&world, &Wire::Ip.url("a")) == pattern(22, SIZE)
            && content(&world, &Wire::Ip.url("b")).len() == 1 << 20
    );
    assert!(of_snapshot(&world, &socket, "a@first") == content_of_a);
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_host_whose_session_has_ended_writes_nothing_over_a_rollback_when_it_is_back() {
    let test = "a_host_whose_session_has_ended_writes_nothing_over_a_rollback_when_it_is_back";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let (mut server, socket) = serve(&world, &["a=pool:p,size=16M"]);
    let attached = Attached::file(&world, &Wire::Ip.url("a"));
    let file = OpenOptions::new().read(true).write(true).open(&attached.place).expect("a file");
    let first = pattern(31, SIZE);
    file.write_all_at(&first, 0).and_then(|()| file.sync_all()).expect("it can be written");
    ctl_ok(&socket, &["snapshot", "a", "first"]);
    file.write_all_at(&pattern(32, 1 << 20), 0).expect("it can be written");
    let id = run_ok(world.sanwire(&["id"]), TIMEOUT).trim().to_owned();
    // Whoever closes the file, as each new process does, has it written out first: that reaches the server, and is not flushed there.
    world.cut_link();
    ctl_ok(&socket, &["drop-client", &id]);
    wait_until("its session has ended", TIMEOUT, || !ctl_ok(&socket, &["sessions"]).contains(&id));
    let told = ctl_ok(&socket, &["rollback", "a@first", "--force", "--dry-run"]);
    assert!(told.contains("would hold what the snapshot a@first does"), "{told}");
    ctl_ok(&socket, &["rollback", "a@first", "--force"]);
    world.restore_link();
    assert!(file.sync_all().is_err(), "it hears that this is lost: {}", attached.log());
    drop(file);
    attached.detach(&world);
    assert!(content(&world, &Wire::Ip.url("a")) == first, "nothing of it is written again");
    let happened = ctl_ok(&socket, &["events"]);
    assert!(happened.contains("volume a holds what the snapshot a@first does"), "{happened}");
    assert!(server.stop().success(), "{}", server.log());
}
