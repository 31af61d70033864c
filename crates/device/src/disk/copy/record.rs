//! What a logical unit remembers of the copies that it was asked for, until the initiator has read it (SPC-3 6.17).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_core::NexusId;
use sanwire_scsi::copy::{COPIES_MAX, CopyState, CopyStatus};
use sanwire_scsi::{AdditionalSense, Sense, SenseKey, Status};

/// The copies with a list identifier, under way or done.
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
    list_id: u8,
    status: CopyStatus,
    /// With what it ended, when it failed, until that has been told.
    failure: Option<Failure>,
    /// Whether the initiator has read how it ended.
    is_told: bool,
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
    /// Notes the begin of a copy.
    ///
    /// # Errors
    /// OPERATION IN PROGRESS while another copy of the nexus has this identifier; INSUFFICIENT RESOURCES when too many
    /// are under way.
    pub(crate) fn begin(self: &Arc<Self>, nexus: NexusId, list_id: u8) -> Result<Ticket, Sense> {
        let illegal = |additional| Sense::new(SenseKey::IllegalRequest, additional);
        let mut records = self.lock();
        let is_same = |record: &Record| (record.nexus, record.list_id) == (nexus, list_id);
        let old = match records.list.iter().position(is_same) {
            Some(at) if !records.list[at].is_over() => return Err(illegal(AdditionalSense::OPERATION_IN_PROGRESS)),
            Some(at) => Some(at),
            None if records.list.len() < usize::from(COPIES_MAX) => None,
            None => {
                let oldest = records.list.iter().position(Record::is_over);
                Some(oldest.ok_or(illegal(AdditionalSense::INSUFFICIENT_RESOURCES))?)
            }
        };
        old.map(|at| records.list.remove(at));
        let number = records.next;
        records.next += 1;
        let status = CopyStatus { state: CopyState::InProgress, segments: 0, bytes: 0 };
        records.list.push_back(Record { number, nexus, list_id, status, failure: None, is_told: false });
        Ok(Ticket { kept: Some((Arc::clone(self), number)) })
    }

    /// How far a copy is. Once it is over, this is told one time.
    pub(crate) fn status(&self, nexus: NexusId, list_id: u8) -> Option<CopyStatus> {
        let mut records = self.lock();
        let record = records.find(nexus, list_id).filter(|record| !record.is_told)?;
        record.is_told = record.is_over();
        let status = record.status;
        records.list.retain(|record| !record.is_done_with());
        Some(status)
    }

    /// With what a copy ended; `Some(None)` when it did not fail, or not yet. A failure is told one time.
    pub(crate) fn failure(&self, nexus: NexusId, list_id: u8) -> Option<Option<Failure>> {
        let mut records = self.lock();
        let failure = records.find(nexus, list_id)?.failure.take();
        records.list.retain(|record| !record.is_done_with());
        Some(failure)
    }

    /// Whether anything is known of a copy.
    pub(crate) fn is_known(&self, nexus: NexusId, list_id: u8) -> bool {
        self.lock().find(nexus, list_id).is_some()
    }

    /// The initiator is gone, and what it could ask for.
    pub(crate) fn forget(&self, nexus: NexusId) {
        self.lock().list.retain(|record| record.nexus != nexus);
    }

    /// A reset forgets all.
    pub(crate) fn clear(&self) {
        self.lock().list.clear();
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Record)) {
        if let Some(record) = self.lock().list.iter_mut().find(|record| record.number == number) {
            change(record);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        // Nothing panics between two writes to the records: poisoned ones are still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    fn find(&mut self, nexus: NexusId, list_id: u8) -> Option<&mut Record> {
        self.list.iter_mut().find(|record| (record.nexus, record.list_id) == (nexus, list_id))
    }
}

impl Record {
    fn is_over(&self) -> bool {
        self.status.state != CopyState::InProgress
    }

    fn is_done_with(&self) -> bool {
        self.is_told && self.failure.is_none()
    }
}

/// The right to write into a copy's record. A copy that ends without a word was aborted.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// `None` when no record is kept, or not any more.
    kept: Option<(Arc<Copies>, u64)>,
}

impl Ticket {
    /// For a copy of which nothing is to be kept.
    pub(crate) const NONE: Ticket = Ticket { kept: None };

    pub(crate) fn written(&self, bytes: u32) {
        self.change(|status| status.bytes = status.bytes.saturating_add(bytes));
    }

    pub(crate) fn segment_done(&self) {
        self.change(|status| status.segments += 1);
    }

    fn change(&self, change: impl FnOnce(&mut CopyStatus)) {
        if let Some((copies, number)) = &self.kept {
            copies.change(*number, |record| change(&mut record.status));
        }
    }

    /// Notes how the copy ended.
    pub(crate) fn end(&mut self, failure: Option<Failure>) {
        if let Some((copies, number)) = self.kept.take() {
            copies.change(number, |record| {
                record.status.state = if failure.is_some() { CopyState::Failed } else { CopyState::Done };
                record.failure = failure;
            });
        }
    }
}

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
