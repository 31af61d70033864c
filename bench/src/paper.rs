//! The table of the HyperSCSI paper (section 7, figure 4): block reads, file copies and IOzone's accesses through an attached
//! file system, each as a share of the local disk.
//!
//! All contenders use the very same file on the local disk, one after the other, and always past the page cache of its host:
//! "local" is a loop device with direct I/O over it, our server and tgt open it with `O_DIRECT`, and the NFS server exports
//! the file system in it from such a loop device. It is mounted anew in each turn, so no cache holds any of it.

mod disk;
mod load;
mod nfs;
mod shares;

use anyhow::Result;

use crate::bars;
use crate::link::{End, Link, SERVER_ADDRESS};
use crate::mounted::{Device, Mounted};
use crate::process::{Host, Running};
use crate::report::Outcome;
use crate::rounds::{Turn, take_turns};
use crate::run::Settings;
use crate::sample::{Row, Sample};
use crate::servers::{Files, TGT_TARGET, Wire, installed, start_sanwire, start_tgt};
use disk::Disk;
use load::Load;
use nfs::Nfs;

/// Jumbo frames, as in the paper.
const MTU_BYTES: u32 = 9000;
const WIRES: [Wire; 3] = [Wire::Ethernet, Wire::Ip, Wire::Iscsi("10.99.0.2:3260")];
const TGT_PORT: u16 = 3261;
const VOLUME: &str = "disk";

const PART: &str = "paper";
/// Without these there is no table at all.
const TOOLS: [&str; 5] = ["fio", "losetup", "mkfs.ext4", "mount", "timeout"];

/// Where the file system is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Contender {
    Local,
    Sanwire(Wire),
    /// tgt's disk, attached by our client.
    Tgt,
    Nfs,
}

impl Contender {
    const ALL: [Contender; 6] = [
        Contender::Local,
        Contender::Sanwire(WIRES[0]),
        Contender::Sanwire(WIRES[1]),
        Contender::Sanwire(WIRES[2]),
        Contender::Tgt,
        Contender::Nfs,
    ];

    fn name(self) -> &'static str {
        match self {
            Contender::Local => "local disk",
            Contender::Sanwire(wire) => wire.name(),
            Contender::Tgt => "tgt iSCSI",
            Contender::Nfs => "NFS",
        }
    }

    fn loads(self) -> Vec<Load> {
        let is_possible = |load: &Load| self != Contender::Nfs || nfs::can(*load);
        Load::ALL.into_iter().filter(is_possible).collect()
    }
}

/// What stays for all turns.
struct Bed<'a> {
    host: Host<'a>,
    files: &'a Files,
    disk: &'a Disk,
    sanwire: &'a str,
    tgt: Option<Running>,
    _server: Running,
}

/// A contender's turn: its file system is there.
enum Place {
    Mounted(Mounted),
    Nfs(Nfs),
}

/// All rounds.
///
/// # Errors
/// When a server does not come up, or the disk has no room.
pub(crate) fn measure(settings: &Settings, files: &Files) -> Result<Outcome> {
    if TOOLS.iter().any(|tool| installed(tool).is_none()) {
        let table = "not measured: a program is missing".into();
        return Ok(Outcome { part: PART, table, ..Outcome::default() });
    }
    let disk = Disk::new(&settings.args.disk)?;
    let link = Link::new(MTU_BYTES)?;
    // As users have it: kernel threads of the loop devices have work too, so the scheduler decides.
    let host = Host { link: &link, processors: None };
    disk.make_file_system(&files.path("mount"))?;
    let tgt_disk: &[&str] = &["-b", disk.path(), "--bsoflags", "direct"];
    let volume = format!("{VOLUME}=file:{},direct", disk.path());
    let bed = Bed {
        _server: start_sanwire(&host, &settings.programs[0], files, &WIRES, &[volume], &[])?,
        tgt: start_tgt(&host, &format!("{SERVER_ADDRESS}:{TGT_PORT}"), &[tgt_disk])?,
        sanwire: &settings.programs[0],
        host,
        files,
        disk: &disk,
    };
    let turns = Contender::ALL.map(|contender| Turn { rows: rows(contender, files), job: contender }).into();
    let rows = take_turns(
        settings,
        PART,
        turns,
        |contender| bed.begin(*contender),
        |_, place, row| {
            let Some(load) = Load::ALL.into_iter().find(|load| load.name() == row.load) else { return Ok(None) };
            let mib_per_s = match place {
                Place::Mounted(mounted) => load.measure(&bed.host, mounted)?,
                Place::Nfs(nfs) => nfs.measure(&bed.host, load)?,
            };
            Ok(Some(Sample { mib_per_s: Some(mib_per_s), ..Sample::default() }))
        },
    )?;
    Ok(Outcome {
        part: PART,
        table: shares::table(&rows),
        picture: Some(bars::draw("the local disk", &shares::groups(&rows))),
        rows,
        ..Outcome::default()
    })
}

fn rows(contender: Contender, files: &Files) -> Vec<Row> {
    let command = |load: Load| match contender {
        Contender::Nfs => nfs::command(load).join(" "),
        _ => load.command("DEVICE", &files.path("mount")).join(" "),
    };
    let row = |load: Load| Row {
        mtu_bytes: MTU_BYTES,
        contender: contender.name().into(),
        load: load.name().into(),
        command: command(load),
        samples: vec![],
    };
    contender.loads().into_iter().map(row).collect()
}

impl Bed<'_> {
    /// Brings the file system to the client; nothing when a program for that is missing.
    fn begin(&self, contender: Contender) -> Result<Option<Place>> {
        let directory = self.files.path("mount");
        let device = match contender {
            Contender::Local => Device::over(self.disk.path())?,
            Contender::Sanwire(wire) => self.attach(&wire.url(VOLUME))?,
            Contender::Tgt if self.tgt.is_none() => return Ok(None),
            Contender::Tgt => self.attach(&format!("iscsi://{SERVER_ADDRESS}:{TGT_PORT}/{TGT_TARGET}/1"))?,
            Contender::Nfs => {
                let mounted = Mounted::new(Device::over(self.disk.path())?, &directory)?;
                return Ok(Nfs::new(&self.host, self.files, mounted)?.map(Place::Nfs));
            }
        };
        Ok(Some(Place::Mounted(Mounted::new(device, &directory)?)))
    }

    fn attach(&self, url: &str) -> Result<Device> {
        let (directory, key) = (self.files.path("attached"), self.files.path("client.key"));
        let arguments = ["attach", url, "--mount-point", &directory, "--key-file", &key, "--log", "error"];
        let attachment = self.host.start(End::Client, self.sanwire, &arguments)?;
        Device::of_attachment(attachment, &directory)
    }
}
