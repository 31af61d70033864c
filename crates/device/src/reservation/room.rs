//! How many registrations a unit has room for, and of which initiators.

use sanwire_core::quota::{Account, REGISTRATIONS, Usage};
use sanwire_scsi::reservation::Order;
use sanwire_scsi::{AdditionalSense, Sense, SenseKey};

use super::registry::Registry;
use crate::nexus::NexusPorts;

/// What is kept for initiators that register themselves and have few: one that is registered can end the registrations of others,
/// one that is not can do nothing.
const KEPT: u64 = REGISTRATIONS.limit / 4;

/// So many are few: an initiator has one for each of its sessions.
const FEW: usize = 16;

#[derive(Debug)]
pub(super) struct Room(Account);

impl Default for Room {
    fn default() -> Self {
        Room(Account::new(&REGISTRATIONS))
    }
}

impl Room {
    /// Whether an order by this nexus may leave so many registrations.
    ///
    /// # Errors
    /// INSUFFICIENT REGISTRATION RESOURCES (SPC-5 5.14.7) when not.
    pub(super) fn check(
        &mut self,
        order: &Order,
        by: &NexusPorts,
        before: &Registry,
        after: &Registry,
    ) -> Result<(), Sense> {
        let (had, has) = (before.len() as u64, after.len() as u64);
        if has <= had {
            return Ok(());
        }
        let is_for_itself = matches!(order, Order::Register { others: None, .. });
        let is_modest = is_for_itself && after.len_of(&by.initiator) <= FEW;
        let most = if is_modest { REGISTRATIONS.limit } else { REGISTRATIONS.limit - KEPT };
        if self.0.admits_up_to(most, had, has - had) {
            return Ok(());
        }
        Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES))
    }

    pub(super) fn usage(&self) -> Usage {
        self.0.usage()
    }
}
