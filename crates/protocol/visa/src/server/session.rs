//! A client's session: who it is, where it is connected, and what was asked and answered there.

use sanwire_buffer::{Head, Region, Slices};
use sanwire_core::{Alarm, ClientId, Instant, Lun, Peer, Protection};
use sanwire_exchange::{Keepsake, Memory};

/// An answer that may be asked for again.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) head: Head,
    pub(super) data: Option<Slices>,
    /// It is never sent guarded less, whoever asks for it again: where packets have no check, anybody may.
    pub(super) protection: Protection,
    pub(super) is_bulk_read: bool,
}

impl Keepsake for Kept {
    fn is_bulk_read(&self) -> bool {
        self.is_bulk_read
    }
}

/// The logical unit of a request, and how it was to be guarded when it was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unit {
    /// `None` for one that cannot exist.
    pub(super) lun: Option<Lun>,
    pub(super) protection: Protection,
}

/// Where an answer goes: the tag that asked for it, and how its packets are to be guarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReplyTo {
    pub(super) tag: u16,
    pub(super) protection: Protection,
}

/// One client's session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: ClientId,
    pub(super) number: u64,
    /// The host from which its last connection was made.
    pub(super) host: Peer,
    /// The host at which it counts among the sessions of clients that are not listed: see [`sanwire_exchange::places`].
    pub(super) counted_at: Option<Peer>,
    /// Its share of the memory.
    pub(super) memory: Region,
    /// Something authentic has come: its client has heard that it has this session.
    pub(super) is_heard: bool,
    /// The connection that it uses now.
    pub(super) connection: Option<u32>,
    /// Since when it has none.
    pub(super) orphaned_at: Instant,
    /// When it is seen whether that is too long.
    pub(super) alarm: Alarm,
    pub(super) commands: Memory<ReplyTo, Unit, Kept>,
}

impl Session {
    pub(super) fn new((client, number): (ClientId, u64), host: Peer, memory: Region, now: Instant) -> Self {
        Session {
            client,
            number,
            host,
            counted_at: None,
            memory,
            is_heard: false,
            connection: None,
            orphaned_at: now,
            alarm: Alarm::default(),
            commands: Memory::default(),
        }
    }

    /// A new connection takes over.
    pub(super) fn connect(&mut self, connection: u32, host: Peer) {
        (self.connection, self.host) = (Some(connection), host);
        self.commands.connect();
    }

    pub(super) fn disconnect(&mut self, now: Instant) {
        (self.connection, self.orphaned_at) = (None, now);
        self.commands.disconnect();
    }
}
