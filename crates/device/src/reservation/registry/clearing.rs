//! What the owner of a unit ends, who is no initiator.

use std::collections::BTreeSet;

use super::{Effects, Registrant, Registry};
use crate::unit_attention::UnitAttention;

impl Registry {
    /// What is left without all registrations and the reservation, as after CLEAR (SPC-5 5.14.11.6), or without the registrations that have
    /// this key, as after PREEMPT (5.14.11.4) by somebody who takes nothing over. No command is aborted.
    pub(crate) fn without(&self, key: Option<u64>) -> (Registry, Effects) {
        let mut left = self.clone();
        let effects = match key {
            None => left.clear_by_owner(),
            Some(key) => left.strike_out(key),
        };
        let effects = left.count(effects);
        (left, effects)
    }

    fn clear_by_owner(&mut self) -> Effects {
        let effects = Effects::tell(UnitAttention::ReservationsPreempted, self.registrations.keys().cloned());
        self.registrations.clear();
        self.reservation = None;
        effects
    }

    fn strike_out(&mut self, key: u64) -> Effects {
        let struck: BTreeSet<Registrant> =
            self.registrations.extract_if(.., |_, has| *has == key).map(|(registrant, _)| registrant).collect();
        let mut effects = Effects::tell(UnitAttention::RegistrationsPreempted, struck.iter().cloned());
        let is_over = |holder: &Option<Registrant>| match holder {
            Some(holder) => struck.contains(holder),
            None => self.registrations.is_empty(),
        };
        if let Some(held) = self.reservation.take_if(|held| is_over(&held.holder))
            && held.kind.admits_registrants()
        {
            let others = self.registrations.keys().cloned();
            effects.told.extend(Effects::tell(UnitAttention::ReservationsReleased, others).told);
        }
        effects
    }
}
