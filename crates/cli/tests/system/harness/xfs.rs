//! A file system whose files share blocks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{World, run, run_ok};

const TIMEOUT: Duration = Duration::from_secs(60);

/// XFS in the test's directory `pool`, until the test ends.
#[derive(Debug)]
pub struct Xfs(pub PathBuf);

impl Xfs {
    /// What it takes.
    pub const TOOLS: [&str; 2] = ["mkfs.xfs", "mount"];

    /// Makes it.
    pub fn new(world: &World) -> Xfs {
        Xfs::in_file(world, &world.scratch.path("xfs.img"), 600)
    }

    /// Makes it of so many MiB in this file.
    pub fn in_file(world: &World, image: &Path, size_mib: u64) -> Xfs {
        let directory = world.scratch.path("pool");
        File::create(image).and_then(|file| file.set_len(size_mib << 20)).expect("an image");
        let mut make = Command::new("mkfs.xfs");
        make.args(["-q", "-m", "reflink=1"]).arg(image);
        run_ok(make, TIMEOUT);
        fs::create_dir_all(&directory).expect("a mount point");
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(image).arg(&directory);
        run_ok(mount, TIMEOUT);
        Xfs(directory)
    }

    /// What a volume or snapshot of a pool there holds.
    pub fn content(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(format!("{name}.img"))).expect("a file of the pool")
    }
}

impl Drop for Xfs {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        unmount.arg("--lazy").arg(&self.0);
        run(unmount, TIMEOUT);
    }
}
