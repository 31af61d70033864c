//! The logical units of a target, and the way of a task to its unit.

mod hand_over;
mod inventory;
mod member;
mod port_groups;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::Guard;
use sanwire_core::limits::LUNS_MAX;
use sanwire_core::{Instant, Lun, NexusId, Principal};
use sanwire_scsi::vpd::{Designator, TargetPort, WriteVerifier};
use sanwire_scsi::{ReportedLuns, report};

use crate::copy_targets::{CopyTargetResolver, CopyTargetUnit};
use crate::derived::{Derived, Present, Refused};
use crate::disturbances;
use crate::flushes::Told;
use crate::logical_unit::LogicalUnit;
use crate::nexus::NexusPorts;
use crate::port_groups::PortGroups;
use crate::unit_state::UnitState;
pub use inventory::AddError;
use inventory::Inventory;
use view::View;

/// All units of one target, which several targets may share. Used by all its threads; units come and go while it serves.
#[derive(Debug, Default)]
pub struct LogicalUnits {
    view: Arc<View>,
    port_groups: PortGroups,
    /// The target of which these are a part that some of its initiators see: its ports are theirs.
    pub(crate) whole: Option<Arc<LogicalUnits>>,
    /// Where copies find their units; without it, among the units here.
    copy_targets: Option<Box<dyn CopyTargetResolver>>,
    /// Whether the initiators of this target may only read.
    is_read_only: AtomicBool,
}

impl LogicalUnits {
    /// A target without units.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A target without units, whose copies may also go to and come from units of other targets: those that `resolver` finds.
    #[must_use]
    pub fn with_copy_targets(resolver: Box<dyn CopyTargetResolver>) -> Self {
        LogicalUnits { copy_targets: Some(resolver), ..Self::default() }
    }

    /// A part, without units yet, of the target that has all units of `whole`: the states of its port groups are the same for
    /// all parts, and a change of them is told to the initiators of all. Units have the numbers that they have there.
    #[must_use]
    pub fn part_of(whole: Arc<LogicalUnits>) -> Self {
        let view = View::part_of(Arc::clone(&whole.view));
        LogicalUnits { view, whole: Some(whole), ..Self::default() }
    }

    /// Takes a unit in and tells every initiator that the list has changed. For those that are there already the number stays
    /// without a unit until they ask for the unit's identity (INQUIRY, page 80h or 83h): what they have sent to the unit that had the
    /// number before never reaches another one.
    ///
    /// # Errors
    /// [`AddError`] when the number is taken or there are too many.
    pub fn add(&self, lun: Lun, unit: LogicalUnit) -> Result<Arc<LogicalUnit>, AddError> {
        let unit = Arc::new(unit);
        self.add_shared(lun, Arc::clone(&unit)).map(|()| unit)
    }

    /// Takes in a unit that other targets may have too, under numbers of their own. A target has a unit once.
    ///
    /// # Errors
    /// [`AddError`] when the number is taken or there are too many.
    pub fn add_shared(&self, lun: Lun, unit: Arc<LogicalUnit>) -> Result<(), AddError> {
        self.change(&[], vec![(lun, unit)])
    }

    /// Takes a unit out and tells every initiator. Commands that it has begun go on to their end.
    pub fn remove(&self, lun: Lun) -> Option<Arc<LogicalUnit>> {
        let unit = self.get(lun)?;
        self.change(&[lun], Vec::new()).ok()?;
        Some(unit)
    }

    /// Takes these units out, and those in: any number of them, as one change of the list.
    ///
    /// # Errors
    /// [`AddError`] when a number is taken or there are too many; then nothing has changed.
    pub fn change(&self, removed: &[Lun], added: Vec<(Lun, Arc<LogicalUnit>)>) -> Result<(), AddError> {
        self.view.change(removed, added)
    }

    /// Has a part show those units of the whole that are `shown`. To be called again when the whole has changed: then `changed` says
    /// which numbers, unless anything may be different.
    pub fn show(&self, changed: Option<&[Lun]>, shown: impl Fn(&LogicalUnit) -> bool) {
        let Some(whole) = &self.whole else { return };
        let (before, there) = (self.view.inventory(), whole.view.inventory());
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        let mut compare = |lun: Lun| {
            let (old, new) = (before.get(lun), there.get(lun).filter(|entry| shown(&entry.unit)));
            if old.map(|entry| Arc::as_ptr(&entry.unit)) != new.map(|entry| Arc::as_ptr(&entry.unit)) {
                removed.extend(old.map(|_| lun));
                added.extend(new.map(|entry| (lun, Arc::clone(&entry.unit))));
            }
        };
        match changed {
            Some(changed) => changed.iter().copied().for_each(compare),
            None => {
                there.iter().for_each(|(lun, _)| compare(lun));
                before.iter().filter(|(lun, _)| there.get(*lun).is_none()).for_each(|(lun, _)| compare(lun));
            }
        }
        let is_changed = self.change(&removed, added);
        debug_assert!(is_changed.is_ok(), "a part has no more units than the whole, and the numbers are free");
    }

    /// The same for a part that shows all units. While it has always done so, it shares the list of the whole.
    pub fn show_all(&self) {
        let Some(whole) = &self.whole else { return };
        if !self.view.become_whole(&whole.view) {
            self.show(None, |_| true);
        }
    }

    /// The unit with this number.
    #[must_use]
    pub fn get(&self, lun: Lun) -> Option<Arc<LogicalUnit>> {
        self.view.inventory().get(lun).map(|entry| Arc::clone(&entry.unit))
    }

    /// The number that its owner gave to the unit with this logical unit number ([`crate::UnitOptions::slot`]).
    #[must_use]
    pub fn slot(&self, lun: Lun) -> Option<u16> {
        self.view.inventory().get(lun).map(|entry| entry.unit.slot())
    }

    /// Whether the initiators of this target may only read: nothing of its units changes by their commands.
    pub fn set_read_only(&self, is_read_only: bool) {
        self.is_read_only.store(is_read_only, Ordering::Release);
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Acquire)
    }

    /// The unit of this name, with its number. Names are those of volumes, of which a target has each once.
    #[must_use]
    pub fn find_named(&self, name: &str) -> Option<(Lun, Arc<LogicalUnit>)> {
        self.view.find_named(name)
    }

    /// The numbers that no unit has now, and that are not reserved, ascending. Who needs many takes them from one iterator, which
    /// looks at each number once.
    pub fn free_numbers(&self, is_reserved: impl Fn(Lun) -> bool) -> impl Iterator<Item = Lun> {
        let inventory = Arc::clone(&self.view.inventory());
        let numbers = (0..LUNS_MAX as u16).filter_map(Lun::new);
        numbers.filter(move |lun| inventory.get(*lun).is_none() && !is_reserved(*lun))
    }

    /// The unit that is called so, whatever its number; `None` also when two are.
    #[must_use]
    pub fn find(&self, designator: &Designator) -> Option<Arc<LogicalUnit>> {
        let mut found = self.view.find_designated(designator).into_iter();
        let unit = found.next()?;
        found.next().is_none().then_some(unit)
    }

    /// The unit that a copy of this nexus may use under this name now.
    pub(crate) fn copy_target(&self, nexus: NexusId, designator: &Designator, now: Instant) -> Option<CopyTargetUnit> {
        let target = match &self.copy_targets {
            Some(resolver) => resolver.find(nexus, designator),
            None => self.find(designator).map(|unit| CopyTargetUnit::new(Arc::clone(unit.state()), nexus)),
        };
        let mut target = target?;
        if let Some(derived) = target.unit.derived() {
            let principal = self.principal(nexus);
            if target.unit.is_revoked() || derived.is_expired(now) || !target.unit.admits(&principal) {
                return None;
            }
            target.guest = Some(derived.users.visit(nexus, principal));
        }
        // Reservations know only nexuses that are known to the unit.
        target.unit.acquaint(target.nexus);
        Some(target)
    }

    /// More is known of who is behind a nexus that is there: units that are derived ask again whether they admit it.
    pub fn identify(&self, nexus: NexusId, principal: Principal) {
        self.view.members.with(nexus, |member| member.identify(principal));
    }

    /// Who is behind a nexus.
    pub(crate) fn principal(&self, nexus: NexusId) -> Principal {
        self.view.members.with(nexus, |member| member.principal()).unwrap_or_default()
    }

    /// Whether the nexus finds a unit: one that is derived may have been taken back, or admit others only.
    fn finds(&self, nexus: NexusId, unit: &UnitState, now: Instant) -> bool {
        let Some(derived) = unit.derived() else { return true };
        !unit.is_revoked()
            && !derived.is_expired(now)
            && (derived.users.guest(nexus).is_some() || unit.admits(&self.principal(nexus)))
    }

    /// The units as they are now, ascending by number.
    #[must_use]
    pub fn iter(&self) -> Vec<(Lun, Arc<LogicalUnit>)> {
        self.view.inventory().iter().map(|(lun, entry)| (lun, Arc::clone(&entry.unit))).collect()
    }

    /// A new initiator is there: each unit has to tell it that power came on (SAM-5 5.14.1), when it first uses the unit.
    /// One that is known stays as it is.
    pub fn nexus_established(&self, nexus: NexusId, ports: Arc<NexusPorts>) {
        self.view.establish(nexus, ports);
    }

    /// The initiator's identity, which no other one can take, also not by its ports, and which stays after a restart of the
    /// target: so it may be told whether only it has written.
    pub fn name_writer(&self, nexus: NexusId, writer: [u8; 16]) {
        self.view.members.with(nexus, |member| member.lock().writer = Some(writer));
    }

    /// What the initiator is told of its writes; `as_writer`: it heeds that.
    pub(crate) fn write_verifier(&self, nexus: NexusId, unit: &UnitState, as_writer: bool) -> Told<WriteVerifier> {
        let writer = self.view.members.with(nexus, |member| member.lock().writer).flatten();
        let (verifier, receipt) = unit.write_verifier(as_writer.then_some(nexus), writer);
        (WriteVerifier { other_writer: unit.other_writer(nexus), ..verifier }, receipt)
    }

    /// As if the initiator had asked every unit to keep its medium in (SBC-4 5.14), or to give it free again, until it asks for
    /// something else or is gone, or the unit is reset. Units that come later are asked too.
    pub fn lock_media(&self, nexus: NexusId, is_locked: bool) {
        self.view.members.with(nexus, |member| member.lock_media(is_locked));
    }

    /// The initiator uses another part of the same target from now on. It notices nothing of that by units that are in both
    /// under the same number.
    pub fn hand_over(&self, to: &LogicalUnits, nexus: NexusId) {
        self.view.hand_over(&to.view, nexus);
    }

    /// An initiator is gone, and with it what it asked for and was still to be told (SAM-5 6.3.4).
    pub fn nexus_lost(&self, nexus: NexusId) {
        match self.view.dismiss(nexus) {
            Some((_, state)) => state.used.into_values().for_each(|used| used.forget(nexus)),
            // Its commands were done all the same.
            None => self.view.inventory().iter().for_each(|(_, entry)| entry.unit.forget(nexus)),
        }
    }

    /// The task management function of SAM-5 7.7, without its commands: the caller aborts them by dropping them.
    /// Mode pages go back to their defaults, the unit is started, what RESERVE began ends (persistent reservations stay),
    /// and the initiators are told.
    /// `false` when there is no such unit.
    pub fn logical_unit_reset(&self, lun: Lun) -> bool {
        let unit = self.get(lun);
        if let Some(unit) = &unit {
            unit.reset();
        }
        unit.is_some()
    }

    /// The unit, if this initiator may reset it now, or end the commands of all: one that may only read never (it would end what
    /// others do, and change the unit), and none too often.
    #[must_use]
    pub fn may_reset(&self, by: NexusId, lun: Lun, now: Instant) -> Option<Arc<LogicalUnit>> {
        let unit = self.get(lun).filter(|unit| !self.is_read_only() && self.finds(by, unit, now))?;
        self.may_disturb(std::iter::once(&**unit), by, now).then_some(unit)
    }

    /// All units, if this initiator may reset them now. When it may not reset one of them, that counts for none.
    #[must_use]
    pub fn may_reset_all(&self, by: NexusId, now: Instant) -> Option<Vec<(Lun, Arc<LogicalUnit>)>> {
        let mut units = self.iter();
        units.retain(|(_, unit)| self.finds(by, unit, now));
        let states = units.iter().map(|(_, unit)| &***unit);
        (!self.is_read_only() && self.may_disturb(states, by, now)).then_some(units)
    }

    pub(crate) fn may_disturb<'a>(
        &self,
        units: impl Iterator<Item = &'a UnitState>,
        by: NexusId,
        now: Instant,
    ) -> bool {
        disturbances::may_disturb(
            units.map(|unit| &unit.disturbances),
            self.ports(by).as_ref().map(|ports| &ports.initiator),
            now,
        )
    }

    /// The units as they are now, for a command; see [`LogicalUnits::unit_for`].
    pub(crate) fn inventory(&self) -> Guard<Arc<Inventory>> {
        self.view.inventory()
    }

    /// The unit for a command of this nexus, which knows the nexus from then on; of one that is derived, with what it knows. `None`: the
    /// nexus finds none there.
    pub(crate) fn unit_for<'a>(
        &self,
        nexus: NexusId,
        lun: Lun,
        inventory: &'a Inventory,
        now: Instant,
    ) -> Option<(&'a LogicalUnit, Option<Present>)> {
        let unit = &inventory.get(lun)?.unit;
        let present = match unit.derived() {
            Some(derived) => Some(self.let_in(nexus, unit, derived, now)?),
            None => None,
        };
        self.view.settle(nexus, lun, inventory, unit.id());
        Some((unit, present))
    }

    /// A nexus that may use a derived unit.
    fn let_in(&self, nexus: NexusId, unit: &UnitState, derived: &Derived, now: Instant) -> Option<Present> {
        let known = derived.users.guest(nexus);
        if unit.is_revoked() || derived.is_expired(now) {
            known.iter().for_each(|guest| guest.note_refused(Refused::Expired));
            return None;
        }
        known.or_else(|| {
            let principal = self.principal(nexus);
            if !unit.admits(&principal) {
                derived.users.note_not_admitted();
                return None;
            }
            Some(Present::New(derived.users.let_in(nexus, principal)))
        })
    }

    pub(crate) fn report_luns(&self, reported: ReportedLuns, nexus: NexusId, now: Instant) -> Vec<u8> {
        let inventory = self.view.inventory();
        // SPC-5 6.33: an initiator that reads the list need not be told that it has changed. (This list: a later change counts.)
        self.view.members.with(nexus, |member| member.has_read(inventory.changed()));
        match reported {
            ReportedLuns::All => {
                let found = inventory.iter().filter(|(_, entry)| self.finds(nexus, &entry.unit, now));
                report::luns(&found.map(|(lun, _)| lun).collect::<Vec<_>>())
            }
            ReportedLuns::WellKnown => report::luns(&[]),
        }
    }

    /// Tells the initiators of this target and of its parts, by all its units, but not those of other targets that share a
    /// unit with it.
    pub(crate) fn raise_access_changed(&self, except: Option<NexusId>) {
        match &self.whole {
            Some(whole) => whole.raise_access_changed(except),
            None => self.view.raise_access_changed(except),
        }
    }

    /// The two ends of a nexus that is there.
    #[must_use]
    pub fn ports(&self, nexus: NexusId) -> Option<Arc<NexusPorts>> {
        self.view.members.with(nexus, |member| Arc::clone(&member.ports))
    }

    /// The port through which the nexus comes.
    pub(crate) fn port(&self, nexus: NexusId) -> TargetPort {
        self.ports(nexus).map_or_else(TargetPort::default, |ports| ports.target.clone())
    }

    pub(crate) fn port_groups(&self) -> &PortGroups {
        self.whole.as_ref().map_or(&self.port_groups, |whole| whole.port_groups())
    }
}
