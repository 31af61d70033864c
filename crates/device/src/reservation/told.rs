//! What the owner of a unit is told of its reservations.

use sanwire_core::NexusId;
use sanwire_scsi::reservation::{ReservationType, TransportId};

/// The reservations of a unit, for its owner.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ReservationReport {
    /// PRGENERATION.
    pub generation: u32,
    /// Whether what is registered survives a restart (APTPL).
    pub is_kept: bool,
    /// The type of the persistent reservation, if there is one.
    pub kind: Option<ReservationType>,
    /// Who is registered.
    pub registrations: Vec<RegistrationReport>,
    /// The nexus that has the unit by RESERVE (SPC-2).
    pub reserved_by: Option<NexusId>,
}

/// One registration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegistrationReport {
    /// Whose it is.
    pub initiator: TransportId,
    /// The relative target port identifier; `None`: through whichever port it comes.
    pub target_port: Option<u16>,
    /// The key.
    pub key: u64,
    /// Whether it holds the persistent reservation, alone or with others.
    pub is_holder: bool,
}
