//! What clients ask of a disk, whatever the protocol, and what the answers mean for the model.

use sanwire_buffer::{Frame, Region, Slice};
use sanwire_scsi::{Cdb, Extent, build, unmap_parameters, vpd};

use crate::content::{BLOCK_BYTES, fill, version_of};
use crate::executor::{COUNT, Counts};
use crate::model::{Model, Range, Tick};
use crate::plan::Work;
use crate::random::Random;

/// The most blocks of a request to manage the server: several packets.
const MANAGE_BLOCKS_MAX: u64 = 40;

/// What is read of a page of INQUIRY.
const PAGE_MAX_BYTES: u16 = 252;

/// Clients of a world that ask for management, at the most.
const MANAGERS_MAX: usize = 16;

/// What a command is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// READ (16).
    Read,
    /// WRITE (16), perhaps with FUA.
    Write {
        /// Stable when acknowledged.
        is_stable: bool,
    },
    /// SYNCHRONIZE CACHE (16).
    Flush,
    /// UNMAP.
    Unmap,
    /// The command that must not be executed twice.
    Count,
    /// ABORT TASK, of an earlier command.
    Abort,
    /// LOGICAL UNIT RESET.
    Reset,
    /// A request to manage the server: so many blocks, which are sent back.
    Manage,
    /// TEST UNIT READY.
    Test,
    /// INQUIRY for the unit's identity.
    Identify,
}

/// What is about no blocks.
pub const NO_BLOCKS: Range = Range { lba: 0, blocks: 0 };

/// A command that was given and not answered.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Its number in the world.
    pub operation: u64,
    /// What it is for.
    pub kind: Kind,
    /// The blocks that it is about.
    pub range: Range,
    begun: Tick,
    /// Since which change of its terms its client may only read, if that is so.
    read_only_since: Option<u64>,
    /// Its client may not have it done.
    is_barred: bool,
}

/// The blocks of a request to manage the server, of the client with this number.
#[must_use]
pub fn manage_range(client: usize, blocks: u64) -> Range {
    Range { lba: client as u64 * MANAGE_BLOCKS_MAX, blocks: blocks.min(MANAGE_BLOCKS_MAX) }
}

/// The operation and the client of a request to manage the server; `None` when that is no whole request.
#[must_use]
pub fn manage_request(request: &[u8]) -> Option<(u64, usize)> {
    let (operation, _) = request.split_first_chunk::<8>()?;
    let operation = u64::from_le_bytes(*operation);
    let client = (0..MANAGERS_MAX).find(|client| is_request(request, operation, manage_range(*client, 0).lba))?;
    Some((operation, client))
}

fn is_request(bytes: &[u8], operation: u64, lba: u64) -> bool {
    let blocks = bytes.chunks(BLOCK_BYTES).zip(lba..);
    !bytes.is_empty() && blocks.into_iter().all(|(block, lba)| version_of(block, lba) == Some(operation))
}

/// What all clients share.
pub struct Shared<'a> {
    /// The reference model.
    pub model: &'a mut Model,
    /// Executions of counting commands.
    pub counts: &'a Counts,
    /// Blocks of the disk.
    pub blocks: u64,
    /// Numbers for operations.
    pub next_operation: &'a mut u64,
    /// How many flushes of the disk have failed.
    pub failed_flushes: u64,
    /// Flushes of the disk may lose what they were to make stable: one that succeeds speaks for the writes of its client alone.
    pub is_lossy: bool,
    /// What a client does not wait for any more lands before what it asks later, and nobody else asks anything.
    pub is_forsaken_for_good: bool,
}

/// The writes of a client that were acknowledged and not flushed.
#[derive(Debug, Default)]
pub struct Account {
    /// Each with when it was acknowledged.
    owed: Vec<(Asked, Tick)>,
    /// When the client was told of a loss last: what was under way then may be lost too.
    told_at: Tick,
}

impl Account {
    /// A command was answered so: a flush that succeeds has made stable what was acknowledged before it was asked; one that fails, or a
    /// write that was to be stable and is not, tells its client that all may be lost.
    pub fn note(&mut self, asked: Asked, is_good: bool, model: &mut Model) {
        match asked.kind {
            Kind::Write { is_stable: false } | Kind::Unmap if is_good && asked.begun > self.told_at => {
                self.owed.push((asked, model.tick()));
            }
            Kind::Flush if is_good => {
                for (write, _) in self.owed.extract_if(.., |(_, acknowledged)| *acknowledged < asked.begun) {
                    model.promise(write.operation, write.range, write.begun);
                }
            }
            Kind::Flush | Kind::Write { is_stable: true } if !is_good => {
                self.told_at = model.tick();
                self.owed.clear();
            }
            _ => {}
        }
    }

    /// The server has forgotten its clients: each of them knows that it may have lost what they have written.
    pub fn close(&mut self, now: Tick) {
        self.told_at = now;
        self.owed.clear();
    }
}

impl Asked {
    /// A command is given: the model knows of its writes from now on.
    pub fn begin(operation: u64, kind: Kind, range: Range, read_only_since: Option<u64>, model: &mut Model) -> Self {
        let begun = match kind {
            Kind::Write { .. } => model.begin_write(operation, operation, range),
            Kind::Unmap => model.begin_write(operation, 0, range),
            _ => model.tick(),
        };
        Asked { operation, kind, range, begun, read_only_since, is_barred: false }
    }

    /// A command is given that its client may not have done: it writes nothing that anybody may read.
    pub fn in_vain(operation: u64, kind: Kind, range: Range, model: &mut Model) -> Self {
        Asked { operation, kind, range, begun: model.tick(), read_only_since: None, is_barred: true }
    }

    /// Whether its client may not have it done.
    #[must_use]
    pub fn is_barred(&self) -> bool {
        self.is_barred
    }

    /// When it was given.
    #[must_use]
    pub fn begun(&self) -> Tick {
        self.begun
    }

    /// Nobody waits for it any more.
    pub fn forsake(self, shared: &mut Shared<'_>) {
        if !self.is_barred && shared.is_forsaken_for_good && matches!(self.kind, Kind::Write { .. } | Kind::Unmap) {
            shared.model.end_write(self.operation, self.range);
        }
    }

    /// It was answered, to a client that may only read since that change of its terms, if that is so.
    ///
    /// # Errors
    /// When the answer cannot be.
    pub fn settle(
        self,
        is_good: bool,
        data: Option<&[u8]>,
        read_only_since: Option<u64>,
        shared: &mut Shared<'_>,
    ) -> Result<(), String> {
        let Asked { operation, kind, range, begun, .. } = self;
        if self.is_barred {
            return if is_good { Err("was done for a client that may not have it done".to_owned()) } else { Ok(()) };
        }
        let executed = shared.counts.get(&operation).copied().unwrap_or(0);
        let changed_meanwhile = read_only_since != self.read_only_since;
        match kind {
            Kind::Write { .. } | Kind::Unmap if read_only_since.is_some() && !changed_meanwhile => {
                shared.model.refuse_write(operation, range);
                if is_good {
                    return Err("was done for a client that may only read".to_owned());
                }
            }
            Kind::Read if is_good => shared.model.check_read(None, range, begun, data.unwrap_or_default())?,
            Kind::Write { is_stable } if is_good => shared.model.acknowledge_write(operation, range, begun, is_stable),
            Kind::Unmap if is_good => shared.model.acknowledge_write(operation, range, begun, false),
            Kind::Write { .. } | Kind::Unmap => {
                shared.model.end_write(operation, range);
            }
            Kind::Flush if is_good && !shared.is_lossy => shared.model.acknowledge_flush(begun),
            Kind::Count if is_good && executed != 1 => return Err(format!("acknowledged, executed {executed} times")),
            Kind::Manage if executed != u32::from(is_good) => {
                return Err(format!("was done: {is_good}, executed {executed} times"));
            }
            Kind::Manage if is_good => {
                let data = data.unwrap_or_default();
                if data.len() != range.blocks as usize * BLOCK_BYTES || !is_request(data, operation, range.lba) {
                    return Err("has the answer to something else".to_owned());
                }
            }
            Kind::Reset if changed_meanwhile => {}
            Kind::Reset if read_only_since.is_some() && is_good => {
                return Err("was done for a client that may only read".to_owned());
            }
            Kind::Reset if read_only_since.is_some() => {}
            Kind::Abort | Kind::Reset if !is_good => return Err("must be done".to_owned()),
            _ => {}
        }
        Ok(())
    }
}

/// What to do next, and where.
pub fn draw(random: &mut Random, work: &Work, moved_bytes: u64, may_abort: bool, blocks: u64) -> (Kind, Range) {
    let is_small = moved_bytes >= work.budget_bytes || random.chance(600_000);
    let most = if is_small { work.blocks_max.min(8) } else { work.blocks_max };
    let count = random.range(1..=most);
    // Half of the work is on a few blocks, so that commands meet.
    let span = if random.chance(500_000) { blocks.min(count + 16) } else { blocks };
    let range = Range { lba: random.range(0..=span - count), blocks: count };
    if random.chance(work.abort_per_million) && may_abort {
        return (Kind::Abort, NO_BLOCKS);
    }
    if random.chance(work.reset_per_million) {
        return (Kind::Reset, NO_BLOCKS);
    }
    if random.chance(work.count_per_million) {
        return (Kind::Count, NO_BLOCKS);
    }
    if random.chance(work.manage_per_million) {
        return (Kind::Manage, Range { lba: 0, blocks: random.range(1..=work.blocks_max.min(MANAGE_BLOCKS_MAX)) });
    }
    if random.chance(work.flush_per_million) {
        return (Kind::Flush, NO_BLOCKS);
    }
    match random.range(0..=19) {
        0..=8 => (Kind::Read, range),
        9..=14 => (Kind::Write { is_stable: false }, range),
        15 => (Kind::Write { is_stable: true }, range),
        16 => (Kind::Flush, NO_BLOCKS),
        17 | 18 => (Kind::Unmap, range),
        _ => (Kind::Test, NO_BLOCKS),
    }
}

/// A command with its data and the frame for its answer; `None` without memory, or for what is no command.
#[must_use]
pub fn command(
    kind: Kind,
    range: Range,
    operation: u64,
    memory: &Region,
) -> Option<(Cdb, Option<Slice>, Option<Frame>)> {
    let extent = Extent { lba: range.lba, blocks: range.blocks as u32 };
    let length = range.blocks as usize * BLOCK_BYTES;
    Some(match kind {
        Kind::Read => (build::read_16(extent), None, Some(memory.frame(length)?)),
        Kind::Write { is_stable } => {
            let mut frame: Frame = memory.frame(length)?;
            fill(&mut frame, range.lba, operation);
            (build::write_16(extent, is_stable), Some(frame.freeze()), None)
        }
        Kind::Flush => (build::synchronize_cache_16(Extent { lba: 0, blocks: 0 }), None, None),
        Kind::Unmap => {
            let list = unmap_parameters(&[extent])?;
            (build::unmap(list.len() as u16), Some(Slice::from(list)), None)
        }
        Kind::Count => (count_cdb(operation), None, None),
        Kind::Test => (build::test_unit_ready(), None, None),
        Kind::Identify => {
            let page = Some(vpd::page::DEVICE_IDENTIFICATION);
            (build::inquiry(page, PAGE_MAX_BYTES), None, Some(memory.frame(PAGE_MAX_BYTES.into())?))
        }
        Kind::Abort | Kind::Reset | Kind::Manage => return None,
    })
}

/// A request to manage the server, and the frame for its answer; `None` without memory.
#[must_use]
pub fn management(range: Range, operation: u64, memory: &Region) -> Option<(Slice, Frame)> {
    let length = range.blocks as usize * BLOCK_BYTES;
    let (mut request, answer) = (memory.frame(length)?, memory.frame(length)?);
    fill(&mut request, range.lba, operation);
    Some((request.freeze(), answer))
}

fn count_cdb(operation: u64) -> Cdb {
    let mut bytes = [0; 16];
    bytes[0] = COUNT;
    bytes[2..10].copy_from_slice(&operation.to_be_bytes());
    Cdb::from(bytes)
}
