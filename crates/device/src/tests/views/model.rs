//! What units would keep if each of them kept it for every nexus from the start: the model of what views tell.

use std::collections::{BTreeMap, BTreeSet};

use sanwire_core::NexusId;
use sanwire_scsi::{AdditionalSense, Sense, SenseKey};

use crate::unit_attention::UnitAttention;

/// The conditions that the test establishes, by precedence.
pub(super) const CONDITIONS: [(UnitAttention, AdditionalSense); 6] = [
    (UnitAttention::PowerOn, AdditionalSense::POWER_ON_OR_RESET_OCCURRED),
    (UnitAttention::Reset, AdditionalSense::BUS_DEVICE_RESET_FUNCTION_OCCURRED),
    (UnitAttention::LunsChanged, AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED),
    (UnitAttention::CapacityChanged, AdditionalSense::CAPACITY_DATA_HAS_CHANGED),
    (UnitAttention::ModeChanged, AdditionalSense::MODE_PARAMETERS_CHANGED),
    (UnitAttention::AccessStateChanged, AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED),
];

#[derive(Clone, Default, Debug)]
struct State {
    pending: BTreeSet<UnitAttention>,
    prevents: bool,
    is_unseen: bool,
}

/// A unit with every nexus that sees it.
#[derive(Default, Debug)]
struct Unit(BTreeMap<NexusId, State>);

#[derive(Default, Debug)]
pub(super) struct View {
    pub(super) luns: BTreeMap<u16, usize>,
    /// Whether each keeps media in.
    pub(super) members: BTreeMap<NexusId, bool>,
}

#[derive(Debug)]
pub(super) struct Model {
    units: Vec<Unit>,
    pub(super) views: Vec<View>,
    /// Which of them are a target and its parts; the others are targets of their own.
    parts: usize,
}

impl Model {
    pub(super) fn new(units: usize, views: usize, parts: usize) -> Self {
        let units = std::iter::repeat_with(Unit::default).take(units).collect();
        Model { units, views: std::iter::repeat_with(View::default).take(views).collect(), parts }
    }

    fn meet(&mut self, unit: usize, nexus: NexusId, locks: bool) {
        let pending = BTreeSet::from([UnitAttention::PowerOn]);
        self.units[unit].0.entry(nexus).or_insert(State { pending, prevents: locks, is_unseen: true });
    }

    pub(super) fn join(&mut self, view: usize, nexus: NexusId) {
        for unit in self.views[view].luns.values() {
            let pending = BTreeSet::from([UnitAttention::PowerOn]);
            self.units[*unit].0.insert(nexus, State { pending, ..State::default() });
        }
        self.views[view].members.insert(nexus, false);
    }

    pub(super) fn leave(&mut self, view: usize, nexus: NexusId) {
        self.views[view].members.remove(&nexus);
        self.views[view].luns.values().for_each(|unit| drop(self.units[*unit].0.remove(&nexus)));
    }

    pub(super) fn hand_over(&mut self, from: usize, to: usize, nexus: NexusId) {
        let Some(locks) = self.views[from].members.remove(&nexus) else { return };
        let (ours, theirs) = (self.views[from].luns.clone(), self.views[to].luns.clone());
        let gone = ours.iter().filter(|(lun, unit)| theirs.get(lun) != Some(unit));
        gone.for_each(|(_, unit)| drop(self.units[*unit].0.remove(&nexus)));
        theirs.values().for_each(|unit| self.meet(*unit, nexus, locks));
        self.views[to].members.insert(nexus, locks);
    }

    /// The units of a view are these from now on, by one change.
    pub(super) fn change(&mut self, view: usize, after: BTreeMap<u16, usize>) {
        let View { luns: before, members } = &self.views[view];
        let (before, members) = (before.clone(), members.clone());
        if before == after {
            return;
        }
        for (_, unit) in before.iter().filter(|(lun, unit)| after.get(lun) != Some(unit)) {
            members.keys().for_each(|nexus| drop(self.units[*unit].0.remove(nexus)));
        }
        for (lun, unit) in &after {
            match before.get(lun) {
                Some(same) if same == unit => {
                    members.keys().for_each(|nexus| self.raise_for(*unit, UnitAttention::LunsChanged, *nexus));
                }
                _ => members.iter().for_each(|(nexus, locks)| self.meet(*unit, *nexus, *locks)),
            }
        }
        self.views[view].luns = after;
    }

    fn raise_for(&mut self, unit: usize, condition: UnitAttention, nexus: NexusId) {
        self.units[unit].0.entry(nexus).and_modify(|state| _ = state.pending.insert(condition));
    }

    pub(super) fn raise(&mut self, unit: usize, condition: UnitAttention, except: Option<NexusId>) {
        let told = self.units[unit].0.iter_mut().filter(|(nexus, _)| Some(**nexus) != except);
        told.for_each(|(_, state)| _ = state.pending.insert(condition));
    }

    pub(super) fn reset(&mut self, unit: usize) {
        self.units[unit].0.values_mut().for_each(|state| state.prevents = false);
        self.raise(unit, UnitAttention::Reset, None);
    }

    /// The states of the ports of a target have changed, which its parts have too.
    pub(super) fn change_access(&mut self, view: usize, except: Option<NexusId>) {
        let (whole, told) = if view < self.parts { (0, 0..self.parts) } else { (view, view..view + 1) };
        let told: Vec<NexusId> = self.views[told].iter().flat_map(|view| view.members.keys()).copied().collect();
        for unit in self.views[whole].luns.clone().into_values() {
            let concerned = told.iter().filter(|nexus| Some(**nexus) != except);
            concerned.for_each(|nexus| self.raise_for(unit, UnitAttention::AccessStateChanged, *nexus));
        }
    }

    pub(super) fn lock_media(&mut self, view: usize, nexus: NexusId, is_locked: bool) {
        let View { luns, members } = &mut self.views[view];
        if let Some(locks) = members.get_mut(&nexus).filter(|locks| is_locked || **locks) {
            *locks = is_locked;
            let units: Vec<usize> = luns.values().copied().collect();
            units.into_iter().for_each(|unit| self.prevent(unit, nexus, is_locked));
        }
    }

    pub(super) fn prevent(&mut self, unit: usize, nexus: NexusId, is_prevented: bool) {
        self.units[unit].0.entry(nexus).and_modify(|state| state.prevents = is_prevented);
    }

    pub(super) fn is_removal_prevented(&self, unit: usize) -> bool {
        self.units[unit].0.values().any(|state| state.prevents)
    }

    /// What a command of the nexus is refused with that ends unit attentions.
    pub(super) fn told(&mut self, view: usize, nexus: NexusId, lun: u16) -> Option<Sense> {
        let nobody = Sense::new(SenseKey::IllegalRequest, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
        let Some(unit) = self.views[view].luns.get(&lun) else { return Some(nobody) };
        let state = self.units[*unit].0.get_mut(&nexus)?;
        if state.is_unseen {
            return Some(nobody);
        }
        let condition = state.pending.pop_first()?;
        let (_, additional) = CONDITIONS.iter().find(|(known, _)| *known == condition).unwrap();
        Some(Sense::new(SenseKey::UnitAttention, *additional))
    }

    pub(super) fn see(&mut self, view: usize, nexus: NexusId, lun: u16) {
        let Some(unit) = self.views[view].luns.get(&lun) else { return };
        self.units[*unit].0.entry(nexus).and_modify(|state| state.is_unseen = false);
    }

    pub(super) fn read_list(&mut self, view: usize, nexus: NexusId) -> Vec<u16> {
        for unit in self.views[view].luns.values() {
            let state = self.units[*unit].0.entry(nexus);
            state.and_modify(|state| _ = state.pending.remove(&UnitAttention::LunsChanged));
        }
        self.views[view].luns.keys().copied().collect()
    }

    /// How many nexuses see the unit.
    pub(super) fn count(&self, unit: usize) -> usize {
        self.units[unit].0.len()
    }
}
