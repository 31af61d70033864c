//! Classes of operations: what somebody may do with a logical unit that is made for him from another one.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use super::{CommandSet, Operation, code};
use crate::task::Cdb;

/// What a command does, as far as it may be allowed or not. A command may do several of these.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum OperationClass {
    /// Tells of the unit and not of its content: everybody who sees it may ask.
    Information = 0,
    /// Reads blocks, or tells of them.
    Read = 1,
    /// Changes blocks, or makes changes stable.
    Write = 2,
    /// Gives the space of blocks back, after which they read as zeroes.
    Discard = 3,
    /// Changes the unit: its mode pages, whether its medium turns, is locked in, or is sanitized.
    Management = 4,
    /// Deals with reservations, of this unit.
    Reservations = 5,
    /// Has the unit read by a copy (EXTENDED COPY).
    CopySource = 6,
    /// Has the unit written by a copy.
    CopyTarget = 7,
}

impl OperationClass {
    /// All of them.
    pub const ALL: [OperationClass; 8] = [
        OperationClass::Information,
        OperationClass::Read,
        OperationClass::Write,
        OperationClass::Discard,
        OperationClass::Management,
        OperationClass::Reservations,
        OperationClass::CopySource,
        OperationClass::CopyTarget,
    ];

    /// The word for it: `read`, `copy-source`, ...
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            OperationClass::Information => "information",
            OperationClass::Read => "read",
            OperationClass::Write => "write",
            OperationClass::Discard => "discard",
            OperationClass::Management => "management",
            OperationClass::Reservations => "reservations",
            OperationClass::CopySource => "copy-source",
            OperationClass::CopyTarget => "copy-target",
        }
    }

    /// The class that is called so.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.word() == word)
    }
}

/// A set of classes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OperationClasses(u8);

impl OperationClasses {
    /// None of them.
    pub const NONE: OperationClasses = OperationClasses(0);
    /// All of them.
    pub const ALL: OperationClasses = OperationClasses(u8::MAX);
    /// [`OperationClass::Information`] alone; the next ones in the same way.
    pub const INFORMATION: OperationClasses = OperationClasses::of(OperationClass::Information);
    #[allow(missing_docs, reason = "see the first one")]
    pub const READ: OperationClasses = OperationClasses::of(OperationClass::Read);
    #[allow(missing_docs, reason = "see the first one")]
    pub const WRITE: OperationClasses = OperationClasses::of(OperationClass::Write);
    #[allow(missing_docs, reason = "see the first one")]
    pub const DISCARD: OperationClasses = OperationClasses::of(OperationClass::Discard);
    #[allow(missing_docs, reason = "see the first one")]
    pub const MANAGEMENT: OperationClasses = OperationClasses::of(OperationClass::Management);
    #[allow(missing_docs, reason = "see the first one")]
    pub const RESERVATIONS: OperationClasses = OperationClasses::of(OperationClass::Reservations);
    #[allow(missing_docs, reason = "see the first one")]
    pub const COPY_SOURCE: OperationClasses = OperationClasses::of(OperationClass::CopySource);
    #[allow(missing_docs, reason = "see the first one")]
    pub const COPY_TARGET: OperationClasses = OperationClasses::of(OperationClass::CopyTarget);

    /// One class.
    #[must_use]
    pub const fn of(class: OperationClass) -> Self {
        OperationClasses(1 << class as u8)
    }

    /// Those of both.
    #[must_use]
    pub const fn with(self, other: OperationClasses) -> Self {
        OperationClasses(self.0 | other.0)
    }

    /// Those that are not in the other one.
    #[must_use]
    pub const fn without(self, other: OperationClasses) -> Self {
        OperationClasses(self.0 & !other.0)
    }

    /// Whether a class is one of them.
    #[must_use]
    pub fn contains(self, class: OperationClass) -> bool {
        self.intersects(OperationClasses::of(class))
    }

    /// Whether any is in both.
    #[must_use]
    pub fn intersects(self, other: OperationClasses) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether each of them is in the other one.
    #[must_use]
    pub fn is_subset_of(self, other: OperationClasses) -> bool {
        self.0 & !other.0 == 0
    }

    /// As a number, with bit 0 for [`OperationClass::Information`], bit 1 for [`OperationClass::Read`] and so on.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// The set with this number.
    #[must_use]
    pub fn from_bits(bits: u8) -> Self {
        OperationClasses(bits)
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = OperationClass> {
        OperationClass::ALL.into_iter().filter(move |class| self.contains(*class))
    }
}

impl BitOr for OperationClasses {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl BitOrAssign for OperationClasses {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl fmt::Debug for OperationClasses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

/// What a command for a disk does. `None`: it is about the whole target and not about the unit that it is sent to, so that nobody may give
/// it who has a part of a unit only.
///
/// What is not known is everything, so that nobody gets at it by accident.
#[must_use]
pub fn classes_of(cdb: &Cdb) -> Option<OperationClasses> {
    type Classes = OperationClasses;
    let byte = |at: usize| cdb.get(at).copied().unwrap_or(0);
    Some(match cdb.operation_code() {
        code::MAINTENANCE_OUT => return None,
        code::TEST_UNIT_READY | code::INQUIRY | code::REQUEST_SENSE | code::REPORT_LUNS => Classes::INFORMATION,
        code::READ_CAPACITY_10 | code::MODE_SENSE_6 | code::MODE_SENSE_10 | code::LOG_SENSE => Classes::INFORMATION,
        code::MAINTENANCE_IN | code::READ_DEFECT_DATA_10 | code::READ_DEFECT_DATA_12 => Classes::INFORMATION,
        code::RECEIVE_COPY_RESULTS => Classes::INFORMATION,
        code::SERVICE_ACTION_IN_16 if byte(1) & 0x1f == code::READ_CAPACITY_16_ACTION => Classes::INFORMATION,
        code::SERVICE_ACTION_IN_16 if byte(1) & 0x1f == code::GET_LBA_STATUS_ACTION => Classes::READ,
        code::READ_6 | code::READ_10 | code::READ_12 | code::READ_16 => Classes::READ,
        code::VERIFY_10 | code::VERIFY_12 | code::VERIFY_16 => Classes::READ,
        code::PRE_FETCH_10 | code::PRE_FETCH_16 => Classes::READ,
        code::WRITE_6 | code::WRITE_10 | code::WRITE_12 | code::WRITE_16 | code::WRITE_ATOMIC_16 => Classes::WRITE,
        code::WRITE_AND_VERIFY_10 | code::WRITE_AND_VERIFY_12 | code::WRITE_AND_VERIFY_16 => Classes::WRITE,
        code::ORWRITE_16 | code::SYNCHRONIZE_CACHE_10 | code::SYNCHRONIZE_CACHE_16 => Classes::WRITE,
        // Where the space cannot be given back it writes zeroes.
        code::WRITE_SAME_10 | code::WRITE_SAME_16 if byte(1) & 0x08 != 0 => Classes::WRITE | Classes::DISCARD,
        code::WRITE_SAME_10 | code::WRITE_SAME_16 => Classes::WRITE,
        // Whether it has written tells what was there.
        code::COMPARE_AND_WRITE => Classes::READ | Classes::WRITE,
        code::UNMAP => Classes::DISCARD,
        code::SANITIZE => Classes::MANAGEMENT | Classes::WRITE,
        code::MODE_SELECT_6 | code::MODE_SELECT_10 => Classes::MANAGEMENT,
        code::START_STOP_UNIT | code::PREVENT_ALLOW_MEDIUM_REMOVAL => Classes::MANAGEMENT,
        code::RESERVE_6 | code::RESERVE_10 | code::RELEASE_6 | code::RELEASE_10 => Classes::RESERVATIONS,
        code::PERSISTENT_RESERVE_IN | code::PERSISTENT_RESERVE_OUT => Classes::RESERVATIONS,
        code::EXTENDED_COPY => match byte(1) & 0x1f {
            code::POPULATE_TOKEN_ACTION => Classes::COPY_SOURCE,
            code::WRITE_USING_TOKEN_ACTION => Classes::COPY_TARGET,
            // Of a copy of the same initiator.
            code::COPY_OPERATION_ABORT_ACTION => Classes::INFORMATION,
            // The units that it names are asked for themselves.
            _ => Classes::COPY_SOURCE | Classes::COPY_TARGET,
        },
        _ => Classes::ALL,
    })
}

impl CommandSet {
    /// The same without those operations that `is_had` says no to: they are not reported.
    #[must_use]
    pub fn retaining(self, is_had: impl Fn(&Operation) -> bool) -> CommandSet {
        let is_withheld = |operation: &&Operation| !is_had(operation);
        let numbered = self.table.operations.iter().zip(0_u32..);
        let withheld = numbered.filter(|(operation, _)| is_withheld(operation)).fold(0, |all, (_, at)| all | 1 << at);
        CommandSet { withheld: self.withheld | withheld, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Features, Need};
    use super::*;

    fn all() -> CommandSet {
        CommandSet::disk(Features::ALL)
    }

    #[test]
    fn every_operation_of_a_disk_has_classes_of_its_own() {
        for operation in all().operations() {
            let cdb = Cdb::new(&operation.usage_data()).unwrap();
            assert_ne!(classes_of(&cdb), Some(OperationClasses::ALL), "{cdb:?}");
            let is_harmless = classes_of(&cdb).is_some_and(|classes| classes.is_subset_of(OperationClasses::READ));
            assert!(!(operation.changes_unit && is_harmless), "{cdb:?}");
        }
    }

    #[test]
    fn what_a_command_does_may_depend_on_its_bits() {
        let of = |bytes: &[u8]| classes_of(&Cdb::new(bytes).unwrap());
        let (write, discard) = (OperationClasses::WRITE, OperationClasses::DISCARD);
        assert_eq!(of(&[code::WRITE_SAME_16, 0]), Some(write));
        assert_eq!(of(&[code::WRITE_SAME_16, 0x08]), Some(write | discard));
        assert_eq!(of(&[code::SERVICE_ACTION_IN_16, 0x10]), Some(OperationClasses::INFORMATION));
        assert_eq!(of(&[code::SERVICE_ACTION_IN_16, 0x12]), Some(OperationClasses::READ));
        assert_eq!(of(&[code::SERVICE_ACTION_IN_16, 0x13]), Some(OperationClasses::ALL), "nobody knows what it is");
        assert_eq!(of(&[code::EXTENDED_COPY, 0x10]), Some(OperationClasses::COPY_SOURCE), "POPULATE TOKEN");
        assert_eq!(of(&[code::EXTENDED_COPY, 0x11]), Some(OperationClasses::COPY_TARGET), "WRITE USING TOKEN");
        assert_eq!(of(&[code::EXTENDED_COPY, 0x1c]), Some(OperationClasses::INFORMATION), "COPY OPERATION ABORT");
        assert_eq!(of(&[code::MAINTENANCE_OUT, 0x0a]), None, "SET TARGET PORT GROUPS");
    }

    #[test]
    fn words_and_sets_come_back() {
        for class in OperationClass::ALL {
            assert_eq!(OperationClass::from_word(class.word()), Some(class));
            assert_eq!(OperationClasses::of(class).iter().collect::<Vec<_>>(), [class]);
        }
        assert_eq!(OperationClass::from_word("writes"), None);
        assert_eq!(OperationClasses::from_bits(OperationClasses::ALL.bits()).iter().count(), 8);
        let without = OperationClasses::ALL.without(OperationClasses::WRITE);
        assert!(!without.contains(OperationClass::Write) && without.contains(OperationClass::Read));
        assert!(without.is_subset_of(OperationClasses::ALL) && !OperationClasses::ALL.is_subset_of(without));
    }

    #[test]
    fn operations_that_are_withheld_are_not_there() {
        let set = all().retaining(|operation| operation.code != code::UNMAP);
        assert_eq!(set.of_code(code::UNMAP).count(), 0);
        assert_eq!(set.operations().count() + 1, all().operations().count());
        assert!(set.find(&Cdb::from([code::UNMAP, 0, 0, 0, 0, 0, 0, 0, 0, 0])).is_err());
        let both = set.retaining(|operation| operation.need == Need::Nothing);
        assert_eq!(both.of_code(code::WRITE_ATOMIC_16).chain(both.of_code(code::UNMAP)).count(), 0);
    }
}
