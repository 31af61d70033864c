//! What is done with the disk and its file system.

use std::fs;
use std::time::Instant;

use anyhow::Result;

use crate::link::End;
use crate::load::{MIB, read_fio};
use crate::process::Host;

use crate::mounted::Mounted;

/// The file that is copied.
pub(super) const COPY: &str = "copy.bin";
pub(super) const COPY_BYTES: u64 = 256 << 20;
/// IOzone's file.
pub(super) const ZONE: &str = "iozone.bin";
pub(super) const ZONE_BYTES: u64 = 64 << 20;
/// What may take no longer, in seconds.
pub(super) const LIMIT_S: &str = "30";

/// One line of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load {
    /// One block after the other, through an empty page cache with the kernel's read-ahead, as `hdparm` and `dd` do.
    BlockRead,
    /// `cp FILE /dev/null`, from an empty page cache.
    Copy,
    /// A pass of IOzone's.
    Zone(Zone),
}

/// The passes of `iozone -I -e -r 64k -s 64m -i 0 -i 1 -i 2`, one after the other on one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Zone {
    Write,
    Rewrite,
    Read,
    Reread,
    RandomRead,
    RandomWrite,
}

impl Load {
    pub(super) const ALL: [Load; 8] = [
        Load::BlockRead,
        Load::Copy,
        Load::Zone(Zone::Write),
        Load::Zone(Zone::Rewrite),
        Load::Zone(Zone::Read),
        Load::Zone(Zone::Reread),
        Load::Zone(Zone::RandomRead),
        Load::Zone(Zone::RandomWrite),
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Load::BlockRead => "block read",
            Load::Copy => "file copy",
            Load::Zone(Zone::Write) => "IOzone write",
            Load::Zone(Zone::Rewrite) => "IOzone rewrite",
            Load::Zone(Zone::Read) => "IOzone read",
            Load::Zone(Zone::Reread) => "IOzone reread",
            Load::Zone(Zone::RandomRead) => "IOzone random read",
            Load::Zone(Zone::RandomWrite) => "IOzone random write",
        }
    }

    /// The program and its arguments. fio makes IOzone's accesses: IOzone itself is not free software.
    pub(super) fn command(self, device: &str, directory: &str) -> Vec<String> {
        let zone = |order: &str| {
            format!(
                "fio --name=iozone --filename={directory}/{ZONE} --rw={order} --bs=64k --size={ZONE_BYTES} --direct=1 \
                 --ioengine=psync --fallocate=none --end_fsync=1 --output-format=json"
            )
        };
        let line = match self {
            Load::BlockRead => format!(
                "fio --name=block --filename={device} --rw=read --bs=1M --size={COPY_BYTES} --readonly --invalidate=1 \
                 --ioengine=psync --output-format=json"
            ),
            Load::Copy => format!("cp {directory}/{COPY} /dev/null"),
            Load::Zone(Zone::Write | Zone::Rewrite) => zone("write"),
            Load::Zone(Zone::Read | Zone::Reread) => zone("read"),
            Load::Zone(Zone::RandomRead) => zone("randread"),
            Load::Zone(Zone::RandomWrite) => zone("randwrite"),
        };
        line.split(' ').map(Into::into).collect()
    }

    /// Does it once, and gives the MiB per second.
    ///
    /// # Errors
    /// When a program fails or takes too long.
    pub(super) fn measure(self, host: &Host, mounted: &Mounted) -> Result<f64> {
        let zone = format!("{}/{ZONE}", mounted.directory);
        if self == Load::Zone(Zone::Write) && fs::exists(&zone)? {
            fs::remove_file(&zone)?;
        }
        let command = self.command(mounted.device.path(), &mounted.directory);
        let (output, seconds) = timed(host, &command)?;
        if self == Load::Copy { Ok(COPY_BYTES as f64 / MIB / seconds) } else { read_fio(&output) }
    }
}

/// Runs a client within the limit; what it printed, and how many seconds it took.
pub(super) fn timed(host: &Host, command: &[String]) -> Result<(String, f64)> {
    let mut arguments = vec![LIMIT_S];
    arguments.extend(command.iter().map(String::as_str));
    let start = Instant::now();
    let output = host.run(End::Client, "timeout", &arguments)?.output;
    Ok((output, start.elapsed().as_secs_f64()))
}
