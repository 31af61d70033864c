//! One client and what it does: it gives commands, checks their answers against the model, and counts.

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_buffer::{Frame, Region, Slice};
use sanwire_core::{Instant, Lun};
use sanwire_hyperscsi::wire::command::{Answer, Ask, Function};
use sanwire_hyperscsi::{Client, ClientEvent, CommandId, Failure, Order};
use sanwire_scsi::{Cdb, Extent, Status, build, unmap_parameters};

use crate::content::{BLOCK_BYTES, fill};
use crate::host::{COUNT, Counts};
use crate::model::{Model, Range, Tick};
use crate::plan::Work;
use crate::random::Random;

/// A command that the client does not take, or for which there is no memory, is tried again after this.
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

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
    /// TEST UNIT READY.
    Test,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    operation: u64,
    kind: Kind,
    range: Range,
    begun: Tick,
}

/// A client with its workload.
pub struct Worker {
    /// The protocol machine.
    pub client: Client,
    /// Its memory.
    pub memory: Region,
    random: Random,
    work: Work,
    left: u64,
    moved_bytes: u64,
    in_flight: BTreeMap<CommandId, Asked>,
    /// No command before this.
    pub next_at: Instant,
    /// Final reads, to be done once all else is.
    verify_from: Option<u64>,
    /// How its connection ended, if it did.
    pub given_up: Option<Failure>,
    /// It was told to leave.
    pub is_closed: bool,
    /// Commands answered as asked.
    pub good: u64,
    /// Commands answered otherwise.
    pub other: u64,
    /// Connections that it had.
    pub connections: u64,
    /// When the last command was answered.
    pub last_answer: Instant,
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
}

impl Worker {
    /// A client that has not done anything yet.
    #[must_use]
    pub fn new(client: Client, memory: Region, work: Work, random: Random) -> Self {
        Worker {
            client,
            memory,
            random,
            work,
            left: work.commands,
            moved_bytes: 0,
            in_flight: BTreeMap::new(),
            next_at: Instant::ZERO,
            verify_from: None,
            given_up: None,
            is_closed: false,
            good: 0,
            other: 0,
            connections: 0,
            last_answer: Instant::ZERO,
        }
    }

    /// Commands without an answer.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether it has nothing more to do.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_closed || self.given_up.is_some() || (self.left == 0 && self.in_flight.is_empty())
    }

    /// Whether it would give a command now.
    #[must_use]
    pub fn wants_to_ask(&self) -> bool {
        !self.is_closed && self.given_up.is_none() && self.left > 0 && self.in_flight.len() < self.work.depth
    }

    /// From now on: read the whole disk once.
    pub fn verify_all(&mut self, blocks: u64) {
        self.verify_from = Some(0);
        self.left = blocks.div_ceil(self.verify_blocks());
    }

    /// The final reads are no larger than what the world's memory is made for.
    fn verify_blocks(&self) -> u64 {
        self.work.blocks_max.clamp(8, 128)
    }

    /// Leaves the server.
    pub fn close(&mut self, now: Instant) {
        self.is_closed = true;
        self.client.disconnect(now);
    }

    /// Gives the next command, when there is memory for it.
    pub fn ask(&mut self, shared: &mut Shared<'_>, now: Instant) {
        self.next_at = now + self.random.micros(0..=self.work.think_us);
        let (kind, range) = self.draw(shared.blocks);
        if !self.give(kind, range, shared, now) {
            self.next_at = now + REFUSED_PAUSE;
            return;
        }
        self.left -= 1;
        self.moved_bytes += range.blocks * BLOCK_BYTES as u64;
        if let Some(lba) = &mut self.verify_from {
            *lba += range.blocks;
        }
    }

    /// Gives just this command, now. `false`: the client does not take it, or there is no memory.
    pub fn give(&mut self, kind: Kind, range: Range, shared: &mut Shared<'_>, now: Instant) -> bool {
        let operation = *shared.next_operation;
        let Some(order) = self.order(kind, range, operation) else { return false };
        let Ok(id) = self.client.order(order, now) else { return false };
        *shared.next_operation += 1;
        let begun = match kind {
            Kind::Write { .. } => shared.model.begin_write(operation, operation, range),
            Kind::Unmap => shared.model.begin_write(operation, 0, range),
            _ => shared.model.tick(),
        };
        self.in_flight.insert(id, Asked { operation, kind, range, begun });
        true
    }

    fn draw(&mut self, blocks: u64) -> (Kind, Range) {
        if let Some(lba) = self.verify_from {
            return (Kind::Read, Range { lba, blocks: self.verify_blocks().min(blocks - lba.min(blocks)) });
        }
        let random = &mut self.random;
        let is_small = self.moved_bytes >= self.work.budget_bytes || random.chance(600_000);
        let most = if is_small { self.work.blocks_max.min(8) } else { self.work.blocks_max };
        let count = random.range(1..=most);
        // Half of the work is on a few blocks, so that commands meet.
        let span = if random.chance(500_000) { blocks.min(count + 16) } else { blocks };
        let range = Range { lba: random.range(0..=span - count), blocks: count };
        let none = Range { lba: 0, blocks: 0 };
        if random.chance(self.work.abort_per_million) && !self.in_flight.is_empty() {
            return (Kind::Abort, none);
        }
        if random.chance(self.work.reset_per_million) {
            return (Kind::Reset, none);
        }
        if random.chance(self.work.count_per_million) {
            return (Kind::Count, none);
        }
        match random.range(0..=19) {
            0..=8 => (Kind::Read, range),
            9..=14 => (Kind::Write { is_stable: false }, range),
            15 => (Kind::Write { is_stable: true }, range),
            16 => (Kind::Flush, none),
            17 | 18 => (Kind::Unmap, range),
            _ => (Kind::Test, none),
        }
    }

    fn order(&mut self, kind: Kind, range: Range, operation: u64) -> Option<Order> {
        let extent = Extent { lba: range.lba, blocks: range.blocks as u32 };
        let length = range.blocks as usize * BLOCK_BYTES;
        let mut order =
            Order { lun: Lun::default(), ask: Ask::Command(build::test_unit_ready()), data_out: None, data_in: None };
        let cdb = match kind {
            Kind::Read => {
                order.data_in = Some(self.memory.frame(length)?);
                build::read_16(extent)
            }
            Kind::Write { is_stable } => {
                let mut frame: Frame = self.memory.frame(length)?;
                fill(&mut frame, range.lba, operation);
                order.data_out = Some(frame.freeze());
                build::write_16(extent, is_stable)
            }
            Kind::Flush => build::synchronize_cache_16(Extent { lba: 0, blocks: 0 }),
            Kind::Unmap => {
                let list = unmap_parameters(&[extent])?;
                let cdb = build::unmap(list.len() as u16);
                order.data_out = Some(Slice::from(list));
                cdb
            }
            Kind::Count => count_cdb(operation),
            Kind::Test => build::test_unit_ready(),
            Kind::Abort => {
                let index = self.random.range(0..=self.in_flight.len() as u64 - 1) as usize;
                let task = self.in_flight.keys().nth(index)?.number();
                order.ask = Ask::Manage { function: Function::AbortTask, task };
                return Some(order);
            }
            Kind::Reset => {
                order.ask = Ask::Manage { function: Function::LogicalUnitReset, task: 0 };
                return Some(order);
            }
        };
        order.ask = Ask::Command(cdb);
        Some(order)
    }

    /// Handles all events of the client.
    ///
    /// # Errors
    /// When a promise is broken.
    pub fn drain_events(&mut self, shared: &mut Shared<'_>, now: Instant) -> Result<(), String> {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Connected { .. } => self.connections += 1,
                ClientEvent::Lost { .. } => {}
                ClientEvent::GivenUp(failure) => self.given_up = Some(failure),
                ClientEvent::Completed { id, answer, data_in, data_in_bytes } => {
                    let asked = self.in_flight.remove(&id).ok_or(format!("{id:?} was answered twice"))?;
                    self.last_answer = now;
                    let data = data_in.as_ref().map(|frame| &frame[..data_in_bytes.min(frame.len())]);
                    self.answered(asked, &answer, data, shared).map_err(|what| format!("{asked:?}: {what}"))?;
                }
                ClientEvent::Failed { id, failure, .. } => {
                    let asked = self.in_flight.remove(&id).ok_or(format!("{id:?} was answered twice"))?;
                    self.other += 1;
                    if failure == Failure::InDoubt && asked.kind != Kind::Count {
                        return Err(format!("{asked:?} could have been asked again"));
                    }
                    // A write that nobody waits for may still land: it stays a candidate without an end.
                }
            }
        }
        Ok(())
    }

    fn answered(
        &mut self,
        asked: Asked,
        answer: &Answer,
        data: Option<&[u8]>,
        shared: &mut Shared<'_>,
    ) -> Result<(), String> {
        let Asked { operation, kind, range, begun } = asked;
        let is_management = matches!(kind, Kind::Abort | Kind::Reset);
        let is_good = match answer {
            Answer::Command { status, .. } if !is_management => *status == Status::Good,
            Answer::Managed { done } if is_management => *done,
            other => return Err(format!("was answered with {other:?}")),
        };
        if is_good {
            self.good += 1;
        } else {
            self.other += 1;
        }
        match kind {
            Kind::Read if is_good => shared.model.check_read(range, begun, data.unwrap_or_default())?,
            Kind::Write { is_stable } if is_good => shared.model.acknowledge_write(operation, range, begun, is_stable),
            Kind::Unmap if is_good => shared.model.acknowledge_write(operation, range, begun, false),
            Kind::Write { .. } | Kind::Unmap => {
                shared.model.end_write(operation, range);
            }
            Kind::Flush if is_good => shared.model.acknowledge_flush(begun),
            Kind::Count if is_good && shared.counts.get(&operation) != Some(&1) => {
                return Err(format!("acknowledged, executed {:?} times", shared.counts.get(&operation)));
            }
            Kind::Abort | Kind::Reset if !is_good => return Err("must be done".to_owned()),
            _ => {}
        }
        // Of the final reads none may fail for long.
        if !is_good && self.verify_from.is_some() && self.left == 0 {
            self.verify_from = Some(range.lba);
            self.left = 1;
        }
        Ok(())
    }
}

fn count_cdb(operation: u64) -> Cdb {
    let mut bytes = [0; 16];
    bytes[0] = COUNT;
    bytes[2..10].copy_from_slice(&operation.to_be_bytes());
    Cdb::from(bytes)
}
