//! Attachments that are killed (SIGKILL): nothing on their host hangs, and the volume can be attached again.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Attached, Server, Wire, World, expect_pattern, pattern, run, run_ok, wait_until};

const TIMEOUT: Duration = Duration::from_secs(60);
const PART_BYTES: usize = 1 << 20;

#[test]
fn an_attachment_killed_while_its_server_is_stopped_leaves_nothing_that_hangs() {
    let test = "an_attachment_killed_while_its_server_is_stopped_leaves_nothing_that_hangs";
    let Some(world) = World::new(test, 1500, &["unshare"]) else { return };
    let mut server = Server::start(&world, &["disk=ram:64M"]);
    let url = Wire::Ip.url("disk");
    for is_ending in [false, true] {
        let mut attached = Attached::device(&world, &url);
        let device = attached.place.clone();
        let file = OpenOptions::new().read(true).write(true).open(&device).expect("the device");
        let cleaner = Cleaner::of(&device, &server);
        server.signal(Signal::STOP);
        // In the kernel's cache alone.
        file.write_all_at(&pattern(7, PART_BYTES), 0).expect("the cache takes it");
        if is_ending {
            attached.ask_to_end();
            wait_until("it waits for its last writes", TIMEOUT, || waits_in_the_kernel(attached.pid()));
        }
        attached.kill();
        loop_devices();
        drop(file);
        drop(cleaner);

        // The place is the same: what the dead one has left there is removed first.
        let attached = Attached::device(&world, &url);
        let file = OpenOptions::new().read(true).write(true).open(&attached.place).expect("the device");
        write_and_read(&file);
        drop(file);
        attached.detach(&world);
        assert!(!backs_a_device(&world), "a loop device was left");
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn detaching_waits_for_a_server_that_is_away_and_loses_nothing() {
    let test = "detaching_waits_for_a_server_that_is_away_and_loses_nothing";
    let Some(world) = World::new(test, 1500, &["unshare"]) else { return };
    let store = format!("disk=file:{},size=64M", world.scratch.text("disk.img"));
    let mut server = Server::start(&world, &[&store]);
    let url = Wire::Ip.url("disk");
    let mut attached = Attached::device(&world, &url);
    let file = OpenOptions::new().read(true).write(true).open(&attached.place).expect("the device");
    let cleaner = Cleaner::of(&attached.place, &server);
    server.signal(Signal::STOP);
    file.write_all_at(&pattern(7, PART_BYTES), 0).expect("the cache takes it");
    attached.ask_to_end();
    wait_until("it says so", TIMEOUT, || attached.log().contains("is not at the server yet"));
    server.signal(Signal::CONT);
    drop(file);
    attached.expect_end();
    drop(cleaner);
    assert!(server.stop().success(), "{}", server.log());
    let stored = File::open(world.scratch.path("disk.img")).expect("the store");
    let mut found = vec![0; PART_BYTES];
    stored.read_exact_at(&mut found, 0).expect("the part");
    expect_pattern("the store", &found, 7);
}

fn write_and_read(file: &File) {
    file.write_all_at(&pattern(8, PART_BYTES), 1 << 20).expect("a write");
    file.sync_all().expect("a flush");
    let mut found = vec![0; PART_BYTES];
    file.read_exact_at(&mut found, 1 << 20).expect("a read");
    assert!(found == pattern(8, PART_BYTES), "what was written is not there");
}

/// Whether a thread of the process, or a process that it has started, waits in the kernel where no signal wakes it.
fn waits_in_the_kernel(pid: u32) -> bool {
    let state_and_parent = |stat: &Path| {
        let stat = fs::read_to_string(stat).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().map(str::to_owned);
        Some((fields.next()?, fields.next()?))
    };
    let entries = |path: &str| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut threads = entries(&format!("/proc/{pid}/task"));
    let mut children = entries("/proc");
    threads.any(|thread| state_and_parent(&thread.join("stat")).is_some_and(|(state, _)| state == "D"))
        || children.any(|process| {
            state_and_parent(&process.join("stat"))
                .is_some_and(|(state, parent)| state == "D" && parent == pid.to_string())
        })
}

/// Whether a file of this test is under a loop device.
fn backs_a_device(world: &World) -> bool {
    let directory = world.scratch.directory().display().to_string();
    loop_devices().contains(&directory)
}

/// The loop devices of this host.
fn loop_devices() -> String {
    let mut losetup = Command::new("losetup");
    losetup.arg("--all");
    run_ok(losetup, TIMEOUT)
}

/// Whatever happens in the test, nothing may hang on this machine afterwards: lets the server go on, and ends the kernel's
/// connection with the process that serves the device.
struct Cleaner {
    server: u32,
    connection: u64,
}

impl Cleaner {
    fn of(device: &Path, server: &Server) -> Cleaner {
        let name = device.file_name().expect("a name");
        let backing = fs::read_to_string(Path::new("/sys/block").join(name).join("loop/backing_file"));
        let number = fs::metadata(backing.expect("a loop device").trim_end()).expect("its file").dev();
        // The connections' directory has them by the minor number.
        Cleaner { server: server.pid(), connection: number & 0xff | (number >> 12) & 0xfff00 }
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        let mut resume = Command::new("kill");
        resume.args(["-CONT", &self.server.to_string()]);
        run(resume, TIMEOUT);
        let script = format!(
            "mount -t fusectl none /sys/fs/fuse/connections && cd /sys/fs/fuse/connections && \
             if [ -e {0} ]; then echo 1 > {0}/abort; fi",
            self.connection
        );
        let mut abort = Command::new("unshare");
        abort.args(["--mount", "sh", "-c", &script]);
        run(abort, TIMEOUT);
    }
}
