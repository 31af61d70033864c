//! A registry as PERSISTENT RESERVE IN tells it, and as the owner of the unit sees it.

use sanwire_core::NexusId;
use sanwire_scsi::reservation::{Registration, full_status, read_keys, read_reservation};

use super::Registry;
use crate::reservation::told::{RegistrationReport, ReservationReport};

impl Registry {
    pub(crate) fn report(&self, reserved_by: Option<NexusId>) -> ReservationReport {
        let registrations = self.registrations().map(|(registrant, key)| RegistrationReport {
            initiator: registrant.initiator.clone(),
            target_port: registrant.target_port,
            key,
            is_holder: self.is_holder(registrant),
        });
        ReservationReport {
            generation: self.generation,
            is_kept: self.is_kept,
            kind: self.kind(),
            registrations: registrations.collect(),
            reserved_by,
        }
    }

    pub(crate) fn read_keys(&self) -> Vec<u8> {
        read_keys(self.generation, self.registrations.values().copied())
    }

    pub(crate) fn read_reservation(&self) -> Vec<u8> {
        let held = self.reservation.as_ref().map(|held| {
            let key = held.holder.as_ref().and_then(|holder| self.registrations.get(holder));
            (key.copied().unwrap_or(0), held.kind)
        });
        read_reservation(self.generation, held)
    }

    pub(crate) fn full_status(&self) -> Vec<u8> {
        let registrations = self.registrations().map(|(registrant, key)| Registration {
            key,
            initiator: &registrant.initiator,
            target_port: registrant.target_port,
            holds: self.kind().filter(|_| self.is_holder(registrant)),
        });
        full_status(self.generation, registrations)
    }
}
