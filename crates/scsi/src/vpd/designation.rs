//! Numbers by which the logical unit is looked up that a designator names.

use data_encoding::{HEXLOWER, HEXUPPER};

use super::identification::naa_of;
use super::{Designator, DesignatorKind, Identity};
use crate::bytes::u64_at;

/// A number that follows from a designator. Few units have the same one, nearly always one: [`Identity::is_named`] says which of them
/// are meant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Designation {
    /// The NAA designator, which follows from the UUID.
    Naa(u64),
    /// The EUI-64.
    Eui64(u64),
}

impl Designation {
    /// The number that a designator leads to; `None` when it can name no unit of this target.
    #[must_use]
    pub fn of(designator: &Designator) -> Option<Self> {
        let bytes = &designator.bytes[..];
        match designator.kind {
            DesignatorKind::Naa => u64_at(bytes, 0).map(Designation::Naa),
            DesignatorKind::Eui64 => u64_at(bytes, 0).map(Designation::Eui64),
            DesignatorKind::Uuid => of_uuid(bytes.get(2..)?),
            DesignatorKind::T10VendorId => {
                let serial = bytes.rsplit(|byte| *byte == b':').next()?;
                of_uuid(&HEXLOWER.decode(serial).ok()?)
            }
            DesignatorKind::ScsiName => {
                let naa = HEXUPPER.decode(bytes.strip_prefix(b"naa.")?.get(..16)?).ok()?;
                u64_at(&naa, 0).map(Designation::Naa)
            }
            _ => None,
        }
    }

    /// The numbers that the designators of a unit lead to.
    #[must_use]
    pub fn all_of(unit: &Identity) -> [Self; 2] {
        [Designation::Naa(unit.naa()), Designation::Eui64(unit.eui_64())]
    }
}

fn of_uuid(uuid: &[u8]) -> Option<Designation> {
    Some(Designation::Naa(naa_of(uuid.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceIdentification;
    use crate::vpd::TargetPort;

    fn designators(unit: &Identity) -> Vec<Designator> {
        let page = DeviceIdentification::parse(&unit.to_page(&TargetPort::default())).unwrap();
        page.designators.into_iter().filter(|designator| designator.association == 0).collect()
    }

    #[test]
    fn every_designator_of_a_unit_leads_to_a_number_of_it() {
        for (name, seed) in [("a", 1u8), ("with:colons:", 0x7f), ("größer", 0xff)] {
            let uuid = std::array::from_fn(|at| seed.wrapping_mul(31).wrapping_add(at as u8 * 17));
            let unit = Identity::new(name, uuid).unwrap();
            let found: Vec<_> = designators(&unit).iter().map(Designation::of).collect();
            assert_eq!(found.len(), 5);
            let all = Designation::all_of(&unit);
            assert!(found.iter().all(|one| one.is_some_and(|one| all.contains(&one))), "{found:?} of {all:?}");
            assert!(unit.is_named(&Designator::of_uuid(uuid)));
        }
    }

    #[test]
    fn what_names_no_unit_leads_nowhere() {
        let of = |kind, bytes: &[u8]| Designation::of(&Designator { kind, association: 0, bytes: bytes.to_vec() });
        assert_eq!(of(DesignatorKind::Naa, &[3; 7]), None);
        assert_eq!(of(DesignatorKind::Uuid, &[0x10]), None);
        assert_eq!(of(DesignatorKind::Uuid, &[0x10; 19]), None);
        assert_eq!(of(DesignatorKind::T10VendorId, b"SANWIRE a:0102"), None);
        assert_eq!(of(DesignatorKind::ScsiName, b"naa.30"), None);
        assert_eq!(of(DesignatorKind::ScsiName, b"iqn.2026-11.org.sanwire:a\0\0\0"), None);
        assert_eq!(of(DesignatorKind::RelativeTargetPort, &[0, 0, 0, 1]), None);
    }
}
