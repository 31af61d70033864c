//! One client and what it does, whatever its protocol: it gives commands, checks their answers against the model, counts.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use sanwire_buffer::{Frame, Region, Slice};
use sanwire_core::Instant;
use sanwire_scsi::{AdditionalSense, Cdb, CommandSet, Features, Sense, SenseKey};

use crate::content::BLOCK_BYTES;
use crate::derived::Standing;
use crate::hearing::Hearing;
use crate::model::{Range, Tick};
use crate::plan::Work;
use crate::random::Random;
use crate::task::{Account, Asked, Kind, NO_BLOCKS, Shared, command, draw, manage_range, management};

/// A command that the client does not take, or for which there is no memory, is tried again after this.
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

/// What a client is told to do.
#[derive(Debug)]
pub enum Given<Id> {
    /// A command with its data, and the frame for its answer.
    Command(Cdb, Option<Slice>, Option<Frame>),
    /// The abort of an earlier command.
    Abort(Id),
    /// A reset of the logical unit.
    Reset,
    /// A request to manage the server, and the frame for its answer.
    Manage(Slice, Frame),
}

impl<Id> Given<Id> {
    /// Whether a disk does the same when it is told this once more.
    pub fn is_repeatable(&self) -> bool {
        matches!(self, Given::Command(cdb, ..) if CommandSet::disk(Features::default()).is_repeatable(cdb))
    }
}

/// What a client tells.
#[derive(Debug)]
pub enum Told<Id, Failure> {
    /// There is a session (again).
    Connected,
    /// A command was answered.
    Answered {
        /// Which.
        id: Id,
        /// Whether it was done.
        is_good: bool,
        /// Whether it was answered as an abort, a reset or a request to manage the server.
        is_management: bool,
        /// Why it was not done, if that was said.
        sense: Option<Sense>,
        /// Its data, and how much of that is filled.
        data_in: Option<(Frame, usize)>,
    },
    /// A command will not be answered.
    Failed {
        /// Which.
        id: Id,
        /// It may or may not have been executed, and must not be twice.
        is_in_doubt: bool,
    },
    /// The client has given up.
    GivenUp(Failure),
    /// What was asked has failed, and the client seeks the server on.
    OutOfPatience,
    /// Something that does not matter here.
    Other,
}

/// A client's end of a protocol.
pub trait Initiator {
    /// The number of a command.
    type Id: Copy + Ord + Debug;
    /// Why a client has given up.
    type Failure: Debug;

    /// Gives a command; `None` when it is not taken.
    fn give(&mut self, given: Given<Self::Id>, now: Instant) -> Option<Self::Id>;

    /// The next thing that it tells.
    fn next_told(&mut self) -> Option<Told<Self::Id, Self::Failure>>;

    /// When it must be woken.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Time has passed.
    fn handle_timeout(&mut self, now: Instant);

    /// Leaves the server.
    fn disconnect(&mut self, now: Instant);
}

/// A client with its workload.
pub struct Worker<C: Initiator> {
    /// The protocol machine.
    pub client: C,
    /// Its memory.
    pub memory: Region,
    /// Somebody else gives its commands and takes what it tells.
    pub is_driven: bool,
    /// It may have told something since that was looked at.
    pub is_stirred: bool,
    /// Since which change of its terms it may only read, if that is so.
    pub read_only_since: Option<u64>,
    /// What it may do with the unit.
    pub standing: Standing,
    number: usize,
    random: Random,
    work: Work,
    left: u64,
    moved_bytes: u64,
    /// What has no answer, and how many flushes of the disk had failed before.
    in_flight: BTreeMap<C::Id, (Asked, u64)>,
    /// What it knows of flushes that failed.
    pub hearing: Hearing,
    account: Account,
    /// No command before this.
    pub next_at: Instant,
    /// Its number is no unit's that it knows: it asks who has it before anything else.
    is_unsure: bool,
    /// What it was refused with, and how often.
    refusals: BTreeMap<String, u64>,
    /// Final reads, to be done once all else is.
    verify_from: Option<u64>,
    /// How its search ended, if it did.
    pub given_up: Option<C::Failure>,
    /// It was told to leave.
    pub is_closed: bool,
    /// Commands answered as asked.
    pub good: u64,
    /// Commands answered otherwise, or not at all.
    pub other: u64,
    /// Commands of which it was told that nobody knows whether they were executed.
    pub in_doubt: u64,
    /// Sessions that it had, or had again.
    pub sessions: u64,
    /// How often it did not wait any longer for a server that was away.
    pub abandoned: u64,
    /// When the last command was answered.
    pub last_answer: Instant,
}

impl<C: Initiator> Worker<C> {
    /// The client with this number, which has not done anything yet.
    #[must_use]
    pub fn new(number: usize, client: C, memory: Region, work: Work, random: Random) -> Self {
        Worker {
            client,
            memory,
            is_driven: false,
            is_stirred: false,
            read_only_since: None,
            standing: Standing::default(),
            number,
            random,
            work,
            left: work.commands,
            moved_bytes: 0,
            in_flight: BTreeMap::new(),
            hearing: Hearing::default(),
            account: Account::default(),
            next_at: Instant::ZERO,
            is_unsure: false,
            refusals: BTreeMap::new(),
            verify_from: None,
            given_up: None,
            is_closed: false,
            good: 0,
            other: 0,
            in_doubt: 0,
            sessions: 0,
            abandoned: 0,
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
        !self.is_driven
            && !self.is_closed
            && self.given_up.is_none()
            && self.left > 0
            && self.in_flight.len() < self.work.depth
    }

    /// What it was refused with, and how often, for a failure's message.
    #[must_use]
    pub fn refusals(&self) -> &BTreeMap<String, u64> {
        &self.refusals
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

    /// The server has forgotten it: it knows that what it has written may be lost.
    pub fn close_account(&mut self, now: Tick) {
        self.hearing = Hearing::default();
        self.account.close(now);
    }

    /// Its program is killed: what it has asked and has no answer to.
    pub fn kill(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.in_flight).into_values().map(|(asked, _)| asked).collect()
    }

    /// Leaves the server.
    pub fn close(&mut self, now: Instant) {
        self.is_closed = true;
        self.client.disconnect(now);
    }

    /// Gives the next command, when there is memory for it.
    pub fn ask(&mut self, shared: &mut Shared<'_>, now: Instant) {
        // Never twice at one moment: the world goes on in between.
        self.next_at = now + self.random.micros(1..=self.work.think_us.max(1));
        if self.is_unsure {
            self.is_unsure = !self.give(Kind::Identify, NO_BLOCKS, shared, now);
            return;
        }
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
        let Some(given) = self.given(kind, range, operation) else { return false };
        let Some(id) = self.client.give(given, now) else { return false };
        *shared.next_operation += 1;
        let asked = match self.standing.bars(kind) {
            true => Asked::in_vain(operation, kind, range, shared.model),
            false => Asked::begin(operation, kind, range, self.read_only_since, shared.model),
        };
        self.in_flight.insert(id, (asked, shared.failed_flushes));
        true
    }

    fn draw(&mut self, blocks: u64) -> (Kind, Range) {
        if let Some(lba) = self.verify_from {
            return (Kind::Read, Range { lba, blocks: self.verify_blocks().min(blocks - lba.min(blocks)) });
        }
        match draw(&mut self.random, &self.work, self.moved_bytes, !self.in_flight.is_empty(), blocks) {
            (Kind::Manage, range) => (Kind::Manage, manage_range(self.number, range.blocks)),
            drawn => drawn,
        }
    }

    fn given(&mut self, kind: Kind, range: Range, operation: u64) -> Option<Given<C::Id>> {
        match kind {
            Kind::Abort => {
                let index = self.random.range(0..=self.in_flight.len() as u64 - 1) as usize;
                self.in_flight.keys().nth(index).copied().map(Given::Abort)
            }
            Kind::Reset => Some(Given::Reset),
            Kind::Manage => {
                management(range, operation, &self.memory).map(|(request, room)| Given::Manage(request, room))
            }
            _ => {
                let (cdb, data_out, data_in) = command(kind, range, operation, &self.memory)?;
                Some(Given::Command(cdb, data_out, data_in))
            }
        }
    }

    /// Handles all events of the client.
    ///
    /// # Errors
    /// When a promise is broken.
    pub fn drain_events(&mut self, shared: &mut Shared<'_>, now: Instant) -> Result<(), String> {
        if self.is_driven {
            self.is_stirred = true;
            return Ok(());
        }
        while let Some(told) = self.client.next_told() {
            match told {
                Told::Connected => self.sessions += 1,
                Told::Other => {}
                Told::OutOfPatience => self.abandoned += 1,
                Told::GivenUp(failure) => self.given_up = Some(failure),
                Told::Answered { id, is_good, is_management, sense, data_in } => {
                    let found = self.in_flight.remove(&id);
                    let (asked, failed_before) = found.ok_or(format!("{id:?} was answered twice"))?;
                    self.last_answer = now;
                    sense.iter().for_each(|sense| self.note_refusal(asked.kind, sense));
                    if is_management != matches!(asked.kind, Kind::Abort | Kind::Reset | Kind::Manage) {
                        return Err(format!("{asked:?} was answered as something else"));
                    }
                    let data = data_in.as_ref().map(|(frame, filled)| &frame[..(*filled).min(frame.len())]);
                    let failed = shared.failed_flushes;
                    let at = shared.model.tick();
                    self.hearing
                        .answered(&asked, is_good, at, failed_before, failed)
                        .and_then(|()| self.answered(asked, is_good, data, shared))
                        .map_err(|what| format!("{asked:?}: {what}"))?;
                }
                Told::Failed { id, is_in_doubt } => {
                    let (asked, _) = self.in_flight.remove(&id).ok_or(format!("{id:?} was answered twice"))?;
                    self.other += 1;
                    self.in_doubt += u64::from(is_in_doubt);
                    if is_in_doubt && !matches!(asked.kind, Kind::Count | Kind::Manage) {
                        return Err(format!("{asked:?} could have been asked again"));
                    }
                    // Else a write that nobody waits for may still land: it stays a candidate without an end.
                    asked.forsake(shared);
                }
            }
        }
        Ok(())
    }

    /// As initiators do it: who has the number is asked when a unit comes there that was not there when they came.
    fn note_refusal(&mut self, kind: Kind, sense: &Sense) {
        *self.refusals.entry(format!("{}: {}", sense.key, sense.additional)).or_default() += 1;
        self.is_unsure |= kind != Kind::Identify
            && sense.key == SenseKey::IllegalRequest
            && sense.additional == AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED;
    }

    fn answered(
        &mut self,
        asked: Asked,
        is_good: bool,
        data: Option<&[u8]>,
        shared: &mut Shared<'_>,
    ) -> Result<(), String> {
        if is_good {
            self.good += 1;
        } else {
            self.other += 1;
        }
        if asked.kind == Kind::Manage && is_good && self.number >= self.work.managers {
            return Err("was done for a client that may not".to_owned());
        }
        asked.settle(is_good, data, self.read_only_since, shared)?;
        if shared.is_lossy {
            self.account.note(asked, is_good, shared.model);
        }
        // Of the final reads none may fail for long.
        if !is_good && let Some(next) = self.verify_from {
            let again = next.min(asked.range.lba);
            self.verify_from = Some(again);
            self.left = (shared.blocks - again).div_ceil(self.verify_blocks());
        }
        Ok(())
    }
}
