//! A nexus that sees logical units, and what is kept of it besides what the units keep that it has used.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwapOption;
use sanwire_core::{Lun, NexusId, Principal};

use crate::generation::{AtomicGeneration, Generation};
use crate::logical_unit::LogicalUnit;
use crate::nexus::NexusPorts;
use crate::unit_attention::UnitAttention;

/// An I_T nexus by which units are seen.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) nexus: NexusId,
    pub(crate) ports: Arc<NexusPorts>,
    /// When it came: units tell it of what happened to them since.
    pub(crate) joined: Generation,
    /// Which list of units it found when it came: what was added later it has not seen there.
    pub(crate) found: Generation,
    /// What its commands read.
    pub(crate) settled: Settled,
    state: Mutex<MemberState>,
}

#[derive(Default, Debug)]
pub(crate) struct MemberState {
    /// Who it is, where that is not what was known when it came.
    pub(crate) principal: Option<Principal>,
    /// What tells it from every other writer, also after a restart of the target.
    pub(crate) writer: Option<[u8; 16]>,
    /// Since when its units' media stay in, also those of units that it has not used.
    pub(crate) locked: Option<Generation>,
    /// The list of units that it has read last (REPORT LUNS).
    pub(crate) read: Generation,
    /// The units that know it.
    pub(crate) used: BTreeMap<Lun, Used>,
    /// It is a member no longer: no unit is to know it.
    pub(crate) is_gone: bool,
}

/// A unit that knows the nexus.
#[derive(Debug)]
pub(crate) struct Used {
    pub(crate) unit: Weak<LogicalUnit>,
    /// Of which change of the list it has been told there, or will be: the unit attention is established.
    pub(crate) list: Generation,
    /// The same of the access states.
    pub(crate) access: Generation,
}

impl Member {
    pub(crate) fn new(
        (nexus, ports): (NexusId, Arc<NexusPorts>),
        joined: Generation,
        found: Generation,
        state: MemberState,
    ) -> Self {
        Member { nexus, ports, joined, found, settled: Settled::default(), state: Mutex::new(state) }
    }

    pub(crate) fn locks_media(&self) -> bool {
        self.lock().locked.is_some()
    }

    /// See [`crate::LogicalUnits::lock_media`].
    pub(crate) fn lock_media(&self, is_locked: bool) {
        let mut state = self.lock();
        // Resets may have unlocked the media of some units: an initiator that asks again locks them again.
        if is_locked || state.locked.is_some() {
            state.locked = is_locked.then(Generation::next);
            for unit in state.used.values().filter_map(|used| used.unit.upgrade()) {
                unit.prevent_removal(self.nexus, is_locked);
            }
        }
    }

    /// Who it is.
    pub(crate) fn principal(&self) -> Principal {
        self.lock().principal.as_ref().unwrap_or(&self.ports.principal).clone()
    }

    /// It turns out to be this one: units are to ask again whether they admit it.
    pub(crate) fn identify(&self, principal: Principal) {
        let mut state = self.lock();
        state.principal = Some(principal);
        for unit in state.used.values().filter_map(|used| used.unit.upgrade()) {
            unit.derived().iter().for_each(|derived| derived.users.forget(self.nexus));
        }
    }

    /// It has read this list of units, of whose changes no unit need tell it any more.
    pub(crate) fn has_read(&self, list: Generation) {
        let mut state = self.lock();
        state.read = state.read.max(list);
        for used in state.used.values().filter(|used| used.list <= list) {
            if let Some(unit) = used.unit.upgrade() {
                unit.nexuses.clear(UnitAttention::LunsChanged, self.nexus);
            }
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, MemberState> {
        // Nothing panics between two writes to the state: a poisoned one is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemberState {
    /// Whether the unit admits it, which has these ports.
    pub(crate) fn is_admitted_by(&self, unit: &LogicalUnit, ports: &NexusPorts) -> bool {
        unit.derived().is_none() || unit.admits(self.principal.as_ref().unwrap_or(&ports.principal))
    }
}

impl Used {
    pub(crate) fn is(&self, unit: &Arc<LogicalUnit>) -> bool {
        std::ptr::eq(self.unit.as_ptr(), Arc::as_ptr(unit))
    }

    /// The unit is to know the nexus no longer.
    pub(crate) fn forget(self, nexus: NexusId) {
        self.unit.upgrade().into_iter().for_each(|unit| unit.forget(nexus));
    }
}

/// With which units nothing has to be settled before a command begins: each knows the nexus, and of what was changed in the list
/// and in the access states, until these generations, the nexus is told there.
#[derive(Debug)]
pub(crate) struct Settled {
    list: AtomicGeneration,
    access: AtomicGeneration,
    /// A bit for each number.
    units: [AtomicU64; (Lun::MAX as usize + 1) / u64::BITS as usize],
}

impl Default for Settled {
    fn default() -> Self {
        Settled {
            list: AtomicGeneration::default(),
            access: AtomicGeneration::default(),
            units: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Settled {
    /// Whether a command for the unit that has this number in this list can begin. Without a lock.
    pub(crate) fn has(&self, lun: Lun, list: Generation, access: Generation) -> bool {
        let (word, bit) = place(lun);
        self.list.load() == list && self.access.load() == access && self.units[word].load(Ordering::Acquire) & bit != 0
    }

    /// From now on it is about these. Only while the member is locked.
    pub(crate) fn turn_to(&self, list: Generation, access: Generation) {
        if self.list.load() != list || self.access.load() != access {
            self.units.iter().for_each(|units| units.store(0, Ordering::Release));
            self.list.store(list);
            self.access.store(access);
        }
    }

    /// Only while the member is locked.
    pub(crate) fn set(&self, lun: Lun) {
        let (word, bit) = place(lun);
        self.units[word].fetch_or(bit, Ordering::Release);
    }
}

fn place(lun: Lun) -> (usize, u64) {
    (usize::from(lun.number()) / u64::BITS as usize, 1 << (lun.number() % u64::BITS as u16))
}

/// The nexuses of a view: read by every command, without a lock.
#[derive(Default, Debug)]
pub(crate) struct Members([ArcSwapOption<Vec<Arc<Member>>>; Members::SHARDS]);

impl Members {
    /// A login copies one of so many lists.
    const SHARDS: usize = 16;

    fn shard(&self, nexus: NexusId) -> &ArcSwapOption<Vec<Arc<Member>>> {
        // Numbers of nexuses follow one another, or end in the same digits.
        let mixed = nexus.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(mixed >> 32) as usize % Self::SHARDS]
    }

    /// What `asked` finds out of a nexus that is there.
    pub(crate) fn with<T>(&self, nexus: NexusId, asked: impl FnOnce(&Arc<Member>) -> T) -> Option<T> {
        let members = self.shard(nexus).load();
        let members = members.as_ref()?;
        let at = members.binary_search_by_key(&nexus, |member| member.nexus).ok()?;
        Some(asked(&members[at]))
    }

    pub(crate) fn get(&self, nexus: NexusId) -> Option<Arc<Member>> {
        self.with(nexus, Arc::clone)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|shard| shard.load().is_none())
    }

    pub(crate) fn for_each(&self, mut each: impl FnMut(&Arc<Member>)) {
        for shard in &self.0 {
            shard.load_full().iter().flat_map(|members| members.iter()).for_each(&mut each);
        }
    }

    /// One thread at a time: see [`super::view::View`].
    pub(crate) fn insert(&self, member: Arc<Member>) {
        let shard = self.shard(member.nexus);
        let mut members = shard.load().as_ref().map_or_else(Vec::new, |members| members.to_vec());
        let at = members.partition_point(|other| other.nexus < member.nexus);
        members.insert(at, member);
        shard.store(Some(Arc::new(members)));
    }

    /// One thread at a time.
    pub(crate) fn remove(&self, nexus: NexusId) -> Option<Arc<Member>> {
        let member = self.get(nexus)?;
        let shard = self.shard(nexus);
        let members = shard.load();
        let left = members.iter().flat_map(|members| members.iter()).filter(|other| other.nexus != nexus);
        let left: Vec<_> = left.map(Arc::clone).collect();
        shard.store((!left.is_empty()).then(|| Arc::new(left)));
        Some(member)
    }
}
