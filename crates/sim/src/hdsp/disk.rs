//! The disk behind a server of HDSP: it executes requests one after the other where they touch, each once.

use std::collections::BTreeSet;

use sanwire_ata::{self as ata, Registers, TaskFile};
use sanwire_buffer::{Slice, Slices};
use sanwire_hdsp::{Answer, Request};

use super::precedence::Precedence;
use crate::content::{BLOCK_BYTES, version_of};
use crate::random::Random;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deed {
    Read { lba: u64, blocks: u64 },
    Write { lba: u64, blocks: u64 },
    Flush,
    Unknown,
}

impl Deed {
    pub(super) fn of(request: &Request) -> Deed {
        match request {
            Request::Ata { task_file, .. } => Deed::of_ata(task_file),
            Request::Scsi { cdb, .. } => match (cdb.first(), cdb.get(2..10), cdb.get(10..14)) {
                (Some(code @ (0x88 | 0x8a)), Some(lba), Some(blocks)) => {
                    let lba = u64::from_be_bytes(lba.try_into().unwrap_or_default());
                    let blocks = u32::from_be_bytes(blocks.try_into().unwrap_or_default()).into();
                    if *code == 0x88 { Deed::Read { lba, blocks } } else { Deed::Write { lba, blocks } }
                }
                (Some(0x91), ..) => Deed::Flush,
                _ => Deed::Unknown,
            },
        }
    }

    fn of_ata(task_file: &TaskFile) -> Deed {
        let blocks = match (task_file.count, task_file.is_long) {
            (0, true) => 65_536,
            (0, false) => 256,
            (count, _) => count.into(),
        };
        match ata::Command::parse(task_file) {
            Some(ata::Command::Read { .. }) => Deed::Read { lba: task_file.lba, blocks },
            Some(ata::Command::Write { .. }) => Deed::Write { lba: task_file.lba, blocks },
            Some(ata::Command::Flush) => Deed::Flush,
            _ => Deed::Unknown,
        }
    }

    /// Whether two must not be executed at once.
    pub(super) fn touches(self, other: Deed) -> bool {
        let place = |deed| match deed {
            Deed::Read { lba, blocks } => Some((lba, lba + blocks, false)),
            Deed::Write { lba, blocks } => Some((lba, lba + blocks, true)),
            Deed::Flush | Deed::Unknown => None,
        };
        let Some(((a, b, writes), (c, d, others))) = place(self).zip(place(other)) else { return false };
        (writes || others) && a < d && c < b
    }
}

/// What it holds.
pub(super) struct Disk {
    cached: Vec<u8>,
    stable: Vec<u8>,
    /// Writes that this run of the server has executed, by their content.
    executed: BTreeSet<u64>,
    pub(super) precedence: Precedence,
}

impl Disk {
    pub(super) fn new(blocks: u64) -> Self {
        let empty = vec![0; blocks as usize * BLOCK_BYTES];
        Disk { cached: empty.clone(), stable: empty, executed: BTreeSet::new(), precedence: Precedence::default() }
    }

    /// What a reader would see.
    pub(super) fn content(&self) -> &[u8] {
        &self.cached
    }

    /// The server has started again: it may execute what was given to the one before.
    pub(super) fn restarted(&mut self) {
        self.executed.clear();
    }

    /// What was not flushed is lost, some of it.
    pub(super) fn lose_power(&mut self, random: &mut Random) {
        let blocks = self.stable.chunks_mut(BLOCK_BYTES).zip(self.cached.chunks_mut(BLOCK_BYTES));
        for (stable, cached) in blocks {
            match random.chance(500_000) {
                true => stable.copy_from_slice(cached),
                false => cached.copy_from_slice(stable),
            }
        }
    }

    /// Executes a request.
    ///
    /// # Errors
    /// Says which write runs twice or too late, or which has no data of its own.
    pub(super) fn execute(&mut self, request: &Request, fails: bool) -> Result<(Answer, bool), String> {
        let deed = Deed::of(request);
        let range = |lba: u64, blocks: u64| lba as usize * BLOCK_BYTES..(lba + blocks) as usize * BLOCK_BYTES;
        let mut read = None;
        if fails {
            return Ok((answer(request, None, false), matches!(deed, Deed::Read { .. })));
        }
        match deed {
            Deed::Read { lba, blocks } => {
                let bytes = self.cached.get(range(lba, blocks)).ok_or("a read past the end")?;
                read = Some(Slices::from(Slice::from(bytes.to_vec())));
            }
            Deed::Write { lba, blocks } => {
                let data = data_of(request);
                self.note(lba, &data)?;
                let place = self.cached.get_mut(range(lba, blocks)).ok_or("a write past the end")?;
                if place.len() != data.len() {
                    return Err(format!("{} bytes are written to {blocks} blocks", data.len()));
                }
                place.copy_from_slice(&data);
            }
            Deed::Flush => self.stable.copy_from_slice(&self.cached),
            Deed::Unknown => return Err(format!("nobody has given {request:?}")),
        }
        Ok((answer(request, read, true), matches!(deed, Deed::Read { .. })))
    }

    fn note(&mut self, lba: u64, data: &[u8]) -> Result<(), String> {
        let mut versions = BTreeSet::new();
        for (block, lba) in data.chunks(BLOCK_BYTES).zip(lba..) {
            let version = version_of(block, lba).ok_or_else(|| format!("block {lba} is written with garbage"))?;
            self.precedence.reaches(version, lba)?;
            versions.insert(version);
        }
        match versions.into_iter().find(|version| !self.executed.insert(*version)) {
            Some(version) => Err(format!("write {version} runs twice")),
            None => Ok(()),
        }
    }
}

fn data_of(request: &Request) -> Vec<u8> {
    let (Request::Ata { data, .. } | Request::Scsi { data, .. }) = request;
    data.iter().flat_map(|piece| piece.iter().copied()).collect()
}

fn answer(request: &Request, data: Option<Slices>, is_success: bool) -> Answer {
    match request {
        Request::Ata { task_file, .. } => {
            let failure = Registers::failure(task_file, ata::error::ABRT);
            let registers = if is_success { Registers::success(task_file) } else { failure };
            Answer::Ata { registers, data }
        }
        Request::Scsi { .. } if is_success => Answer::Scsi { status: 0, sense: Vec::new(), data },
        Request::Scsi { .. } => Answer::Scsi { status: 2, sense: vec![0x70; 18], data: None },
    }
}
