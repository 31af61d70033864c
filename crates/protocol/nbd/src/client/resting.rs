//! The end of a client: nothing more is sent, and what the server has received is waited for.

use std::collections::BTreeSet;

use sanwire_core::Instant;

use super::Client;
use crate::connection::Connection;

impl Client {
    /// Nothing more is to be done: no request is sent of which nothing was polled yet, nothing is given again, no connection is made. Its
    /// driver goes on to receive until [`Client::is_at_rest`], as long as it likes, and then calls [`Client::disconnect`] and drains
    /// once more. No order that is left ends in an [`super::Event::Completed`] that anybody has to hear.
    pub fn abandon(&mut self) {
        self.is_abandoned = true;
        self.connections.iter_mut().for_each(Connection::withdraw);
        // Reads under way keep the frames into which they are received.
        let sent: BTreeSet<u64> = self.connections.iter().flat_map(Connection::orders).collect();
        self.orders.0.retain(|number, _| sent.contains(number));
        self.waiting.clear();
        drop(self.kept.drain());
    }

    /// Whether the server has answered every write that it was sent on the connections that there are.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        !self.connections.iter().any(Connection::has_writes)
    }

    /// Until when a server may be at work on writes of lost connections; `None`: none is.
    #[must_use]
    pub fn may_be_at_work_until(&self) -> Option<Instant> {
        self.lingering.last_end()
    }
}
