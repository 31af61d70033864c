//! Which answers an initiator had when it gave a command (RFC 7143 4.2.2.2).
//!
//! ExpStatSN of a request says which answers of its connection had arrived when the request was made, and CmdSN where it stands among
//! all commands of the session: those with higher numbers were given later, over whichever connection they come.
//!
//! Some initiators never advance ExpStatSN. What they have is seen by the window: a command whose number was not in it before an answer
//! was sent was given after something had arrived that was sent with that answer, or later. On the only connection of a session, where
//! nothing is sent again, the answer had arrived too.

use sanwire_scsi::Receipt;

use super::session::Session;
use crate::ConnectionId;
use crate::serial::Serial;
use crate::wire::Header;
use crate::wire::field::{Field, U32};

/// An answer of which it must be known that it has arrived.
#[derive(Debug)]
pub(super) struct Sent {
    connection: ConnectionId,
    status: Serial,
    /// The highest number of a command that the initiator could know of before (MaxCmdSN).
    max: Serial,
    /// Commands from this number on were given after it had arrived.
    known_from: Option<Serial>,
}

impl Session {
    /// The next status of a connection is such an answer.
    pub(super) fn note_receipt(&mut self, at: usize, receipt: Receipt) {
        let Some(connection) = self.connections.get(at) else { return };
        let (connection, status, max) = (connection.id, connection.status_number(), self.order.max());
        self.receipts.issue(receipt, Sent { connection, status, max, known_from: None });
    }

    /// A request that has a command number says what had arrived before it.
    pub(super) fn note_received(&mut self, at: usize, header: &Header) {
        let (id, number) = (self.connections[at].id, Serial(U32::<24>::get(header)));
        let expected = Serial(U32::<28>::get(header));
        let is_in_order = self.connections.len() == 1 && self.parameters.error_recovery_level == 0;
        // An immediate one has the number behind the window where that is closed.
        let has_arrived = |sent: &Sent| sent.status < expected || is_in_order && sent.max.next() < number;
        let own = self.receipts.iter_mut().filter(|sent| sent.connection == id && has_arrived(sent));
        let earlier = |from: Option<Serial>| from.filter(|from| *from < number).or(Some(number));
        own.for_each(|sent| sent.known_from = earlier(sent.known_from));
        let next = self.order.expected();
        self.receipts.retain(|sent| sent.known_from.is_none_or(|from| next < from));
    }

    /// Up to which receipt the initiator had the answers when it gave the command with this number.
    pub(super) fn received_at(&self, number: Serial) -> u64 {
        self.receipts.received(|sent| sent.known_from.is_some_and(|from| from <= number))
    }

    /// A connection is gone: what it has not brought to the initiator by now it never will.
    pub(super) fn lose_receipts(&mut self, connection: ConnectionId) {
        self.receipts.lose(|sent| sent.connection == connection && sent.known_from.is_none());
    }
}
