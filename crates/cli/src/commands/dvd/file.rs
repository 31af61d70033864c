//! `sanwire dvd create --file`: a file of a mounted file system as a device, as long as this command runs.

mod layout;
mod opened;
mod place;
mod watch;

use std::path::Path;

use anyhow::Context;
use sanwire_attach::Registry;
use sanwire_core::Size;
use sanwire_scsi::Identity;
use sanwire_server::{Answer, NewDvd, RegionStatus, Request};

use self::layout::Layout;
use self::opened::Opened;
use self::place::{Disk, identity_of};
use self::watch::{Alarm, LEASE, Watch};
use crate::administration::Refused;
use crate::args::{DvdCreateArgs, Switch, WayArgs};
use crate::commands::{device, info};
use crate::connect::Connection;
use crate::failure::misuse;
use crate::{administration, output, service};

/// What may be done with a file that is only read, and what besides with one that is written in place: its blocks stay.
const READING: [&str; 2] = ["read", "copy-source"];
const WRITING: [&str; 2] = ["write", "copy-target"];

/// What would take blocks away from a file, or is about the disk as a whole.
const NEVER: [&str; 2] = ["discard", "management"];

/// Asks a server.
pub(super) type Ask<'a> = dyn Fn(&Request) -> anyhow::Result<Answer> + 'a;

/// Derives a volume from the one on which a file is, serves it as long as the file lies where it does, and stays until then, or until a signal
/// comes.
pub(super) fn run(args: &DvdCreateArgs, path: &Path, new: NewDvd, ask: &Ask<'_>) -> anyhow::Result<()> {
    let (DvdCreateArgs { parent, name, way, .. }, writable) = (args, args.file.writable);
    if way.terms.no_wait {
        return Err(misuse("--no-wait does not go with --file: the file is watched as soon as the volume is there"));
    }
    let operations = operations(&args.operations, writable)?;
    let path = std::path::absolute(path).with_context(|| format!("cannot tell where {} is", path.display()))?;
    let shown = path.display();
    let refused = |why: String| anyhow::anyhow!("{shown} cannot be served as a device: {why}");
    let whole = Parent::of(parent, way, ask)?;
    // Nothing is done to a file of which is only to be told what would be.
    let is_meant = !way.terms.dry_run;
    // Before there is anything that a signal would leave behind.
    let alarm = is_meant.then(Alarm::new).transpose().context("cannot catch signals")?;
    let is_pinned = args.file.pin.map_or(writable, |switch| switch == Switch::On);
    let opened = Opened::open(&path, writable && is_meant, is_pinned && is_meant).map_err(refused)?;
    let records = Registry::open(device::helper)?.list()?;
    let disk = Disk::of(opened.device(), Path::new("/sys"), &records).map_err(refused)?;
    whole.check_is(parent, &disk, args.file.device_is_parent).map_err(refused)?;
    let layout = Layout::of(opened.file(), whole.block_bytes, writable).map_err(refused)?;
    let regions = layout.regions(disk.start_bytes);
    let asked = regions.iter().map(written).collect();
    let new = NewDvd { regions: asked, operations, until: Some(LEASE.to_owned()), read_only: !writable, ..new };
    let begin = |alarm| Watch::begin(alarm, &opened, &layout, whole.block_bytes);
    let watch = alarm.map(begin).transpose()?;
    let created = administration::run_to_its_end(Request::CreateDvd(new), way.terms, ask);
    let (Some(watch), volume) = (watch, (parent.as_str(), name.as_str())) else { return created };
    if let Err(error) = created {
        // Who was not answered may have got what was asked for all the same.
        if !error.is::<Refused>() {
            watch::give_up(&opened, volume, &regions, ask);
        }
        return Err(error);
    }
    let (size, count) = (Size(layout.size_bytes), regions.len());
    let what = format!("volume {name} is the file {shown}, {size} in {count} pieces, as long as this command runs");
    watch.stay(&opened, volume, ask, || {
        if !way.terms.json {
            output::print(&format!("{what}\n"))?;
        }
        service::ready(&what);
        Ok(())
    })
}

/// What may be done with it: what the user wants, within what does no harm to the file system.
fn operations(wanted: &[String], writable: bool) -> anyhow::Result<Vec<String>> {
    let allowed: Vec<&str> = READING.into_iter().chain(WRITING.into_iter().filter(|_| writable)).collect();
    if wanted.is_empty() {
        return Ok(allowed.into_iter().map(str::to_owned).collect());
    }
    match wanted.iter().find(|operation| !allowed.contains(&operation.as_str()) && *operation != "reservations") {
        None => Ok(wanted.to_vec()),
        Some(operation) if !writable && WRITING.contains(&operation.as_str()) => {
            Err(misuse(format!("--allow-ops {operation} is for --writable: add that, or leave it out")))
        }
        Some(operation) if NEVER.contains(&operation.as_str()) => Err(misuse(format!(
            "--allow-ops {operation} does not go with --file: the file would have blocks that are not its own, or lose some"
        ))),
        Some(operation) => Err(misuse(format!(
            "--allow-ops {operation} does not go with --file: use read, write, copy-source, copy-target and reservations"
        ))),
    }
}

/// The volume from which is derived.
struct Parent {
    /// `naa.` and 16 digits.
    identity: String,
    block_bytes: u32,
}

impl Parent {
    /// What the server calls it.
    fn of(name: &str, way: &WayArgs, ask: &Ask<'_>) -> anyhow::Result<Parent> {
        if let Some(url) = &way.at {
            let volume = Connection::open_to_manage(url, &way.reach)?
                .volume(name)
                .with_context(|| format!("cannot look at volume {name}, to see that it is the disk of the file"))?;
            let info = volume.info();
            return Ok(Parent { identity: info::identity(&info), block_bytes: info.block_bytes });
        }
        let Answer::Status(status) = ask(&Request::Status)? else {
            anyhow::bail!("the server's answer cannot be read: is it another version?")
        };
        let volume = status.volumes.iter().find(|volume| volume.name == name);
        let volume = volume.with_context(|| format!("no volume called {name} is served"))?;
        let uuid = u128::from_str_radix(&volume.id, 16).context("the server's answer cannot be read")?;
        let naa = Identity::new(name, uuid.to_be_bytes())?.naa();
        Ok(Parent { identity: identity_of(naa), block_bytes: volume.block_bytes })
    }

    /// Whether the disk of a file is this volume: on another one, somebody would get the blocks of other files.
    fn check_is(&self, name: &str, disk: &Disk, is_told: bool) -> Result<(), String> {
        match &disk.volume {
            Ok(identity) if *identity == self.identity => Ok(()),
            Ok(identity) => Err(format!(
                "its disk {} is another volume than {name}: it is {identity}, and {name} is {}",
                disk.name, self.identity
            )),
            Err(_) if is_told => Ok(()),
            Err(why) => Err(format!(
                "nobody can tell whether its disk is the volume {name}: {why}; if you know that it is, say so with --device-is-parent (if it \
                 is not, others get blocks of other files)"
            )),
        }
    }
}

/// As regions are written.
fn written(region: &RegionStatus) -> String {
    format!("{}+{}", region.offset_bytes, region.length_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_no_operation_that_moves_its_blocks() {
        let allowed = |wanted: &[&str], writable| {
            let wanted: Vec<String> = wanted.iter().map(|wanted| (*wanted).to_owned()).collect();
            operations(&wanted, writable).map_err(|error| error.to_string())
        };
        assert_eq!(allowed(&[], false).unwrap(), ["read", "copy-source"]);
        assert_eq!(allowed(&[], true).unwrap(), ["read", "copy-source", "write", "copy-target"]);
        assert_eq!(allowed(&["write", "reservations"], true).unwrap(), ["write", "reservations"]);
        for (wanted, writable, part) in [
            ("write", false, "is for --writable"),
            ("discard", true, "or lose some"),
            ("management", true, "or lose some"),
            ("8Fh", true, "use read, write"),
        ] {
            let error = allowed(&["read", wanted], writable).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_disk_that_is_not_known_to_be_the_parent_is_refused() {
        let parent = Parent { identity: "naa.3000000000000001".into(), block_bytes: 512 };
        let disk = |volume: Result<&str, &str>| Disk {
            name: "sda".into(),
            start_bytes: 0,
            volume: volume.map(str::to_owned).map_err(str::to_owned),
        };
        assert_eq!(parent.check_is("disk", &disk(Ok("naa.3000000000000001")), false), Ok(()));
        for is_told in [false, true] {
            let error = parent.check_is("disk", &disk(Ok("naa.3000000000000002")), is_told).unwrap_err();
            assert!(error.contains("its disk sda is another volume than disk"), "{error}");
        }
        let error = parent.check_is("disk", &disk(Err("it is silent")), false).unwrap_err();
        assert!(error.contains("it is silent; if you know that it is"), "{error}");
        assert_eq!(parent.check_is("disk", &disk(Err("it is silent")), true), Ok(()));
    }
}
