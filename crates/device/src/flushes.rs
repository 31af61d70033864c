//! Flushes that have failed, and which nexuses have not heard of that yet.
//!
//! A store says once that it has not made stable what was written: Linux tells it to the next flush of an open file, lets go of the
//! data, and calls the flush after that a success. But the data may be of any initiator, and the one that flushed may have been
//! answered before, or be gone. So a unit counts the flushes that failed, and the next flush of each nexus that has not heard of the last one fails
//! too, and with it all that the nexus gives before the answer is known to have arrived (its [`Receipt`]): which of several answers
//! comes first cannot be known, and one may be lost with its connection. An initiator that reads the write verifier page, and says that
//! it heeds it, hears of it there: the verifier is another one after each failure.
//!
//! Units that share blocks share the store, and so its flushes: each has its [`UnitFlushes`] of one [`Flushes`]. A nexus hears of a failure
//! by each unit that it uses, since it may have another file system there. A unit may be made anew on the same blocks, by the same name:
//! who used it before is told what it has missed.
//!
//! Of two that are at the store together one may have the error of both, and it may be known here after the other's success. So a
//! success counts only when all that had begun before it have ended, and none has failed meanwhile: also of those of its own nexus,
//! which may serve several file systems.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_core::NexusId;
use sanwire_scsi::Receipt;
use sanwire_scsi::reservation::TransportId;
use sanwire_store::{Completion, ErrorKind, StoreError};

use crate::abort_scope::UnitId;
use crate::nexus::NexusPorts;
use crate::tenure::{TenureKeeper, Volatility};

/// Of so many initiator ports that are away it is remembered what they have heard.
const AWAY_MAX: usize = 256;
/// Of so many units that are gone it is remembered what those have heard who used them.
const GONE_MAX: usize = 1024;
/// So many answers to one nexus, the last of those that told of failures, are looked for.
const TOLD_MAX: usize = 64;

/// What an initiator is told, and the receipt of that answer if it tells of failures.
pub(crate) type Told<T> = (T, Option<Receipt>);

/// The flushes of a store.
#[derive(Debug)]
struct Flushes {
    /// The one before any failure; `None`: the page tells of none.
    verifier: Option<[u8; 16]>,
    /// Where a later one is kept.
    keeper: Option<Arc<dyn TenureKeeper>>,
    state: Mutex<FlushState>,
}

#[derive(Default, Debug)]
struct FlushState {
    failures: u64,
    /// How many of them were before this run: no nexus has heard of these.
    before: u64,
    units: BTreeMap<UnitId, Audience>,
    /// By their names, the last of those that are there.
    named: BTreeMap<[u8; 16], UnitId>,
    /// The names of units that are gone, and of how many failures all had heard who used one; the one that went last is at the end.
    gone: VecDeque<([u8; 16], u64)>,
    /// How many flushes have begun.
    begun: u64,
    under_way: Vec<Option<Flush>>,
}

/// Those who must hear of failures by one unit.
#[derive(Debug)]
struct Audience {
    /// The name of the unit.
    name: [u8; 16],
    /// There was such a unit before: of how many failures all had heard who used that.
    former: Option<u64>,
    listeners: BTreeMap<NexusId, Listener>,
    /// Initiator ports that may come back, each as often as it had nexuses, and how many failures these had heard of; the one that left
    /// last is at the end.
    away: VecDeque<(TransportId, u64)>,
}

#[derive(Clone, Copy, Debug)]
enum Flush {
    /// What it is to make stable is being written, since so many failures: a later one may have taken that along.
    Ahead { failures: u64 },
    /// The store does it; it was the one of this number that began. Its nexus had heard of so many failures when it gave the flush;
    /// if it is of none, it began after so many.
    Working { number: u64, failures: u64 },
    /// The store has done it when so many had begun; `failures` as before.
    Done { begun: u64, failures: u64 },
}

#[derive(Debug)]
struct Listener {
    ports: Arc<NexusPorts>,
    /// Of how many failures the nexus that it continues had heard.
    before: u64,
    /// Which answers told it of failures, and of how many: the last of these.
    told: VecDeque<(Receipt, u64)>,
    /// Of how many it has heard for certain: it has given a command since. An initiator that comes back from the same port is told
    /// of the others once more, for the answer may have been lost with the connection.
    heard: u64,
    /// It heeds the write verifier page: it looks there when it is told to.
    reads_page: bool,
}

/// The flushes of the store on which a unit stands, and who must hear of them by this unit.
#[derive(Debug)]
pub(crate) struct UnitFlushes {
    shared: Arc<Flushes>,
    unit: UnitId,
}

impl Drop for UnitFlushes {
    fn drop(&mut self) {
        self.shared.lock().take_out(self.unit);
    }
}

impl UnitFlushes {
    /// Those of a unit of this name on a store of its own.
    pub(crate) fn new((unit, name): (UnitId, [u8; 16]), volatility: Option<&Volatility>) -> Self {
        let before = volatility.map_or(0, |kept| u64::from(kept.has_failed));
        // That it has failed is in the verifier already.
        let verifier = volatility.map(|kept| verifier_before(kept.verifier, before));
        let keeper = volatility.and_then(|kept| kept.keeper.clone());
        let mut state = FlushState { before, failures: before, ..FlushState::default() };
        state.take_in(unit, name);
        UnitFlushes { shared: Arc::new(Flushes { verifier, keeper, state: Mutex::new(state) }), unit }
    }

    /// Those of another unit on the same store.
    pub(crate) fn of_part(&self, unit: UnitId, name: [u8; 16]) -> Self {
        self.lock().take_in(unit, name);
        UnitFlushes { shared: Arc::clone(&self.shared), unit }
    }

    fn lock(&self) -> MutexGuard<'_, FlushState> {
        self.shared.lock()
    }

    /// Whether writes that are complete may be lost before they are flushed.
    pub(crate) fn is_volatile(&self) -> bool {
        self.shared.verifier.is_some()
    }

    /// Whether one has failed in this run.
    pub(crate) fn have_failed(&self) -> bool {
        let state = self.lock();
        state.failures > state.before
    }

    /// Takes in a nexus, which has written nothing yet; but one that comes back from the same port may have, and so may any before
    /// this run.
    pub(crate) fn establish(&self, nexus: NexusId, ports: Arc<NexusPorts>) {
        let state = &mut *self.lock();
        let (before, failures) = (state.before, state.failures);
        let Some(audience) = state.units.get_mut(&self.unit) else { return };
        if !audience.listeners.contains_key(&nexus) {
            let initiator = &ports.initiator;
            let came_back = audience.come_back(initiator);
            let heard = came_back.unwrap_or_else(|| audience.heard_by_newcomer(initiator, before, failures));
            audience
                .listeners
                .insert(nexus, Listener { ports, before: heard, told: VecDeque::new(), heard, reads_page: false });
        }
    }

    pub(crate) fn forget(&self, nexus: NexusId) {
        let state = &mut *self.lock();
        let Some(audience) = state.units.get_mut(&self.unit) else { return };
        let Some(Listener { ports, heard, .. }) = audience.listeners.remove(&nexus) else { return };
        if audience.away.len() == AWAY_MAX {
            audience.away.pop_front();
        }
        audience.away.push_back((ports.initiator.clone(), heard));
    }

    /// The verifier as it is now, for a nexus that heeds it, with the receipt of the answer if that tells of failures; `None` when
    /// there is none.
    pub(crate) fn tell_verifier(&self, nexus: NexusId) -> Option<Told<[u8; 16]>> {
        let first = self.shared.verifier?;
        let state = &mut *self.lock();
        let failures = state.failures;
        let receipt = state.listener(self.unit, nexus).and_then(|listener| {
            listener.reads_page = true;
            listener.tell(failures)
        });
        Some((verifier_after(first, failures), receipt))
    }

    /// The verifier as it is now.
    pub(crate) fn verifier(&self) -> Option<[u8; 16]> {
        self.shared.verifier.map(|first| verifier_after(first, self.lock().failures))
    }

    /// Something is written that a flush makes stable after it: the place of that flush, until [`Flushes::end`].
    pub(crate) fn expect(&self) -> u32 {
        let state = &mut *self.lock();
        state.put(Flush::Ahead { failures: state.failures })
    }

    /// A flush begins, by this nexus if it is of one, which had the answers up to this receipt when it gave the flush; at its place
    /// if it has one: its place until [`Flushes::end`].
    pub(crate) fn begin(&self, by: Option<(NexusId, u64)>, place: Option<u32>) -> u32 {
        let state = &mut *self.lock();
        state.begun += 1;
        let mut failures = state.failures;
        if let Some((nexus, receipts)) = by
            && let Some(listener) = state.listener(self.unit, nexus)
        {
            failures = listener.heard_with(receipts);
        }
        let own = place.and_then(|at| state.under_way.get_mut(at as usize)?.take());
        if let Some(Flush::Ahead { failures: before }) = own {
            failures = failures.min(before);
        }
        state.put(Flush::Working { number: state.begun, failures })
    }

    /// Whether the success of the flush at this place counts: none that began before it ended can fail any more.
    pub(crate) fn may_succeed(&self, place: u32) -> bool {
        let state = &mut *self.lock();
        let Some(flush) = state.under_way.get_mut(place as usize).and_then(Option::as_mut) else { return true };
        let (before, failures) = match *flush {
            Flush::Ahead { failures } | Flush::Working { failures, .. } => (state.begun, failures),
            Flush::Done { begun, failures } => (begun, failures),
        };
        *flush = Flush::Done { begun: before, failures };
        let is_waited_for = |other: &Flush| matches!(*other, Flush::Working { number, .. } if number <= before);
        !state.under_way.iter().flatten().any(is_waited_for)
    }

    /// The flush at this place is over, and what it means was noted.
    pub(crate) fn end(&self, place: u32) {
        self.lock().under_way.get_mut(place as usize).into_iter().for_each(|flush| *flush = None);
    }

    /// A flush has failed, and this nexus is told. Gives the receipt of the answer.
    #[must_use]
    pub(crate) fn failed(&self, told: Option<NexusId>) -> Option<Receipt> {
        let state = &mut *self.lock();
        state.failures += 1;
        let failures = state.failures;
        let listener = told.and_then(|nexus| state.listener(self.unit, nexus));
        let receipt = listener.and_then(|listener| listener.tell(failures));
        if let (Some(first), Some(keeper)) = (self.shared.verifier, &self.shared.keeper) {
            keeper.renew(verifier_after(first, failures));
        }
        receipt
    }

    /// Those that are to look at the page again when a flush has failed.
    pub(crate) fn readers(&self) -> Vec<NexusId> {
        let state = self.lock();
        let listeners = state.units.get(&self.unit).into_iter().flat_map(|audience| &audience.listeners);
        listeners.filter(|(_, listener)| listener.reads_page).map(|(nexus, _)| *nexus).collect()
    }

    /// The flush at this place has succeeded: what this nexus is told, if it is one's, and the receipt of the answer if that tells of
    /// failures.
    pub(crate) fn succeeded(&self, by: Option<NexusId>, place: u32, completion: Completion) -> Told<Completion> {
        let state = &mut *self.lock();
        let known = match state.under_way.get(place as usize).copied().flatten() {
            Some(Flush::Ahead { failures } | Flush::Working { failures, .. } | Flush::Done { failures, .. }) => {
                failures
            }
            None => state.failures,
        };
        if known == state.failures {
            return (completion, None);
        }
        let failures = state.failures;
        let listener = by.and_then(|nexus| state.listener(self.unit, nexus));
        let receipt = listener.and_then(|listener| listener.tell(failures));
        (Err(StoreError::new(ErrorKind::Unwritable, 0)), receipt)
    }
}

impl Flushes {
    fn lock(&self) -> MutexGuard<'_, FlushState> {
        // Nothing panics between two writes to the state: a poisoned one is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener {
    /// An answer tells it of so many failures: the receipt of that, unless it has heard of them.
    fn tell(&mut self, failures: u64) -> Option<Receipt> {
        if self.heard == failures {
            return None;
        }
        if self.told.len() == TOLD_MAX {
            let first = self.told.pop_front().map(|(_, failures)| failures);
            self.before = first.filter(|failures| *failures <= self.heard).unwrap_or(self.before);
        }
        let receipt = Receipt::default();
        self.told.push_back((receipt.clone(), failures));
        Some(receipt)
    }

    /// Of how many failures it had heard when it gave a command and had the answers up to this receipt.
    fn heard_with(&mut self, receipts: u64) -> u64 {
        let had = self.told.iter().rev().find(|(receipt, _)| receipt.is_among(receipts));
        let heard = had.map_or(self.before, |(_, failures)| *failures);
        self.heard = self.heard.max(heard);
        heard
    }
}

impl FlushState {
    fn take_in(&mut self, unit: UnitId, name: [u8; 16]) {
        let at = self.gone.iter().position(|(gone, _)| *gone == name);
        let gone = at.and_then(|at| self.gone.remove(at)).map(|(_, heard)| heard);
        // A command may hold one that is taken back already.
        let there = self.named.get(&name).and_then(|unit| self.units.get(unit)).and_then(Audience::least_heard);
        let former = gone.into_iter().chain(there).min();
        let (listeners, away) = Default::default();
        self.units.insert(unit, Audience { name, former, listeners, away });
        self.named.insert(name, unit);
    }

    fn take_out(&mut self, unit: UnitId) {
        let Some(audience) = self.units.remove(&unit) else { return };
        // Else there is another one of its name, which knows.
        if self.named.get(&audience.name) != Some(&unit) {
            return;
        }
        self.named.remove(&audience.name);
        let Some(heard) = audience.least_heard() else { return };
        if self.gone.len() == GONE_MAX {
            self.gone.pop_front();
        }
        self.gone.push_back((audience.name, heard));
    }

    fn listener(&mut self, unit: UnitId, nexus: NexusId) -> Option<&mut Listener> {
        self.units.get_mut(&unit)?.listeners.get_mut(&nexus)
    }

    /// Its place.
    fn put(&mut self, flush: Flush) -> u32 {
        let at = self.under_way.iter().position(Option::is_none).unwrap_or(self.under_way.len());
        match self.under_way.get_mut(at) {
            Some(place) => *place = Some(flush),
            None => self.under_way.push(Some(flush)),
        }
        at as u32
    }
}

impl Audience {
    /// Of how many failures all have heard who use the unit, or did; `None` when nobody does.
    fn least_heard(&self) -> Option<u64> {
        let there = self.listeners.values().map(|listener| listener.heard);
        there.chain(self.away.iter().map(|(_, heard)| *heard)).chain(self.former).min()
    }

    /// Of how many failures a nexus has heard that comes from a port of which nothing is known. The initiator may have been here before
    /// this run, or before the unit was made anew; what was then another one of its ports has heard. And it may go on for another port:
    /// what none of these has heard is new to it too.
    fn heard_by_newcomer(&self, initiator: &TransportId, before: u64, failures: u64) -> u64 {
        let there = self.listeners.values().map(|listener| (&listener.ports.initiator, listener.heard));
        let known = there.chain(self.away.iter().map(|(port, heard)| (port, *heard)));
        let most = known.filter(|(port, _)| port.is_of_device_of(initiator)).map(|(_, heard)| heard).max();
        match most {
            Some(heard) if heard >= before => heard,
            Some(_) => 0,
            None => self.former.unwrap_or(if before == 0 { failures } else { 0 }),
        }
    }

    /// Of how many failures a nexus of this port has heard that may be the one that comes: one that is away, or has not been missed
    /// yet. `None` when there is none. Which of several it is cannot be known, programs of one host perhaps: so each is told what any
    /// of them has missed.
    fn come_back(&mut self, initiator: &TransportId) -> Option<u64> {
        let there = self.listeners.values().filter(|listener| listener.ports.initiator == *initiator);
        let of_port = || self.away.iter().enumerate().filter(|(_, (away, _))| away == initiator);
        let least = of_port().map(|(_, (_, heard))| *heard).chain(there.map(|listener| listener.heard)).min();
        let most = of_port().max_by_key(|(_, (_, heard))| *heard).map(|(at, _)| at);
        most.and_then(|at| self.away.remove(at));
        least
    }
}

/// The one of which [`verifier_after`] makes this one.
fn verifier_before(now: [u8; 16], failures: u64) -> [u8; 16] {
    u128::from_be_bytes(now).wrapping_sub(failures.into()).to_be_bytes()
}

/// Another one for each number of failures, and, since the first one is random, than any other volume or run has.
fn verifier_after(first: [u8; 16], failures: u64) -> [u8; 16] {
    u128::from_be_bytes(first).wrapping_add(failures.into()).to_be_bytes()
}
