//! What a logical unit remembers of the copies that it was asked for, until the initiator has read it (SPC-3 6.17; SPC-4 6.24 and 6.26).

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_core::NexusId;
use sanwire_scsi::copy::{COPIES_MAX, COPIES_OF_NEXUS_MAX, CopyState, CopyStatus};
use sanwire_scsi::rod::{RodAnswer, RodState, TOKEN_BYTES};
use sanwire_scsi::{AdditionalSense, Sense, SenseKey, Status, operation_code as code};

use crate::bell::Bell;
use crate::tokens::Token;

/// The copies with a list identifier, under way or done. SPC-4 5.17.4.2: an identifier of one byte is that of four with the same value.
#[derive(Default, Debug)]
pub(crate) struct Copies(Mutex<Records>);

#[derive(Default, Debug)]
struct Records {
    /// The next record's number. A number is never used again.
    next: u64,
    /// The oldest first; at most [`COPIES_MAX`].
    list: VecDeque<Record>,
}

#[derive(Debug)]
struct Record {
    number: u64,
    nexus: NexusId,
    list_id: u32,
    asked: AskedCopy,
    state: CopyState,
    segments: u16,
    operations: u16,
    bytes: u64,
    /// Whether there was less data than was asked for.
    is_partial: bool,
    /// What was made.
    token: Option<Box<[u8; TOKEN_BYTES]>>,
    /// With what it ended, when it failed, until that has been told.
    failure: Option<Failure>,
    /// Whether the initiator has read how it ended.
    is_told: bool,
    is_cancelled: Arc<AtomicBool>,
}

/// What a copy was asked for by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedCopy {
    /// The service action of the command.
    pub(crate) action: u8,
    /// In what its progress is counted.
    pub(crate) block_bytes: u32,
    /// Whether it was answered when it began.
    pub(crate) is_background: bool,
}

impl AskedCopy {
    pub(crate) const EXTENDED_COPY: AskedCopy =
        AskedCopy { action: code::EXTENDED_COPY_LID1_ACTION, block_bytes: 1, is_background: false };
}

/// How a copy ended that did not end well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// CHECK CONDITION.
    Sense(Sense),
    /// The command was aborted.
    Aborted,
}

impl Copies {
    /// Notes the begin of a copy. The bell of its unit is rung at its end.
    ///
    /// # Errors
    /// OPERATION IN PROGRESS while another copy of the nexus has this identifier; INSUFFICIENT RESOURCES when too many
    /// are under way, or all room is that of others.
    pub(crate) fn begin(
        self: &Arc<Self>,
        nexus: NexusId,
        list_id: u32,
        asked: AskedCopy,
        bell: &Arc<Bell>,
    ) -> Result<Ticket, Sense> {
        let illegal = |additional| Sense::new(SenseKey::IllegalRequest, additional);
        let mut records = self.lock();
        let is_same = |record: &Record| (record.nexus, record.list_id) == (nexus, list_id);
        let old = match records.list.iter().position(is_same) {
            Some(at) if !records.list[at].is_over() => return Err(illegal(AdditionalSense::OPERATION_IN_PROGRESS)),
            Some(at) => Some(at),
            None if records.has_room(nexus) => None,
            None => Some(records.superseded(nexus).ok_or(illegal(AdditionalSense::INSUFFICIENT_RESOURCES))?),
        };
        old.map(|at| records.list.remove(at));
        let number = records.next;
        records.next += 1;
        let is_cancelled = Arc::<AtomicBool>::default();
        records.list.push_back(Record {
            number,
            nexus,
            list_id,
            asked,
            state: CopyState::InProgress,
            segments: 0,
            operations: 0,
            bytes: 0,
            is_partial: false,
            token: None,
            failure: None,
            is_told: false,
            is_cancelled: Arc::clone(&is_cancelled),
        });
        Ok(Ticket { kept: Some((Arc::clone(self), number)), bell: Some(Arc::clone(bell)), is_cancelled })
    }

    /// How far a copy is, as RECEIVE COPY RESULTS tells it. Once it is over, this is told one time.
    pub(crate) fn status(&self, nexus: NexusId, list_id: u8) -> Option<CopyStatus> {
        let mut records = self.lock();
        let record = records.find(nexus, list_id.into()).filter(|record| !record.is_told)?;
        record.is_told = record.is_over();
        let bytes = u32::try_from(record.bytes).unwrap_or(u32::MAX);
        let status = CopyStatus { state: record.state, segments: record.segments, bytes };
        records.list.retain(|record| !record.is_done_with());
        Some(status)
    }

    /// With what a copy ended; `Some(None)` when it did not fail, or not yet. A failure is told one time.
    pub(crate) fn failure(&self, nexus: NexusId, list_id: u8) -> Option<Option<Failure>> {
        let mut records = self.lock();
        let failure = records.find(nexus, list_id.into())?.failure.take();
        records.list.retain(|record| !record.is_done_with());
        Some(failure)
    }

    /// Whether anything is known of a copy.
    pub(crate) fn is_known(&self, nexus: NexusId, list_id: u8) -> bool {
        self.lock().find(nexus, list_id.into()).is_some()
    }

    /// How a copy stands, as RECEIVE COPY STATUS (LID4) tells it.
    pub(crate) fn long_status(&self, nexus: NexusId, list_id: u32) -> Option<Vec<u8>> {
        self.lock().find(nexus, list_id).map(|record| record.told(|answer| answer.to_status()))
    }

    /// The same with the token that was made. Of a copy that is over it is forgotten when all of it fits into what the initiator has room
    /// for, or when that wants nothing of it (SPC-4 6.26).
    pub(crate) fn information(&self, nexus: NexusId, list_id: u32, room_bytes: usize) -> Option<Vec<u8>> {
        let mut records = self.lock();
        let record = records.find(nexus, list_id)?;
        let token = record.token.clone();
        let bytes = record.told(|answer| answer.to_information(token.as_deref()));
        if record.is_over() && (bytes.len() <= room_bytes || room_bytes == 0) {
            let number = record.number;
            records.list.retain(|record| record.number != number);
        }
        Some(bytes)
    }

    /// Has a copy that is under way end; `None` if there is none.
    pub(crate) fn cancel(self: &Arc<Self>, nexus: NexusId, list_id: u32) -> Option<CopyEnd> {
        let mut records = self.lock();
        let record = records.find(nexus, list_id).filter(|record| !record.is_over())?;
        record.is_cancelled.store(true, Ordering::SeqCst);
        Some(CopyEnd { copies: Arc::clone(self), number: record.number })
    }

    /// The initiator is gone, with what it could ask for, and what goes on in the background for it ends: that must not write over what
    /// another one, or it itself when it comes again, has written since.
    pub(crate) fn forget(&self, nexus: NexusId) {
        self.lock().list.retain(|record| {
            let is_own = record.nexus == nexus;
            if is_own {
                record.cancel();
            }
            !is_own
        });
    }

    /// A reset forgets all, and ends what is under way (SPC-4 table 109).
    pub(crate) fn clear(&self) {
        self.lock().list.drain(..).for_each(|record| record.cancel());
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Record)) {
        if let Some(record) = self.lock().list.iter_mut().find(|record| record.number == number) {
            change(record);
        }
    }

    fn is_over(&self, number: u64) -> bool {
        self.lock().list.iter().find(|record| record.number == number).is_none_or(Record::is_over)
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        // Nothing panics between two writes to the records: poisoned ones are still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    /// Whether there is room for one more of a nexus.
    fn has_room(&self, nexus: NexusId) -> bool {
        self.list.len() < usize::from(COPIES_MAX) && self.count(nexus) < usize::from(COPIES_OF_NEXUS_MAX)
    }

    fn count(&self, nexus: NexusId) -> usize {
        self.list.iter().filter(|record| record.nexus == nexus).count()
    }

    /// The place of the record in whose place one more of a nexus comes: its own oldest one that is over; where it has none, and not all room
    /// that it may have, that of the nexus that has most, and more than it.
    fn superseded(&self, nexus: NexusId) -> Option<usize> {
        let own = self.list.iter().position(|record| record.nexus == nexus && record.is_over());
        let count = self.count(nexus);
        if own.is_some() || count >= usize::from(COPIES_OF_NEXUS_MAX) {
            return own;
        }
        let over = self.list.iter().enumerate().filter(|(_, record)| record.is_over());
        let others = over.map(|(at, record)| (self.count(record.nexus), at)).filter(|(others, _)| *others > count);
        others.max_by_key(|(others, at)| (*others, Reverse(*at))).map(|(_, at)| at)
    }

    fn find(&mut self, nexus: NexusId, list_id: u32) -> Option<&mut Record> {
        self.list.iter_mut().find(|record| (record.nexus, record.list_id) == (nexus, list_id))
    }
}

impl Record {
    fn is_over(&self) -> bool {
        self.state != CopyState::InProgress
    }

    fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::SeqCst);
    }

    fn is_done_with(&self) -> bool {
        self.is_told && self.failure.is_none()
    }

    fn told(&self, tell: impl Fn(&RodAnswer<'_>) -> Vec<u8>) -> Vec<u8> {
        let (status, sense) = self.failure.map_or((Status::Good, Vec::new()), |failure| failure.answered());
        let state = match (self.state, self.failure) {
            (CopyState::InProgress, _) if self.asked.is_background => RodState::Background,
            (CopyState::InProgress, _) => RodState::Foreground,
            (CopyState::Done, _) if self.is_partial => RodState::Partial,
            (CopyState::Done, _) => RodState::Done,
            (CopyState::Failed, Some(Failure::Aborted)) => RodState::Terminated,
            (CopyState::Failed, _) => RodState::Failed,
        };
        let count = self.bytes / u64::from(self.asked.block_bytes.max(1));
        let (action, operations, segments) = (self.asked.action, self.operations, self.segments);
        tell(&RodAnswer { action, state, operations, status, sense: &sense, count, segments })
    }
}

/// A copy that is to end.
#[derive(Debug)]
pub(crate) struct CopyEnd {
    copies: Arc<Copies>,
    number: u64,
}

impl CopyEnd {
    /// Whether it has ended.
    pub(crate) fn is_there(&self) -> bool {
        self.copies.is_over(self.number)
    }
}

/// The right to write into a copy's record. A copy that ends without a word was aborted.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// `None` when no record is kept, or not any more.
    kept: Option<(Arc<Copies>, u64)>,
    /// Of its unit, where somebody may wait for its end.
    bell: Option<Arc<Bell>>,
    is_cancelled: Arc<AtomicBool>,
}

impl Ticket {
    /// For a copy of which nothing is to be kept.
    pub(crate) fn none() -> Ticket {
        Ticket { kept: None, bell: None, is_cancelled: Arc::default() }
    }

    /// Refuses to go on with a copy that was cancelled (SPC-4 5.17.4.7).
    pub(crate) fn check(&self) -> Result<(), Sense> {
        let is_cancelled = self.is_cancelled.load(Ordering::SeqCst);
        if is_cancelled { Err(CLEARED) } else { Ok(()) }
    }

    pub(crate) fn written(&self, bytes: u64) {
        self.change(|record| record.bytes += bytes);
    }

    /// A request has ended well.
    pub(crate) fn request_done(&self) {
        self.change(|record| record.operations = record.operations.wrapping_add(1));
    }

    pub(crate) fn segment_done(&self) {
        self.change(|record| record.segments += 1);
    }

    /// There is less data than is wanted.
    pub(crate) fn note_partial(&self) {
        self.change(|record| record.is_partial = true);
    }

    /// This was made, of so much data.
    pub(crate) fn made(&self, token: &Token) {
        self.change(|record| {
            record.token = Some(Box::new(*token.bytes()));
            record.bytes = token.origin().length_bytes();
        });
    }

    fn change(&self, change: impl FnOnce(&mut Record)) {
        if let Some((copies, number)) = &self.kept {
            copies.change(*number, change);
        }
    }

    /// Notes how the copy ended.
    pub(crate) fn end(&mut self, failure: Option<Failure>) {
        if let Some((copies, number)) = self.kept.take() {
            copies.change(number, |record| {
                record.state = if failure.is_some() { CopyState::Failed } else { CopyState::Done };
                record.failure = failure;
            });
            self.bell.iter().for_each(|bell| bell.ring());
        }
    }

    /// The same of one that was refused.
    pub(crate) fn failed(&mut self, sense: Sense) {
        let is_cancelled = sense == CLEARED;
        self.end(Some(if is_cancelled { Failure::Aborted } else { Failure::Sense(sense) }));
    }
}

/// COPY OPERATION ABORT has ended it.
const CLEARED: Sense = Sense::new(SenseKey::CopyAborted, AdditionalSense::COMMANDS_CLEARED_BY_DEVICE_SERVER);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.end(Some(Failure::Aborted));
    }
}

impl Failure {
    /// Status and sense data, as the command was answered.
    pub(crate) fn answered(&self) -> (Status, Vec<u8>) {
        match self {
            Failure::Sense(sense) => (Status::CheckCondition, sense.to_fixed()),
            Failure::Aborted => (Status::TaskAborted, Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests;
