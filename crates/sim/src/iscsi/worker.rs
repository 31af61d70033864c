//! One client and what it does.

use std::collections::BTreeMap;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, Lun};
use sanwire_iscsi::{Client, ClientEvent, CommandId, Failure, Order};
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
    /// How its search ended, if it did.
    pub given_up: Option<Failure>,
    /// It was told to leave.
    pub is_closed: bool,
    /// Commands answered as asked.
    pub good: u64,
    /// Commands answered otherwise, or not at all.
    pub other: u64,
    /// Sessions that it had, or had again.
    pub sessions: u64,
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
            sessions: 0,
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

    /// Gives the next command, when there is memory for it.
    pub fn ask(&mut self, shared: &mut Shared<'_>, now: Instant) {
        // Never twice at one moment: the world goes on in between.
        self.next_at = now + self.random.micros(1..=self.work.think_us.max(1));
        let (kind, range) = match self.verify_from {
            Some(lba) => {
                (Kind::Read, Range { lba, blocks: self.verify_blocks().min(shared.blocks - lba.min(shared.blocks)) })
            }
            None => draw(&mut self.random, &self.work, self.moved_bytes, false, shared.blocks),
        };
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
        let Some((cdb, data_out, data_in)) = command(kind, range, operation, &self.memory) else { return false };
        let Ok(id) = self.client.order(Order { lun: Lun::default(), cdb, data_out, data_in }, now) else {
            return false;
        };
        *shared.next_operation += 1;
        self.in_flight.insert(id, Asked::begin(operation, kind, range, shared.model));
        true
    }

    /// Handles all events of the client.
    ///
    /// # Errors
    /// When a promise is broken.
    pub fn drain_events(&mut self, shared: &mut Shared<'_>) -> Result<(), String> {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Connected { .. } => self.sessions += 1,
                ClientEvent::Lost { .. } | ClientEvent::Targets(_) => {}
                ClientEvent::OutOfPatience(failure) | ClientEvent::GivenUp(failure) => self.given_up = Some(failure),
                ClientEvent::Completed { id, status, data_in, data_in_bytes, .. } => {
                    let asked = self.in_flight.remove(&id).ok_or(format!("{id:?} was answered twice"))?;
                    let data = data_in.as_ref().map(|frame| &frame[..data_in_bytes.min(frame.len())]);
                    self.answered(asked, status, data, shared).map_err(|what| format!("{asked:?}: {what}"))?;
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
        status: Status,
        data: Option<&[u8]>,
        shared: &mut Shared<'_>,
    ) -> Result<(), String> {
        let is_good = status == Status::Good;
        if is_good {
            self.good += 1;
        } else {
            self.other += 1;
        }
        asked.settle(is_good, data, shared)?;
        // Of the final reads none may fail for long.
        if !is_good && self.verify_from.is_some() {
            self.verify_from = Some(self.verify_from.map_or(asked.range.lba, |next| next.min(asked.range.lba)));
            self.left = (shared.blocks - self.verify_from.unwrap_or(0)).div_ceil(self.verify_blocks());
        }
        Ok(())
    }
}
