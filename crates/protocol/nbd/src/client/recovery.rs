//! Connections: made, lost, made again; and what that means for orders.

use std::time::Duration;

use sanwire_core::Instant;

use super::orders::Origin;
use super::{Action, Client, ConnectionId, Event, Link};
use crate::connection::Connection;
use crate::export::Export;
use crate::order::{Answer, Failure, OrderId};

/// The pause before the next attempt: this one at first, twice as long each time.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

impl Client {
    /// Asks for one more connection.
    pub(super) fn connect(&mut self, now: Instant) {
        if self.is_abandoned {
            return;
        }
        self.last_connection += 1;
        let id = ConnectionId(self.last_connection);
        self.connections.push(Connection::new(id, now + self.config.connect_timeout));
        self.actions.push_back(Action::Connect(id));
    }

    /// The negotiation on a connection is over.
    pub(super) fn established(&mut self, connection: ConnectionId, export: Export, now: Instant) {
        if let Some(difference) = self.export.as_ref().and_then(|before| before.difference(&export)) {
            return self.refuse_connection(connection, &difference, now);
        }
        if let Link::Up = self.link {
            // Connections to the same export agree; one that does not is of a server that is being replaced.
            if self.current != Some(export) {
                self.fail_connection(connection, "the export has changed", now);
            }
            return;
        }
        self.link = Link::Up;
        self.current = Some(export);
        let is_first = self.export.replace(self.export.unwrap_or(export)).is_none();
        if is_first {
            self.events.push_back(Event::Opened(export));
            self.outage_is_over();
        } else if !self.ask_witnesses() {
            self.restored();
        }
        let others = if export.takes_several_connections() { self.config.connections } else { 1 };
        (1..others).for_each(|_| self.connect(now));
    }

    /// The export is what it was.
    pub(super) fn restored(&mut self) {
        self.events.push_back(Event::Restored { given_again: self.restoring });
        self.outage_is_over();
    }

    /// What waits for an answer is patient until there is one.
    fn outage_is_over(&mut self) {
        if self.unanswered() == 0 {
            self.outage_since = None;
            self.backoff = BACKOFF_MIN;
        }
    }

    /// What is found at the other end of a connection is not the export.
    pub(super) fn refuse_connection(&mut self, connection: ConnectionId, reason: &str, now: Instant) {
        self.is_refused = true;
        self.fail_connection(connection, reason, now);
        self.is_refused = false;
    }

    /// A connection is of no use any more.
    ///
    /// With one that carried requests all others end: what a server has lost that was restarted must be given again before
    /// anything is read, on whichever connection.
    pub(super) fn fail_connection(&mut self, connection: ConnectionId, reason: &str, now: Instant) {
        let Some(index) = self.connections.iter().position(|known| known.id == connection) else { return };
        if matches!(self.link, Link::Up) && !self.connections[index].is_ready() {
            self.connections.remove(index);
            self.actions.push_back(Action::Close(connection));
            return;
        }
        self.go_down(reason, now);
    }

    fn go_down(&mut self, reason: &str, now: Instant) {
        self.actions.extend(self.connections.drain(..).map(|connection| Action::Close(connection.id)));
        self.note_lingering(self.config.linger, now);
        let was_up = matches!(self.link, Link::Up);
        self.link = Link::Down { attempt_at: now + self.backoff };
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
        self.outage_since.get_or_insert(now);
        self.last_failure.clear();
        self.last_failure.push_str(reason);
        let reason = reason.to_owned();
        let is_refused = self.is_refused;
        self.events.push_back(if was_up {
            Event::Lost { reason }
        } else {
            Event::AttemptFailed { reason, is_refused }
        });
        let kept: Vec<_> = self.kept.drain().collect();
        self.restoring += kept.len();
        kept.into_iter().for_each(|(number, order)| self.insert(number, order, Origin::Kept));
        (self.has_own_flush, self.witnesses.under_way) = (false, 0);
        self.orders.0.retain(|_, entry| !matches!(entry.origin, Origin::Own | Origin::Witness));
        self.orders.0.values_mut().for_each(|entry| entry.reset());
        self.waiting = self.orders.0.keys().copied().collect();
        if self.is_out_of_patience(now) {
            self.fail_waiting();
        }
    }

    /// Whether the server has been away for longer than orders wait.
    pub(super) fn is_out_of_patience(&self, now: Instant) -> bool {
        let is_over = self.outage_since.is_some_and(|since| since + self.config.patience <= now);
        is_over && !matches!(self.link, Link::Up)
    }

    /// Fails the orders of the caller. What is kept stays: it was answered.
    pub(super) fn fail_waiting(&mut self) {
        let failure = Failure::Gone { reason: self.last_failure.clone() };
        let numbers: Vec<u64> =
            self.orders.0.iter().filter(|(_, entry)| entry.origin == Origin::Caller).map(|(n, _)| *n).collect();
        self.doubt_writes();
        for number in numbers {
            self.waiting.remove(&number);
            let Some(entry) = self.orders.0.remove(&number) else { continue };
            self.writes -= usize::from(entry.order.is_write());
            let result: Result<Answer, Failure> = Err(failure.clone());
            self.events.push_back(Event::Completed { id: OrderId(number), result });
        }
    }

    /// When to call [`Client::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let openings = self.connections.iter().filter(|connection| !connection.is_ready()).map(|known| known.deadline);
        let attempt = match self.link {
            Link::Down { attempt_at } => Some(attempt_at),
            Link::Opening | Link::Up => None,
        };
        let patience = match self.link {
            Link::Up => None,
            _ if self.unanswered() == 0 => None,
            _ => self.outage_since.map(|since| since + self.config.patience),
        };
        let lingering = self.lingering.next_end().filter(|_| !self.waiting.is_empty());
        openings.chain(attempt).chain(patience).chain(lingering).min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let late = |known: &Connection| !known.is_ready() && known.deadline <= now;
        while let Some(id) = self.connections.iter().find(|known| late(known)).map(|known| known.id) {
            self.fail_connection(id, "the NBD server does not answer", now);
        }
        self.lingering.expire(now);
        if self.is_out_of_patience(now) {
            self.fail_waiting();
        }
        if let Link::Down { attempt_at } = self.link
            && attempt_at <= now
        {
            self.link = Link::Opening;
            self.connect(now);
        }
        self.schedule();
    }
}
