//! A command in words, or as a CDB, and what a device tells a program of it.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER_PERMISSIVE;
use sanwire_core::Principal;
use sanwire_device::BlockRange;
use sanwire_scsi::{
    BlockCommand, Cdb, CommandSet, CommandStandard, Extent, Features, OperationClasses, UnmapList, build, classes_of,
    unmap_parameters,
};

use super::principal;

/// The device that commands are for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device {
    pub(super) capacity_blocks: u64,
    pub(super) block_bytes: u32,
}

/// What is so for commands that say nothing else.
#[derive(Clone, Debug)]
pub(super) struct Usual {
    pub(super) principal: Principal,
    pub(super) unix_ms: u64,
    pub(super) data: Option<PathBuf>,
}

/// A command, with all that a program is told of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    pub(super) cdb: Cdb,
    pub(super) classes: OperationClasses,
    pub(super) ranges: Vec<BlockRange>,
    pub(super) data: Vec<u8>,
    pub(super) principal: Principal,
    pub(super) unix_ms: u64,
    /// How it ends.
    pub(super) is_good: bool,
}

/// What is written of a command, before it is known where its data is.
#[derive(Debug)]
struct Words<'t> {
    what: Vec<&'t str>,
    principal: Option<Principal>,
    unix_ms: Option<u64>,
    data: Option<&'t str>,
    is_good: bool,
}

/// Reads a command.
///
/// # Errors
/// What is wrong with it, and how commands are written.
pub(super) fn parse(text: &str, device: Device, usual: &Usual) -> Result<Asked, String> {
    let words = Words::parse(text)?;
    let data = words.data.map(PathBuf::from).or_else(|| usual.data.clone());
    let mut asked = Asked {
        cdb: Cdb::from([0]),
        classes: OperationClasses::NONE,
        ranges: vec![],
        data: vec![],
        principal: words.principal.unwrap_or_else(|| usual.principal.clone()),
        unix_ms: words.unix_ms.unwrap_or(usual.unix_ms),
        is_good: words.is_good,
    };
    let read = |data: Option<&Path>| match data {
        Some(file) => std::fs::read(file).map_err(|error| format!("{}: {error}", file.display())),
        None => Ok(vec![]),
    };
    match words.what.split_first() {
        None => return Err("there is no command: write one like 'write 0+8'".into()),
        Some((first, _)) if is_hexadecimal(first) => {
            asked.cdb = hexadecimal(&words.what)?;
            asked.data = read(data.as_deref())?;
            asked.describe(device)?;
        }
        Some((word, ranges)) => {
            let ranges = ranges.iter().map(|range| parse_range(range)).collect::<Result<Vec<_>, String>>()?;
            asked.take_word(word, &ranges, device)?;
            if asked.takes_data() {
                asked.data = read(data.as_deref())?;
            }
        }
    }
    asked.check_ranges(device)?;
    Ok(asked)
}

impl<'t> Words<'t> {
    fn parse(text: &'t str) -> Result<Words<'t>, String> {
        let mut words = Words { what: vec![], principal: None, unix_ms: None, data: None, is_good: true };
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some(("by", who)) => words.principal = Some(principal::parse(who)?),
                Some(("at", time)) => words.unix_ms = Some(unix_ms(time)?),
                Some(("with", file)) => words.data = Some(file),
                Some((other, _)) => {
                    return Err(format!("'{other}=' says nothing of a command: use by=, at= and with="));
                }
                None if word == "fails" => words.is_good = false,
                None => words.what.push(word),
            }
        }
        Ok(words)
    }
}

/// Milliseconds since 1970.
///
/// # Errors
/// It is no time.
pub(super) fn unix_ms(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no time: write one like 2026-12-24T18:00:00Z");
    let time = humantime::parse_rfc3339_weak(text).map_err(|_| wrong())?;
    since_1970(time).ok_or_else(wrong)
}

/// Milliseconds since 1970; `None` for a time before.
pub(super) fn since_1970(time: SystemTime) -> Option<u64> {
    time.duration_since(UNIX_EPOCH).ok().and_then(|since| u64::try_from(since.as_millis()).ok())
}

fn is_hexadecimal(word: &str) -> bool {
    word.len().is_multiple_of(2) && word.bytes().all(|digit| digit.is_ascii_hexdigit())
}

fn hexadecimal(words: &[&str]) -> Result<Cdb, String> {
    let digits = words.concat();
    let bytes = HEXLOWER_PERMISSIVE.decode(digits.as_bytes());
    let cdb = bytes.ok().and_then(|bytes| Cdb::new(&bytes));
    cdb.ok_or_else(|| format!("'{}' is no CDB: it has 6 to 32 bytes, two hexadecimal digits each", words.join(" ")))
}

fn parse_range(text: &str) -> Result<Extent, String> {
    let numbers = text.split_once('+').map(|(lba, blocks)| (lba.parse(), blocks.parse()));
    match numbers {
        Some((Ok(lba), Ok(blocks))) => Ok(Extent { lba, blocks }),
        _ => Err(format!("'{text}' is no range of blocks: write the first block and how many, as in 0+8")),
    }
}

impl Asked {
    /// A command of one word and its ranges.
    fn take_word(&mut self, word: &str, ranges: &[Extent], device: Device) -> Result<(), String> {
        let one = || match ranges {
            [range] => Ok(*range),
            _ => Err(format!("'{word}' takes one range of blocks, as in '{word} 0+8'")),
        };
        match word {
            "read" => self.cdb = build::read_16(one()?),
            "write" => self.cdb = build::write_16(one()?, false),
            "verify" => self.cdb = build::verify_16(one()?),
            "write-same" => self.cdb = build::write_same_16(one()?, false, false),
            "compare-and-write" => self.cdb = compare_and_write(one()?)?,
            "copy-from" => self.cdb = build::read_16(one()?),
            "copy-to" => self.cdb = build::write_16(one()?, false),
            "flush" if ranges.is_empty() => self.cdb = build::synchronize_cache_10(),
            // BLOCK ERASE of all.
            "sanitize" if ranges.is_empty() => self.cdb = Cdb::from([0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0]),
            "flush" | "sanitize" => return Err(format!("'{word}' is about all blocks: it takes no range")),
            "unmap" if !ranges.is_empty() => {
                self.data = unmap_parameters(ranges).ok_or("an UNMAP has at most 4095 ranges")?;
                self.cdb = build::unmap(self.data.len() as u16);
            }
            "unmap" => return Err("'unmap' takes one or more ranges, as in 'unmap 0+8 100+8'".into()),
            _ => {
                return Err(format!(
                    "'{word}' is no command: use read, write, verify, write-same, compare-and-write, unmap, flush, sanitize, copy-from, \
                     copy-to, or a CDB in hexadecimal digits"
                ));
            }
        }
        self.describe(device)?;
        match word {
            "copy-from" => self.classes = OperationClasses::COPY_SOURCE,
            "copy-to" => self.classes = OperationClasses::COPY_TARGET,
            _ => {}
        }
        Ok(())
    }

    /// Whether it brings the data of blocks.
    fn takes_data(&self) -> bool {
        self.data.is_empty() && self.classes.intersects(OperationClasses::WRITE)
    }

    /// Notes what the command needs, and its blocks, as a device does.
    fn describe(&mut self, device: Device) -> Result<(), String> {
        let cdb = self.cdb;
        let code = cdb.operation_code();
        let disk = CommandSet::disk(Features::ALL);
        let operation = disk.find(&cdb).map_err(|sense| format!("a disk refuses this CDB: {sense}"))?;
        self.classes = classes_of(&cdb)
            .ok_or_else(|| format!("operation {code:02x}h is about the whole target: no derived device executes it"))?;
        if operation.standard != CommandStandard::Block {
            return Ok(());
        }
        let command =
            BlockCommand::parse(operation, &cdb).map_err(|sense| format!("a disk refuses this CDB: {sense}"))?;
        self.ranges = match command {
            BlockCommand::Unmap { .. } => {
                let list = UnmapList::parse(&self.data);
                let list = list.map_err(|sense| format!("the data is no parameter list of UNMAP: {sense}"))?;
                list.extents().map(|Extent { lba, blocks }| BlockRange { lba, blocks: blocks.into() }).collect()
            }
            _ => {
                let range = command.range(device.capacity_blocks);
                range.into_iter().map(|(lba, blocks)| BlockRange { lba, blocks }).collect()
            }
        };
        Ok(())
    }

    /// A device checks that before it asks a program.
    fn check_ranges(&self, device: Device) -> Result<(), String> {
        let blocks = device.capacity_blocks;
        let is_within = |range: &&BlockRange| range.lba.checked_add(range.blocks).is_some_and(|end| end <= blocks);
        match self.ranges.iter().find(|range| !is_within(range)) {
            Some(BlockRange { lba, blocks: count }) => Err(format!(
                "blocks {lba}+{count} are not on the device, which has {blocks} blocks of {} bytes: --size makes it larger",
                device.block_bytes
            )),
            None => Ok(()),
        }
    }
}

fn compare_and_write(extent: Extent) -> Result<Cdb, String> {
    let blocks = u8::try_from(extent.blocks).map_err(|_| "COMPARE AND WRITE takes at most 255 blocks")?;
    let mut cdb = [0; 16];
    cdb[0] = 0x89;
    cdb[2..10].copy_from_slice(&extent.lba.to_be_bytes());
    cdb[13] = blocks;
    Ok(Cdb::from(cdb))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Device = Device { capacity_blocks: 1000, block_bytes: 512 };

    fn usual() -> Usual {
        Usual { principal: principal::parse("192.0.2.1").unwrap(), unix_ms: 7, data: None }
    }

    fn command(text: &str) -> Asked {
        parse(text, DEVICE, &usual()).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn ranges(asked: &Asked) -> Vec<(u64, u64)> {
        asked.ranges.iter().map(|range| (range.lba, range.blocks)).collect()
    }

    #[test]
    fn a_command_in_words_is_that_of_its_cdb() {
        for (words, cdb) in [
            ("read 5+8", "88 00 0000000000000005 00000008 00 00"),
            ("write 5+8", "8a000000000000000005000000080000"),
            ("verify 5+8", "8f 00 0000000000000005 00000008 00 00"),
            ("write-same 5+8", "93 00 0000000000000005 00000008 00 00"),
            ("compare-and-write 5+8", "89 00 0000000000000005 000000 08 00 00"),
            ("flush", "35 00 00000000 00 0000 00"),
            ("sanitize", "48 02 00 00 00 00 00 0000 00"),
        ] {
            assert_eq!(command(words), command(cdb), "{words}");
        }
        assert_eq!(ranges(&command("write 992+8")), [(992, 8)]);
        assert_eq!(ranges(&command("flush")), [(0, 1000)]);
        assert_eq!(ranges(&command("00 00 00 00 00 00")), []);
        let unmap = command("unmap 5+8 20+1");
        assert_eq!((ranges(&unmap), unmap.classes), (vec![(5, 8), (20, 1)], OperationClasses::DISCARD));
        let (from, to) = (command("copy-from 5+8"), command("copy-to 5+8"));
        assert_eq!((from.cdb, from.classes), (command("read 5+8").cdb, OperationClasses::COPY_SOURCE));
        assert_eq!((to.cdb, to.classes), (command("write 5+8").cdb, OperationClasses::COPY_TARGET));
    }

    #[test]
    fn who_and_when_may_stand_behind_a_command() {
        let usual_one = command("write 0+1");
        assert_eq!((&usual_one.principal, usual_one.unix_ms, usual_one.is_good), (&usual().principal, 7, true));
        let other = command("write 0+1 by=chap:alice at=1970-01-01T00:00:02Z fails");
        assert_eq!(other.principal.chap_user.as_deref(), Some("alice"));
        assert_eq!((other.unix_ms, other.is_good), (2_000, false));
    }

    #[test]
    fn data_is_that_of_a_file_for_what_brings_data() {
        let file = std::env::temp_dir().join(format!("sanwire-asked-{}", std::process::id()));
        std::fs::write(&file, b"content").unwrap();
        let usual = Usual { data: Some(file.clone()), ..usual() };
        let data = |text: &str| parse(text, DEVICE, &usual).unwrap().data;
        assert_eq!((data("write 0+1"), data("read 0+1")), (b"content".to_vec(), vec![]));
        assert_eq!(data("unmap 0+1").len(), 24, "its own parameter list");
        std::fs::remove_file(file).unwrap();
        let missing = parse("write 0+1 with=/not/there", DEVICE, &usual).unwrap_err();
        assert!(missing.starts_with("/not/there: "), "{missing}");
    }

    #[test]
    fn what_is_no_command_says_what_would_be_one() {
        for (text, words) in [
            ("", "there is no command"),
            ("by=chap:a", "there is no command"),
            ("frob 0+1", "'frob' is no command"),
            ("write", "takes one range"),
            ("write 0+1 2+1", "takes one range"),
            ("write 0", "'0' is no range"),
            ("write 0+-1", "is no range"),
            ("write 0+4294967296", "is no range"),
            ("flush 0+1", "takes no range"),
            ("unmap", "one or more ranges"),
            ("write 993+8", "are not on the device"),
            ("write 18446744073709551615+1", "are not on the device"),
            ("compare-and-write 0+256", "at most 255"),
            ("2a 00 00", "a disk refuses this CDB"),
            ("ff", "a disk refuses this CDB"),
            ("2a 00 00 00 00 00 00 00 08 01", "a disk refuses this CDB"),
            ("2a0", "is no command"),
            (&"00".repeat(33), "is no CDB"),
            ("a4 0a 00 00 00 00 00 00 00 00 00 00", "about the whole target"),
            ("42 00 00 00 00 00 00 00 18 00 with=/dev/null", ""),
            ("write 0+1 by=nobody", "is nobody"),
            ("write 0+1 at=noon", "is no time"),
            ("write 0+1 at=1960-01-01T00:00:00Z", "is no time"),
            ("write 0+1 from=x", "'from=' says nothing"),
        ] {
            match parse(text, DEVICE, &usual()) {
                Ok(asked) => assert_eq!((words, asked.ranges), ("", vec![]), "{text}"),
                Err(error) => assert!(!words.is_empty() && error.contains(words), "{text}: {error}"),
            }
        }
    }
}
