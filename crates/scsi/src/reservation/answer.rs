//! PERSISTENT RESERVE IN parameter data (SPC-5 6.15.2 to 6.15.5). The caller cuts it to the allocation length.

use super::{ReservationType, TransportId};
use crate::bytes::put;

/// One registration, as READ FULL STATUS tells it.
#[derive(Clone, Copy, Debug)]
pub struct Registration<'a> {
    /// Its key.
    pub key: u64,
    /// The initiator port.
    pub initiator: &'a TransportId,
    /// The relative target port identifier; `None` for all ports (ALL_TG_PT).
    pub target_port: Option<u16>,
    /// The type of the reservation, when this registrant is a holder of it.
    pub holds: Option<ReservationType>,
}

/// READ KEYS.
#[must_use]
pub fn read_keys(generation: u32, keys: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut bytes = header(generation);
    keys.for_each(|key| bytes.extend(key.to_be_bytes()));
    finish(bytes)
}

/// READ RESERVATION: the holder's key (zero for all registrants) and the type.
#[must_use]
pub fn read_reservation(generation: u32, reservation: Option<(u64, ReservationType)>) -> Vec<u8> {
    let mut bytes = header(generation);
    if let Some((key, kind)) = reservation {
        bytes.extend(key.to_be_bytes());
        bytes.extend([0, 0, 0, 0, 0, kind as u8, 0, 0]);
    }
    finish(bytes)
}

/// REPORT CAPABILITIES: whether reservations can be kept through power loss, and whether they are.
#[must_use]
pub fn capabilities(keeps: bool, is_kept: bool) -> [u8; 8] {
    const COMPATIBLE_RESERVATION_HANDLING: u8 = 0x10;
    const SPECIFY_INITIATOR_PORTS: u8 = 0x08;
    const ALL_TARGET_PORTS: u8 = 0x04;
    const TYPE_MASK_VALID: u8 = 0x80;
    // ALLOW COMMANDS 011b: what MODE SENSE and its like need is allowed by write exclusive reservations.
    const ALLOW_COMMANDS: u8 = 0x30;
    [
        0,
        8,
        COMPATIBLE_RESERVATION_HANDLING | SPECIFY_INITIATOR_PORTS | ALL_TARGET_PORTS | u8::from(keeps),
        TYPE_MASK_VALID | ALLOW_COMMANDS | u8::from(is_kept),
        0xea,
        0x01,
        0,
        0,
    ]
}

/// READ FULL STATUS.
#[must_use]
pub fn full_status<'a>(generation: u32, registrations: impl Iterator<Item = Registration<'a>>) -> Vec<u8> {
    let mut bytes = header(generation);
    for registration in registrations {
        let id = registration.initiator.as_bytes();
        let mut descriptor = [0; 24];
        put(&mut descriptor, 0, registration.key.to_be_bytes());
        descriptor[12] = u8::from(registration.target_port.is_none()) << 1 | u8::from(registration.holds.is_some());
        descriptor[13] = registration.holds.map_or(0, |kind| kind as u8);
        put(&mut descriptor, 18, registration.target_port.unwrap_or(0).to_be_bytes());
        put(&mut descriptor, 20, (id.len() as u32).to_be_bytes());
        bytes.extend(descriptor);
        bytes.extend(id);
    }
    finish(bytes)
}

/// PRGENERATION, and ADDITIONAL LENGTH to be filled in.
fn header(generation: u32) -> Vec<u8> {
    let mut bytes = generation.to_be_bytes().to_vec();
    bytes.extend([0; 4]);
    bytes
}

fn finish(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = (bytes.len() - 8) as u32;
    put(&mut bytes, 4, length.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanwire_core::ClientId;

    #[test]
    fn answers_have_the_bytes_of_the_standard() {
        assert_eq!(read_keys(3, [1, 2].into_iter())[..17], [0, 0, 0, 3, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(read_reservation(3, None), [0, 0, 0, 3, 0, 0, 0, 0]);
        let held = read_reservation(0, Some((0xab, ReservationType::ExclusiveAccess)));
        assert_eq!(held, [0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0xab, 0, 0, 0, 0, 0, 3, 0, 0]);
        assert_eq!(capabilities(true, false), [0, 8, 0x1d, 0xb0, 0xea, 1, 0, 0]);
        assert_eq!(capabilities(false, false)[2..4], [0x1c, 0xb0]);
        let types = ReservationType::ALL.iter().fold(0u16, |mask, kind| mask | 1 << *kind as u16);
        assert_eq!(types, 0x01ea, "byte 4 has the types below 8, byte 5 type 8");
        assert_eq!(ReservationType::from_code(4), None);
    }

    #[test]
    fn full_status_names_the_ports() {
        let initiator = TransportId::hyperscsi(ClientId([9; 16]));
        let one = Registration { key: 5, initiator: &initiator, target_port: Some(0x102), holds: None };
        let all = Registration { target_port: None, holds: Some(ReservationType::WriteExclusiveAllRegistrants), ..one };
        let bytes = full_status(1, [one, all].into_iter());
        assert_eq!(bytes[..8], [0, 0, 0, 1, 0, 0, 0, 96]);
        assert_eq!(bytes[8..32], [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 24]);
        assert_eq!(bytes[32..56], *initiator.as_bytes());
        assert_eq!(bytes[68..80], [3, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 24]);
    }
}
