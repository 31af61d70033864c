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
    pub(super) fn unreachable() -> Failure {
        Failure::Gone { reason: "it has been away for longer than the volume waits".to_owned() }
    }

    /// Asks for one more connection.
    pub(super) fn connect(&mut self, now: Instant) {
        self.last_connection += 1;
        let id = ConnectionId(self.last_connection);
        self.connections.push(Connection::new(id, now + self.config.connect_timeout));
        self.actions.push_back(Action::Connect(id));
    }

    /// The negotiation on a connection is over.
    pub(super) fn established(&mut self, connection: ConnectionId, export: Export, now: Instant) {
        if let Some(difference) = self.export.as_ref().and_then(|before| before.difference(&export)) {
            return self.fail_connection(connection, &difference, now);
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
        if self.unanswered() == 0 {
            self.outage_since = None;
            self.backoff = BACKOFF_MIN;
        }
        self.events.push_back(match is_first {
            true => Event::Opened(export),
            false => Event::Restored { given_again: self.restoring },
        });
        let others = if export.takes_several_connections() { self.config.connections } else { 1 };
        (1..others).for_each(|_| self.connect(now));
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
        let was_up = matches!(self.link, Link::Up);
        self.link = Link::Down { attempt_at: now + self.backoff };
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
        self.outage_since.get_or_insert(now);
        let reason = reason.to_owned();
        self.events.push_back(if was_up { Event::Lost { reason } } else { Event::AttemptFailed { reason } });
        let kept: Vec<_> = self.kept.drain().collect();
        self.restoring += kept.len();
        kept.into_iter().for_each(|(number, order)| self.insert(number, order, Origin::Kept));
        if std::mem::take(&mut self.has_own_flush) {
            self.orders.0.retain(|_, entry| entry.origin != Origin::Own);
        }
        self.orders.0.values_mut().for_each(|entry| entry.reset());
        self.waiting = self.orders.0.keys().copied().collect();
        if self.is_out_of_patience(now) {
            self.fail_waiting(&Self::unreachable());
        }
    }

    /// Whether the server has been away for longer than orders wait.
    pub(super) fn is_out_of_patience(&self, now: Instant) -> bool {
        let is_over = self.outage_since.is_some_and(|since| since + self.config.patience <= now);
        is_over && !matches!(self.link, Link::Up)
    }

    /// Fails the orders of the caller. What is kept stays: it was answered.
    pub(super) fn fail_waiting(&mut self, failure: &Failure) {
        let numbers: Vec<u64> =
            self.orders.0.iter().filter(|(_, entry)| entry.origin == Origin::Caller).map(|(n, _)| *n).collect();
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
        openings.chain(attempt).chain(patience).min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let late = |known: &Connection| !known.is_ready() && known.deadline <= now;
        while let Some(id) = self.connections.iter().find(|known| late(known)).map(|known| known.id) {
            self.fail_connection(id, "the NBD server does not answer", now);
        }
        if self.is_out_of_patience(now) {
            self.fail_waiting(&Self::unreachable());
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
