//! A client's session: who it is, where it is connected, and what was asked and answered there.

use sanwire_buffer::{Head, Region, Slices};
use sanwire_core::quota::Account;
use sanwire_core::{Alarm, ClientId, Instant, Lun, NexusId, Peer};
use sanwire_exchange::{Keepsake, Memory};
use sanwire_scsi::Receipt;

use crate::wire::command::UnitTerms;
use crate::wire::{Protection, Tag};

/// What to do about a request.
pub(super) type Asked = sanwire_exchange::Asked<Kept>;

/// What to do about an answer that the device gave.
pub(super) type Answered = sanwire_exchange::Answered<ReplyTo>;

/// An answer that may be asked for again.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) head: Head,
    pub(super) data: Option<Slices>,
    pub(super) is_compressible: bool,
    /// It has data of a command that may be executed again.
    pub(super) is_bulk_read: bool,
}

impl Keepsake for Kept {
    fn is_bulk_read(&self) -> bool {
        self.is_bulk_read
    }
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

/// One client's session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: ClientId,
    pub(super) number: u64,
    pub(super) nexus: NexusId,
    /// The host from which its last connection was made.
    pub(super) host: Peer,
    /// The host at which it counts among the sessions of clients that are not listed: see [`sanwire_exchange::places`].
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
    commands: Memory<ReplyTo, Unit, Kept>,
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
            commands: Memory::default(),
        }
    }

    /// Commands that something is remembered of, or that lie between such.
    pub(super) fn slots(&self) -> usize {
        self.commands.slots()
    }

    /// Commands that the device works on.
    pub(super) fn executing(&self) -> usize {
        self.commands.executing()
    }

    /// A connection that ends has taken transfers of so many bytes.
    pub(super) fn note_transfers(&mut self, taken_bytes: u32) {
        self.transfer_limit_bytes = self.transfer_limit_bytes.max(taken_bytes);
    }

    /// A new connection takes over.
    pub(super) fn connect(&mut self, connection: u32) {
        self.connection = Some(connection);
        self.commands.connect();
    }

    /// The client says which commands it still waits for.
    pub(super) fn keep_only(&mut self, unanswered: &[u64]) {
        // It is part of the handshake: nothing was asked on that connection before.
        self.commands.keep_only(unanswered, None);
    }

    pub(super) fn disconnect(&mut self, now: Instant) {
        self.connection = None;
        self.orphaned_at = now;
        self.commands.disconnect();
    }

    /// A request has arrived whole, for a logical unit that says this of its packets. The account is of numbers, from the oldest that is
    /// not settled.
    pub(super) fn ask(&mut self, numbers: (u64, u64), to: ReplyTo, unit: Unit, account: &mut Account) -> Asked {
        self.commands.ask(numbers, (to, self.connection), unit, account)
    }

    /// The device has answered.
    pub(super) fn answer(&mut self, number: u64, kept: Kept) -> Answered {
        self.commands.answer(number, kept, self.connection)
    }

    /// A command that was not begun is not going to be. Gives the task management requests that have waited for it.
    pub(super) fn withdraw(&mut self, number: u64) -> Vec<u64> {
        self.commands.withdraw(number)
    }

    /// The logical unit of a command that is being executed.
    pub(super) fn unit(&mut self, number: u64) -> Unit {
        let terms = UnitTerms { protection: Protection::Checksum, is_compressible: false };
        self.commands.unit(number).unwrap_or(Unit { lun: None, terms })
    }

    /// The answer to this command must be known to have arrived: what it says of that.
    pub(super) fn issue(&mut self, receipt: Receipt, number: u64) -> u16 {
        self.commands.issue(receipt, number)
    }

    /// Up to which receipt the client had all answers when it gave a command for which this was settled, and told.
    pub(super) fn received(&self, settled_below: u64, told: u16) -> u64 {
        self.commands.received(settled_below, told)
    }

    /// The client has the whole answer.
    pub(super) fn delivered(&mut self, number: u64) {
        self.commands.delivered(number);
    }

    /// Gives up a command for the request `by`; whether the answer waits for the command's end.
    pub(super) fn abort(&mut self, number: u64, by: u64) -> bool {
        self.commands.abort(number, by)
    }
}

#[cfg(test)]
mod tests;
