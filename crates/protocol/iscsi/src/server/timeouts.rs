//! When a session is due, and for what. Of that, here: memory that a lively connection could hold for ever, for a PDU of which the
//! data does not come to its end, and for requests whose turn does not come. (`data_timeout` sees to the data of commands, `nop` to
//! signs of life, `recovery` to what connections have left behind.)

use std::hash::Hash;
use std::time::Duration;

use rustc_hash::FxHashMap;
use sanwire_core::Instant;

use super::command_window::Held;
use super::connection::Connection;
use super::session::Session;
use super::shared::Shared;
use crate::ConnectionId;

/// So long neither has to come any further. Initiators have given up by then.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Not looked at more often.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What a session waits for, as it was seen from time to time.
#[derive(Default)]
pub(super) struct Patience {
    looked_at: Option<Instant>,
    /// Connections that receive into a frame, by which PDU it is.
    connections: Watch<ConnectionId>,
    /// Requests with data that came before their turn, by the command number that they wait for.
    order: Watch<()>,
}

/// Things that wait: how far each was when it was seen, and since when it has been so far.
struct Watch<K>(FxHashMap<K, (u64, Instant)>);

impl<K> Default for Watch<K> {
    fn default() -> Self {
        Watch(FxHashMap::default())
    }
}

impl<K: Copy + Eq + Hash> Watch<K> {
    /// Notes how far each thing is that waits now. Gives those, and forgets them, that have come no further for too long.
    fn look(&mut self, waiting: impl Iterator<Item = (K, u64)>, now: Instant) -> Vec<K> {
        let before = std::mem::take(&mut self.0);
        let mut late = Vec::new();
        for (key, mark) in waiting {
            let seen = before.get(&key).filter(|(seen, _)| *seen == mark);
            let since = seen.map_or(now, |(_, since)| *since);
            if since + TIMEOUT <= now {
                late.push(key);
            } else {
                self.0.insert(key, (mark, since));
            }
        }
        late
    }

    fn end(&self) -> Option<Instant> {
        self.0.values().map(|(_, since)| *since + TIMEOUT).min()
    }
}

impl Patience {
    /// When it ends for the first of them; later if something comes.
    pub(super) fn end(&self) -> Option<Instant> {
        [self.connections.end(), self.order.end()].into_iter().flatten().min()
    }

    fn is_to_look(&self, now: Instant) -> bool {
        self.looked_at.is_none_or(|at| at + LOOK_EVERY <= now) || self.end().is_some_and(|end| end <= now)
    }
}

impl Session {
    /// When something of it is next due, if nothing happens before. What comes may put it off: [`Session::wake_at`] says what is
    /// due earlier.
    fn next_deadline(&self) -> Option<Instant> {
        let others = [self.next_expiry(), self.reception_at, self.patience.end()];
        self.connections.iter().map(Connection::due).chain(others.into_iter().flatten()).min()
    }

    /// Something of it is due at this moment.
    pub(super) fn wake_at(&mut self, at: Instant, shared: &mut Shared) {
        shared.deadlines.note(self.nexus, &mut self.alarm, at);
    }

    /// Takes note of when it is next due.
    pub(super) fn note_deadline(&mut self, shared: &mut Shared) {
        if let Some(at) = self.next_deadline().filter(|_| !self.is_over) {
            self.wake_at(at, shared);
        }
    }

    /// Sees to what of it is due.
    pub(super) fn handle_timeout(&mut self, shared: &mut Shared, now: Instant) {
        self.check_signs_of_life(shared, now);
        self.expire_suspended(shared, now);
        self.check_reception(shared, now);
        self.check_patience(shared, now);
        self.note_deadline(shared);
    }

    /// Gives up the connections that have held memory so for too long.
    fn check_patience(&mut self, shared: &mut Shared, now: Instant) {
        if !self.patience.is_to_look(now) {
            return;
        }
        let mut patience = std::mem::take(&mut self.patience);
        patience.looked_at = Some(now);
        let receiving = self.connections.iter().filter_map(|own| Some((own.id, own.mover.fills_frame_of()?)));
        let mut late = patience.connections.look(receiving, now);
        let number = self.order.early().any(holds_data).then(|| ((), u64::from(self.order.expected().0)));
        if !patience.order.look(number.into_iter(), now).is_empty() {
            late.extend(self.those_who_wait());
        }
        self.patience = patience;
        for id in late {
            if let Some(at) = self.position(id) {
                self.drop_connection(at, shared, now);
            }
        }
    }

    pub(super) fn those_who_wait(&self) -> impl Iterator<Item = ConnectionId> {
        self.order.held().filter_map(|held| match held {
            Held::Request(from, _) if holds_data(held) => Some(*from),
            _ => None,
        })
    }
}

fn holds_data(held: &Held) -> bool {
    matches!(held, Held::Request(_, pdu) if pdu.data.is_some())
}
