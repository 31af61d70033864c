//! What a server remembers of a session: what was asked and how it was answered, kept through reconnections, so that each command
//! runs at most once.
//!
//! Commands are numbered without gaps. A request that comes again (the client lost its connection before the answer)
//! finds its command still running, or is answered from memory. An answer is remembered until the client has it whole; but
//! not the data of a READ or the like, which is much, and which whoever never comes back would keep from others: it is read again.

use std::collections::VecDeque;

use sanwire_core::quota::{Account, COMMAND_NUMBERS_OF_SESSION};
use sanwire_scsi::{Receipt, Receipts};

use crate::receipts::{meant, on_wire};

/// Commands between the lowest unsettled and the highest that a client may have asked.
pub const SPAN_MAX: u64 = COMMAND_NUMBERS_OF_SESSION.limit;

/// An answer that may be asked for again.
pub trait Keepsake: Clone {
    /// It has data of a command that may be executed again.
    fn is_bulk_read(&self) -> bool;
}

#[derive(Debug)]
enum Slot<To, Unit, Kept> {
    /// Not asked yet.
    Unasked,
    /// The device works on it. `to` is `None` while no living connection has asked for it.
    /// `awaited_by` are the task management requests that wait for its end.
    Executing { to: Option<To>, unit: Unit, awaited_by: Vec<u64> },
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
pub enum Asked<Kept> {
    /// It is new: execute it.
    Execute,
    /// It is being executed: the answer will go to whoever asked last.
    Wait,
    /// It was executed: this is the answer.
    Repeat(Kept),
    /// It was aborted before it came: answer it so.
    Abort,
    /// It is long settled, or its number cannot be.
    Refuse,
}

/// What to do about an answer that the device gave.
#[derive(Debug)]
pub struct Answered<To> {
    /// Where to send it. `None`: nobody is connected, or nobody will ask for it.
    pub to: Option<To>,
    /// Task management requests that have waited for it.
    pub awaited_by: Vec<u64>,
}

impl<To> Default for Answered<To> {
    fn default() -> Self {
        Answered { to: None, awaited_by: Vec::new() }
    }
}

/// What is remembered of one session. `To` is where an answer goes, `Unit` what is known of the logical unit of a command.
#[derive(Debug)]
pub struct Memory<To, Unit, Kept> {
    settled_below: u64,
    slots: VecDeque<Slot<To, Unit, Kept>>,
    executing: usize,
    /// Answers of which it must be known that they have arrived, by the numbers of their commands.
    receipts: Receipts<u64>,
}

impl<To, Unit, Kept> Default for Memory<To, Unit, Kept> {
    fn default() -> Self {
        Memory { settled_below: 0, slots: VecDeque::new(), executing: 0, receipts: Receipts::default() }
    }
}

impl<To, Unit: Copy, Kept: Keepsake> Memory<To, Unit, Kept> {
    /// Commands that something is remembered of, or that lie between such.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Commands that the device works on.
    #[must_use]
    pub fn executing(&self) -> usize {
        self.executing
    }

    /// A new connection takes over: where answers went on the old one means nothing any more, and what was on its way is not.
    pub fn connect(&mut self) {
        for slot in &mut self.slots {
            match slot {
                Slot::Executing { to, .. } => *to = None,
                Slot::Sending => *slot = Slot::Unasked,
                _ => {}
            }
        }
    }

    /// The client says which commands it still waits for, in ascending order: answers to others need not be kept. It may have them
    /// without our knowing, when the connection was lost before the acknowledgement, and they hold memory. What it asked on the
    /// `connection` on which it says so it may have asked later, and what it says may come late: that is kept.
    pub fn keep_only(&mut self, unanswered: &[u64], connection: Option<u32>) {
        for (number, slot) in (self.settled_below..).zip(&mut self.slots) {
            let Slot::Answered { sent_on, .. } = slot else { continue };
            let is_older = connection.is_none() || *sent_on != connection;
            if is_older && unanswered.binary_search(&number).is_err() {
                *slot = Slot::Settled;
            }
        }
    }

    /// There is no connection any more.
    pub fn disconnect(&mut self) {
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

    /// A request has arrived whole on this connection. The account is of numbers, from the oldest that is not settled.
    pub fn ask(
        &mut self,
        (number, settled_below): (u64, u64),
        (to, connection): (To, Option<u32>),
        unit: Unit,
        numbers: &mut Account,
    ) -> Asked<Kept> {
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
            Slot::Answered { kept, sent_on } if *sent_on != connection => {
                *sent_on = connection;
                Asked::Repeat(kept.clone())
            }
            Slot::Answered { .. } | Slot::Sending | Slot::Settled => Asked::Refuse,
        }
    }

    fn slot(&mut self, number: u64) -> Option<&mut Slot<To, Unit, Kept>> {
        let index = number.checked_sub(self.settled_below)?;
        self.slots.get_mut(usize::try_from(index).ok()?)
    }

    /// The device has answered. What a READ has read is for the connection that has asked for it, or for nobody.
    pub fn answer(&mut self, number: u64, kept: Kept, connection: Option<u32>) -> Answered<To> {
        self.executing = self.executing.saturating_sub(1);
        let Some(slot @ Slot::Executing { .. }) = self.slot(number) else { return Answered::default() };
        let Slot::Executing { to, awaited_by, .. } = std::mem::replace(slot, Slot::Unasked) else {
            return Answered::default();
        };
        let to = to.filter(|_| connection.is_some());
        *slot = match to {
            Some(_) if kept.is_bulk_read() => Slot::Sending,
            None if kept.is_bulk_read() => Slot::Unasked,
            _ => Slot::Answered { kept, sent_on: connection.filter(|_| to.is_some()) },
        };
        Answered { to, awaited_by }
    }

    /// A command that was not begun is not going to be: it is as if nobody had asked. Gives the task management requests that have
    /// waited for it.
    pub fn withdraw(&mut self, number: u64) -> Vec<u64> {
        self.executing = self.executing.saturating_sub(1);
        let Some(slot @ Slot::Executing { .. }) = self.slot(number) else { return Vec::new() };
        match std::mem::replace(slot, Slot::Unasked) {
            Slot::Executing { awaited_by, .. } => awaited_by,
            _ => Vec::new(),
        }
    }

    /// What is known of the logical unit of a command, while it is executed.
    pub fn unit(&mut self, number: u64) -> Option<Unit> {
        match self.slot(number) {
            Some(Slot::Executing { unit, .. }) => Some(*unit),
            _ => None,
        }
    }

    /// The answer to this command must be known to have arrived: what it says of that.
    pub fn issue(&mut self, receipt: Receipt, number: u64) -> u16 {
        if self.receipts.is_full() {
            let settled_below = self.settled_below;
            self.receipts.retain(|number| *number >= settled_below);
        }
        on_wire(self.receipts.issue(receipt, number))
    }

    /// Up to which receipt the client had all answers when it gave a command for which this was settled, and told.
    #[must_use]
    pub fn received(&self, settled_below: u64, told: u16) -> u64 {
        self.receipts.received(|number| *number < settled_below).max(meant(told, self.receipts.issued()))
    }

    /// The client has the whole answer.
    pub fn delivered(&mut self, number: u64) {
        if let Some(slot @ (Slot::Answered { .. } | Slot::Sending)) = self.slot(number) {
            *slot = Slot::Settled;
        }
    }

    /// Gives up a command for the request `by`. True: the answer waits for the command's end; false: there is nothing
    /// to wait for. Only an earlier command can be waited for, so that requests never wait for each other. A command is answered
    /// in any case.
    pub fn abort(&mut self, number: u64, by: u64) -> bool {
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
