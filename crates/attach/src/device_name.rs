//! Names of block devices that stay the same: `/dev/sanwire/SERVER/VOLUME`.
//!
//! Where udev runs, it makes the link, so that others learn of the name with the device: the rule that the package brings reads what is
//! noted here for the device over that file. Elsewhere the attachment makes the link itself.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::loop_device;

/// Where the names are.
const NAMES: &str = "/dev/sanwire";
/// Where a process that names a device says so, for the rule of udev.
const NOTES: &str = "/run/sanwire/udev";
/// Locked while a name is given.
const LOCK: &str = "/run/sanwire/udev/.lock";
/// It is there where udev runs.
const UDEV: &str = "/run/udev/control";
/// How long udev may take; then the link is made here.
const UDEV_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A device's name. Dropping it takes the name away.
#[derive(Debug)]
pub struct DeviceName {
    link: PathBuf,
    device: PathBuf,
    file: PathBuf,
}

impl DeviceName {
    /// Names a block device over this file after its server and volume; `None` when another device has that name, or it cannot be given.
    #[must_use]
    pub fn give(server: &str, volume: &str, device: &Path, file: &Path) -> Option<DeviceName> {
        let name = format!("{}/{}", part(server), part(volume));
        let link = Path::new(NAMES).join(&name);
        // Of two that come at the same time the second one sees what the first one has.
        let _turn = lock().inspect_err(|error| tracing::debug!("{LOCK} cannot be locked: {error}")).ok();
        if let Ok(owner) = link.canonicalize()
            && owner != device
            && loop_device::backing_file(&owner).is_some()
        {
            tracing::info!("{} is the name of {} already", link.display(), owner.display());
            return None;
        }
        let given = DeviceName { link, device: device.to_owned(), file: file.to_owned() };
        let noted = note(device, file).map(|path| write(&path, &line(&name)));
        if matches!(noted, Some(Ok(()))) && Path::new(UDEV).exists() {
            given.ask_udev();
        }
        if given.is_given() {
            return Some(given);
        }
        if let Err(error) = given.make_link() {
            tracing::info!("{} cannot be made: {error}", given.link.display());
            return None;
        }
        Some(given)
    }

    /// The name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.link
    }

    fn is_given(&self) -> bool {
        self.link.canonicalize().is_ok_and(|owner| owner == self.device)
    }

    /// Has udev look at the device again, and waits for its link.
    fn ask_udev(&self) {
        let Some(kernel_name) = self.device.file_name() else { return };
        if fs::write(Path::new("/sys/block").join(kernel_name).join("uevent"), "change").is_err() {
            return;
        }
        let end = Instant::now() + UDEV_TIMEOUT;
        while !self.is_given() && Instant::now() < end {
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn make_link(&self) -> io::Result<()> {
        if let Some(directory) = self.link.parent() {
            fs::create_dir_all(directory)?;
        }
        // Put aside and renamed into place: one that was left is replaced at once.
        let aside = self.link.with_extension(format!("new-{}", std::process::id()));
        std::os::unix::fs::symlink(&self.device, &aside)?;
        fs::rename(&aside, &self.link)
    }
}

impl Drop for DeviceName {
    fn drop(&mut self) {
        remove(&self.link, &self.device, &self.file);
    }
}

/// Takes the name of a device over a file away, as far as it still is that.
pub(crate) fn remove(link: &Path, device: &Path, file: &Path) {
    // The kernel may have given the device to another attachment meanwhile.
    let is_ours = |note: &PathBuf| {
        let name = link.strip_prefix(NAMES).unwrap_or(link).display();
        fs::read_to_string(note).is_ok_and(|noted| noted == line(&name.to_string()))
    };
    if let Some(note) = note(device, file).filter(is_ours) {
        let _ = fs::remove_file(&note);
        let above = note.ancestors().skip(1).take_while(|directory| *directory != Path::new(NOTES));
        // Each as far as it is empty then.
        let _ = above.map(fs::remove_dir).find(Result::is_err);
    }
    if link.canonicalize().is_ok_and(|owner| owner != device) {
        return;
    }
    let _ = fs::remove_file(link);
    if let Some(directory) = link.parent() {
        // It stays while other volumes of that server have names.
        let _ = fs::remove_dir(directory);
    }
}

/// Whoever has it is the only one to give a name, until it is closed.
fn lock() -> io::Result<File> {
    fs::create_dir_all(NOTES)?;
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(LOCK)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// What the rule of udev imports.
fn line(name: &str) -> String {
    format!("SANWIRE_NAME={name}\n")
}

/// The path names the file, too: the kernel gives a loop device's number to others, over files that have no name.
fn note(device: &Path, file: &Path) -> Option<PathBuf> {
    Some(Path::new(NOTES).join(device.file_name()?).join(file.strip_prefix("/").ok()?))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, text)
}

/// A server's or volume's name as one part of a path that udev takes too.
fn part(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "#+-.:=@_".contains(letter);
    let plain: String = name.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect();
    if matches!(plain.as_str(), "" | "." | "..") { "_".into() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the rule that the package brings puts it together.
    #[test]
    fn a_note_is_for_one_device_over_one_file() {
        let rule = include_str!("../../../packaging/udev/60-sanwire.rules");
        let (_, import) = rule.split_once("IMPORT{file}=\"").expect("what it reads");
        let (path, _) = import.split_once('"').expect("its end");
        let file = Path::new("/run/sanwire/volumes/disk/disk");
        let path = path.replace("$kernel", "loop3").replace("$attr{loop/backing_file}", &file.to_string_lossy());
        assert_eq!(note(Path::new("/dev/loop3"), file), Some(PathBuf::from(path)));
    }

    #[test]
    fn no_name_leads_elsewhere() {
        assert_eq!(part("iqn.2026-11.org.sanwire:disk0"), "iqn.2026-11.org.sanwire:disk0");
        assert_eq!(part("../a b\n$(x)"), ".._a_b___x_");
        assert_eq!([part(""), part("."), part("..")], ["_", "_", "_"]);
    }
}
