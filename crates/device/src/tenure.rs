//! Whether only one initiator has written: what it must know to write again, after the store has lost what was not flushed, what
//! it had written. Without that, an old write of its own could overwrite a newer one of another initiator.
//!
//! An initiator that reads the write verifier page is offered a tenure. With its first write it becomes the *holder*: that is made durable
//! before the write begins. From then on a write of any other initiator first ends the tenure, durably too; it waits for the holder's
//! writes that have begun, and those that the holder had given before it heard of that are refused (`3F 03`). So while the
//! holder is told the same tenure, through all restarts, no other initiator has written since it began.
//!
//! Where the end of a tenure cannot be made durable, no other initiator may write, and each is told so: a write that waited for an
//! administrator would look like a server that hangs.
//!
//! Two that write in turns would end each other's tenures without end: after the first time none gets one before it is alone.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_core::NexusId;

use crate::bell::RecordListener;
use crate::exclusion::{Claim, Lane, Permit};
use crate::unit_attention::{Nexuses, UnitAttention};
use crate::unit_exclusion::UnitExclusion;

/// What may become of writes that are complete and were not flushed.
#[derive(Clone, Debug)]
pub struct Volatility {
    /// Another one than before, if some may be lost.
    pub verifier: [u8; 16],
    /// A flush has failed before, and initiators that do not go by the verifier may not have heard of it.
    pub has_failed: bool,
    /// The tenure that was kept last.
    pub tenure: Option<Tenure>,
    /// Keeps tenures through restarts; without it there are none.
    pub keeper: Option<Arc<dyn TenureKeeper>>,
}

/// The initiator that writes alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tenure {
    /// Drawn for this tenure.
    pub id: [u8; 16],
    /// The initiator: see [`crate::LogicalUnits::name_writer`].
    pub writer: [u8; 16],
}

/// Where the tenure of one unit, and its verifier, are kept through restarts. It does not block: what is wanted becomes so later.
pub trait TenureKeeper: Send + Sync + Debug {
    /// From now on this is told whenever a wish has become durable, or should not be waited for any more.
    fn listen(&self, listener: RecordListener);

    /// A number that was never drawn before; `None` when there is none to be had.
    fn draw(&self) -> Option<[u8; 16]>;

    /// From now on this is to be kept, or none. Gives the number of the wish; later ones have greater numbers.
    fn want(&self, tenure: Option<Tenure>) -> u64;

    /// Whether the wish of this number, or a later one, is durable.
    fn is_kept(&self, wish: u64) -> bool;

    /// The verifier is this one from now on, also after a restart: a flush has failed.
    fn renew(&self, verifier: [u8; 16]);

    /// Whether what is wanted could not be made durable for so long that it should not be waited for any more.
    fn is_failing(&self) -> bool;
}

/// Every change may begin.
const OPEN: u64 = 0;
/// No change may begin before it was looked at.
const CLOSED: u64 = u64::MAX;

/// Whether a change may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Granted,
    /// Not yet: its claim must be entered again, behind the barrier.
    Later,
    /// It would end the tenure of an initiator that might find it again at the next start all the same, and then write again what
    /// it had written before this.
    Refused,
}

/// The tenures of a unit.
#[derive(Debug)]
pub(crate) struct Tenures {
    keeper: Option<Arc<dyn TenureKeeper>>,
    /// All that a write reads, as a rule: [`OPEN`], [`CLOSED`], or the holder's number.
    gate: AtomicU64,
    state: Mutex<TenureState>,
}

#[derive(Default, Debug)]
struct TenureState {
    holder: Option<Holder>,
    /// What initiators that have asked become with their first write.
    offers: BTreeMap<NexusId, Tenure>,
    /// The holder is another one, or none, when this is durable and all changes that had begun have ended.
    handover: Option<Handover>,
    /// Several have written at the same time.
    is_contended: bool,
}

#[derive(Debug)]
struct Holder {
    tenure: Tenure,
    /// `None` while it has not come back.
    nexus: Option<NexusId>,
}

#[derive(Debug)]
struct Handover {
    wish: u64,
    barrier: Permit,
    /// Whose tenure it ends.
    before: Option<Holder>,
}

fn gate_of(nexus: NexusId) -> u64 {
    nexus.0.wrapping_add(1)
}

impl Tenures {
    pub(crate) fn new(volatility: Option<Volatility>, exclusion: &UnitExclusion) -> Self {
        let (kept, keeper) = volatility.map_or((None, None), |Volatility { tenure, keeper, .. }| (tenure, keeper));
        keeper.iter().for_each(|keeper| keeper.listen(RecordListener::new(exclusion.bell())));
        let holder = kept.filter(|_| keeper.is_some()).map(|tenure| Holder { tenure, nexus: None });
        let state = TenureState { holder, ..TenureState::default() };
        Tenures { keeper, gate: AtomicU64::new(state.gate()), state: Mutex::new(state) }
    }

    /// The tenure of which the write verifier page tells this nexus, which is the writer of this name.
    pub(crate) fn offer(
        &self,
        nexus: NexusId,
        writer: [u8; 16],
        exclusion: &UnitExclusion,
        nexuses: &Nexuses,
    ) -> Option<Tenure> {
        let keeper = self.keeper.as_ref()?;
        self.settle(exclusion, nexuses);
        let is_alone = nexuses.count() <= 1;
        let mut state = self.lock();
        let is_back = |ended: &&mut Holder| ended.nexus.is_none() && ended.tenure.writer == writer;
        // If its tenure cannot be ended it has that again.
        state.ended().filter(is_back).into_iter().for_each(|ended| ended.nexus = Some(nexus));
        let (is_changing, is_refused) = (state.handover.is_some(), state.is_contended && !is_alone);
        let offered = state.offers.get(&nexus).copied();
        let told = match &mut state.holder {
            Some(holder) if holder.nexus == Some(nexus) => Some(holder.tenure),
            Some(Holder { nexus: Some(_), .. }) => None,
            Some(holder) if holder.tenure.writer == writer && !is_changing => {
                holder.nexus = Some(nexus);
                Some(holder.tenure)
            }
            _ if offered.is_some() => offered,
            _ if is_refused => None,
            _ => {
                state.is_contended = false;
                let tenure = Tenure { id: keeper.draw()?, writer };
                state.offers.insert(nexus, tenure);
                Some(tenure)
            }
        };
        self.publish(&state);
        told
    }

    /// Whether the nexus is the one that writes alone.
    pub(crate) fn is_holder(&self, nexus: NexusId) -> bool {
        self.gate.load(Ordering::SeqCst) == gate_of(nexus)
    }

    /// Whether a change by this nexus, whose claim is entered, may begin. `None`: it comes by a unit that is derived from this one. Whoever
    /// gives it there is another writer here, for what he writes by either is given again without the other.
    pub(crate) fn admits(&self, nexus: Option<NexusId>, exclusion: &UnitExclusion, nexuses: &Nexuses) -> Admission {
        if self.gate.load(Ordering::SeqCst) == OPEN {
            return Admission::Granted;
        }
        self.admits_now(nexus, exclusion, nexuses)
    }

    fn admits_now(&self, nexus: Option<NexusId>, exclusion: &UnitExclusion, nexuses: &Nexuses) -> Admission {
        let mut state = self.lock();
        if state.handover.is_some() {
            return Admission::Later;
        }
        let is_failing = || self.keeper.as_ref().is_some_and(|keeper| keeper.is_failing());
        let next = match &state.holder {
            Some(holder) if nexus.is_some() && holder.nexus == nexus => return Admission::Granted,
            Some(_) if is_failing() => return Admission::Refused,
            Some(Holder { nexus: Some(other), .. }) => {
                nexuses.raise_for(UnitAttention::InquiryChanged, std::iter::once(*other));
                state.is_contended = true;
                None
            }
            absent => {
                let offered = nexus.and_then(|nexus| state.offers.get(&nexus));
                let next = offered.map(|tenure| Holder { tenure: *tenure, nexus });
                let is_nobody = absent.is_none();
                state.is_contended |= next.is_none();
                if next.is_none() && is_nobody {
                    state.offers.clear();
                    self.publish(&state);
                    return Admission::Granted;
                }
                next
            }
        };
        self.hand_over(&mut state, next, exclusion);
        Admission::Later
    }

    fn hand_over(&self, state: &mut TenureState, next: Option<Holder>, exclusion: &UnitExclusion) {
        let Some(keeper) = &self.keeper else { return };
        let barrier = exclusion.enter(Claim::BARRIER, Lane::of(NexusId(0)));
        let wish = keeper.want(next.as_ref().map(|holder| holder.tenure));
        let before = std::mem::replace(&mut state.holder, next);
        state.handover = Some(Handover { wish, barrier, before });
        state.offers.clear();
        self.publish(state);
    }

    /// Lets changes begin again when a handover is durable, and those that had begun have ended; or when it cannot be made so:
    /// then the holder keeps the tenure.
    pub(crate) fn settle(&self, exclusion: &UnitExclusion, nexuses: &Nexuses) {
        let Some(keeper) = self.keeper.as_ref().filter(|_| self.gate.load(Ordering::SeqCst) == CLOSED) else { return };
        let mut state = self.lock();
        let is_over = |handover: &mut Handover| {
            exclusion.may_go(&handover.barrier) && (keeper.is_kept(handover.wish) || keeper.is_failing())
        };
        let Some(over) = state.handover.take_if(is_over) else { return };
        if let Some(before) = over.before.filter(|_| !keeper.is_kept(over.wish)) {
            let _ = keeper.want(Some(before.tenure));
            // It was told that its tenure is about to end.
            nexuses.raise_for(UnitAttention::InquiryChanged, before.nexus.into_iter());
            state.holder = Some(before);
        }
        self.publish(&state);
        exclusion.leave(&over.barrier);
    }

    /// Nobody has a tenure any more, since all content is another one: nothing that was written before is to be written again. To be
    /// called while no change can begin.
    pub(crate) fn end(&self) {
        let Some(keeper) = &self.keeper else { return };
        let mut state = self.lock();
        (state.holder, state.is_contended) = (None, false);
        state.offers.clear();
        state.handover.iter_mut().for_each(|handover| handover.before = None);
        let _ = keeper.want(None);
        self.publish(&state);
    }

    /// The nexus is gone; its tenure stays for when it comes back.
    pub(crate) fn forget(&self, nexus: NexusId) {
        if self.keeper.is_none() {
            return;
        }
        let mut state = self.lock();
        state.offers.remove(&nexus);
        let is_it = |holder: &&mut Holder| holder.nexus == Some(nexus);
        state.ended().filter(is_it).into_iter().for_each(|ended| ended.nexus = None);
        state.holder.as_mut().filter(is_it).into_iter().for_each(|holder| holder.nexus = None);
        self.publish(&state);
    }

    fn publish(&self, state: &TenureState) {
        self.gate.store(state.gate(), Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, TenureState> {
        // Nothing panics between two writes to the state: a poisoned one is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TenureState {
    /// Whose tenure is being ended.
    fn ended(&mut self) -> Option<&mut Holder> {
        self.handover.as_mut()?.before.as_mut()
    }

    fn gate(&self) -> u64 {
        match &self.holder {
            _ if self.handover.is_some() => CLOSED,
            Some(Holder { nexus: Some(nexus), .. }) => gate_of(*nexus),
            None if self.offers.is_empty() => OPEN,
            _ => CLOSED,
        }
    }
}
