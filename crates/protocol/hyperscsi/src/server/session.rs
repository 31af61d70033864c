//! A client's session: what it asked and what it was answered, kept through reconnections, so that each command runs
//! at most once.
//!
//! Commands are numbered without gaps. A request that comes again (the client lost its connection before the answer)
//! finds its command still running, or is answered from memory. An answer is remembered until the client has it whole; but
//! not the data of a READ or the like, which is much, and which whoever never comes back would keep from others: it is read again.

use std::collections::VecDeque;

use sanwire_buffer::{Head, Region, Slices};
use sanwire_core::quota::{Account, COMMAND_NUMBERS_OF_SESSION};
use sanwire_core::{Alarm, ClientId, Instant, Lun, NexusId, Peer};
use sanwire_scsi::{Receipt, Receipts};

use crate::receipts::{meant, on_wire};
use crate::wire::command::UnitTerms;
use crate::wire::{Protection, Tag};

/// Commands between the lowest unsettled and the highest that a client may have asked.
pub(crate) const SPAN_MAX: u64 = COMMAND_NUMBERS_OF_SESSION.limit;

/// An answer that may be asked for again.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) head: Head,
    pub(super) data: Option<Slices>,
    pub(super) is_compressible: bool,
    /// It has data of a command that may be executed again.
    pub(super) is_bulk_read: bool,
}

/// The logical unit of a request, and what it said of its packets when it was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unit {
    /// `None` for one that cannot exist, and of management.
    pub(super) lun: Option<Lun>,
    pub(super) terms: UnitTerms,
}

/// Where an answer goes: the tag that asked for it, and how its packets are to be guarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReplyTo {
    pub(super) tag: Tag,
    pub(super) protection: Protection,
    /// Whether a request to manage the server is answered.
    pub(super) is_local: bool,
}

#[derive(Debug)]
enum Slot {
    /// Not asked yet.
    Unasked,
    /// The device works on it. `to` is `None` while no living connection has asked for it.
    /// `awaited_by` are the task management requests that wait for its end.
    Executing { to: Option<ReplyTo>, unit: Unit, awaited_by: Vec<u64> },
    /// Aborted before it came: it must not be executed when it comes.
    Forbidden,
    /// Answered, not yet known to have arrived.
    /// `sent_on` is the connection that carries the answer already.
    Answered { kept: Kept, sent_on: Option<u32> },
    /// The data of a READ is on its way, and only the connection has it. If that ends before, it is as if nobody had asked.
    Sending,
    /// The client has the answer.
    Settled,
}

/// What to do about a request.
#[derive(Debug)]
pub(super) enum Asked {
    /// It is new: execute it.
    Execute,
    /// It is being executed: the answer will go to the new tag.
    Wait,
    /// It was executed: this is the answer.
    Repeat(Kept),
    /// It was aborted before it came: answer it so.
    Abort,
    /// It is long settled, or its number cannot be.
    Refuse,
}

/// What to do about an answer that the device gave.
#[derive(Debug, Default)]
pub(super) struct Answered {
    /// Where to send it. `None`: nobody is connected, or nobody will ask for it.
    pub(super) to: Option<ReplyTo>,
    /// Task management requests that have waited for it.
    pub(super) awaited_by: Vec<u64>,
}

/// One client's session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: ClientId,
    pub(super) number: u64,
    pub(super) nexus: NexusId,
    /// The host from which its last connection was made.
    pub(super) host: Peer,
    /// The host at which it counts among the sessions of clients that are not listed.
    pub(super) counted_at: Option<Peer>,
    /// The first step of the attempt by which its last connection was made.
    pub(super) attempt: [u8; 32],
    /// Its share of the memory.
    pub(super) memory: Region,
    /// The connection that it uses now.
    pub(super) connection: Option<u32>,
    /// Since when it has none.
    pub(super) orphaned_at: Instant,
    /// When it is seen whether that is too long.
    pub(super) alarm: Alarm,
    /// The largest transfer that its connections so far have taken, in bytes: what was asked then may be asked again.
    pub(super) transfer_limit_bytes: u32,
    settled_below: u64,
    slots: VecDeque<Slot>,
    executing: usize,
    /// Answers of which it must be known that they have arrived, by the numbers of their commands.
    receipts: Receipts<u64>,
}

impl Session {
    pub(super) fn new(
        (client, number): (ClientId, u64),
        nexus: NexusId,
        host: Peer,
        memory: Region,
        now: Instant,
    ) -> Self {
        Session {
            client,
            number,
            nexus,
            host,
            counted_at: None,
            attempt: [0; 32],
            memory,
            connection: None,
            orphaned_at: now,
            alarm: Alarm::default(),
            transfer_limit_bytes: 0,
            settled_below: 0,
            slots: VecDeque::new(),
            executing: 0,
            receipts: Receipts::default(),
        }
    }

    /// Commands that something is remembered of, or that lie between such.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Commands that the device works on.
    pub(super) fn executing(&self) -> usize {
        self.executing
    }

    /// A connection that ends has taken transfers of so many bytes.
    pub(super) fn note_transfers(&mut self, taken_bytes: u32) {
        self.transfer_limit_bytes = self.transfer_limit_bytes.max(taken_bytes);
    }

    /// A new connection takes over: the tags of the old one mean nothing any more, and what was on its way is not.
    pub(super) fn connect(&mut self, connection: u32) {
        self.connection = Some(connection);
        for slot in &mut self.slots {
            match slot {
                Slot::Executing { to, .. } => *to = None,
                Slot::Sending => *slot = Slot::Unasked,
                _ => {}
            }
        }
    }

    /// The client says which commands it still waits for: answers to others need not be kept. It may have them without
    /// our knowing, when the connection was lost before the acknowledgement, and they hold memory.
    pub(super) fn keep_only(&mut self, unanswered: &[u64]) {
        for (number, slot) in (self.settled_below..).zip(&mut self.slots) {
            if matches!(slot, Slot::Answered { .. }) && unanswered.binary_search(&number).is_err() {
                *slot = Slot::Settled;
            }
        }
    }

    pub(super) fn disconnect(&mut self, now: Instant) {
        self.connection = None;
        self.orphaned_at = now;
        while self.slots.pop_back_if(|slot| matches!(slot, Slot::Unasked)).is_some() {}
        self.slots.shrink_to_fit();
    }

    /// A session that has answered nothing begins where its client's numbers are: the server may have been restarted.
    /// What the device works on counts until the device has answered, whatever the client says; and what requests wait for is
    /// remembered until then, or they would never end, nor the session.
    fn forget_below(&mut self, settled_below: u64) {
        while self.settled_below < settled_below {
            match self.slots.front() {
                Some(Slot::Executing { awaited_by, .. }) if !awaited_by.is_empty() => return,
                Some(_) => drop(self.slots.pop_front()),
                None => {
                    self.settled_below = settled_below;
                    return;
                }
            }
            self.settled_below += 1;
        }
    }

    /// A request has arrived whole, for a logical unit that says this of its packets. The account is of numbers, from the oldest that is
    /// not settled.
    pub(super) fn ask(
        &mut self,
        (number, settled_below): (u64, u64),
        to: ReplyTo,
        unit: Unit,
        numbers: &mut Account,
    ) -> Asked {
        self.forget_below(settled_below);
        let Some(index) = number.checked_sub(self.settled_below).filter(|index| numbers.admits(*index, 1)) else {
            return Asked::Refuse;
        };
        let index = index as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || Slot::Unasked);
        }
        match &mut self.slots[index] {
            slot @ Slot::Unasked => {
                *slot = Slot::Executing { to: Some(to), unit, awaited_by: Vec::new() };
                self.executing += 1;
                Asked::Execute
            }
            slot @ Slot::Forbidden => {
                *slot = Slot::Executing { to: Some(to), unit, awaited_by: Vec::new() };
                self.executing += 1;
                Asked::Abort
            }
            Slot::Executing { to: current, .. } => {
                *current = Some(to);
                Asked::Wait
            }
            Slot::Answered { kept, sent_on } if *sent_on != self.connection => {
                *sent_on = self.connection;
                Asked::Repeat(kept.clone())
            }
            Slot::Answered { .. } | Slot::Sending | Slot::Settled => Asked::Refuse,
        }
    }

    fn slot(&mut self, number: u64) -> Option<&mut Slot> {
        let index = number.checked_sub(self.settled_below)?;
        self.slots.get_mut(usize::try_from(index).ok()?)
    }

    /// The device has answered. What a READ has read is for the connection that has asked for it, or for nobody.
    pub(super) fn answer(&mut self, number: u64, kept: Kept) -> Answered {
        self.executing = self.executing.saturating_sub(1);
        let connection = self.connection;
        let Some(slot @ Slot::Executing { .. }) = self.slot(number) else { return Answered::default() };
        let Slot::Executing { to, awaited_by, .. } = std::mem::replace(slot, Slot::Unasked) else {
            return Answered::default();
        };
        let to = to.filter(|_| connection.is_some());
        *slot = match to {
            Some(_) if kept.is_bulk_read => Slot::Sending,
            None if kept.is_bulk_read => Slot::Unasked,
            _ => Slot::Answered { kept, sent_on: connection.filter(|_| to.is_some()) },
        };
        Answered { to, awaited_by }
    }

    /// A command that was not begun is not going to be: it is as if nobody had asked. Gives the task management requests that have
    /// waited for it.
    pub(super) fn withdraw(&mut self, number: u64) -> Vec<u64> {
        self.executing = self.executing.saturating_sub(1);
        let Some(slot @ Slot::Executing { .. }) = self.slot(number) else { return Vec::new() };
        match std::mem::replace(slot, Slot::Unasked) {
            Slot::Executing { awaited_by, .. } => awaited_by,
            _ => Vec::new(),
        }
    }

    /// The logical unit of a command that is being executed.
    pub(super) fn unit(&mut self, number: u64) -> Unit {
        match self.slot(number) {
            Some(Slot::Executing { unit, .. }) => *unit,
            _ => {
                let terms = UnitTerms { protection: Protection::Checksum, is_compressible: false };
                Unit { lun: None, terms }
            }
        }
    }

    /// The answer to this command must be known to have arrived: what it says of that.
    pub(super) fn issue(&mut self, receipt: Receipt, number: u64) -> u16 {
        if self.receipts.is_full() {
            let settled_below = self.settled_below;
            self.receipts.retain(|number| *number >= settled_below);
        }
        on_wire(self.receipts.issue(receipt, number))
    }

    /// Up to which receipt the client had all answers when it gave a command for which this was settled, and told.
    pub(super) fn received(&self, settled_below: u64, told: u16) -> u64 {
        self.receipts.received(|number| *number < settled_below).max(meant(told, self.receipts.issued()))
    }

    /// The client has the whole answer.
    pub(super) fn delivered(&mut self, number: u64) {
        if let Some(slot @ (Slot::Answered { .. } | Slot::Sending)) = self.slot(number) {
            *slot = Slot::Settled;
        }
    }

    /// Gives up a command for the request `by`. True: the answer waits for the command's end; false: there is nothing
    /// to wait for. Only an earlier command can be waited for, so that requests never wait for each other. A command is answered
    /// in any case.
    pub(super) fn abort(&mut self, number: u64, by: u64) -> bool {
        match self.slot(number) {
            Some(Slot::Executing { awaited_by, .. }) if number < by => {
                awaited_by.push(by);
                true
            }
            Some(slot @ Slot::Unasked) if number < by => {
                *slot = Slot::Forbidden;
                false
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
