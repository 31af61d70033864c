//! Stores and configurations that fail: the client hears what happened, and the server lives on.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::harness::{Attached, Server, Wire, World, pattern, run, run_ok, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

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
        let ran = run(world.sanwire(&["cp", "--restart", &source, &wire.url("disk")]), PATIENCE);
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains("no space is left on the server"), "{}", ran.stderr);
    }
    let attached = Attached::file(&world, &Wire::Ip.url("disk"));
    let mut dd = Command::new("dd");
    dd.args([&format!("if={source}"), &format!("of={}", attached.place.display())]);
    dd.args(["bs=1M", "seek=32", "conv=notrunc,fsync", "oflag=direct"]);
    let ran = run(dd, PATIENCE);
    assert!(ran.stderr.contains("No space left on device"), "{}", ran.stderr);
    attached.detach(&world);
    run_ok(world.sanwire(&["ls", &Wire::Ethernet.server_url()]), PATIENCE);
    assert!(server.stop().success(), "{}", server.log());
}

#[test]
fn media_errors_reach_the_reader() {
    let Some(world) = World::new("media_errors_reach_the_reader", 1500, &["dd"]) else { return };
    let volume = format!("disk=file:{},size=16M,error=read@1M..2M", world.scratch.text("disk.img"));
    let mut server = Server::start(&world, &[&volume]);
    let copy = world.scratch.text("copy.raw");
    let ran = run(world.sanwire(&["cp", &Wire::Ethernet.url("disk"), &copy]), PATIENCE);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("medium error at byte"), "{}", ran.stderr);
    let attached = Attached::device(&world, &Wire::Ip.url("disk"));
    let device = attached.place.display().to_string();
    for (skip, sound) in [("skip=0", true), ("skip=1", false), ("skip=2", true)] {
        let mut dd = Command::new("dd");
        dd.args([&format!("if={device}"), "of=/dev/null", "bs=1M", "count=1", skip, "iflag=direct"]);
        let ran = run(dd, PATIENCE);
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
    run_ok(world.sanwire(&["ls", &Wire::Ethernet.server_url()]), PATIENCE);
    assert!(server.is_alive());
}

#[test]
fn a_truncated_store_is_a_media_error() {
    let Some(world) = World::new("a_truncated_store_is_a_media_error", 1500, &[]) else { return };
    let store = world.scratch.path("disk.img");
    let volumes = [format!("disk=file:{},size=16M", store.display()), "other=ram:16M".to_owned()];
    let mut server = Server::start(&world, &volumes.each_ref().map(String::as_str));
    let (url, copy) = (Wire::Ethernet.url("disk"), world.scratch.text("copy.raw"));
    run_ok(world.sanwire(&["cp", &url, &copy]), PATIENCE);
    File::options().write(true).open(&store).and_then(|file| file.set_len(1 << 20)).expect("the store shrinks");
    let ran = run(world.sanwire(&["cp", "--restart", &url, &copy]), PATIENCE);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("medium error at byte"), "{}", ran.stderr);
    run_ok(world.sanwire(&["cp", &Wire::Ethernet.url("other"), &copy]), PATIENCE);
    assert!(server.is_alive());
    fs::remove_file(&store).expect("the store goes away");
    run(world.sanwire(&["cp", "--restart", &url, &copy]), PATIENCE);
    run_ok(world.sanwire(&["info", &Wire::Ip.url("other")]), PATIENCE);
    assert!(server.is_alive());
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
        let attached = Attached::device_with(&world, &wire.url("disk"), &["--wait", "1"]);
        let data = pattern(7, 1 << 20);
        let device = File::options().read(true).write(true).open(&attached.place).expect("the device");
        device.write_all_at(&data, 0).and_then(|()| device.sync_all()).expect("a write");
        server.kill();
        wait_until("the client waits no more", PATIENCE, || {
            attached.log().contains("operations fail until it is back")
        });
        let mut bytes = vec![0; data.len()];
        let error = device.read_exact_at(&mut bytes, 8 << 20).expect_err("nobody is there");
        assert_eq!(error.raw_os_error(), Some(5), "EIO was expected, not {error}");
        server.restart();
        wait_until("it reads again", PATIENCE, || device.read_exact_at(&mut bytes, 8 << 20).is_ok());
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
    let ran = run(serve, PATIENCE);
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
        run_ok(mount, PATIENCE);
        SmallDisk(directory)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        unmount.arg("--lazy").arg(&self.0);
        run(unmount, PATIENCE);
    }
}
