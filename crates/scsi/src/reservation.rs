//! Reservations (SPC-5 5.14 and 6.14 to 6.16, SPC-2 7.21): which nexus may do what, and the bytes that say so.

mod access;
mod answer;
mod asked;
mod order;
mod transport_id;

pub use access::Access;
pub use answer::{Registration, capabilities, full_status, read_keys, read_reservation};
pub use asked::{Held, Registered, parameters, parse_full_status, parse_read_reservation};
pub use order::{Order, OrderAction, order};
pub use transport_id::{IscsiNameError, TransportId};

/// What PERSISTENT RESERVE IN asks (SPC-5 6.15.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ReservationQuery {
    /// 00h: every registered key.
    Keys = 0,
    /// 01h: the persistent reservation.
    Reservation = 1,
    /// 02h: what the unit can do.
    Capabilities = 2,
    /// 03h: every registration with its I_T nexus.
    FullStatus = 3,
}

impl ReservationQuery {
    /// The query with this service action.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => ReservationQuery::Keys,
            1 => ReservationQuery::Reservation,
            2 => ReservationQuery::Capabilities,
            3 => ReservationQuery::FullStatus,
            _ => return None,
        })
    }
}

/// The types of persistent reservations (SPC-5 table 63). The scope is always the logical unit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ReservationType {
    /// 1h: the holder alone writes.
    WriteExclusive = 1,
    /// 3h: the holder alone reads and writes.
    ExclusiveAccess = 3,
    /// 5h: registrants write.
    WriteExclusiveRegistrantsOnly = 5,
    /// 6h: registrants read and write.
    ExclusiveAccessRegistrantsOnly = 6,
    /// 7h: registrants write, and each is a holder.
    WriteExclusiveAllRegistrants = 7,
    /// 8h: registrants read and write, and each is a holder.
    ExclusiveAccessAllRegistrants = 8,
}

impl ReservationType {
    /// All types, ascending by code.
    pub const ALL: [ReservationType; 6] = [
        ReservationType::WriteExclusive,
        ReservationType::ExclusiveAccess,
        ReservationType::WriteExclusiveRegistrantsOnly,
        ReservationType::ExclusiveAccessRegistrantsOnly,
        ReservationType::WriteExclusiveAllRegistrants,
        ReservationType::ExclusiveAccessAllRegistrants,
    ];

    /// The type with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    /// Whether those outside may still read.
    #[must_use]
    pub fn is_write_exclusive(self) -> bool {
        use ReservationType::{WriteExclusive, WriteExclusiveAllRegistrants, WriteExclusiveRegistrantsOnly};
        matches!(self, WriteExclusive | WriteExclusiveRegistrantsOnly | WriteExclusiveAllRegistrants)
    }

    /// Whether every registrant is a holder.
    #[must_use]
    pub fn is_of_all_registrants(self) -> bool {
        use ReservationType::{ExclusiveAccessAllRegistrants, WriteExclusiveAllRegistrants};
        matches!(self, WriteExclusiveAllRegistrants | ExclusiveAccessAllRegistrants)
    }

    /// Whether every registrant, holder or not, may do all (registrants only and all registrants).
    #[must_use]
    pub fn admits_registrants(self) -> bool {
        !matches!(self, ReservationType::WriteExclusive | ReservationType::ExclusiveAccess)
    }
}
