use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use super::*;
use crate::test_volume::{RamVolume, TestDirectory, can_attach, have, helper};

const O_DIRECT: i32 = 0o40_000;

/// Attaches, or says why the test is skipped.
fn attach(volume: RamVolume, directory: &TestDirectory, block_device: bool) -> Option<Attachment> {
    if !can_attach(block_device) {
        return None;
    }
    let options = FuseOptions { mount_point: directory.path().join("disk"), block_device, read_only: false, helper };
    Some(attach_fuse(volume.start(), options).unwrap())
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    said
}

#[test]
fn the_file_is_the_volume() {
    let directory = TestDirectory::new("fuse-file");
    let Some(mut attachment) = attach(RamVolume::default(), &directory, false) else { return };
    let path = attachment.file.clone();
    assert_eq!(std::fs::read_dir(attachment.mount_point()).unwrap().count(), 1);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 16 << 20);
    let data: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8).collect();
    file.write_all_at(&data, 12_345).unwrap();
    file.sync_all().unwrap();
    let mut seen = vec![0; data.len()];
    file.read_exact_at(&mut seen, 12_345).unwrap();
    assert!(seen == data);
    assert_eq!(file.read_at(&mut seen, (16 << 20) - 10).unwrap(), 10, "the end");
    assert!(file.write_at(&[1], 16 << 20).is_err(), "no growth");
    run("fallocate", &["--punch-hole", "--keep-size", "-o", "20000", "-l", "50000", path.to_str().unwrap()]);
    file.read_exact_at(&mut seen, 12_345).unwrap();
    assert_eq!(seen[20_000 - 12_346], data[20_000 - 12_346]);
    assert!(seen[20_000 - 12_345..70_000 - 12_345].iter().all(|byte| *byte == 0));
    assert_eq!(seen[70_000 - 12_345], data[70_000 - 12_345]);
    assert!(File::create(attachment.mount_point().join("other")).is_err());
    let truncated = OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(truncated.metadata().unwrap().len(), 16 << 20, "as large as the volume");

    assert!(matches!(attachment.detach(), Err(AttachError::Busy { .. })), "files are open");
    file.read_exact_at(&mut seen[..1], 0).unwrap();
    drop((file, truncated));
    attachment.detach().unwrap();
    assert!(!directory.path().join("disk").exists());
}

#[test]
fn direct_accesses_smaller_than_a_block_work_together() {
    let directory = TestDirectory::new("fuse-direct");
    let Some(mut attachment) = attach(RamVolume::default(), &directory, false) else { return };
    if have("fio") {
        let file = format!("--filename={}", attachment.file.display());
        let job = ["--name=verify", "--direct=1", "--rw=randwrite", "--bs=512", "--size=1m", "--ioengine=libaio"];
        run(
            "fio",
            &[&job[..], &["--iodepth=16", "--verify=crc32c", "--verify_state_save=0", "--verify_fatal=1", &file]]
                .concat(),
        );
    }
    attachment.detach().unwrap();
}

#[test]
fn a_volume_that_may_be_written_is_attached_for_reading_only() {
    if !can_attach(true) {
        return;
    }
    let directory = TestDirectory::new("fuse-reading");
    let mount_point = directory.path().join("disk");
    let options = FuseOptions { mount_point, block_device: true, read_only: true, helper };
    let mut attachment = attach_fuse(RamVolume::default().start(), options).unwrap();
    assert!(File::open(&attachment.file).is_ok() && OpenOptions::new().write(true).open(&attachment.file).is_err());
    let device = attachment.device.as_ref().unwrap().file_name().unwrap();
    let is_read_only = std::fs::read_to_string(Path::new("/sys/block").join(device).join("ro")).unwrap();
    assert_eq!(is_read_only.trim(), "1");
    attachment.detach().unwrap();
}

#[test]
fn a_directory_with_something_in_it_is_no_mount_point() {
    let directory = TestDirectory::new("fuse-not-empty");
    std::fs::write(directory.path().join("precious"), "").unwrap();
    for path in [directory.path(), Path::new("/etc"), Path::new("/")] {
        let options = FuseOptions { mount_point: path.to_owned(), block_device: false, read_only: false, helper };
        let refused = attach_fuse(RamVolume::default().start(), options);
        assert!(matches!(refused, Err(AttachError::NotEmpty(_))), "{path:?}: {refused:?}");
    }
}

#[test]
fn a_read_only_volume_is_a_read_only_file() {
    let directory = TestDirectory::new("fuse-read-only");
    let Some(mut attachment) = attach(RamVolume { read_only: true, ..RamVolume::default() }, &directory, false) else {
        return;
    };
    assert!(OpenOptions::new().write(true).open(&attachment.file).is_err());
    assert_eq!(std::fs::read(&attachment.file).unwrap().len(), 16 << 20);
    attachment.detach().unwrap();
}

#[test]
fn unmounting_from_outside_ends_the_wait() {
    let directory = TestDirectory::new("fuse-outside");
    let Some(mut attachment) = attach(RamVolume::default(), &directory, false) else { return };
    let stop = Latch::new().unwrap();
    unmount(attachment.mount_point(), UnmountFlags::empty()).unwrap();
    assert_eq!(attachment.wait(&stop), Ended::Unmounted);
    attachment.detach().unwrap();
}

#[test]
fn a_file_system_lives_on_the_block_device() {
    if !["losetup", "mkfs.ext4", "fsck.ext4", "mount", "umount"].into_iter().all(have) {
        return;
    }
    let directory = TestDirectory::new("fuse-loop");
    let Some(mut attachment) = attach(RamVolume { size_bytes: 64 << 20, ..RamVolume::default() }, &directory, true)
    else {
        return;
    };
    let device = attachment.device.clone().unwrap();
    let device_name = device.to_str().unwrap();
    let listed = run("losetup", &["--list", "--noheadings", "-O", "DIO,LOG-SEC", device_name]);
    assert_eq!(listed.split_whitespace().collect::<Vec<_>>(), ["1", "4096"]);
    let read_ahead = Path::new("/sys/block").join(device.file_name().unwrap()).join("queue/read_ahead_kb");
    let can_be_set = OpenOptions::new().write(true).open(&read_ahead).is_ok();
    let kib = || std::fs::read_to_string(&read_ahead).unwrap().trim().parse::<u32>().unwrap();
    assert!(!can_be_set || kib() == 4096, "{} KiB", kib());
    run("mkfs.ext4", &["-q", device_name]);
    let mounted = directory.path().join("mounted");
    std::fs::create_dir(&mounted).unwrap();
    run("mount", &[device_name, mounted.to_str().unwrap()]);
    let data: Vec<u8> = (0..5_000_000u32).map(|at| (at / 3) as u8).collect();
    std::fs::write(mounted.join("file"), &data).unwrap();
    assert!(matches!(attachment.detach(), Err(AttachError::BlockDevice(LoopError::Busy(_)))), "mounted");
    assert!(std::fs::read(mounted.join("file")).unwrap() == data, "and still alive");
    run("umount", &[mounted.to_str().unwrap()]);
    run("fsck.ext4", &["-f", "-n", device_name]);
    run("mount", &[device_name, mounted.to_str().unwrap()]);
    assert!(std::fs::read(mounted.join("file")).unwrap() == data);
    run("umount", &[mounted.to_str().unwrap()]);
    attachment.detach().unwrap();
    assert_eq!(loop_device::backing_file(&device), None);
    assert!(!directory.path().join("disk").exists());
}

/// `cargo test --release -p sanwire-attach -- --ignored --nocapture fuse_random_reads`
#[test]
#[ignore = "a measurement"]
fn fuse_random_reads() {
    let directory = TestDirectory::new("fuse-fio");
    let volume = RamVolume { size_bytes: 256 << 20, ..RamVolume::default() };
    let Some(mut attachment) = attach(volume, &directory, true) else { return };
    let device = attachment.device.clone().unwrap();
    for path in [&attachment.file, &device] {
        let file = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path).unwrap();
        drop(file);
        for (depth, block) in [("1", "4k"), ("32", "4k"), ("8", "128k")] {
            let (file, depth_option) = (format!("--filename={}", path.display()), format!("--iodepth={depth}"));
            let job =
                ["--name=read", "--direct=1", "--rw=randread", "--ioengine=libaio", "--time_based", "--runtime=3"];
            let bs = format!("--bs={block}");
            let said = run("fio", &[&job[..], &[&file, &depth_option, &bs, "--size=256m", "--minimal"]].concat());
            let fields: Vec<&str> = said.split(';').collect();
            println!("{} {block} depth {depth}: {} IOPS, {} KiB/s", path.display(), fields[7], fields[6]);
        }
    }
    attachment.detach().unwrap();
}
