//! Who has reserved a volume, or is registered to.

use sanwire_device::{RegistrationReport, ReservationReport};
use sanwire_scsi::reservation::ReservationType;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Answer, ManageError, Manager};

/// The reservations of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReservationsStatus {
    /// The volume.
    pub volume: String,
    /// How its persistent reservation restricts others; `None`: there is none.
    pub r#type: Option<ReservationKind>,
    /// Rises with each order that registers, or takes a registration away (PRGENERATION); begins anew with the server.
    pub generation: u32,
    /// Whether registrations and reservation survive a restart of the server (APTPL).
    pub persistent: bool,
    /// The number of the session that has it by RESERVE of SPC-2, in hexadecimal digits; `None`: no session has.
    pub reserved_by: Option<String>,
    /// Who is registered.
    pub registrants: Vec<RegistrantStatus>,
}

/// One who is registered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RegistrantStatus {
    /// Whose registration it is, for people: `client` and its id, `initiator` and its name, or `station` and its address.
    pub initiator: String,
    /// Through which of the volume's target ports, by its number; `None`: through all of them.
    pub target_port: Option<u16>,
    /// Its key, in hexadecimal digits.
    pub key: String,
    /// Whether it holds the persistent reservation, alone or with others.
    pub holder: bool,
}

/// What a persistent reservation restricts (SPC-5, table 63).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReservationKind {
    /// The holder alone writes.
    WriteExclusive,
    /// The holder alone reads and writes.
    ExclusiveAccess,
    /// Who is registered writes.
    WriteExclusiveRegistrantsOnly,
    /// Who is registered reads and writes.
    ExclusiveAccessRegistrantsOnly,
    /// Who is registered writes, and each is a holder.
    WriteExclusiveAllRegistrants,
    /// Who is registered reads and writes, and each is a holder.
    ExclusiveAccessAllRegistrants,
}

impl ReservationKind {
    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            ReservationKind::WriteExclusive => "write exclusive",
            ReservationKind::ExclusiveAccess => "exclusive access",
            ReservationKind::WriteExclusiveRegistrantsOnly => "write exclusive, registrants only",
            ReservationKind::ExclusiveAccessRegistrantsOnly => "exclusive access, registrants only",
            ReservationKind::WriteExclusiveAllRegistrants => "write exclusive, all registrants",
            ReservationKind::ExclusiveAccessAllRegistrants => "exclusive access, all registrants",
        }
    }
}

impl From<ReservationType> for ReservationKind {
    fn from(kind: ReservationType) -> Self {
        match kind {
            ReservationType::WriteExclusive => ReservationKind::WriteExclusive,
            ReservationType::ExclusiveAccess => ReservationKind::ExclusiveAccess,
            ReservationType::WriteExclusiveRegistrantsOnly => ReservationKind::WriteExclusiveRegistrantsOnly,
            ReservationType::ExclusiveAccessRegistrantsOnly => ReservationKind::ExclusiveAccessRegistrantsOnly,
            ReservationType::WriteExclusiveAllRegistrants => ReservationKind::WriteExclusiveAllRegistrants,
            ReservationType::ExclusiveAccessAllRegistrants => ReservationKind::ExclusiveAccessAllRegistrants,
        }
    }
}

impl Manager {
    pub(super) fn reservations(&self, name: &str) -> Result<Answer, ManageError> {
        let (_, unit) = self.find(name).ok_or_else(|| ManageError::NoVolume(name.to_owned()))?;
        Ok(Answer::Reservations(told(name, unit.reservation_report())))
    }
}

fn told(volume: &str, report: ReservationReport) -> ReservationsStatus {
    let ReservationReport { generation, is_kept, kind, registrations, reserved_by } = report;
    let registrants = registrations.into_iter().map(|RegistrationReport { initiator, target_port, key, is_holder }| {
        RegistrantStatus {
            initiator: initiator.to_string(),
            target_port,
            key: format!("{key:016x}"),
            holder: is_holder,
        }
    });
    ReservationsStatus {
        volume: volume.to_owned(),
        r#type: kind.map(ReservationKind::from),
        generation,
        persistent: is_kept,
        reserved_by: reserved_by.map(|nexus| format!("{:x}", nexus.0)),
        registrants: registrants.collect(),
    }
}

#[cfg(test)]
mod tests {
    use sanwire_core::ClientId;
    use sanwire_core::NexusId;
    use sanwire_scsi::reservation::TransportId;

    use super::*;

    #[test]
    fn reservations_are_told_in_words() {
        let registration = |last: u8, target_port, is_holder| RegistrationReport {
            initiator: TransportId::hyperscsi(ClientId([last; 16])),
            target_port,
            key: u64::from(last),
            is_holder,
        };
        let report = ReservationReport {
            generation: 3,
            is_kept: true,
            kind: Some(ReservationType::WriteExclusiveRegistrantsOnly),
            registrations: vec![registration(1, None, true), registration(0xa2, Some(2), false)],
            reserved_by: Some(NexusId(0x1f)),
        };
        let told = serde_json::to_value(told("a", report)).unwrap();
        let client = |byte: &str| format!("client {}", byte.repeat(16));
        let registrants = serde_json::json!([
            { "initiator": client("01"), "target_port": null, "key": "0000000000000001", "holder": true },
            { "initiator": client("a2"), "target_port": 2, "key": "00000000000000a2", "holder": false },
        ]);
        let wanted = serde_json::json!({
            "volume": "a", "type": "write-exclusive-registrants-only", "generation": 3, "persistent": true,
            "reserved_by": "1f", "registrants": registrants,
        });
        assert_eq!(told, wanted);
    }
}
