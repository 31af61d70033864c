//! File systems on attached devices: made, mounted, filled, checked.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::{Random, expect_pattern, pattern, run, run_ok};

const TIMEOUT: Duration = Duration::from_secs(120);

/// How long a file system may be in use by programs that are just being started, and how often that is looked at.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const BUSY_INTERVAL: Duration = Duration::from_millis(50);

/// Files that a filler keeps; then it overwrites the first one again.
const SLOTS: u64 = 64;
const FILE_MAX_BYTES: u64 = 1 << 20;

/// A kind of file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filesystem {
    /// ext4, mounted.
    Ext4,
    /// XFS, mounted.
    Xfs,
    /// FAT, filled by mtools, since many kernels of test machines do not have it.
    Vfat,
}

impl Filesystem {
    /// All kinds.
    pub const ALL: [Filesystem; 3] = [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Vfat];
    /// The programs that the kinds need.
    pub const TOOLS: [&str; 9] =
        ["mkfs.ext4", "fsck.ext4", "mkfs.xfs", "xfs_repair", "mkfs.vfat", "fsck.vfat", "mcopy", "sync", "mount"];

    /// The name of a volume for it.
    pub fn volume(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "ext4",
            Filesystem::Xfs => "xfs",
            Filesystem::Vfat => "vfat",
        }
    }

    /// Makes one.
    #[track_caller]
    pub fn make(self, device: &Path) {
        let (program, options): (_, &[&str]) = match self {
            Filesystem::Ext4 => ("mkfs.ext4", &["-q", "-F"]),
            Filesystem::Xfs => ("mkfs.xfs", &["-q", "-f"]),
            Filesystem::Vfat => ("mkfs.vfat", &["-F", "32"]),
        };
        run_ok(on_device(program, options, device), TIMEOUT);
    }

    /// Checks one that is not mounted: nothing may be wrong.
    #[track_caller]
    pub fn check(self, device: &Path) {
        let (program, options): (_, &[&str]) = match self {
            Filesystem::Ext4 => ("fsck.ext4", &["-f", "-n"]),
            Filesystem::Xfs => ("xfs_repair", &["-n"]),
            Filesystem::Vfat => ("fsck.vfat", &["-n"]),
        };
        run_ok(on_device(program, options, device), TIMEOUT);
    }

    /// Mounts it below a directory, if it is one to be mounted.
    #[track_caller]
    pub fn open(self, device: &Path, directory: &Path) -> Filler {
        let mounted = (self != Filesystem::Vfat).then(|| {
            fs::create_dir_all(directory).expect("a mount point");
            let mut mount = Command::new("mount");
            mount.arg(device).arg(directory);
            run_ok(mount, TIMEOUT);
            Mounted(directory.to_owned())
        });
        Filler { device: device.to_owned(), scratch: directory.with_extension("tmp"), mounted }
    }
}

/// A file system in use.
#[derive(Debug)]
pub struct Filler {
    device: PathBuf,
    scratch: PathBuf,
    mounted: Option<Mounted>,
}

/// A mounted directory; dropping it unmounts it, at once and whatever happens.
#[derive(Debug)]
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        unmount.arg("--lazy").arg(&self.0);
        run(unmount, TIMEOUT);
    }
}

impl Filler {
    /// Writes file number `index` and makes it stable.
    ///
    /// # Panics
    /// When anything fails.
    pub fn write(&self, index: u64) {
        let name = format!("file-{}.bin", index % SLOTS);
        let bytes = pattern(index, length_bytes(index));
        match &self.mounted {
            Some(Mounted(directory)) => {
                let mut file = File::create(directory.join(name)).expect("a file can be made");
                file.write_all(&bytes).expect("a file can be written");
                file.sync_all().expect("a file can be made stable");
            }
            None => {
                fs::write(&self.scratch, bytes).expect("a file to copy from");
                let mut copy = self.mtool("mcopy", &["-o", "-Q"]);
                copy.arg(&self.scratch).arg(format!("::{name}"));
                run_ok(copy, TIMEOUT);
                File::open(&self.device).and_then(|device| device.sync_all()).expect("the device can be made stable");
            }
        }
    }

    /// Compares what files 0 to `count` have left.
    #[track_caller]
    pub fn verify(&self, count: u64) {
        for index in count.saturating_sub(SLOTS)..count {
            let name = format!("file-{}.bin", index % SLOTS);
            let bytes = self.read(&name);
            assert_eq!(bytes.len(), length_bytes(index), "{name}: its length");
            expect_pattern(&name, &bytes, index);
        }
    }

    fn read(&self, name: &str) -> Vec<u8> {
        let path = match &self.mounted {
            Some(Mounted(directory)) => directory.join(name),
            None => {
                let mut copy = self.mtool("mcopy", &["-o", "-n"]);
                copy.arg(format!("::{name}")).arg(&self.scratch);
                run_ok(copy, TIMEOUT);
                self.scratch.clone()
            }
        };
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.unwrap_or_else(|error| panic!("{name}: {error}"));
        bytes
    }

    fn mtool(&self, program: &str, options: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.env("MTOOLS_SKIP_CHECK", "1").args(options).arg("-i").arg(&self.device);
        command
    }

    /// Unmounts; it must not be in use. A program that another test is just starting has, until it is executed, a copy of each file
    /// that this process has open.
    #[track_caller]
    pub fn close(mut self) {
        let Some(mounted) = self.mounted.take() else { return };
        let busy_until = Instant::now() + BUSY_TIMEOUT;
        loop {
            let mut unmount = Command::new("umount");
            unmount.arg(&mounted.0);
            let ran = run(unmount, TIMEOUT);
            if ran.code == Some(0) {
                break;
            }
            assert!(ran.stderr.contains("busy") && Instant::now() < busy_until, "umount: {}", ran.stderr);
            thread::sleep(BUSY_INTERVAL);
        }
        std::mem::forget(mounted);
    }
}

fn on_device(program: &str, options: &[&str], device: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(options).arg(device);
    command
}

/// Mostly small files, some up to a mebibyte.
fn length_bytes(index: u64) -> usize {
    let mut random = Random::new(index ^ 0x5151);
    let max_bytes = if random.below(4) == 0 { FILE_MAX_BYTES } else { FILE_MAX_BYTES / 16 };
    random.below(max_bytes) as usize
}
