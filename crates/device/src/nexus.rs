//! The two ends of an I_T nexus.

use sanwire_core::Principal;
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::TargetPort;

/// The two ends of an I_T nexus, and who is at one of them. Persistent registrations belong to them, not to the nexus: an initiator that logs in again from
/// the same port to the same port finds its own. Several nexuses with the same ends share what is registered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NexusPorts {
    /// The initiator port; never the name of a device.
    pub initiator: TransportId,
    /// The target port. Each kind of wire has one with a relative identifier of its own.
    pub target: TargetPort,
    /// Who is behind the initiator port, as far as that was known when the nexus came.
    pub principal: Principal,
}
