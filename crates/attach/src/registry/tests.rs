use super::*;
use crate::record::start_time;
use crate::test_volume::{RamVolume, TestDirectory, can_attach, helper};
use crate::{FuseOptions, Latch, attach_fuse};
use std::process::{Child, Command};

/// Nothing here takes so long unless it never happens.
const PATIENCE: Duration = Duration::from_secs(60);

fn nbd(pid: u32, volume: &str) -> Record {
    let kind = Kind::Nbd { socket: None, url: format!("nbd://localhost/{volume}") };
    Record {
        pid,
        pid_started: start_time(pid).unwrap_or(0),
        volume: format!("hyperscsi://server/{volume}"),
        name: None,
        identity: None,
        kind,
        status: None,
        control: None,
    }
}

/// A registry below a directory of the test's own.
fn registry_of(test: &str) -> (TestDirectory, Registry) {
    let directory = TestDirectory::new(test);
    let registry = Registry::at(directory.path().join("run"), helper).unwrap();
    (directory, registry)
}

fn sleeper() -> Child {
    Command::new("sleep").arg("600").spawn().unwrap()
}

#[test]
fn a_listing_lasts_as_long_as_its_guard() {
    let (_directory, registry) = registry_of("registry-list");
    let kind = Kind::Fuse {
        mount_point: "/mnt/x".into(),
        made_mount_point: false,
        file: "/mnt/x/disk".into(),
        file_system: None,
        device: Some("/dev/loop7".into()),
        name: None,
    };
    let record = Record::of_this_process("iscsi://server/target/0".into(), kind).unwrap();
    let record = Record { name: Some("disk".into()), ..record };
    let listing = registry.add(&record).unwrap();
    assert_eq!(registry.list().unwrap(), std::slice::from_ref(&record));
    for name in ["disk", "0", "iscsi://server/target/0", "/dev/loop7", "/mnt/x", "/mnt/x/disk"] {
        assert!(record.is_called(name), "{name}");
    }
    assert!(!record.is_called("/dev/loop8") && !record.is_called("server"));
    drop(listing);
    assert_eq!(registry.list().unwrap(), []);
}

#[test]
fn detaching_ends_the_process_and_waits_for_it() {
    let (_directory, registry) = registry_of("registry-detach");
    let mut process = sleeper();
    let record = nbd(process.id(), "disk");
    std::mem::forget(registry.add(&record).unwrap());
    let detached = registry.detach("disk", PATIENCE).unwrap();
    assert_eq!(detached, Detached { record, was_dead: false });
    assert!(!process.wait().unwrap().success());
    assert_eq!(registry.list().unwrap(), [], "its record is gone with it");
}

#[test]
fn an_nbd_server_with_clients_is_not_ended() {
    let (_directory, registry) = registry_of("registry-clients");
    let mut process = sleeper();
    let clients = std::sync::Arc::new(AtomicU32::new(2));
    let told = std::sync::Arc::clone(&clients);
    let telling = registry.telling(move || serde_json::json!({ "nbd_clients": told.load(Ordering::Relaxed) })).unwrap();
    let record = Record { status: Some(telling.path().to_owned()), ..nbd(process.id(), "disk") };
    std::mem::forget(registry.add(&record).unwrap());
    let refused = registry.detach("disk", PATIENCE);
    assert!(matches!(refused, Err(RegistryError::Connected { count: 2, .. })), "{refused:?}");
    assert!(process.try_wait().unwrap().is_none(), "it was left alone");
    clients.store(0, Ordering::Relaxed);
    registry.detach("disk", PATIENCE).unwrap();
    assert!(!process.wait().unwrap().success());
}

#[test]
fn an_nbd_server_that_does_not_tell_of_its_clients_is_not_ended() {
    let (directory, registry) = registry_of("registry-silent");
    let mut process = sleeper();
    let status = directory.path().join("status");
    let silent = std::os::unix::net::UnixListener::bind(&status).unwrap();
    let record = Record { status: Some(status), ..nbd(process.id(), "disk") };
    std::mem::forget(registry.add(&record).unwrap());
    let refused = registry.detach("disk", Duration::ZERO);
    assert!(matches!(refused, Err(RegistryError::Silent { .. })), "{refused:?}");
    assert!(process.try_wait().unwrap().is_none(), "it was left alone");
    // There is nobody any more who could tell.
    drop(silent);
    registry.detach("disk", PATIENCE).unwrap();
    assert!(!process.wait().unwrap().success());
}

#[test]
fn names_that_are_unknown_or_mean_several_are_refused() {
    let (_directory, registry) = registry_of("registry-names");
    let record = nbd(std::process::id(), "disk");
    let _both = [registry.add(&record).unwrap(), registry.add(&record).unwrap()];
    assert!(matches!(registry.detach("disc", Duration::ZERO), Err(RegistryError::Unknown(_))));
    assert!(matches!(registry.detach("disk", Duration::ZERO), Err(RegistryError::Ambiguous { count: 2, .. })));
}

#[test]
fn a_name_that_the_dead_had_too_means_the_living() {
    let (_directory, registry) = registry_of("registry-names-again");
    let mut process = sleeper();
    let living = nbd(process.id(), "disk");
    let dead = Record { pid_started: living.pid_started + 1, ..living.clone() };
    let _dead = registry.add(&dead).unwrap();
    std::mem::forget(registry.add(&living).unwrap());
    let detached = registry.detach("disk", PATIENCE).unwrap();
    assert_eq!(detached, Detached { record: living, was_dead: false });
    process.wait().unwrap();
}

#[test]
fn the_sockets_of_a_dead_attachment_are_removed_with_it() {
    let (directory, registry) = registry_of("registry-sockets");
    let places = ["status", "control"].map(|name| directory.path().join(name));
    places.iter().for_each(|place| drop(std::os::unix::net::UnixListener::bind(place).unwrap()));
    let [status, control] = places.clone();
    let dead =
        Record { pid_started: 0, status: Some(status), control: Some(control), ..nbd(std::process::id(), "disk") };
    let _listing = registry.add(&dead).unwrap();
    assert_eq!(registry.list().unwrap(), []);
    assert!(places.iter().all(|place| !place.exists()), "{places:?}");
}

#[test]
fn remains_of_the_dead_are_removed_and_a_reused_number_is_not_signalled() {
    let (directory, registry) = registry_of("registry-dead");
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
    let kind = Kind::Fuse {
        mount_point: mount_point.clone(),
        made_mount_point: true,
        file,
        file_system: None,
        device: None,
        name: None,
    };
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

/// The other process of the tests below: attaches, and lists that if it is to.
#[test]
#[ignore = "runs in a child process"]
fn attach_until_killed() {
    let Some(directory) = std::env::var_os("SANWIRE_TEST_DIRECTORY").map(PathBuf::from) else { return };
    let options = FuseOptions { mount_point: directory.join("mount"), block_device: true, read_only: false, helper };
    let attachment = attach_fuse(RamVolume::default().start(), options).unwrap();
    let kind = Kind::Fuse {
        mount_point: attachment.mount_point().to_owned(),
        made_mount_point: attachment.made_mount_point(),
        file: attachment.file.clone(),
        file_system: std::fs::metadata(&attachment.file).ok().map(|file| std::os::unix::fs::MetadataExt::dev(&file)),
        device: attachment.device.clone(),
        name: None,
    };
    let record = Record::of_this_process("hyperscsi://server/disk".into(), kind).unwrap();
    let _listing = Registry::at(directory.join("run"), helper).unwrap().add(&record).unwrap();
    attachment.wait(&Latch::new().unwrap());
}

/// Has another process attach, kills it with dirty data in its device, and gives its record.
fn kill_an_attachment(directory: &TestDirectory, registry: &Registry) -> Record {
    let log = std::fs::File::create(directory.path().join("log")).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "registry::tests::attach_until_killed"])
        .env("SANWIRE_TEST_DIRECTORY", directory.path())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    let said = || std::fs::read_to_string(directory.path().join("log")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let record = loop {
        if let Some(record) = registry.list().unwrap().pop() {
            break record;
        }
        if let Some(status) = child.try_wait().unwrap() {
            panic!("it could not attach: {status}\n{}", said());
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it does not attach:\n{}", said());
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    // Something that was not written back yet.
    fs::write(record.device().unwrap(), [7; 100_000]).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_dead_mount(&directory.path().join("mount")));
    record
}

/// Whether the mount point is there, mounted or not, dead or alive.
fn is_there(directory: &TestDirectory) -> bool {
    fs::read_dir(directory.path()).unwrap().any(|entry| entry.unwrap().file_name() == "mount")
}

#[test]
fn what_a_killed_process_attached_is_taken_away() {
    if !can_attach(true) {
        return;
    }
    let (directory, registry) = registry_of("registry-killed");
    let record = kill_an_attachment(&directory, &registry);
    let device = record.device().unwrap().to_owned();
    assert_eq!(registry.clean().unwrap(), [record]);
    assert_eq!(loop_device::backing_file(&device), None);
    assert!(!is_there(&directory));
}

/// What is looked at from another mount name space: a file that is not there, under a device that is.
#[test]
fn a_device_over_a_later_file_at_the_same_place_is_left_alone() {
    if !can_attach(true) {
        return;
    }
    let (directory, registry) = registry_of("registry-later");
    let file = directory.path().canonicalize().unwrap().join("volume");
    fs::write(&file, [0; 1 << 20]).unwrap();
    let made = Command::new("losetup").args(["--find", "--show"]).arg(&file).output().unwrap();
    let device = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim());
    let here = std::os::unix::fs::MetadataExt::dev(&fs::metadata(&file).unwrap());
    fs::remove_file(&file).unwrap();
    let mount_point = directory.path().join("mount");
    let clean = |file_system| {
        let kind = Kind::Fuse {
            mount_point: mount_point.clone(),
            made_mount_point: false,
            file: file.clone(),
            file_system: Some(file_system),
            device: Some(device.clone()),
            name: None,
        };
        let dead = Record { pid_started: 0, kind, ..nbd(std::process::id(), "volume") };
        std::mem::forget(registry.add(&dead).unwrap());
        assert_eq!(registry.clean().unwrap(), [dead]);
        loop_device::backing_file(&device)
    };
    assert_eq!(clean(here + 1).as_deref(), Some(&*file), "it is a living attachment's");
    assert_eq!(clean(here), None);
}

#[test]
fn a_killed_attachment_that_no_list_has_is_in_nobodys_way() {
    if !can_attach(true) {
        return;
    }
    let (directory, registry) = registry_of("registry-unlisted");
    let killed = kill_an_attachment(&directory, &registry);
    // As if it had been killed just before it was listed.
    fs::remove_dir_all(directory.path().join("run")).unwrap();
    let options =
        FuseOptions { mount_point: directory.path().join("mount"), block_device: true, read_only: false, helper };
    let mut attachment = attach_fuse(RamVolume::default().start(), options).unwrap();
    let devices = loop_device::devices_within(attachment.mount_point());
    assert_eq!(devices, attachment.device.clone().into_iter().collect::<Vec<_>>(), "that of the dead is gone");
    assert_eq!(fs::metadata(&attachment.file).unwrap().len(), 16 << 20);
    attachment.detach().unwrap();
    assert!(loop_device::backing_file(killed.device().unwrap()).is_none_or(|file| !file.starts_with(directory.path())));
}

#[test]
fn a_device_in_use_goes_with_its_last_user_when_its_attachment_was_killed() {
    if !can_attach(true) {
        return;
    }
    let (directory, registry) = registry_of("registry-used");
    let record = kill_an_attachment(&directory, &registry);
    let device = record.device().unwrap().to_owned();
    let user = {
        use std::os::unix::fs::OpenOptionsExt;
        fs::OpenOptions::new().read(true).custom_flags(0o200).open(&device).unwrap()
    };
    assert_eq!(registry.clean().unwrap(), [record]);
    assert!(!is_there(&directory), "the place is free for the next");
    drop(user);
    let deadline = Instant::now() + Duration::from_secs(60);
    while loop_device::backing_file(&device).is_some() {
        assert!(Instant::now() < deadline, "the device stays");
        std::thread::sleep(POLL_INTERVAL);
    }
}
