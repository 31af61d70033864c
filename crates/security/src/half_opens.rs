//! Handshakes under way at a server: few for each session on each path, short-lived.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sanwire_core::quota::{Account, HALF_OPENS, HALF_OPENS_OF_SESSION, Usage};
use sanwire_core::{ClientId, Instant, Path};

use crate::handshake::Responder;

/// How long the third step may take.
const LIFETIME: Duration = Duration::from_secs(5);

/// When there are too many, one that had so long for its third step makes room. Otherwise the new one is dropped, and comes again:
/// those that have begun come to their end.
const GRACE: Duration = Duration::from_secs(1);

/// A handshake after its second step.
pub struct HalfOpen<Said> {
    /// The connection that it may lead to.
    pub connection: u32,
    /// Where its client is.
    pub path: Path,
    /// Who that says it is.
    pub client: ClientId,
    /// The client's session.
    pub session: u64,
    /// The client's attempt: the same first step gets the same answer.
    pub attempt: u64,
    /// What the protocol keeps of what was said so far.
    pub said: Said,
    /// The server's end of it.
    pub responder: Responder,
    /// The second step, to be repeated when it was lost.
    pub answer: Vec<u8>,
    /// When the second step was made.
    pub begun_at: Instant,
    /// A third step that was a wrong guess at the password. Its client says it again and again, and has no other guess.
    pub refused: Option<Vec<u8>>,
}

impl<Said> HalfOpen<Said> {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_since(self.begun_at) >= LIFETIME
    }
}

/// All of them.
pub struct HalfOpens<Said> {
    by_connection: BTreeMap<u32, HalfOpen<Said>>,
    /// Those of one session on one path, oldest first. Who has overheard a session begins handshakes in its name from elsewhere: they
    /// take no place of its own.
    by_session: BTreeMap<(ClientId, u64), BTreeMap<Path, VecDeque<u32>>>,
    /// When they began, oldest first, of some that are over too.
    by_age: VecDeque<(Instant, u32)>,
    of_shard: Account,
    of_session: Account,
}

impl<Said> Default for HalfOpens<Said> {
    fn default() -> Self {
        HalfOpens {
            by_connection: BTreeMap::new(),
            by_session: BTreeMap::new(),
            by_age: VecDeque::new(),
            of_shard: Account::new(&HALF_OPENS),
            of_session: Account::new(&HALF_OPENS_OF_SESSION),
        }
    }
}

impl<Said> HalfOpens<Said> {
    /// The second step after the same first one, if it was made before. Another first step of the same attempt is another's: a
    /// listener that overhears an attempt cannot make the server answer it instead.
    pub fn repeat(&self, path: Path, session: (ClientId, u64), attempt: u64, first: &[u8]) -> Option<&[u8]> {
        let on_path = self.by_session.get(&session)?.get(&path)?.iter().filter_map(|id| self.by_connection.get(id));
        let mut same = on_path.filter(|half| half.attempt == attempt && half.responder.first() == first);
        same.next().map(|half| &half.answer[..])
    }

    /// Whether there is room for another one now.
    pub fn has_room(&mut self, now: Instant) -> bool {
        self.expire(now);
        if self.of_shard.admits(self.by_connection.len() as u64, 1) {
            return true;
        }
        let oldest = self.oldest().filter(|(begun_at, _)| now.saturating_since(*begun_at) >= GRACE);
        oldest.inspect(|(_, id)| drop(self.take(*id))).is_some()
    }

    /// Adds one for which there is room. Those of the same session stay: the client may be answering any of them.
    pub fn insert(&mut self, half_open: HalfOpen<Said>) {
        let id = half_open.connection;
        let session = (half_open.client, half_open.session);
        let others = self.by_session.entry(session).or_default().entry(half_open.path).or_default();
        let has_room = self.of_session.admits(others.len() as u64, 1);
        let too_many = others.front().copied().filter(|_| !has_room);
        others.push_back(id);
        self.by_age.push_back((half_open.begun_at, id));
        self.by_connection.insert(id, half_open);
        too_many.inspect(|id| drop(self.take(*id)));
    }

    /// The handshake that a third step belongs to. It stays until a third step has verified: anybody can send one.
    pub fn get_mut(&mut self, connection: u32, path: Path, now: Instant) -> Option<&mut HalfOpen<Said>> {
        self.by_connection.get_mut(&connection).filter(|half| half.path == path && !half.is_over(now))
    }

    /// Takes one out.
    pub fn take(&mut self, connection: u32) -> Option<HalfOpen<Said>> {
        let half_open = self.by_connection.remove(&connection)?;
        let session = (half_open.client, half_open.session);
        if let Some(paths) = self.by_session.get_mut(&session) {
            if let Some(others) = paths.get_mut(&half_open.path) {
                others.retain(|id| *id != connection);
            }
            paths.retain(|_, ids| !ids.is_empty());
            if paths.is_empty() {
                self.by_session.remove(&session);
            }
        }
        Some(half_open)
    }

    /// Takes out the handshake that has verified, and those of its session that began before: none of them may replace the connection
    /// any more, however late its third step is.
    pub fn establish(&mut self, connection: u32) -> Option<HalfOpen<Said>> {
        let half_open = self.take(connection)?;
        let others = self.by_session.get(&(half_open.client, half_open.session)).into_iter().flatten();
        let is_former = |id: &u32| {
            self.by_connection.get(id).is_some_and(|other| {
                other.begun_at <= half_open.begun_at || other.responder.first() == half_open.responder.first()
            })
        };
        let former: Vec<u32> = others.flat_map(|(_, ids)| ids).copied().filter(is_former).collect();
        former.into_iter().for_each(|id| drop(self.take(id)));
        Some(half_open)
    }

    /// Ends what a client has begun.
    pub fn forget(&mut self, client: ClientId) {
        let paths = self.by_session.range((client, 0)..=(client, u64::MAX)).flat_map(|(_, paths)| paths.values());
        paths.flatten().copied().collect::<Vec<u32>>().into_iter().for_each(|id| drop(self.take(id)));
    }

    /// Whether there are none, and none are remembered.
    pub fn is_empty(&self) -> bool {
        self.by_connection.is_empty() && self.by_session.is_empty() && self.by_age.is_empty()
    }

    /// Whether one may lead to this connection.
    pub fn has(&self, connection: u32) -> bool {
        self.by_connection.contains_key(&connection)
    }

    /// Ends those that are over: their secrets stay no longer than they are needed.
    pub fn expire(&mut self, now: Instant) {
        while let Some((begun_at, id)) = self.oldest()
            && now.saturating_since(begun_at) >= LIFETIME
        {
            self.take(id);
        }
    }

    /// How its quotas are used.
    pub fn usages(&self) -> [Usage; 2] {
        [&self.of_shard, &self.of_session].map(Account::usage)
    }

    /// When the next one is over.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        self.oldest().map(|(begun_at, _)| begun_at + LIFETIME)
    }

    fn oldest(&mut self) -> Option<(Instant, u32)> {
        while let Some((begun_at, id)) = self.by_age.front().copied() {
            if self.by_connection.get(&id).is_some_and(|half| half.begun_at == begun_at) {
                return Some((begun_at, id));
            }
            self.by_age.pop_front();
        }
        None
    }
}
