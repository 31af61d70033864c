//! Snapshots of volumes in a pool on XFS: taken under writes over two wires, cloned, put back, and the server killed meanwhile.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::{
    Attached, Ends, Process, Server, Wire, World, Xfs, can_run, pattern, run_ok, stamp, wait_until, write_stamps,
};
use crate::manage::{ctl, ctl_ok};

const TIMEOUT: Duration = Duration::from_secs(60);

const SIZE: usize = 16 << 20;

/// A server with a pool there, on every wire.
fn serve(world: &World, xfs: &Xfs, volumes: &[&str]) -> (Server, PathBuf) {
    let (socket, pool) = (world.scratch.path("ctl.sock"), format!("p={}", xfs.0.display()));
    let (control, portal) = (socket.display().to_string(), format!("iscsi:{}", crate::harness::SERVER_ADDRESS));
    let options = ["--allow", "any", "--control", &control, "--pool", &pool, "--wire", &portal];
    (Server::start_with(world, volumes, &options), socket)
}

#[test]
fn a_snapshot_of_two_volumes_is_one_moment_while_both_are_written_over_different_wires() {
    let test = "a_snapshot_of_two_volumes_is_one_moment_while_both_are_written_over_different_wires";
    if !can_run(test, &Xfs::TOOLS) {
        return;
    }
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let xfs = Xfs::new(&world);
    let (mut server, socket) = serve(&world, &xfs, &["a=pool:,size=16M", "b=pool:p,size=16M"]);
    let pools = ctl_ok(&socket, &["pools"]);
    assert!(pools.split_whitespace().collect::<Vec<_>>().join(" ").contains(" 32 MiB - - 2 yes "), "{pools}");
    let attached = [Attached::file(&world, &Wire::Ip.url("a")), Attached::file(&world, &Wire::Iscsi.url("b"))];
    let open = |attached: &Attached| OpenOptions::new().read(true).write(true).open(&attached.place).expect("a file");
    let files = [open(&attached[0]), open(&attached[1])];
    let (reached, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut seen = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| write_stamps(&files, &reached, &ends));
        let _ends = Ends(&ends);
        wait_until("both are written", TIMEOUT, || reached.load(Ordering::Relaxed) > 3);
        for round in 0..12 {
            let before = reached.load(Ordering::Relaxed);
            let name = format!("s{round}");
            ctl_ok(&socket, &["snapshot", "a,b", &name]);
            seen.push((name, before));
            thread::sleep(Duration::from_millis(20 + 7 * round));
        }
    });
    for (name, before) in &seen {
        let [a, b] = ["a", "b"].map(|volume| stamp(&xfs.content(&format!("{volume}@{name}"))));
        assert!(b >= *before && (a == b || a == b + 1), "{name}: {a} and {b}, {before} was there");
    }
    assert_eq!(ctl_ok(&socket, &["snapshots", "a"]).lines().count(), 1 + seen.len());
    let refused = ctl(&socket, &["rollback", "a@s0"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("in use"), "{}", refused.stderr);
    drop(files);
    attached.into_iter().for_each(|attached| attached.detach(&world));
    ctl_ok(&socket, &["rollback", "a@s0", "--keep", "last"]);
    assert_eq!(xfs.content("a"), xfs.content("a@s0"));
    assert_eq!(stamp(&xfs.content("a@last")), reached.load(Ordering::Relaxed));
    ctl_ok(&socket, &["clone", "a@last", "c"]);
    let copy = world.scratch.text("c.raw");
    run_ok(world.sanwire(&["cp", &Wire::Ethernet.url("c"), &copy]), TIMEOUT);
    assert_eq!(fs::read(&copy).expect("the copy"), xfs.content("a@last"));
    ctl_ok(&socket, &["add-volume", "old=pool:p/a@s3,readonly"]);
    let old = world.scratch.text("old.raw");
    run_ok(world.sanwire(&["cp", &Wire::Iscsi.url("old"), &old]), TIMEOUT);
    assert_eq!(fs::read(&old).expect("the copy"), xfs.content("a@s3"));
    assert!(ctl(&socket, &["delete-snapshot", "a@s3"]).stderr.contains("is served as volume old"));
    ctl_ok(&socket, &["remove-volume", "old"]);
    let refused = ctl(&socket, &["delete-volume", "a"]);
    assert!(refused.stderr.contains("has 13 snapshots"), "{}", refused.stderr);
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn what_an_attached_host_has_not_flushed_is_not_written_over_a_rollback_of_any_length() {
    let test = "what_an_attached_host_has_not_flushed_is_not_written_over_a_rollback_of_any_length";
    if !can_run(test, &Xfs::TOOLS) {
        return;
    }
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let xfs = Xfs::new(&world);
    // No whole number of the file system's blocks.
    let (mut server, socket) = serve(&world, &xfs, &["a=pool:p,size=1049088"]);
    let attached = Attached::file(&world, &Wire::Ip.url("a"));
    let file = OpenOptions::new().read(true).write(true).open(&attached.place).expect("a file");
    file.write_all_at(&pattern(3, 1 << 20), 0).and_then(|()| file.sync_all()).expect("it can be written");
    ctl_ok(&socket, &["snapshot", "a", "first"]);
    ctl_ok(&socket, &["resize-volume", "a", "2M"]);
    file.write_all_at(&pattern(4, 1 << 20), 0).expect("it can be written");
    ctl_ok(&socket, &["rollback", "a@first", "--force"]);
    let expected = [xfs.content("a@first"), vec![0; (1 << 20) - 512]].concat();
    assert_eq!(xfs.content("a"), expected);
    assert!(file.sync_all().is_err(), "it hears that this is lost");
    assert_eq!(xfs.content("a"), expected, "and nothing of it is written again");
    // A full file system: what makes room needs some.
    let filler = File::create(xfs.0.join("filler")).expect("a file");
    let block = vec![1; 64 << 10];
    while std::io::Write::write_all(&mut &filler, &block).is_ok() {}
    drop((filler.sync_all(), filler));
    ctl_ok(&socket, &["delete-snapshot", "a@first"]);
    drop(file);
    attached.detach(&world);
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_server_that_is_killed_while_it_rolls_back_has_the_one_or_the_other() {
    let test = "a_server_that_is_killed_while_it_rolls_back_has_the_one_or_the_other";
    if !can_run(test, &Xfs::TOOLS) {
        return;
    }
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let xfs = Xfs::new(&world);
    let (mut server, socket) = serve(&world, &xfs, &["a=pool:p,size=16M"]);
    let contents = [11, 12].map(|seed| pattern(seed, SIZE));
    let fill = |content: &[u8]| {
        let image = world.scratch.text("image.raw");
        fs::write(&image, content).expect("an image");
        run_ok(world.sanwire(&["cp", "--overwrite", &image, &Wire::Ip.url("a")]), TIMEOUT);
    };
    fill(&contents[0]);
    wait_until("nobody uses it", TIMEOUT, || ctl(&socket, &["snapshot", "a", "first"]).code == Some(0));
    let mut ends = [0, 0];
    for round in 0..8 {
        fill(&contents[1]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanwire"));
        let socket_text = socket.display().to_string();
        command.args(["ctl", "--socket", &socket_text, "rollback", "a@first", "--force", "--keep"]);
        command.arg(format!("kept{round}"));
        let rollback = Process::spawn("rollback", command, world.scratch.path("rollback.log"));
        thread::sleep(Duration::from_millis(20 * round));
        server.kill();
        drop(rollback);
        server.restart();
        wait_until("it serves again", TIMEOUT, || ctl(&socket, &["status"]).code == Some(0));
        let now = xfs.content("a");
        let which = contents.iter().position(|content| *content == now);
        let which = which.unwrap_or_else(|| panic!("round {round}: it is neither the one nor the other"));
        ends[which] += 1;
        assert_eq!(xfs.content("a@first"), contents[0]);
        let is_kept = ctl_ok(&socket, &["snapshots", "a"]).contains(&format!("a@kept{round} "));
        assert_eq!(is_kept, which == 0, "what was there is kept when it is not there any more");
        let names = fs::read_dir(&xfs.0).expect("the pool").map(|entry| entry.expect("an entry").file_name());
        let left: Vec<_> = names.filter(|name| Path::new(name).extension().is_some_and(|end| end == "new")).collect();
        assert!(left.is_empty(), "round {round}: {left:?}");
    }
    assert_eq!(ends[0] + ends[1], 8);
    ctl_ok(&socket, &["delete-volume", "a", "--snapshots", "--force"]);
    let left: Vec<_> =
        fs::read_dir(&xfs.0).expect("the pool").map(|entry| entry.expect("an entry").file_name()).collect();
    assert!(left.iter().all(|name| name.to_string_lossy().starts_with(".sanwire")), "{left:?}");
    assert!(server.stop().success(), "{}", server.log());
}
