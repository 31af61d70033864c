//! Stores and configurations that fail: the client hears what happened, and the server lives on.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::harness::{
    Attached, Process, SERVER_ADDRESS, Server, Wire, World, expect_pattern, pattern, run, run_ok, wait_until,
};

const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_full_disk_is_no_space_left() {
    let Some(world) = World::new("a_full_disk_is_no_space_left", 1500, &["dd", "mount"]) else { return };
    let small = SmallDisk::new(world.scratch.path("small"), "8M");
    let volume = format!("disk=file:{},size=64M", small.0.join("disk.img").display());
    let mut server = Server::start(&world, &[&volume]);
    let image = world.scratch.path("image.raw");
    fs::write(&image, pattern(1, 32 << 20)).expect("an image");
    let source = image.display().to_string();
    for wire in [Wire::Ethernet, Wire::Ip] {
        let ran = run(world.sanwire(&["cp", "--overwrite", &source, &wire.url("disk")]), TIMEOUT);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains("no space is left on the server"), "{}", ran.stderr);
    }
    let attached = Attached::file(&world, &Wire::Ip.url("disk"));
    let mut dd = Command::new("dd");
    dd.args([&format!("if={source}"), &format!("of={}", attached.place.display())]);
    dd.args(["bs=1M", "seek=32", "conv=notrunc,fsync", "oflag=direct"]);
    let ran = run(dd, TIMEOUT);
    assert!(ran.stderr.contains("No space left on device"), "{}", ran.stderr);
    attached.detach(&world);
    run_ok(world.sanwire(&["ls", &Wire::Ethernet.server_url()]), TIMEOUT);
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn writes_to_a_full_disk_wait_for_room_where_the_volume_says_so() {
    let test = "writes_to_a_full_disk_wait_for_room_where_the_volume_says_so";
    let Some(world) = World::new(test, 1500, &["mount"]) else { return };
    let (image, back) = (world.scratch.text("image.raw"), world.scratch.text("back.raw"));
    fs::write(&image, pattern(8, 32 << 20)).expect("an image");
    let wires = [Wire::Ethernet, Wire::Ip, Wire::Iscsi];
    let small = wires.map(|wire| SmallDisk::new(world.scratch.path(&format!("{wire:?}")), "8M"));
    let volume = |(wire, small): (&Wire, &SmallDisk)| {
        format!("{wire:?}=file:{},size=64M,when-full=wait:60s", small.0.join("disk.img").display())
    };
    let volumes: Vec<String> = wires.iter().zip(&small).map(volume).chain(["other=ram:64M".into()]).collect();
    let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
    let (socket, portal) = (world.scratch.text("ctl.sock"), format!("iscsi:{SERVER_ADDRESS}"));
    let options = ["--allow", "any", "--control", &socket, "--wire", &portal];
    let mut server = Server::start_with(&world, &volumes, &options);
    for (index, wire) in wires.into_iter().enumerate() {
        let waiting = || {
            let status = run_ok(world.sanwire(&["ctl", "--socket", &socket, "status", "--json"]), TIMEOUT);
            let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
            status["status"]["volumes"][index]["waiting"].as_u64().expect("a number")
        };
        let url = wire.url(&format!("{wire:?}"));
        let log = world.scratch.path(&format!("cp-{wire:?}.log"));
        let mut copy = Process::spawn("cp", world.sanwire(&["cp", "--overwrite", &image, &url]), log);
        wait_until("commands wait for room", TIMEOUT, || waiting() > 0);
        let said = format!("the store of {wire:?} is full: its commands wait");
        assert!(server.log().contains(&said), "{}", server.log());
        run_ok(world.sanwire(&["cp", "--overwrite", &image, &wire.url("other")]), TIMEOUT);
        assert!(copy.is_alive() && waiting() > 0, "{}", copy.log());
        small[index].resize("64M");
        assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
        assert_eq!(waiting(), 0);
        let said = format!("no command waits for the store of {wire:?} any more; 0 failed");
        assert!(server.log().contains(&said), "{}", server.log());
        run_ok(world.sanwire(&["cp", "--overwrite", &url, &back]), TIMEOUT);
        let copied = fs::read(&back).expect("the copy");
        expect_pattern("what waited", &copied[..32 << 20], 8);
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn media_errors_reach_the_reader() {
    let Some(world) = World::new("media_errors_reach_the_reader", 1500, &["dd"]) else { return };
    // Thick: what has no space is not read.
    let volume = format!("disk=file:{},size=16M,thick,error=read@1M..2M", world.scratch.text("disk.img"));
    let mut server = Server::start(&world, &[&volume]);
    let copy = world.scratch.text("copy.raw");
    let ran = run(world.sanwire(&["cp", &Wire::Ethernet.url("disk"), &copy]), TIMEOUT);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("medium error at byte"), "{}", ran.stderr);
    let attached = Attached::device(&world, &Wire::Ip.url("disk"));
    let device = attached.place.display().to_string();
    for (skip, sound) in [("skip=0", true), ("skip=1", false), ("skip=2", true)] {
        let mut dd = Command::new("dd");
        dd.args([&format!("if={device}"), "of=/dev/null", "bs=1M", "count=1", skip, "iflag=direct"]);
        let ran = run(dd, TIMEOUT);
        assert_eq!(ran.code == Some(0), sound, "{skip}: {}", ran.stderr);
        assert!(sound || ran.stderr.contains("Input/output error"), "{}", ran.stderr);
    }
    attached.detach(&world);
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_flush_that_fails_is_an_error_of_fsync() {
    let Some(world) = World::new("a_flush_that_fails_is_an_error_of_fsync", 1500, &[]) else { return };
    let volume = format!("disk=file:{},size=16M,error=flush", world.scratch.text("disk.img"));
    let mut server = Server::start(&world, &[&volume]);
    for wire in [Wire::Ethernet, Wire::Ip] {
        let attached = Attached::device(&world, &wire.url("disk"));
        let device = File::options().write(true).open(&attached.place).expect("the device");
        device.write_all_at(&pattern(6, 4096), 0).expect("the kernel takes the write");
        let error = device.sync_all().expect_err("the store cannot flush");
        assert_eq!(error.raw_os_error(), Some(5), "EIO was expected, not {error}");
    }
    run_ok(world.sanwire(&["ls", &Wire::Ethernet.server_url()]), TIMEOUT);
    assert!(server.is_alive());
}

#[test]
fn a_truncated_store_is_a_media_error() {
    let Some(world) = World::new("a_truncated_store_is_a_media_error", 1500, &[]) else { return };
    let store = world.scratch.path("disk.img");
    let volumes = [format!("disk=file:{},size=16M", store.display()), "other=ram:16M".to_owned()];
    let mut server = Server::start(&world, &volumes.each_ref().map(String::as_str));
    let (url, copy) = (Wire::Ethernet.url("disk"), world.scratch.text("copy.raw"));
    run_ok(world.sanwire(&["cp", &url, &copy]), TIMEOUT);
    File::options().write(true).open(&store).and_then(|file| file.set_len(1 << 20)).expect("the store shrinks");
    let ran = run(world.sanwire(&["cp", "--overwrite", &url, &copy]), TIMEOUT);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("medium error at byte"), "{}", ran.stderr);
    run_ok(world.sanwire(&["cp", &Wire::Ethernet.url("other"), &copy]), TIMEOUT);
    assert!(server.is_alive());
    fs::remove_file(&store).expect("the store goes away");
    run(world.sanwire(&["cp", "--overwrite", &url, &copy]), TIMEOUT);
    run_ok(world.sanwire(&["info", &Wire::Ip.url("other")]), TIMEOUT);
    assert!(server.is_alive());
}

#[test]
fn readers_of_a_store_that_was_cut_short_wait_until_it_is_whole_where_the_volume_says_so() {
    let test = "readers_of_a_store_that_was_cut_short_wait_until_it_is_whole_where_the_volume_says_so";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    let store = world.scratch.path("disk.img");
    let mut server = Server::start(&world, &[&format!("disk=file:{},size=16M,when-gone=wait:60s", store.display())]);
    let file = File::options().write(true).open(&store).expect("the store");
    file.set_len(1 << 20).expect("the store shrinks");
    let copy = world.scratch.text("copy.raw");
    let log = world.scratch.path("cp.log");
    let mut reader = Process::spawn("cp", world.sanwire(&["cp", &Wire::Ethernet.url("disk"), &copy]), log);
    wait_until("commands wait for the store", TIMEOUT, || server.log().contains("the store of disk is gone"));
    assert!(reader.is_alive(), "{}", reader.log());
    file.set_len(16 << 20).expect("the store is whole");
    assert!(reader.wait(TIMEOUT).success(), "{}", reader.log());
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn a_server_that_stops_says_so_and_keeps_everything() {
    let Some(world) = World::new("a_server_that_stops_says_so_and_keeps_everything", 1500, &["dd"]) else { return };
    let store = world.scratch.path("disk.img");
    let mut server = Server::start(&world, &[&format!("disk=file:{},size=16M", store.display())]);
    for wire in [Wire::Ethernet, Wire::Ip] {
        let attached = Attached::device(&world, &wire.url("disk"));
        let data = pattern(5, 1 << 20);
        let device = File::options().write(true).open(&attached.place).expect("the device");
        device.write_all_at(&data, 1 << 20).and_then(|()| device.sync_all()).expect("a write");
        drop(device);
        let status = server.stop();
        assert_eq!(status.code(), Some(0), "{}", server.log());
        wait_until("the client knows that the server stops", Duration::from_secs(5), || {
            attached.log().contains("server box stops; seeking it")
        });
        let mut kept = vec![0; data.len()];
        File::open(&store).and_then(|file| file.read_exact_at(&mut kept, 1 << 20)).expect("the store");
        assert!(kept == data, "the store has something else");
        server.restart();
        wait_until("the client is back", Duration::from_secs(20), || attached.log().contains("server box is back"));
        attached.detach(&world);
    }
}

#[test]
fn an_attached_volume_works_again_when_a_server_comes_back_late() {
    let test = "an_attached_volume_works_again_when_a_server_comes_back_late";
    let Some(world) = World::new(test, 1500, &[]) else { return };
    for wire in [Wire::Ethernet, Wire::Iscsi] {
        let volume = format!("disk=file:{},size=16M", world.scratch.text(&format!("{wire:?}.img")));
        let mut server = Server::start_for(&world, wire, &[&volume]);
        let attached = Attached::device_with(&world, &wire.url("disk"), &["--wait", "15"]);
        let data = pattern(7, 1 << 20);
        let device = File::options().read(true).write(true).open(&attached.place).expect("the device");
        device.write_all_at(&data, 0).and_then(|()| device.sync_all()).expect("a write");
        server.kill();
        wait_until("the client waits no more", TIMEOUT, || attached.log().contains("I/O fails until it is back"));
        let mut bytes = vec![0; data.len()];
        let error = device.read_exact_at(&mut bytes, 8 << 20).expect_err("nobody is there");
        assert_eq!(error.raw_os_error(), Some(5), "EIO was expected, not {error}");
        server.restart();
        wait_until("it reads again", TIMEOUT, || device.read_exact_at(&mut bytes, 8 << 20).is_ok());
        assert!(bytes.iter().all(|byte| *byte == 0));
        device.write_all_at(&data, 8 << 20).and_then(|()| device.sync_all()).expect("a write");
        drop(device);
        attached.detach(&world);
        assert!(server.stop().success(), "{}", server.log());
    }
}

#[test]
fn a_wrong_configuration_is_told_with_its_line() {
    let scratch = crate::harness::Scratch::new();
    let file = scratch.path("sanwire.toml");
    fs::write(&file, "name = \"box\"\n\n[[volume]]\nname = \"disk\"\nstore = \"ram:1M\"\ncolour = 7\n")
        .expect("a file");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_sanwire"));
    serve.args(["serve", "--config"]).arg(&file);
    let ran = run(serve, TIMEOUT);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let place = format!("{}:", file.display());
    let line = ran.stderr.split_once(&place).and_then(|(_, rest)| rest.split(':').next()).map(str::to_owned);
    assert!(matches!(line.as_deref(), Some("3" | "6")), "{}", ran.stderr);
    assert!(ran.stderr.contains("colour"), "{}", ran.stderr);
}

/// A file system of so few bytes that a disk in it gets full.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(directory: PathBuf, size: &str) -> SmallDisk {
        fs::create_dir_all(&directory).expect("a directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(&directory);
        run_ok(mount, TIMEOUT);
        SmallDisk(directory)
    }

    fn resize(&self, size: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,size={size}")]).arg(&self.0);
        run_ok(mount, TIMEOUT);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        unmount.arg("--lazy").arg(&self.0);
        run(unmount, TIMEOUT);
    }
}
