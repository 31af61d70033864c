//! Which operations of a disk somebody may ask for.

use sanwire_scsi::{
    Cdb, CommandSet, Features, Operation, OperationClass, OperationClasses, classes_of, operation_code,
};

/// The operations that a unit has of all those of a disk: some classes, and single operations besides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowedOperations {
    classes: OperationClasses,
    /// Codes, with a service action where one code has several operations and only one is meant.
    single: Vec<(u8, Option<u8>)>,
}

/// All of a disk, whatever its store can do.
pub(crate) const OF_DISK: CommandSet = CommandSet::disk(Features::ALL);

impl AllowedOperations {
    /// All that a disk has, but for what is about its whole target.
    #[must_use]
    pub fn all() -> Self {
        Self::of(OperationClasses::ALL)
    }

    /// Those of these classes. [`OperationClass::Information`] is always among them.
    #[must_use]
    pub fn of(classes: OperationClasses) -> Self {
        AllowedOperations { classes: classes | OperationClasses::INFORMATION, single: Vec::new() }
    }

    /// The same and this operation, whatever its class: a code, with its service action, or without one for all that have the code.
    #[must_use]
    pub fn with_operation(mut self, code: u8, service_action: Option<u8>) -> Self {
        if !self.single.contains(&(code, service_action)) {
            self.single.push((code, service_action));
        }
        self
    }

    /// The same without what changes blocks.
    #[must_use]
    pub fn without_writes(mut self) -> Self {
        self.classes = self.classes.without(CHANGES);
        self.single.retain(|single| !operations(*single).any(changes));
        self
    }

    /// The classes.
    #[must_use]
    pub fn classes(&self) -> OperationClasses {
        self.classes
    }

    /// The single operations.
    pub fn operations(&self) -> impl Iterator<Item = (u8, Option<u8>)> {
        self.single.iter().copied()
    }

    /// Whether such a command is allowed.
    #[must_use]
    pub fn allow(&self, cdb: &Cdb) -> bool {
        self.allowed_classes(cdb).is_some()
    }

    /// What such a command does, if it is allowed.
    pub(crate) fn allowed_classes(&self, cdb: &Cdb) -> Option<OperationClasses> {
        let needed = classes_of(cdb)?;
        let has_classes = match cdb.operation_code() {
            // The units that it names are asked for themselves.
            operation_code::EXTENDED_COPY => self.classes.intersects(needed),
            _ => needed.is_subset_of(self.classes),
        };
        // As nearly always.
        if has_classes {
            return Some(needed);
        }
        let action = cdb.get(1).map(|byte| byte & 0x1f);
        let is_it =
            |(code, only): &(u8, Option<u8>)| *code == cdb.operation_code() && (only.is_none() || *only == action);
        self.single.iter().any(is_it).then_some(needed)
    }

    /// Whether such an operation is allowed with some of its CDBs.
    #[must_use]
    pub(crate) fn allow_operation(&self, operation: &Operation) -> bool {
        self.allow(&least(operation))
    }

    /// Whether the unit may be used by copies like this.
    pub(crate) fn allow_copies(&self, direction: OperationClass) -> bool {
        self.classes.contains(direction)
    }

    /// Whether anything that is allowed changes blocks.
    pub(crate) fn has_writes(&self) -> bool {
        self.classes.intersects(CHANGES) || self.single.iter().any(|single| operations(*single).any(changes))
    }

    /// Whether space may be given back.
    pub(crate) fn has_discards(&self) -> bool {
        use operation_code::{UNMAP, WRITE_SAME_10, WRITE_SAME_16};
        let gives_back = |(code, _): &(u8, Option<u8>)| matches!(*code, UNMAP | WRITE_SAME_10 | WRITE_SAME_16);
        self.classes.contains(OperationClass::Discard) || self.single.iter().any(gives_back)
    }

    /// The first thing that is allowed here and not by the others, in words: `write`, or `operation 2Ah`.
    pub(crate) fn beyond(&self, others: &AllowedOperations) -> Option<String> {
        let class = self.classes.without(others.classes).iter().next().map(|class| class.word().to_owned());
        let is_beyond =
            |single: &(u8, Option<u8>)| !operations(*single).all(|operation| others.allow(&most(operation)));
        class.or_else(|| self.single.iter().copied().find(|single| is_beyond(single)).map(written))
    }

    /// The first single operation that no disk has, or that is about its whole target, in words.
    pub(crate) fn unknown(&self) -> Option<String> {
        let is_known = |single: &(u8, Option<u8>)| {
            let mut all = operations(*single).peekable();
            all.peek().is_some() && all.all(|operation| classes_of(&least(operation)).is_some())
        };
        self.single.iter().copied().find(|single| !is_known(single)).map(written)
    }
}

/// What changes blocks.
const CHANGES: OperationClasses =
    OperationClasses::WRITE.with(OperationClasses::DISCARD).with(OperationClasses::COPY_TARGET);

fn changes(operation: &Operation) -> bool {
    classes_of(&least(operation)).is_some_and(|classes| classes.intersects(CHANGES))
}

/// The operations of a disk that are named so.
fn operations((code, action): (u8, Option<u8>)) -> impl Iterator<Item = &'static Operation> {
    OF_DISK.of_code(code).filter(move |operation| action.is_none() || operation.service_action == action)
}

/// The CDB of an operation with zeroes in its fields.
fn least(operation: &Operation) -> Cdb {
    let mut bytes = vec![0; operation.cdb_bytes()];
    (bytes[0], bytes[1]) = (operation.code, operation.service_action.unwrap_or(0));
    Cdb::new(&bytes).unwrap_or(Cdb::from([operation.code]))
}

/// The same with ones.
fn most(operation: &Operation) -> Cdb {
    Cdb::new(&operation.usage_data()).unwrap_or_else(|| least(operation))
}

fn written((code, action): (u8, Option<u8>)) -> String {
    match action {
        Some(action) => format!("operation {code:02X}h/{action:02X}h"),
        None => format!("operation {code:02X}h"),
    }
}

#[cfg(test)]
mod tests {
    use sanwire_scsi::operation_code as code;

    use super::*;

    fn allows(allowed: &AllowedOperations, bytes: &[u8]) -> bool {
        allowed.allow(&Cdb::new(bytes).unwrap())
    }

    #[test]
    fn a_command_needs_all_of_its_classes_and_a_copy_one_of_them() {
        let reading = AllowedOperations::of(OperationClasses::READ | OperationClasses::COPY_SOURCE);
        let writing = AllowedOperations::of(OperationClasses::WRITE);
        for (bytes, by_reading, by_writing) in [
            (&[code::INQUIRY, 0][..], true, true),
            (&[code::READ_16, 0], true, false),
            (&[code::WRITE_16, 0], false, true),
            (&[code::COMPARE_AND_WRITE, 0], false, false),
            (&[code::WRITE_SAME_16, 0x08], false, false),
            (&[code::EXTENDED_COPY, 0], true, false),
            (&[code::MODE_SELECT_6, 0], false, false),
            (&[code::SANITIZE, 1], false, false),
        ] {
            assert_eq!((allows(&reading, bytes), allows(&writing, bytes)), (by_reading, by_writing), "{bytes:02x?}");
        }
        assert!(!reading.has_writes() && writing.has_writes() && !writing.has_discards());
        assert!(!allows(&AllowedOperations::all(), &[code::MAINTENANCE_OUT, 0x0a]), "it is about the target");
    }

    #[test]
    fn a_single_operation_is_allowed_whatever_its_class() {
        let none = AllowedOperations::of(OperationClasses::NONE);
        let read = none.clone().with_operation(code::READ_10, None);
        assert!(allows(&read, &[code::READ_10, 0]) && !allows(&read, &[code::READ_16, 0]) && !read.has_writes());
        let read = read.with_operation(code::SERVICE_ACTION_IN_16, Some(code::GET_LBA_STATUS_ACTION));
        assert!(allows(&read, &[code::SERVICE_ACTION_IN_16, code::GET_LBA_STATUS_ACTION]));
        let write = none.with_operation(code::WRITE_SAME_16, None).with_operation(code::READ_10, None);
        assert!(allows(&write, &[code::WRITE_SAME_16, 0x08]) && write.has_writes() && write.has_discards());
        let without = write.without_writes();
        assert!(!without.has_writes() && allows(&without, &[code::READ_10, 0]));
        assert!(!AllowedOperations::all().without_writes().has_writes());
    }

    #[test]
    fn what_goes_beyond_others_is_told_in_words() {
        let (all, read) = (AllowedOperations::all(), AllowedOperations::of(OperationClasses::READ));
        assert_eq!((read.beyond(&all), all.beyond(&read)), (None, Some("write".to_owned())));
        let read_and_unmap = read.clone().with_operation(code::UNMAP, None);
        assert_eq!(read_and_unmap.beyond(&read), Some("operation 42h".to_owned()));
        assert_eq!(read_and_unmap.beyond(&all), None);
        let writing = AllowedOperations::of(OperationClasses::READ | OperationClasses::WRITE);
        let same = read.clone().with_operation(code::WRITE_SAME_16, None);
        assert_eq!(same.beyond(&writing), Some("operation 93h".to_owned()), "it unmaps too");
        assert_eq!(read.clone().with_operation(code::READ_16, None).beyond(&read), None);
    }

    #[test]
    fn operations_that_no_disk_has_are_told() {
        let read = AllowedOperations::of(OperationClasses::READ);
        let unknown = |code, action| read.clone().with_operation(code, action).unknown();
        assert_eq!(unknown(code::READ_CD, None), Some("operation BEh".to_owned()));
        assert_eq!(unknown(code::SERVICE_ACTION_IN_16, Some(0x13)), Some("operation 9Eh/13h".to_owned()));
        assert_eq!(unknown(code::MAINTENANCE_OUT, None), Some("operation A4h".to_owned()), "about the target");
        assert_eq!((unknown(code::SERVICE_ACTION_IN_16, None), unknown(code::UNMAP, None)), (None, None));
    }
}
