//! One client and what it does: it gives commands, checks their answers against the model, and counts.

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, Lun};
use sanwire_hyperscsi::wire::command::{Answer, Ask, Function};
use sanwire_hyperscsi::{Client, ClientEvent, CommandId, Failure, Order};
use sanwire_scsi::Status;

use crate::content::BLOCK_BYTES;
use crate::model::Range;
use crate::plan::Work;
use crate::random::Random;
use crate::task::{Asked, Kind, Shared, command, draw};

/// A command that the client does not take, or for which there is no memory, is tried again after this.
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

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
        let asked = Asked::begin(operation, kind, range, shared.model);
        self.in_flight.insert(id, asked);
        true
    }

    fn draw(&mut self, blocks: u64) -> (Kind, Range) {
        if let Some(lba) = self.verify_from {
            return (Kind::Read, Range { lba, blocks: self.verify_blocks().min(blocks - lba.min(blocks)) });
        }
        draw(&mut self.random, &self.work, self.moved_bytes, !self.in_flight.is_empty(), blocks)
    }

    fn order(&mut self, kind: Kind, range: Range, operation: u64) -> Option<Order> {
        let manage = |function, task| Order {
            lun: Lun::default(),
            ask: Ask::Manage { function, task },
            data_out: None,
            data_in: None,
        };
        match kind {
            Kind::Abort => {
                let index = self.random.range(0..=self.in_flight.len() as u64 - 1) as usize;
                let task = self.in_flight.keys().nth(index)?.number();
                Some(manage(Function::AbortTask, task))
            }
            Kind::Reset => Some(manage(Function::LogicalUnitReset, 0)),
            _ => {
                let (cdb, data_out, data_in) = command(kind, range, operation, &self.memory)?;
                Some(Order { lun: Lun::default(), ask: Ask::Command(cdb), data_out, data_in })
            }
        }
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
                ClientEvent::OutOfPatience(failure) | ClientEvent::GivenUp(failure) => self.given_up = Some(failure),
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
        let (kind, range) = (asked.kind, asked.range);
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
        asked.settle(is_good, data, shared)?;
        // Of the final reads none may fail for long.
        if !is_good && self.verify_from.is_some() && self.left == 0 {
            self.verify_from = Some(range.lba);
            self.left = 1;
        }
        Ok(())
    }
}
