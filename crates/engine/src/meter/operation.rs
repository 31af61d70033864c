//! What a command does, as it is counted.

use sanwire_scsi::Cdb;
use sanwire_scsi::operation_code as code;

/// What a command does to its volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Operation {
    /// It reads blocks.
    Read,
    /// It writes blocks.
    Write,
    /// It waits until what was written is stable.
    Flush,
    /// It gives space back.
    Unmap,
    /// It compares blocks with others, perhaps to write then.
    Compare,
    /// It copies blocks, or asks how that goes on.
    Copy,
    /// It asks for something, or changes something else than blocks.
    Other,
}

/// WRITE SAME with this bit in byte 1 unmaps (SBC-4 5.50).
const UNMAP_BIT: u8 = 0x08;

impl Operation {
    /// All of them, in the order of their places.
    pub const ALL: [Operation; 7] = [
        Operation::Read,
        Operation::Write,
        Operation::Flush,
        Operation::Unmap,
        Operation::Compare,
        Operation::Copy,
        Operation::Other,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Unmap => "unmap",
            Operation::Compare => "compare",
            Operation::Copy => "copy",
            Operation::Other => "other",
        }
    }

    /// What this command does. The codes of these mean the same for every device type.
    pub(crate) fn of(cdb: &Cdb) -> Operation {
        match cdb.operation_code() {
            code::WRITE_SAME_10 | code::WRITE_SAME_16 if cdb.get(1).is_some_and(|bits| bits & UNMAP_BIT != 0) => {
                Operation::Unmap
            }
            known => OF_CODES[usize::from(known)],
        }
    }
}

const OF_CODES: [Operation; 256] = {
    const KNOWN: [(Operation, &[u8]); 6] = [
        (
            Operation::Read,
            &[code::READ_6, code::READ_10, code::READ_12, code::READ_16, code::READ_CD, code::READ_CD_MSF],
        ),
        (
            Operation::Write,
            &[
                code::WRITE_6,
                code::WRITE_10,
                code::WRITE_12,
                code::WRITE_16,
                code::WRITE_AND_VERIFY_10,
                code::WRITE_AND_VERIFY_12,
                code::WRITE_AND_VERIFY_16,
                code::WRITE_ATOMIC_16,
                code::WRITE_SAME_10,
                code::WRITE_SAME_16,
                code::ORWRITE_16,
            ],
        ),
        (Operation::Flush, &[code::SYNCHRONIZE_CACHE_10, code::SYNCHRONIZE_CACHE_16]),
        (Operation::Unmap, &[code::UNMAP]),
        (Operation::Compare, &[code::COMPARE_AND_WRITE, code::VERIFY_10, code::VERIFY_12, code::VERIFY_16]),
        (Operation::Copy, &[code::EXTENDED_COPY, code::RECEIVE_COPY_RESULTS]),
    ];
    let mut table = [Operation::Other; 256];
    let mut kind = 0;
    while kind < KNOWN.len() {
        let (operation, codes) = KNOWN[kind];
        let mut at = 0;
        while at < codes.len() {
            table[codes[at] as usize] = operation;
            at += 1;
        }
        kind += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_counted_by_what_it_does() {
        let of = |bytes: &[u8]| Operation::of(&Cdb::new(bytes).unwrap()).name();
        for (code, name) in [
            (code::READ_16, "read"),
            (code::WRITE_10, "write"),
            (code::SYNCHRONIZE_CACHE_10, "flush"),
            (code::UNMAP, "unmap"),
            (code::COMPARE_AND_WRITE, "compare"),
            (code::EXTENDED_COPY, "copy"),
            (code::TEST_UNIT_READY, "other"),
            (0xff, "other"),
        ] {
            assert_eq!(of(&[code; 1]), name);
        }
        assert_eq!([of(&[code::WRITE_SAME_16, 8]), of(&[code::WRITE_SAME_16, 0])], ["unmap", "write"]);
        assert!(Operation::ALL.iter().zip(0..).all(|(operation, place)| *operation as u8 == place));
    }
}
