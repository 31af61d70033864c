//! A small file system in memory: it is soon full, and no disk is waited for.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{run, run_ok};

const TIMEOUT: Duration = Duration::from_secs(60);

/// It is mounted at this directory until the test ends.
#[derive(Debug)]
pub struct Tmpfs(pub PathBuf);

impl Tmpfs {
    /// Makes it, of this size as `mount` has it.
    pub fn mount(directory: &Path, size: &str) -> Tmpfs {
        fs::create_dir_all(directory).expect("a mount point");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size},mode=700"), "tmpfs"]).arg(directory);
        run_ok(mount, TIMEOUT);
        Tmpfs(directory.to_owned())
    }

    /// Leaves no room in it, until what this gives is dropped.
    pub fn fill(&self) -> Filled {
        let filled = Filled(self.0.join("filler"));
        let file = File::create(&filled.0).expect("a file");
        while (&file).write_all(&[1; 4096]).is_ok() {}
        filled
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        unmount.arg("--lazy").arg(&self.0);
        run(unmount, TIMEOUT);
    }
}

/// What takes all room of a file system.
#[derive(Debug)]
pub struct Filled(PathBuf);

impl Drop for Filled {
    fn drop(&mut self) {
        // It goes with the file system at the latest.
        let _ = fs::remove_file(&self.0);
    }
}
