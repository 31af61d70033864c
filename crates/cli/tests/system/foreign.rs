//! The client with tgt, an iSCSI target of another make.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::harness::{
    Attached, Filesystem, Process, Ran, SERVER_ADDRESS, Tgt, World, pattern, run, run_ok, wait_until,
};

const TIMEOUT: Duration = Duration::from_secs(120);
const TARGET: &str = "iqn.2026-11.org.example:disk";

/// A target with one disk on a file of this size.
fn disk(world: &World, size_bytes: u64) -> Vec<String> {
    let store = world.scratch.path("disk.img");
    fs::File::create(&store).and_then(|file| file.set_len(size_bytes)).expect("a store");
    vec![
        format!("--op new --mode target --tid 1 -T {TARGET}"),
        format!("--op new --mode logicalunit --tid 1 --lun 1 -b {}", store.display()),
        "--op bind --mode target --tid 1 -I ALL".to_owned(),
    ]
}

fn start(world: &World, told: &[String]) -> Tgt {
    Tgt::start(world, &told.iter().map(String::as_str).collect::<Vec<_>>())
}

fn url(user: &str) -> String {
    format!("iscsi://{user}{SERVER_ADDRESS}/{TARGET}/1")
}

/// What `sanwire` says to this.
#[track_caller]
fn sanwire(world: &World, arguments: &[&str]) -> String {
    run_ok(world.sanwire(arguments), TIMEOUT)
}

#[test]
fn disks_of_another_make_are_found_and_described() {
    let Some(world) = World::new("disks_of_another_make_are_found_and_described", 9000, &Tgt::TOOLS) else { return };
    let mut told = disk(&world, 64 << 20);
    told.extend([
        "--op new --mode account --user host --password 123456789abc".to_owned(),
        format!("--op new --mode target --tid 2 -T {TARGET}-of-others"),
        "--op bind --mode target --tid 2 -I ALL".to_owned(),
        "--op bind --mode account --tid 2 --user host".to_owned(),
    ]);
    let _tgt = start(&world, &told);
    let host = format!("iscsi://{SERVER_ADDRESS}");
    let found = sanwire(&world, &["discover", "--wide", &host]);
    assert!(found.contains(&url("")) && found.contains("64 MiB") && found.contains(":3260"), "{found}");
    assert!(found.contains("-of-others: authentication failed"), "{found}");
    // Unit 0 is a controller, and the other target takes only its own.
    let listed = run(world.sanwire(&["ls", &host]), TIMEOUT);
    assert!(listed.code == Some(0) && listed.stderr.contains("-of-others: authentication failed"), "{listed:?}");
    assert_eq!(listed.stdout.lines().count(), 2, "{listed:?}");
    assert!(listed.stdout.contains(&url("")), "{listed:?}");
    let told = sanwire(&world, &["info", &url("")]);
    assert!(told.contains("64 MiB (67108864 bytes)") && told.contains("iSCSI"), "{told}");
    let told = sanwire(&world, &["bench", &url(""), "--time", "1", "--depth", "8"]);
    assert!(told.contains("IOPS"), "{told}");
    let refused = run(world.sanwire(&["info", &format!("{host}/{TARGET}/0")]), TIMEOUT);
    assert!(refused.code == Some(1) && refused.stderr.contains("it has: 1"), "{refused:?}");
    let refused = run(world.sanwire(&["ls", &format!("{host}/{TARGET}-of-others")]), TIMEOUT);
    assert!(refused.code == Some(1) && refused.stderr.contains("give a user and a secret"), "{refused:?}");
}

#[test]
fn images_are_copied_to_and_from_a_disk_of_another_make() {
    let test = "images_are_copied_to_and_from_a_disk_of_another_make";
    let Some(world) = World::new(test, 1500, &Tgt::TOOLS) else { return };
    let mut told = disk(&world, 48 << 20);
    for digest in ["HeaderDigest", "DataDigest"] {
        told.push(format!("--op update --mode target --tid 1 --name {digest} --value CRC32C,None"));
    }
    let thin = "--op update --mode logicalunit --tid 1 --lun 1 --params thin_provisioning=1";
    let mut tgt = start(&world, &told);
    for (round, options) in
        [&[][..], &["--digests"], &["--connections", "3", "--recovery-level", "2"]].iter().enumerate()
    {
        if round == 1 {
            told.push(thin.to_owned());
            drop(tgt);
            tgt = start(&world, &told);
        }
        let (image, back) = (world.scratch.text("image.raw"), world.scratch.text("back.raw"));
        let seed = 2 * round as u64;
        let bytes = [pattern(seed, 16 << 20), vec![0; 15 << 20], pattern(seed + 1, 17 << 20)].concat();
        fs::write(&image, &bytes).expect("an image");
        // What is to be zeroed must not be so already.
        fs::write(world.scratch.path("disk.img"), pattern(99, 48 << 20)).expect("the store");
        sanwire(&world, &[&["cp", "--overwrite", &image, &url("")], *options].concat());
        assert!(
            fs::read(world.scratch.path("disk.img")).expect("the store") == bytes,
            "{options:?}: the store differs"
        );
        sanwire(&world, &[&["cp", "--overwrite", &url(""), &back], *options].concat());
        assert!(fs::read(&back).expect("the copy") == bytes, "{options:?}: the copy differs");
    }
}

#[test]
fn both_show_by_chap_who_they_are() {
    let Some(world) = World::new("both_show_by_chap_who_they_are", 1500, &Tgt::TOOLS) else { return };
    let mut told = disk(&world, 64 << 20);
    told.extend(
        [
            "--op new --mode account --user host --password secret-of-host",
            "--op new --mode account --user box --password secret-of-box",
            "--op bind --mode account --tid 1 --user host",
            "--op bind --mode account --tid 1 --user box --outgoing",
        ]
        .map(str::to_owned),
    );
    let _tgt = start(&world, &told);
    let (host, target) = (world.scratch.secret("host", "secret-of-host"), world.scratch.secret("box", "secret-of-box"));
    let wrong = world.scratch.secret("wrong", "secret-of-nobody");
    let info = |user: &str, options: &[&str]| -> Ran {
        run(world.sanwire(&[&["info", &url(user)], options].concat()), TIMEOUT)
    };
    // To tgt, the number of SHA-256 means SHA1: the client gets in by MD5.
    let known = info("host@", &["--password-file", &host]);
    assert_eq!(known.code, Some(0), "{known:?}");
    let mutual = ["--password-file", &host, "--target-user", "box", "--target-password-file"];
    let known = info("host@", &[&mutual[..], &[&target]].concat());
    assert_eq!(known.code, Some(0), "{known:?}");
    for (user, options, why) in [
        ("host@", vec!["--password-file", &wrong], "it did not accept user and secret"),
        ("other@", vec!["--password-file", &host], "it did not accept user and secret"),
        ("", vec![], "give a user and a secret"),
        ("host@", [&mutual[..], &[&wrong]].concat(), "the target is not who it should be"),
    ] {
        let refused = info(user, &options);
        assert!(refused.code == Some(1) && refused.stderr.contains(why), "{user} {options:?}: {refused:?}");
    }
}

#[test]
fn a_copy_goes_on_when_the_target_was_killed_and_started_again() {
    copy_beyond_a_killed_target("a_copy_goes_on_when_the_target_was_killed", |_| thread::sleep(Duration::from_secs(1)));
}

/// Copies to a target that is killed and, after a wait as told, started again.
pub fn copy_beyond_a_killed_target(test: &str, wait: impl FnOnce(&Process)) {
    let Some(world) = World::new(test, 9000, &[&Tgt::TOOLS[..], &["tc"]].concat()) else { return };
    const SIZE_BYTES: usize = 256 << 20;
    // It takes twenty seconds: whoever looks at it may be held up for some of them.
    world.shape(0, 100);
    let mut tgt = start(&world, &disk(&world, SIZE_BYTES as u64));
    let (image, store) = (world.scratch.text("image.raw"), world.scratch.path("disk.img"));
    fs::write(&image, pattern(5, SIZE_BYTES)).expect("an image");
    let arguments = ["cp", "--overwrite", "--depth", "2", &image, &url("")];
    let mut copy = Process::spawn("cp", world.sanwire(&arguments), world.scratch.path("cp.log"));
    wait_until("the copy has begun", TIMEOUT, || has_begun(&store));
    tgt.kill();
    assert!(copy.is_alive(), "it was too fast: {}", copy.log());
    wait(&copy);
    tgt.restart(&world);
    assert!(copy.wait(TIMEOUT).success(), "{}", copy.log());
    assert!(copy.log().contains("is back after"), "{}", copy.log());
    assert!(fs::read(&image).expect("the image") == fs::read(&store).expect("the store"), "the copy differs");
}

/// Whether anything stands in the store's third MiB.
fn has_begun(store: &Path) -> bool {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; 64];
    let file = fs::File::open(store).expect("the store");
    file.read_exact_at(&mut bytes, 2 << 20).is_ok_and(|()| bytes != [0; 64])
}

#[test]
fn a_file_system_on_a_disk_of_another_make_outlives_the_target() {
    const FILES: u64 = 24;
    let test = "a_file_system_on_a_disk_of_another_make_outlives_the_target";
    let Some(world) = World::new(test, 1500, &[&Tgt::TOOLS[..], &["mkfs.ext4", "fsck.ext4", "mount"]].concat()) else {
        return;
    };
    let mut tgt = start(&world, &disk(&world, 320 << 20));
    let kind = Filesystem::Ext4;
    let attached = Attached::device(&world, &url(""));
    kind.make(&attached.place);
    let filler = kind.open(&attached.place, &world.scratch.path("mnt"));
    (0..FILES).for_each(|index| filler.write(index));
    tgt.kill();
    thread::scope(|scope| {
        let writer = scope.spawn(|| (FILES..2 * FILES).for_each(|index| filler.write(index)));
        thread::sleep(Duration::from_secs(2));
        tgt.restart(&world);
        writer.join().expect("the files are written");
    });
    assert!(attached.log().contains("is back after"), "{}", attached.log());
    filler.close();
    attached.detach(&world);
    let attached = Attached::device(&world, &url(""));
    kind.check(&attached.place);
    let filler = kind.open(&attached.place, &world.scratch.path("again"));
    filler.verify(2 * FILES);
    filler.close();
    attached.detach(&world);
}
