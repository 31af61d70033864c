//! Memory that a lively connection could hold for ever: for a PDU of which the data does not come to its end, and for requests
//! whose turn does not come. (`reception` sees to the data of commands.)

use std::hash::Hash;
use std::time::Duration;

use rustc_hash::FxHashMap;
use sanwire_core::Instant;

use super::command_window::Held;
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
    /// Gives up the connections that have held memory so for too long.
    pub(super) fn check_patience(&mut self, shared: &mut Shared, now: Instant) {
        if !self.patience.is_to_look(now) {
            return;
        }
        let mut patience = std::mem::take(&mut self.patience);
        patience.looked_at = Some(now);
        let receiving = self.connections.iter().filter_map(|own| Some((own.id, own.receiver.fills_frame_of()?)));
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
