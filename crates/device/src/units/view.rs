//! What nexuses see: units by their numbers, and the nexuses that see them.
//!
//! A unit keeps nothing for a nexus before that uses it. What the nexus must be told then follows from generations: when it came,
//! when the unit got its number, and when something was last established for all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::{ArcSwap, Guard};
use sanwire_core::limits::LUNS_MAX;
use sanwire_core::{Lun, NexusId};
use sanwire_scsi::Identity;
use sanwire_scsi::vpd::{Designation, Designator};

use super::inventory::{AddError, Difference, Entry, Inventory};
use super::member::{Member, MemberState, Members, Used};
use crate::abort_scope::UnitId;
use crate::generation::{AtomicGeneration, Generation, LastRaised};
use crate::logical_unit::LogicalUnit;
use crate::nexus::NexusPorts;
use crate::unit_attention::{Met, UnitAttention};
use crate::viewers::{UnitView, Wanted, push};

/// A part of a view sees some of its units, by the same numbers.
#[derive(Default, Debug)]
pub(crate) struct View {
    /// Read by every command, without a lock; replaced as a whole.
    inventory: ArcSwap<Inventory>,
    pub(crate) members: Members,
    /// Held while the inventory changes, and while members come and go.
    changing: Mutex<Changing>,
    /// The numbers of its units by what they are called; a part asks the whole.
    names: Mutex<Names>,
    whole: Option<Arc<View>>,
    parts: Mutex<Vec<Weak<View>>>,
    /// Those of its units that meet nexuses when they come.
    watchful: Mutex<Vec<(Lun, Weak<LogicalUnit>)>>,
    /// When the access states of its ports were changed. That of the whole counts.
    access_changed: AtomicGeneration,
    access: Mutex<LastRaised>,
}

/// The numbers of units by what they are called.
#[derive(Default, Debug)]
struct Names {
    by_name: BTreeMap<Box<str>, Lun>,
    by_designation: BTreeSet<(Designation, Lun)>,
}

impl Names {
    fn remove(&mut self, lun: Lun, unit: &Identity) {
        if self.by_name.get(unit.name()) == Some(&lun) {
            self.by_name.remove(unit.name());
        }
        Designation::all_of(unit).iter().for_each(|designation| _ = self.by_designation.remove(&(*designation, lun)));
    }

    fn insert(&mut self, lun: Lun, unit: &Identity) {
        self.by_name.insert(unit.name().into(), lun);
        self.by_designation.extend(Designation::all_of(unit).map(|designation| (designation, lun)));
    }
}

#[derive(Default, Debug)]
pub(super) struct Changing {
    /// Its inventory has always been that of the whole.
    pub(super) is_whole: bool,
}

impl View {
    pub(super) fn part_of(whole: Arc<View>) -> Arc<View> {
        let part = Arc::new(View { whole: Some(Arc::clone(&whole)), ..View::default() });
        push(&whole.parts, Arc::downgrade(&part), |part| part.strong_count() > 0);
        part
    }

    /// The units as they are now.
    pub(crate) fn inventory(&self) -> Guard<Arc<Inventory>> {
        self.inventory.load()
    }

    /// The unit of this name, with its number.
    pub(super) fn find_named(&self, name: &str) -> Option<(Lun, Arc<LogicalUnit>)> {
        let lun = *self.whole().lock_names().by_name.get(name)?;
        let inventory = self.inventory();
        // A change may be under way.
        let entry = inventory.get(lun).filter(|entry| entry.unit.identity().name() == name)?;
        Some((lun, Arc::clone(&entry.unit)))
    }

    /// The units that a designator names.
    pub(super) fn find_designated(&self, designator: &Designator) -> Vec<Arc<LogicalUnit>> {
        let Some(designation) = Designation::of(designator) else { return Vec::new() };
        let numbers = (designation, Lun::default())..=(designation, Lun::new(LUNS_MAX as u16 - 1).unwrap_or_default());
        let luns: Vec<Lun> = self.whole().lock_names().by_designation.range(numbers).map(|(_, lun)| *lun).collect();
        let inventory = self.inventory();
        let units = luns.into_iter().filter_map(|lun| Some(Arc::clone(&inventory.get(lun)?.unit)));
        units.filter(|unit| unit.identity().is_named(designator)).collect()
    }

    fn lock_names(&self) -> MutexGuard<'_, Names> {
        // It is whole between any two changes.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Changing> {
        // It is one bit.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The view of which this is a part, or this one.
    pub(super) fn whole(&self) -> &View {
        self.whole.as_deref().unwrap_or(self)
    }

    /// Sees to it that the unit which the inventory has under this number knows the nexus, if that is a member, and tells it what it
    /// must be told there. It takes a lock only when something is new.
    pub(crate) fn settle(&self, nexus: NexusId, lun: Lun, inventory: &Inventory, unit: UnitId) {
        self.members.with(nexus, |member| {
            if !member.settled.has(lun, inventory.changed(), self.whole().access_changed.load()) {
                self.settle_now(member, lun, unit);
            }
        });
    }

    fn settle_now(&self, member: &Member, lun: Lun, unit: UnitId) {
        let mut state = member.lock();
        if state.is_gone {
            return;
        }
        // The inventory that the command has found may be an older one. Under the lock there is none older than the last that was
        // settled.
        let inventory = self.inventory.load();
        member.settled.turn_to(inventory.changed(), self.whole().access_changed.load());
        let Some(entry) = inventory.get(lun).filter(|entry| entry.is(unit)) else { return };
        if !state.is_admitted_by(&entry.unit, &member.ports) {
            return;
        }
        self.acquaint(member, &mut state, (lun, entry), &inventory);
        member.settled.set(lun);
        // A change that has taken the unit out meanwhile may not have found the nexus there.
        if !self.inventory.load().get(lun).is_some_and(|entry| entry.is(unit)) {
            state.used.remove(&lun);
            entry.unit.forget(member.nexus);
        }
    }

    /// Makes the nexus known to a unit, and establishes there what changed in this view since it was last told.
    pub(super) fn acquaint(
        &self,
        member: &Member,
        state: &mut MemberState,
        (lun, entry): (Lun, &Entry),
        inventory: &Inventory,
    ) {
        let (nexus, since) = (member.nexus, member.joined.max(entry.added));
        let used = state.used.entry(lun).or_insert_with(|| {
            let is_unseen = entry.added > member.found;
            let locked = state.locked.map(|at| at.max(entry.added));
            entry.unit.establish(nexus, &member.ports, Met { since, is_unseen, locked });
            Used { unit: Arc::downgrade(&entry.unit), list: member.found.max(entry.added), access: since }
        });
        if inventory.changed() > used.list {
            let is_read = state.read >= inventory.changed();
            used.list = inventory.changed();
            if !is_read {
                entry.unit.nexuses.raise_for(UnitAttention::LunsChanged, std::iter::once(nexus));
            }
        }
        let access = self.access_changed_for(nexus);
        if access > used.access {
            used.access = access;
            entry.unit.nexuses.raise_for(UnitAttention::AccessStateChanged, std::iter::once(nexus));
        }
    }

    /// The same as [`UnitView::acquaint_with`], without the parts.
    fn acquaint_members(&self, lun: Lun, unit: UnitId, wanted: &Wanted<'_>) {
        let is_wanted = |member: &Member| match wanted {
            Wanted::All => true,
            Wanted::Nexus(nexus) => member.nexus == *nexus,
            Wanted::MediaLocked => member.locks_media(),
            Wanted::Ports(are_wanted) => are_wanted(&member.ports),
        };
        let settle = |member: &Arc<Member>| {
            if is_wanted(member) {
                self.settle_now(member, lun, unit);
            }
        };
        match wanted {
            Wanted::Nexus(nexus) => _ = self.members.with(*nexus, settle),
            _ => self.members.for_each(settle),
        }
    }

    /// The states of the port groups have changed: every nexus of this view and of its parts but one is to be told, by every unit.
    pub(crate) fn raise_access_changed(&self, except: Option<NexusId>) {
        let mut access = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        access.note(except);
        self.access_changed.store(Generation::next());
    }

    pub(super) fn access_changed_for(&self, nexus: NexusId) -> Generation {
        self.whole().access.lock().unwrap_or_else(PoisonError::into_inner).for_nexus(nexus)
    }

    /// Takes these units out, and those in.
    pub(super) fn change(
        self: &Arc<Self>,
        removed: &[Lun],
        added: Vec<(Lun, Arc<LogicalUnit>)>,
    ) -> Result<(), AddError> {
        if removed.is_empty() && added.is_empty() {
            return Ok(());
        }
        let mut changing = self.lock();
        let before = self.inventory.load_full();
        let after = before.changed_by(removed, added)?;
        changing.is_whole = false;
        if moves_a_unit(&before.differences(&after)) {
            // Under the new number it is another unit for those that knew it under the old one.
            self.replace(Arc::new(before.changed_by(removed, Vec::new())?));
        }
        self.replace(Arc::new(after));
        Ok(())
    }

    /// Has a part share the inventory of the whole; `false` if that must not be, because there are nexuses that have seen another one.
    pub(super) fn become_whole(self: &Arc<Self>, whole: &View) -> bool {
        let mut changing = self.lock();
        let (before, after) = (self.inventory.load_full(), whole.inventory.load_full());
        changing.is_whole |= self.members.is_empty();
        let is_whole = changing.is_whole && (self.members.is_empty() || !moves_a_unit(&before.differences(&after)));
        if is_whole {
            self.replace(after);
        }
        is_whole
    }

    /// Replaces the inventory. The lock is held.
    pub(super) fn replace(self: &Arc<Self>, after: Arc<Inventory>) {
        if self.whole.is_some() && self.members.is_empty() {
            return self.inventory.store(after);
        }
        let before = self.inventory.load_full();
        let differences = before.differences(&after);
        if self.whole.is_none() {
            let arriving = differences.iter().filter_map(|there| Some((there.lun, there.after?)));
            arriving.for_each(|(lun, entry)| entry.unit.viewers.enter(Arc::downgrade(self) as Weak<dyn UnitView>, lun));
        }
        self.inventory.store(Arc::clone(&after));
        self.rename(&differences);
        for there in &differences {
            if let Some(entry) = there.before {
                self.take_leave(there.lun, &entry.unit);
            }
            if let Some(entry) = there.after.filter(|entry| entry.unit.is_watchful()) {
                self.note_watchful(there.lun, &entry.unit);
                self.acquaint_members(there.lun, entry.unit.id(), &Wanted::All);
            }
        }
    }

    /// Notes under which numbers units are found by their names now.
    fn rename(&self, differences: &[Difference<'_>]) {
        if self.whole.is_some() {
            return;
        }
        let mut names = self.lock_names();
        for Difference { lun, before, .. } in differences {
            before.iter().for_each(|entry| names.remove(*lun, entry.unit.identity()));
        }
        for Difference { lun, after, .. } in differences {
            after.iter().for_each(|entry| names.insert(*lun, entry.unit.identity()));
        }
    }

    /// A unit has this number no longer.
    fn take_leave(self: &Arc<Self>, lun: Lun, unit: &Arc<LogicalUnit>) {
        for nexus in unit.nexuses.all() {
            self.members.with(nexus, |member| {
                let mut state = member.lock();
                if state.used.get(&lun).is_some_and(|used| used.is(unit)) {
                    state.used.remove(&lun);
                    unit.forget(nexus);
                }
            });
        }
        if self.whole.is_none() {
            unit.viewers.leave(Arc::as_ptr(self).cast(), lun);
            let mut watchful = self.watchful.lock().unwrap_or_else(PoisonError::into_inner);
            watchful.retain(|(number, _)| *number != lun);
        }
    }

    /// The unit is to meet nexuses when they come.
    fn note_watchful(&self, lun: Lun, unit: &Arc<LogicalUnit>) {
        if self.whole.is_none() {
            let mut watchful = self.watchful.lock().unwrap_or_else(PoisonError::into_inner);
            watchful.retain(|(number, _)| *number != lun);
            watchful.push((lun, Arc::downgrade(unit)));
        }
    }

    /// A nexus comes; one that is known stays as it is.
    pub(super) fn establish(&self, nexus: NexusId, ports: Arc<NexusPorts>) {
        let _changing = self.lock();
        if self.members.get(nexus).is_none() {
            let found = self.inventory.load().changed();
            let (joined, state) = (Generation::next(), MemberState::default());
            self.take_in(Member::new((nexus, ports), joined, found, state));
        }
    }

    /// The lock is held.
    pub(super) fn take_in(&self, member: Member) {
        let member = Arc::new(member);
        self.members.insert(Arc::clone(&member));
        let watchful = self.whole().watchful.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (lun, unit) in watchful {
            if let Some(unit) = unit.upgrade() {
                self.settle_now(&member, lun, unit.id());
            }
        }
    }

    /// A nexus is gone: gives what was kept of it, with the units that know it.
    pub(super) fn dismiss(&self, nexus: NexusId) -> Option<(Arc<Member>, MemberState)> {
        let member = {
            let _changing = self.lock();
            self.members.remove(nexus)?
        };
        let state = std::mem::replace(&mut *member.lock(), MemberState { is_gone: true, ..MemberState::default() });
        Some((member, state))
    }
}

impl UnitView for View {
    fn acquaint_with(&self, lun: Lun, unit: UnitId, wanted: &Wanted<'_>) {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        parts.iter().filter_map(Weak::upgrade).for_each(|part| part.acquaint_members(lun, unit, wanted));
        self.acquaint_members(lun, unit, wanted);
    }

    fn watch(&self, lun: Lun, unit: UnitId) {
        if let Some(entry) = self.inventory().get(lun).filter(|entry| entry.is(unit)) {
            self.note_watchful(lun, &entry.unit);
        }
    }
}

/// Whether a unit gets another number.
fn moves_a_unit(differences: &[Difference<'_>]) -> bool {
    let units = |of: fn(&Difference<'_>) -> Option<*const LogicalUnit>| differences.iter().filter_map(of);
    let gone: BTreeSet<_> = units(|there| there.before.map(|entry| Arc::as_ptr(&entry.unit))).collect();
    !gone.is_empty() && units(|there| there.after.map(|entry| Arc::as_ptr(&entry.unit))).any(|new| gone.contains(&new))
}
