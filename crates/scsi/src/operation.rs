//! The operations of each device type: tables that the parsers obey and REPORT SUPPORTED OPERATION CODES prints. What a code means
//! depends on the type: that of SEND KEY is, elsewhere, that of MAINTENANCE IN.

mod class;
pub mod code;
mod mmc;
mod repeat;
mod row;
mod sbc;
mod spc;

use crate::bytes::put;
use crate::reservation::Access;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::task::Cdb;

pub use class::{OperationClass, OperationClasses, classes_of};
use row::merged;

/// Of INQUIRY's CONTROL byte (bits 7 and 6 are vendor specific, SAM-5 5.2): the initiator that reads the write verifier page
/// heeds what it says.
pub(crate) const AS_WRITER: u8 = 0x80;

/// The standard that says what an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CommandStandard {
    /// SPC: [`crate::PrimaryCommand`] reads it.
    Primary,
    /// SBC: [`crate::BlockCommand`] reads it.
    Block,
    /// MMC: [`crate::MultimediaCommand`] reads it.
    Multimedia,
}

/// One command that a logical unit knows.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Whose command it is.
    pub standard: CommandStandard,
    /// Byte 0.
    pub code: u8,
    /// Byte 1 bits 4 to 0, for the codes that several commands share.
    pub service_action: Option<u8>,
    /// CDB usage data (SPC-5 6.35.3): a one for each bit that is evaluated. Its length is the CDB's.
    usage: &'static [u8],
    /// The same as a number, the first byte highest; the operation code and a service action are evaluated too.
    evaluated: u128,
    effort: Effort,
    need: Need,
    /// Whether it changes the unit by more than writing blocks: state that others would notice.
    pub changes_unit: bool,
    /// Whether it is executed also while its initiator must be told of a unit attention condition, which stays.
    ends_no_attention: bool,
}

/// Without which a unit does not have an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Need {
    /// Every unit of the type has it.
    Nothing,
    /// Blocks can be unmapped.
    Thin,
    /// Writes can be atomic.
    Atomic,
    /// Tokens stand for data.
    Tokens,
}

/// How long a command may take: the two times of the command timeouts descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effort {
    /// Answers from memory.
    Control,
    /// One transfer.
    Transfer,
    /// A bounded range of the medium, or everything that is cached.
    Range,
    /// All of the medium, perhaps.
    Medium,
}

/// The most that a copy (16 segments of 64 MiB), an UNMAP or a flush takes, when the store is slow and has much else to do.
const RANGE_S: u32 = 3600;

/// A slow store writes so fast, where it is not in a hurry.
const SLOW_BYTES_PER_SECOND: u64 = 10 << 20;

/// What a logical unit can do beyond the least: which operations it has depends on this.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// Unmapping gives space back: it has UNMAP.
    pub thin: bool,
    /// A write is done wholly or not at all: it has WRITE ATOMIC.
    pub atomic: bool,
    /// It makes and takes tokens that stand for data: it has POPULATE TOKEN and what belongs to that.
    pub tokens: bool,
}

impl Features {
    /// All that a unit can have.
    pub const ALL: Features = Features { thin: true, atomic: true, tokens: true };
}

/// The operations of one device type.
#[derive(Debug)]
struct Table {
    operations: &'static [Operation],
    /// For each code, where its operations begin; past the end when it has none.
    first_by_code: [u8; 256],
    access: fn(&Cdb) -> Access,
    /// The codes of the commands that do the same when they are done again.
    repeatable: &'static [&'static [u8]],
    /// Of these, those that change nothing and may have much to tell.
    bulk_reads: &'static [&'static [u8]],
}

impl Table {
    const fn of(
        operations: &'static [Operation],
        access: fn(&Cdb) -> Access,
        repeatable: &'static [&'static [u8]],
        bulk_reads: &'static [&'static [u8]],
    ) -> Table {
        assert!(operations.len() < u128::BITS as usize);
        let mut first_by_code = [u8::MAX; 256];
        let mut at = operations.len();
        while at > 0 {
            at -= 1;
            first_by_code[operations[at].code as usize] = at as u8;
        }
        Table { operations, first_by_code, access, repeatable, bulk_reads }
    }
}

static PRIMARY: Table =
    Table::of(spc::OPERATIONS, Access::of_block_device, &[repeat::PRIMARY], &[repeat::BULK_PRIMARY]);

static DISK: Table = {
    const OF_BLOCKS: [Operation; spc::OPERATIONS.len() + sbc::OPERATIONS.len()] =
        merged(spc::OPERATIONS, sbc::OPERATIONS);
    const ALL: [Operation; OF_BLOCKS.len() + spc::MAINTENANCE.len()] = merged(&OF_BLOCKS, spc::MAINTENANCE);
    Table::of(
        &ALL,
        Access::of_block_device,
        &[repeat::PRIMARY, repeat::MAINTENANCE, repeat::BLOCK],
        &[repeat::BULK_PRIMARY, repeat::BULK_BLOCK],
    )
};

static OPTICAL: Table = {
    const ALL: [Operation; spc::OPERATIONS.len() + mmc::OPERATIONS.len()] = merged(spc::OPERATIONS, mmc::OPERATIONS);
    Table::of(
        &ALL,
        Access::of_optical_drive,
        &[repeat::PRIMARY, repeat::MULTIMEDIA],
        &[repeat::BULK_PRIMARY, repeat::BULK_MULTIMEDIA],
    )
};

/// The operations that a logical unit has.
#[derive(Clone, Copy, Debug)]
pub struct CommandSet {
    table: &'static Table,
    features: Features,
    /// A one at the place of each operation of the table that it does not have in spite of these.
    withheld: u128,
}

impl CommandSet {
    /// Those that every unit has, whatever its type.
    #[must_use]
    pub fn primary() -> CommandSet {
        CommandSet { table: &PRIMARY, features: Features::default(), withheld: 0 }
    }

    /// Those of a disk.
    #[must_use]
    pub const fn disk(features: Features) -> CommandSet {
        CommandSet { table: &DISK, features, withheld: 0 }
    }

    /// Those of a CD, DVD or BD drive that only reads.
    #[must_use]
    pub const fn optical() -> CommandSet {
        CommandSet { table: &OPTICAL, features: Features { thin: false, atomic: false, tokens: false }, withheld: 0 }
    }

    /// Whether the command is executed also while its initiator must be told of a unit attention condition (SPC-5 table 52, MMC-6
    /// 4.1.7).
    #[must_use]
    pub fn ends_no_attention(self, cdb: &Cdb) -> bool {
        self.of_code(cdb.operation_code()).any(|operation| operation.ends_no_attention)
    }

    /// What the command is to reservations.
    #[must_use]
    pub fn access(self, cdb: &Cdb) -> Access {
        (self.table.access)(cdb)
    }

    /// Whether the command may be executed again when it is not known if it was: what it does does not depend on how often it is done.
    #[must_use]
    pub fn is_repeatable(self, cdb: &Cdb) -> bool {
        self.table.repeatable.iter().any(|codes| codes.contains(&cdb.operation_code()))
    }

    /// Whether the answer of the command may be long, and is the same when the command is given again, as it changes nothing: then
    /// it need not be kept for an initiator that has lost it.
    #[must_use]
    pub fn is_bulk_read(self, cdb: &Cdb) -> bool {
        self.table.bulk_reads.iter().any(|codes| codes.contains(&cdb.operation_code()))
    }

    /// All of them, ascending by code.
    pub fn operations(self) -> impl Iterator<Item = &'static Operation> {
        self.table.operations.iter().zip(0_u32..).filter_map(move |(operation, at)| self.had(operation, at))
    }

    /// All operations of one code (several when it takes service actions).
    pub fn of_code(self, code: u8) -> impl Iterator<Item = &'static Operation> {
        let first = usize::from(self.table.first_by_code[usize::from(code)]);
        let rest = self.table.operations.get(first..).unwrap_or(&[]);
        let of_code = rest.iter().zip(first as u32..).take_while(move |(operation, _)| operation.code == code);
        of_code.filter_map(move |(operation, at)| self.had(operation, at))
    }

    /// The operation at this place of the table, if it is one of them.
    fn had(self, operation: &'static Operation, at: u32) -> Option<&'static Operation> {
        (operation.is_supported(self.features) && self.withheld & 1 << at == 0).then_some(operation)
    }

    /// Finds what the CDB asks and checks each of its bits against the usage data.
    ///
    /// A protocol may pad a CDB with zeroes (iSCSI always carries sixteen bytes).
    ///
    /// # Errors
    /// The sense data to answer: an unknown code, an unknown service action, or a bit that is not supported.
    pub fn find(self, cdb: &Cdb) -> Result<&'static Operation, Sense> {
        let operation = self.find_code(cdb)?;
        let (first, padding) = cdb.as_numbers();
        let stray = first & !operation.evaluated;
        if stray != 0 || padding != 0 {
            let place = if stray != 0 { stray.leading_zeros() } else { u128::BITS + padding.leading_zeros() };
            return Err(Sense::invalid_field_in_cdb((place / 8) as u16, Some(7 - (place % 8) as u8)));
        }
        if cdb.len() < operation.cdb_bytes() {
            return Err(Sense::invalid_field_in_cdb(cdb.len() as u16, None));
        }
        Ok(operation)
    }

    fn find_code(self, cdb: &Cdb) -> Result<&'static Operation, Sense> {
        let asked_action = cdb.get(1).map_or(0, |byte| byte & 0x1f);
        let mut is_known_code = false;
        for operation in self.of_code(cdb.operation_code()) {
            is_known_code = true;
            if operation.service_action.is_none_or(|action| action == asked_action) {
                return Ok(operation);
            }
        }
        if is_known_code {
            return Err(Sense::invalid_field_in_cdb(1, Some(4)));
        }
        Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE))
    }
}

impl Operation {
    fn is_supported(&self, features: Features) -> bool {
        match self.need {
            Need::Nothing => true,
            Need::Thin => features.thin,
            Need::Atomic => features.atomic,
            Need::Tokens => features.tokens,
        }
    }

    /// The length of the CDB.
    #[must_use]
    pub fn cdb_bytes(&self) -> usize {
        self.usage.len()
    }

    /// CDB usage data with the operation code and the service action in place (SPC-5 6.35.3).
    #[must_use]
    pub fn usage_data(&self) -> Vec<u8> {
        let mut usage = self.usage.to_vec();
        usage[0] = self.code;
        usage[1] |= self.service_action.unwrap_or(0);
        usage
    }

    /// The command timeouts descriptor (SPC-5 6.35.4): nominal and recommended time, in seconds, on a medium of so many bytes.
    #[must_use]
    pub fn timeouts(&self, medium_bytes: u64) -> [u8; 12] {
        let (nominal_s, recommended_s) = match self.effort {
            Effort::Control => (1_u32, 30),
            Effort::Transfer => (1, 60),
            Effort::Range => (10, RANGE_S),
            Effort::Medium => {
                let written_s = u32::try_from(medium_bytes / SLOW_BYTES_PER_SECOND).unwrap_or(u32::MAX);
                (10, RANGE_S.saturating_add(written_s))
            }
        };
        let mut descriptor = [0; 12];
        put(&mut descriptor, 0, 0x0a_u16.to_be_bytes());
        put(&mut descriptor, 4, nominal_s.to_be_bytes());
        put(&mut descriptor, 8, recommended_s.to_be_bytes());
        descriptor
    }
}

/// The byte in which the TRANSFER LENGTH (or PARAMETER LIST LENGTH, or NUMBER OF BLOCKS) of a CDB begins: its place is
/// the same in all commands of one length (SPC-5 4.2.2).
#[must_use]
pub fn length_field(code: u8) -> u16 {
    match code {
        // Shorter than in others, and at the end of their field.
        code::COMPARE_AND_WRITE => return 13,
        code::WRITE_ATOMIC_16 => return 12,
        _ => {}
    }
    match code >> 5 {
        0 => 4,
        1 | 2 => 7,
        4 => 10,
        _ => 6,
    }
}

/// Whether the data of an operation may go in pieces, each of which is done when the one before is.
#[must_use]
pub fn goes_in_pieces(code: u8) -> bool {
    let reads = matches!(code, code::READ_10 | code::READ_12 | code::READ_16);
    let writes = matches!(code, code::WRITE_10 | code::WRITE_12 | code::WRITE_16);
    let verifies = matches!(code, code::VERIFY_10 | code::VERIFY_12 | code::VERIFY_16);
    let does_both = matches!(code, code::WRITE_AND_VERIFY_10 | code::WRITE_AND_VERIFY_12 | code::WRITE_AND_VERIFY_16);
    reads || writes || verifies || does_both
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_lengths_follow_the_group_code() {
        for table in [&PRIMARY, &DISK, &OPTICAL] {
            let keys: Vec<_> = table.operations.iter().map(|o| (o.code, o.service_action)).collect();
            assert!(keys.is_sorted());
            for operation in table.operations {
                let length = [6, 10, 10, 0, 16, 12][usize::from(operation.code >> 5)];
                assert_eq!(operation.cdb_bytes(), length, "{:02x}", operation.code);
            }
        }
    }

    #[test]
    fn what_a_code_means_depends_on_the_type() {
        let of = |set: CommandSet, code| set.of_code(code).map(|o| o.standard).collect::<Vec<_>>();
        let (disk, optical) = (CommandSet::disk(Features::ALL), CommandSet::optical());
        assert_eq!(of(disk, 0x42), [CommandStandard::Block], "UNMAP");
        assert_eq!(of(optical, 0x42), [], "READ SUB-CHANNEL");
        assert_eq!(of(disk, 0xa3), [CommandStandard::Primary; 3], "MAINTENANCE IN");
        assert_eq!(of(optical, 0xa3), [], "SEND KEY");
        assert_eq!((of(disk, 0x43), of(optical, 0x43)), (vec![], vec![CommandStandard::Multimedia]));
        let codes: Vec<u8> = [0x12, 0x25, 0x28].into();
        codes.iter().for_each(|code| assert_eq!((of(disk, *code).len(), of(optical, *code).len()), (1, 1)));
    }

    #[test]
    fn whether_a_command_may_be_done_again_depends_on_the_type() {
        let may_be = |set: CommandSet, code: u8| set.is_repeatable(&Cdb::new(&[code]).unwrap());
        let (disk, optical) = (CommandSet::disk(Features::default()), CommandSet::optical());
        let of_all = [0x00, 0x03, 0x12, 0x15, 0x1a, 0x4d, 0x55, 0x5a, 0xa0];
        assert!(of_all.iter().all(|code| [disk, optical, CommandSet::primary()].iter().all(|set| may_be(*set, *code))));
        // READ (6), WRITE (6), READ REVERSE, WRITE FILEMARKS, SPACE, VERIFY (6), ERASE, LOAD UNLOAD, LOCATE, READ POSITION, SPACE (16),
        // LOCATE (16), MOVE MEDIUM, EXCHANGE MEDIUM.
        for code in [0x08, 0x0a, 0x0f, 0x10, 0x11, 0x13, 0x19, 0x1b, 0x2b, 0x34, 0x91, 0x92, 0xa5, 0xa6] {
            assert!(!may_be(CommandSet::primary(), code), "a tape or changer: {code:02x}");
        }
        for (code, of_disk, of_drive) in [
            (0x28, true, true),
            (0x2a, true, false),
            (0x34, true, false),
            (0x42, true, false),
            (0x43, false, true),
            (0x4a, false, false),
            (0x89, false, false),
            (0xa3, true, false),
            (0xbe, false, true),
            (0x5f, false, false),
        ] {
            assert_eq!((may_be(disk, code), may_be(optical, code)), (of_disk, of_drive), "{code:02x}");
        }
        for set in [&PRIMARY, &DISK, &OPTICAL] {
            let mut codes = set.repeatable.iter().chain(set.bulk_reads).flat_map(|codes| codes.iter());
            assert!(codes.all(|code| set.operations.iter().any(|operation| operation.code == *code)));
        }
    }

    #[test]
    fn which_answers_need_not_be_kept_depends_on_the_type() {
        let is = |set: CommandSet, code: u8| set.is_bulk_read(&Cdb::new(&[code]).unwrap());
        let (disk, optical) = (CommandSet::disk(Features::default()), CommandSet::optical());
        for (code, of_any, of_disk, of_drive) in [
            (0x5e, true, true, true),
            (0x08, false, true, false),
            (0x28, false, true, true),
            (0x88, false, true, false),
            (0xa8, false, true, true),
            (0xb9, false, false, true),
            (0xbe, false, false, true),
            (0x12, false, false, false),
            (0x2a, false, false, false),
            (0x4a, false, false, false),
        ] {
            let found = (is(CommandSet::primary(), code), is(disk, code), is(optical, code));
            assert_eq!(found, (of_any, of_disk, of_drive), "{code:02x}");
        }
    }

    #[test]
    fn stray_bits_are_pointed_at() {
        let mut bytes = [0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
        let find = |bytes: &[u8]| CommandSet::disk(Features::default()).find(&Cdb::new(bytes).unwrap()).map(|o| o.code);
        assert_eq!(find(&bytes), Ok(0x88));
        bytes[1] = 0x20;
        assert_eq!(find(&bytes), Err(Sense::invalid_field_in_cdb(1, Some(5))), "RDPROTECT");
        bytes[1] = 0x18;
        bytes[15] = 0x04;
        assert_eq!(find(&bytes), Err(Sense::invalid_field_in_cdb(15, Some(2))), "NACA");
        assert_eq!(find(&bytes[..15]), Err(Sense::invalid_field_in_cdb(15, None)), "too short");
        assert_eq!(find(&[0; 16]), Ok(0), "padded with zeroes");
        assert_eq!(find(&[0, 0, 0, 0, 0, 0, 1]), Err(Sense::invalid_field_in_cdb(6, Some(0))));
        assert_eq!(find(&[0x9e, 0x11, 0]), Err(Sense::invalid_field_in_cdb(1, Some(4))), "unknown service action");
        let unknown = Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
        assert_eq!(find(&[0xff]), Err(unknown));
        assert_eq!(find(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0]), Err(unknown), "UNMAP without thin provisioning");
    }
}
