//! What a unit and those that are derived from it remember of the tokens that they have made: each stands for blocks as they were when it
//! was made (SPC-4 5.17.6, SBC-4 4.28).
//!
//! Nothing is copied when a token is made. It stands for what the blocks hold as long as nobody changes them: before a change begins at
//! the store, every token of these blocks is cancelled, also when they are changed through another unit that has them. So whoever finds
//! a token valid after he has read has read what was there when it was made. Changes look at one word as long as there is no token.

mod coverage;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use sanwire_core::{Instant, Principal};
use sanwire_scsi::rod::{LIFETIME_S, NewToken, SECRET_BYTES, TOKEN_BYTES};
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{AdditionalSense, Capacity, Sense, SenseKey};

use self::coverage::Coverage;
use crate::abort_scope::UnitId;
use crate::range::Range;

/// The most tokens of one principal: one more ends that of them which nobody has used for the longest time.
pub(crate) const TOKENS_OF_PRINCIPAL_MAX: usize = 64;
/// The most tokens of a unit and those that are derived from it.
pub(crate) const TOKENS_MAX: usize = 256;
/// So many tokens that are valid no more are told from those that never were.
const GONE_MAX: usize = 256;
const LIFETIME: Duration = Duration::from_secs(LIFETIME_S as u64);
/// How often it is looked whether a token that is in use is so still.
const LOOK: Duration = Duration::from_secs(1);
/// The deadline of a table without tokens.
const NEVER: u64 = u64::MAX;

/// A secret that nobody else has: from it a unit makes what its tokens hold that cannot be guessed.
#[derive(Clone)]
pub struct TokenSeed([u8; 32]);

impl TokenSeed {
    /// Of random bytes, which are used for nothing else, and for one unit once.
    #[must_use]
    pub fn new(random: [u8; 32]) -> Self {
        TokenSeed(random)
    }
}

impl fmt::Debug for TokenSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSeed")
    }
}

/// The tokens of a unit that is derived from none, and of those that are derived from it.
#[derive(Debug)]
pub(crate) struct Tokens {
    /// How many are valid.
    count: AtomicUsize,
    /// When to look next whether any is over, in nanoseconds.
    deadline: AtomicU64,
    table: Mutex<Table>,
    has_seed: bool,
}

#[derive(Debug)]
struct Table {
    random: Option<ChaCha20Rng>,
    valid: Vec<Valid>,
    /// Where they stand for what is there.
    coverage: Coverage,
    /// The latest last.
    gone: VecDeque<Gone>,
}

#[derive(Debug)]
struct Valid {
    token: Arc<Token>,
    /// Since when nobody uses it; `None` while somebody does, and until it is looked at next.
    idle_since: Option<Instant>,
}

/// Of a token that is not valid any more: what its principal is told.
#[derive(Debug)]
struct Gone {
    id: u64,
    principal: Principal,
    end: End,
}

/// Why a token is not valid any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum End {
    /// Its data has changed, or it had to make room.
    Cancelled = 1,
    /// Its time was over.
    Expired = 2,
    /// Its initiator did not want it any more.
    Deleted = 3,
}

impl End {
    fn sense(self) -> Sense {
        let additional = match self {
            End::Cancelled => AdditionalSense::TOKEN_CANCELLED,
            End::Expired => AdditionalSense::TOKEN_EXPIRED,
            End::Deleted => AdditionalSense::TOKEN_DELETED,
        };
        Sense::new(SenseKey::IllegalRequest, additional)
    }
}

/// What stands for some blocks.
#[derive(Debug)]
pub(crate) struct Token {
    id: u64,
    bytes: Box<[u8; TOKEN_BYTES]>,
    origin: Origin,
    ends: Instant,
    /// Zero, or an [`End`].
    end: AtomicU8,
}

/// What a token is made of.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The unit that makes it, ...
    pub(crate) unit: UnitId,
    /// ... and what was in it.
    pub(crate) medium: u32,
    /// For whom: nobody else can use it.
    pub(crate) principal: Principal,
    /// The blocks by the numbers of the unit, in their order.
    pub(crate) ranges: Vec<Range>,
    /// The same in the unit at the end of the line.
    pub(crate) places: Vec<Range>,
    /// For how long it is kept while nobody uses it.
    pub(crate) inactivity: Duration,
}

impl Origin {
    pub(crate) fn length_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.length_bytes).sum()
    }
}

impl Token {
    /// What it stands for.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8; TOKEN_BYTES] {
        &self.bytes
    }

    /// Whether it still stands for what was there, in this medium of its unit. Asked after data was read.
    pub(crate) fn check(&self, medium: u32) -> Result<(), Sense> {
        let ended = |end: &End| *end as u8 == self.end.load(Ordering::SeqCst);
        let end = [End::Cancelled, End::Expired, End::Deleted].into_iter().find(ended);
        let end = end.or((medium != self.origin.medium).then_some(End::Cancelled));
        end.map_or(Ok(()), |end| Err(end.sense()))
    }

    fn is_of(&self, principal: &Principal) -> bool {
        self.origin.principal.is_same_as(principal)
    }

    fn stands_for_any_of(&self, changed: &Coverage) -> bool {
        self.origin.places.iter().any(|own| changed.covers(*own))
    }
}

impl Tokens {
    /// Without a seed no tokens are made.
    pub(crate) fn new(seed: Option<TokenSeed>) -> Tokens {
        let random = seed.map(|seed| ChaCha20Rng::from_seed(seed.0));
        Tokens {
            count: AtomicUsize::new(0),
            deadline: AtomicU64::new(NEVER),
            has_seed: random.is_some(),
            table: Mutex::new(Table {
                random,
                valid: Vec::new(),
                coverage: Coverage::default(),
                gone: VecDeque::new(),
            }),
        }
    }

    /// Whether tokens can be made.
    pub(crate) fn can_be_made(&self) -> bool {
        self.has_seed
    }

    /// Whether any is valid. A change that begins after one was made sees it: it was made while no change of its blocks was under way.
    pub(crate) fn are_there(&self) -> bool {
        self.count.load(Ordering::SeqCst) != 0
    }

    /// Makes one. It must not be made while its blocks are being changed.
    ///
    /// # Errors
    /// INSUFFICIENT RESOURCES TO CREATE ROD TOKEN: there are too many of others.
    pub(crate) fn make(
        &self,
        origin: Origin,
        (creator_naa, capacity, port): (u64, &Capacity, &TargetPort),
        now: Instant,
    ) -> Result<Arc<Token>, Sense> {
        let table = &mut *self.lock();
        table.make_room(&origin.principal)?;
        let Some(random) = &mut table.random else { return Err(NO_ROOM) };
        let mut secret = [0; SECRET_BYTES];
        random.fill_bytes(&mut secret);
        let id = random.next_u64();
        let length_bytes = origin.length_bytes();
        let bytes = NewToken { id, creator_naa, capacity, length_bytes, port, secret: &secret }.to_bytes();
        let token = Arc::new(Token { id, bytes: bytes.into(), origin, ends: now + LIFETIME, end: AtomicU8::new(0) });
        table.coverage.add(&token.origin.places);
        table.valid.push(Valid { token: Arc::clone(&token), idle_since: Some(now) });
        self.note(table, now);
        Ok(token)
    }

    /// The token that somebody brings, if it is valid and his. As long as the caller keeps it, it is in use.
    ///
    /// # Errors
    /// Why it is not valid. One that was made for somebody else was never made.
    pub(crate) fn find(
        &self,
        (id, bytes): (u64, &[u8; TOKEN_BYTES]),
        unit: UnitId,
        principal: &Principal,
        now: Instant,
    ) -> Result<Arc<Token>, Sense> {
        self.look(now);
        let table = &mut *self.lock();
        let is_it = |token: &Token| {
            token.id == id && token.origin.unit == unit && token.is_of(principal) && is_same(&token.bytes, bytes)
        };
        if let Some(valid) = table.valid.iter_mut().find(|valid| is_it(&valid.token)) {
            valid.idle_since = None;
            return Ok(Arc::clone(&valid.token));
        }
        let gone = table.gone.iter().find(|gone| gone.id == id && gone.principal.is_same_as(principal));
        Err(gone.map_or(UNKNOWN, |gone| gone.end.sense()))
    }

    /// These blocks are about to be changed.
    pub(crate) fn cancel(&self, places: &[Range]) {
        let table = &mut *self.lock();
        // Nearly all changes are of blocks for which no token stands.
        if !places.iter().any(|place| table.coverage.covers(*place)) {
            return;
        }
        let mut changed = Coverage::default();
        changed.add(places);
        self.end_those(table, End::Cancelled, |token| token.stands_for_any_of(&changed));
    }

    /// Its initiator does not want it any more.
    pub(crate) fn delete(&self, token: &Arc<Token>) {
        self.end_those(&mut self.lock(), End::Deleted, |other| std::ptr::eq(other, &**token));
    }

    /// Ends those whose time is over.
    pub(crate) fn look(&self, now: Instant) {
        if now.as_nanos() < self.deadline.load(Ordering::Relaxed) {
            return;
        }
        let table = &mut *self.lock();
        for valid in &mut table.valid {
            if Arc::strong_count(&valid.token) > 1 {
                valid.idle_since = None;
            } else {
                valid.idle_since.get_or_insert(now);
            }
        }
        let is_over = |valid: &Valid| valid.ends().is_some_and(|ends| ends <= now);
        table.end(End::Expired, is_over);
        self.note(table, now);
    }

    fn end_those(&self, table: &mut Table, end: End, is_meant: impl Fn(&Token) -> bool) {
        table.end(end, |valid| is_meant(&valid.token));
        self.count.store(table.valid.len(), Ordering::SeqCst);
        if table.valid.is_empty() {
            self.deadline.store(NEVER, Ordering::Relaxed);
        }
    }

    /// Notes how many there are, and when to look again.
    fn note(&self, table: &Table, now: Instant) {
        self.count.store(table.valid.len(), Ordering::SeqCst);
        let deadlines = table.valid.iter().map(|valid| valid.ends().unwrap_or(now + LOOK).as_nanos());
        self.deadline.store(deadlines.min().unwrap_or(NEVER), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Each change of it is made of steps that do not panic: a poisoned one is still whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const NO_ROOM: Sense =
    Sense::new(SenseKey::IllegalRequest, AdditionalSense::INSUFFICIENT_RESOURCES_TO_CREATE_ROD_TOKEN);
const UNKNOWN: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::TOKEN_UNKNOWN);

impl Valid {
    /// When it is over, if nobody uses it until then; `None` while somebody does.
    fn ends(&self) -> Option<Instant> {
        self.idle_since.map(|since| (since + self.token.origin.inactivity).min(self.token.ends))
    }
}

impl Table {
    /// SPC-4 5.17.6.7: a token may be cancelled to make room for another one; here for one of the same principal.
    fn make_room(&mut self, principal: &Principal) -> Result<(), Sense> {
        let of_principal = self.valid.iter().filter(|valid| valid.token.is_of(principal)).count();
        if of_principal < TOKENS_OF_PRINCIPAL_MAX && self.valid.len() < TOKENS_MAX {
            return Ok(());
        }
        let unused = self.valid.iter().filter(|valid| valid.token.is_of(principal));
        let unused = unused.filter(|valid| Arc::strong_count(&valid.token) == 1);
        let oldest = unused.min_by_key(|valid| valid.idle_since.unwrap_or(Instant::from_nanos(u64::MAX)));
        let id = oldest.map(|valid| valid.token.id).ok_or(NO_ROOM)?;
        self.end(End::Cancelled, |valid| valid.token.id == id);
        Ok(())
    }

    fn end(&mut self, end: End, is_meant: impl Fn(&Valid) -> bool) {
        let ended: Vec<Valid> = self.valid.extract_if(.., |valid| is_meant(valid)).collect();
        self.coverage.remove(ended.iter().flat_map(|valid| &valid.token.origin.places));
        for valid in ended {
            valid.token.end.store(end as u8, Ordering::SeqCst);
            if self.gone.len() == GONE_MAX {
                self.gone.pop_front();
            }
            self.gone.push_back(Gone { id: valid.token.id, principal: valid.token.origin.principal.clone(), end });
        }
    }
}

/// Takes as long for tokens that differ at their beginning as for those that do at their end.
fn is_same(one: &[u8; TOKEN_BYTES], other: &[u8; TOKEN_BYTES]) -> bool {
    one.iter().zip(other).fold(0, |differing, (one, other)| differing | (one ^ other)) == 0
}

#[cfg(test)]
mod tests;
