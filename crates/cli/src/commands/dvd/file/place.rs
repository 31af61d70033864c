//! On which disk of this host a file system is, and which volume that is.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use sanwire_attach::{Kind, Record};
use sanwire_scsi::DeviceIdentification;

/// The unit of what the kernel tells of partitions, in bytes, whatever blocks the disk has.
const SECTOR_BYTES: u64 = 512;

/// The disk of a file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Disk {
    /// The kernel's name of it: `loop3`.
    pub(super) name: String,
    /// Where the file system's partition begins.
    pub(super) start_bytes: u64,
    /// Which volume it is, as far as that can be told, else why not.
    pub(super) volume: Result<String, String>,
}

impl Disk {
    /// That of a device number, by what the kernel tells in `sys`; `attached` is what is attached on this host.
    pub(super) fn of(device: u64, sys: &Path, attached: &[Record]) -> Result<Disk, String> {
        let number = format!("{}:{}", major(device), minor(device));
        let link = sys.join("dev/block").join(&number);
        let place = link.canonicalize().map_err(|_| {
            format!(
                "its file system is not on a disk of its own (device {number}): a volume that is mounted here is needed"
            )
        })?;
        let mut start_bytes = 0;
        let mut disk = place.as_path();
        if place.join("partition").exists() {
            let start = number_in(&place.join("start")).ok_or("the kernel does not tell where its partition begins")?;
            start_bytes = start.checked_mul(SECTOR_BYTES).ok_or("its partition begins beyond all disks")?;
            disk = place.parent().unwrap_or(&place);
        }
        let name = disk.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let stands_on_others = fs::read_dir(disk.join("slaves")).is_ok_and(|mut slaves| slaves.next().is_some());
        if stands_on_others || disk.join("dm").exists() || disk.join("md").exists() {
            return Err(format!(
                "its file system is on {name}, which the kernel makes of other disks (LVM, encryption, RAID): the places of its blocks are not \
                 those on the volume; put the file system on the volume itself, or a partition of it"
            ));
        }
        let volume = volume(disk, &name, attached);
        Ok(Disk { name, start_bytes, volume })
    }
}

/// Which volume a disk is, as it names itself: `naa.` and 16 digits.
fn volume(disk: &Path, name: &str, attached: &[Record]) -> Result<String, String> {
    if let Some(file) = text_in(&disk.join("loop/backing_file")) {
        if number_in(&disk.join("loop/offset")).is_some_and(|offset| offset != 0) {
            return Err(format!("{name} begins within the file {file}"));
        }
        let device = PathBuf::from("/dev").join(name);
        let is_it = |record: &&Record| {
            record.device() == Some(device.as_path())
                && matches!(&record.kind, Kind::Fuse { file: attached, .. } if attached.as_path() == Path::new(&file))
        };
        let record = attached.iter().find(is_it);
        let record = record
            .ok_or_else(|| format!("{name} is over the file {file}, which is no volume that is attached here"))?;
        return record
            .identity
            .clone()
            .ok_or_else(|| format!("{name} was attached by an older program: attach it again"));
    }
    let page =
        fs::read(disk.join("device/vpd_pg83")).map_err(|_| format!("{name} does not tell which volume it is"))?;
    let naa = DeviceIdentification::parse(&page).ok().and_then(|page| page.naa());
    naa.map(identity_of).ok_or_else(|| format!("{name} does not tell which volume it is"))
}

/// A volume by its NAA name.
pub(super) fn identity_of(naa: u64) -> String {
    format!("naa.{naa:016x}")
}

fn text_in(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim_end_matches('\n').to_owned())
}

fn number_in(path: &Path) -> Option<u64> {
    text_in(path)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::makedev;
    use sanwire_scsi::Identity;
    use sanwire_scsi::vpd::TargetPort;

    use super::*;

    /// A directory that goes with it.
    struct Directory(PathBuf);

    impl Directory {
        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// What a kernel tells, of these files.
    fn sys(label: &str, files: &[(&str, &[u8])]) -> Directory {
        let directory = Directory(std::env::temp_dir().join(format!("sanwire-{label}-{}", std::process::id())));
        for (file, content) in files {
            let path = directory.path(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        fs::create_dir_all(directory.path("dev/block")).unwrap();
        for (number, place) in [
            ("7:3", "devices/virtual/block/loop3"),
            ("259:1", "devices/virtual/block/loop3/loop3p1"),
            ("8:0", "devices/a/block/sda"),
        ] {
            symlink(directory.path(place), directory.path("dev/block").join(number)).unwrap();
        }
        directory
    }

    fn attached(device: &str, identity: Option<&str>) -> Record {
        let kind = Kind::Fuse {
            mount_point: "/m".into(),
            made_mount_point: true,
            file: "/m/disk".into(),
            file_system: None,
            device: Some(device.into()),
            name: None,
        };
        let identity = identity.map(str::to_owned);
        Record {
            pid: 1,
            pid_started: 1,
            volume: "hs+ip://box/disk".into(),
            name: None,
            identity,
            kind,
            status: None,
            control: None,
        }
    }

    #[test]
    fn a_partition_lies_within_its_disk_and_that_is_the_volume_that_is_attached_there() {
        let loop3 = "devices/virtual/block/loop3";
        let files = [
            (format!("{loop3}/loop/backing_file"), &b"/m/disk\n"[..]),
            (format!("{loop3}/loop/offset"), b"0\n"),
            (format!("{loop3}/loop3p1/partition"), b"1\n"),
            (format!("{loop3}/loop3p1/start"), b"2048\n"),
        ];
        let files: Vec<_> = files.iter().map(|(file, content)| (file.as_str(), *content)).collect();
        let sys = sys("dvd-file-loop", &files);
        let of = |major, minor, attached: &[Record]| Disk::of(makedev(major, minor), &sys.path(""), attached).unwrap();
        let ours = [attached("/dev/loop3", Some("naa.3000000000000001"))];
        let whole = of(7, 3, &ours);
        let naa = Ok("naa.3000000000000001".to_owned());
        assert_eq!(whole, Disk { name: "loop3".into(), start_bytes: 0, volume: naa.clone() });
        assert_eq!(of(259, 1, &ours), Disk { start_bytes: 1 << 20, ..whole });
        for (others, part) in [
            (&[][..], "no volume that is attached here"),
            (&[attached("/dev/loop4", Some("naa.3000000000000001"))], "no volume that is attached here"),
            (&[attached("/dev/loop3", None)], "attach it again"),
        ] {
            let why = of(7, 3, others).volume.unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        fs::write(sys.path("devices/virtual/block/loop3/loop/offset"), b"512\n").unwrap();
        assert!(of(7, 3, &ours).volume.unwrap_err().contains("begins within"));
    }

    #[test]
    fn a_scsi_disk_tells_itself_which_volume_it_is() {
        let identity = Identity::new("disk", [7; 16]).unwrap();
        let page = identity.to_page(&TargetPort::default());
        let sys = sys("dvd-file-scsi", &[("devices/a/block/sda/device/vpd_pg83", &page)]);
        let disk = Disk::of(makedev(8, 0), &sys.path(""), &[]).unwrap();
        assert_eq!(disk.volume, Ok(identity_of(identity.naa())));
        fs::write(sys.path("devices/a/block/sda/device/vpd_pg83"), b"odd").unwrap();
        let disk = Disk::of(makedev(8, 0), &sys.path(""), &[]).unwrap();
        assert!(disk.volume.unwrap_err().contains("does not tell which volume it is"));
    }

    #[test]
    fn what_is_made_of_other_disks_is_refused() {
        for (label, file) in [("dm", "dm/name"), ("md", "md/level"), ("slaves", "slaves/sdb")] {
            let file = format!("devices/a/block/sda/{file}");
            let sys = sys(&format!("dvd-file-{label}"), &[(&file, b"x")]);
            let error = Disk::of(makedev(8, 0), &sys.path(""), &[]).unwrap_err();
            assert!(error.contains("sda, which the kernel makes of other disks"), "{error}");
        }
        let sys = sys("dvd-file-none", &[]);
        let error = Disk::of(makedev(0, 45), &sys.path(""), &[]).unwrap_err();
        assert!(error.contains("not on a disk of its own (device 0:45)"), "{error}");
    }
}
