//! A nexus that sees another view from now on.

use std::sync::Arc;

use sanwire_core::NexusId;

use super::inventory::Inventory;
use super::member::{Member, MemberState, Used};
use super::view::View;
use crate::generation::Generation;
use crate::unit_attention::Met;

impl View {
    /// The nexus sees another view from now on. It notices nothing of that by units that are in both under the same number; all
    /// others are new to it.
    pub(super) fn hand_over(&self, to: &View, nexus: NexusId) {
        let Some((member, mut state)) = self.dismiss(nexus) else { return };
        let ours = self.inventory().clone();
        let _changing = to.lock();
        let theirs = to.inventory().clone();
        let (mut joined, mut found) = (member.joined, member.found);
        if !Arc::ptr_eq(&ours, &theirs) {
            self.acquaint_where_same(&member, &mut state, &ours, &theirs);
            (joined, found) = (Generation::next(), theirs.changed());
        }
        for (_, used) in
            state.used.extract_if(.., |lun, used| !theirs.get(*lun).is_some_and(|there| used.is(&there.unit)))
        {
            used.forget(nexus);
        }
        if !Arc::ptr_eq(&ours, &theirs) {
            self.meet_others(to, &member, &mut state, (&theirs, joined));
        }
        to.take_in(Member::new((nexus, Arc::clone(&member.ports)), joined, found, state));
    }

    /// Has the units of which it must notice nothing know it, with all that is to be told by now.
    fn acquaint_where_same(&self, member: &Member, state: &mut MemberState, ours: &Inventory, theirs: &Inventory) {
        for (lun, entry) in ours.iter() {
            let is_there = theirs.get(lun).is_some_and(|there| there.is(entry.unit.id()));
            if is_there && state.is_admitted_by(&entry.unit, &member.ports) {
                self.acquaint(member, state, (lun, entry), ours);
            }
        }
    }

    fn meet_others(
        &self,
        to: &View,
        member: &Member,
        state: &mut MemberState,
        (theirs, joined): (&Inventory, Generation),
    ) {
        let nexus = member.nexus;
        let (list, access) = (theirs.changed(), to.access_changed_for(nexus));
        let is_same_target = std::ptr::eq(self.whole(), to.whole());
        for (lun, entry) in theirs.iter() {
            if !state.is_admitted_by(&entry.unit, &member.ports) {
                continue;
            }
            let used = state.used.entry(lun).or_insert_with(|| {
                let locked = state.locked.map(|at| at.max(joined));
                let met = Met { since: joined, is_unseen: true, locked };
                entry.unit.establish(nexus, &member.ports, met);
                Used { unit: Arc::downgrade(&entry.unit), list, access }
            });
            used.list = list;
            if !is_same_target {
                used.access = access;
            }
        }
    }
}
