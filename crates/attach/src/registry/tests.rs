use super::*;
use crate::test_volume::{RamVolume, TestDirectory, have};
use crate::{FuseOptions, Latch, attach_fuse};
use std::process::{Child, Command};

fn nbd(pid: u32, volume: &str) -> Record {
    let kind = Kind::Nbd { socket: None, url: format!("nbd://localhost/{volume}") };
    Record { pid, pid_started: start_time(pid).unwrap_or(0), volume: format!("hyperscsi://server/{volume}"), kind }
}

fn sleeper() -> Child {
    Command::new("sleep").arg("60").spawn().unwrap()
}

#[test]
fn a_listing_lasts_as_long_as_its_guard() {
    let directory = TestDirectory::new("registry-list");
    let registry = Registry::at(directory.path().join("run")).unwrap();
    let kind = Kind::Fuse {
        mount_point: "/mnt/x".into(),
        made_mount_point: false,
        file: "/mnt/x/disk".into(),
        device: Some("/dev/loop7".into()),
    };
    let record = Record::of_this_process("hyperscsi://server/disk".into(), kind).unwrap();
    let listing = registry.add(&record).unwrap();
    assert_eq!(registry.list().unwrap(), std::slice::from_ref(&record));
    for name in ["disk", "hyperscsi://server/disk", "/dev/loop7", "/mnt/x", "/mnt/x/disk"] {
        assert!(record.is_called(name), "{name}");
    }
    assert!(!record.is_called("/dev/loop8") && !record.is_called("server"));
    drop(listing);
    assert_eq!(registry.list().unwrap(), []);
}

#[test]
fn detaching_ends_the_process_and_waits_for_it() {
    let directory = TestDirectory::new("registry-detach");
    let registry = Registry::at(directory.path().to_owned()).unwrap();
    let mut process = sleeper();
    let record = nbd(process.id(), "disk");
    std::mem::forget(registry.add(&record).unwrap());
    let detached = registry.detach("disk", Duration::from_secs(10)).unwrap();
    assert_eq!(detached, Detached { record, was_dead: false });
    assert!(!process.wait().unwrap().success());
    assert_eq!(registry.list().unwrap(), [], "its record is gone with it");
}

#[test]
fn names_that_are_unknown_or_mean_several_are_refused() {
    let directory = TestDirectory::new("registry-names");
    let registry = Registry::at(directory.path().to_owned()).unwrap();
    let record = nbd(std::process::id(), "disk");
    let _both = [registry.add(&record).unwrap(), registry.add(&record).unwrap()];
    assert!(matches!(registry.detach("disc", Duration::ZERO), Err(RegistryError::Unknown(_))));
    assert!(matches!(registry.detach("disk", Duration::ZERO), Err(RegistryError::Ambiguous { count: 2, .. })));
}

#[test]
fn a_name_that_the_dead_had_too_means_the_living() {
    let directory = TestDirectory::new("registry-names-again");
    let registry = Registry::at(directory.path().to_owned()).unwrap();
    let mut process = sleeper();
    let living = nbd(process.id(), "disk");
    let dead = Record { pid_started: living.pid_started + 1, ..living.clone() };
    let _dead = registry.add(&dead).unwrap();
    std::mem::forget(registry.add(&living).unwrap());
    let detached = registry.detach("disk", Duration::from_secs(10)).unwrap();
    assert_eq!(detached, Detached { record: living, was_dead: false });
    process.wait().unwrap();
}

#[test]
fn remains_of_the_dead_are_removed_and_a_reused_number_is_not_signalled() {
    let directory = TestDirectory::new("registry-dead");
    let registry = Registry::at(directory.path().join("run")).unwrap();
    let socket = directory.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let mount_point = directory.path().join("mount");
    std::fs::create_dir(&mount_point).unwrap();
    let mut process = sleeper();
    let mut dead = nbd(process.id(), "one");
    dead.pid_started -= 1;
    dead.kind = Kind::Nbd { socket: Some(socket.clone()), url: String::new() };
    std::mem::forget(registry.add(&dead).unwrap());
    let file = mount_point.join("two");
    let kind = Kind::Fuse { mount_point: mount_point.clone(), made_mount_point: true, file, device: None };
    let fuse = Record { kind, ..dead.clone() };
    std::mem::forget(registry.add(&fuse).unwrap());
    std::fs::write(directory.path().join("run/broken.json"), b"{").unwrap();

    let detached = registry.detach(mount_point.to_str().unwrap(), Duration::ZERO).unwrap();
    assert_eq!(detached, Detached { record: fuse, was_dead: true });
    assert_eq!(registry.list().unwrap(), []);
    assert!(!socket.exists() && !mount_point.exists());
    assert!(process.try_wait().unwrap().is_none(), "somebody else's process");
    process.kill().unwrap();
    process.wait().unwrap();
}

/// The other process of the test below.
#[test]
#[ignore = "runs in a child process"]
fn attach_until_killed() {
    let Some(directory) = std::env::var_os("SANWIRE_TEST_DIRECTORY").map(PathBuf::from) else { return };
    let options = FuseOptions { mount_point: directory.join("mount"), block_device: true };
    let attachment = attach_fuse(RamVolume::default().start(), options).unwrap();
    let kind = Kind::Fuse {
        mount_point: attachment.mount_point().to_owned(),
        made_mount_point: attachment.made_mount_point(),
        file: attachment.file.clone(),
        device: attachment.device.clone(),
    };
    let record = Record::of_this_process("hyperscsi://server/disk".into(), kind).unwrap();
    let _listing = Registry::at(directory.join("run")).unwrap().add(&record).unwrap();
    attachment.wait(&Latch::new().unwrap());
}

#[test]
fn what_a_killed_process_attached_is_taken_away() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() || !have("losetup") {
        sanwire_testing::skip(&sanwire_testing::this_test(), "it takes root and /dev/fuse");
        return;
    }
    let directory = TestDirectory::new("registry-killed");
    let registry = Registry::at(directory.path().join("run")).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "registry::tests::attach_until_killed"])
        .env("SANWIRE_TEST_DIRECTORY", directory.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    let record = loop {
        if let Some(record) = registry.list().unwrap().pop() {
            break record;
        }
        if Instant::now() > deadline || child.try_wait().unwrap().is_some() {
            let _ = child.kill();
            eprintln!("skipped: no loop device here");
            return;
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    let device = record.device().unwrap().to_owned();
    // Something that was not written back yet.
    fs::write(&device, [7; 100_000]).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_dead_mount(&directory.path().join("mount")));
    assert_eq!(registry.clean().unwrap(), [record]);
    assert_eq!(loop_device::backing_file(&device), None);
    assert!(!directory.path().join("mount").exists());
}
