use super::*;
use crate::Sense;
use crate::operation::{CommandSet, CommandStandard, Features};
use crate::sense::{AdditionalSense, SenseKey};
use crate::task::Cdb;
use proptest::prelude::*;

const THIN: Features = Features::ALL;

/// Of a disk, whichever standard it is of.
#[derive(PartialEq, Debug)]
pub(crate) enum Command {
    Primary(PrimaryCommand),
    Block(BlockCommand),
}

fn parse(bytes: &[u8]) -> Result<Command, Sense> {
    parse_with(&Cdb::new(bytes).unwrap(), THIN)
}

pub(crate) fn parse_with(cdb: &Cdb, features: Features) -> Result<Command, Sense> {
    let operation = CommandSet::disk(features).find(cdb)?;
    match operation.standard {
        CommandStandard::Primary => PrimaryCommand::parse(operation, cdb).map(Command::Primary),
        _ => BlockCommand::parse(operation, cdb).map(Command::Block),
    }
}

fn extent(lba: u64, blocks: u32) -> Extent {
    Extent { lba, blocks }
}

#[test]
fn each_size_of_read_has_its_own_fields() {
    assert_eq!(
        parse(&[0x08, 0x1f, 0x12, 0x34, 7, 0]),
        Ok(Command::Block(BlockCommand::Read { extent: extent(0x1f_1234, 7) }))
    );
    assert_eq!(
        parse(&[0x08, 0, 0, 0, 0, 0]),
        Ok(Command::Block(BlockCommand::Read { extent: extent(0, 256) })),
        "zero is 256 blocks"
    );
    let ten = [0x28, 0x18, 1, 2, 3, 4, 0, 5, 6, 0];
    assert_eq!(parse(&ten), Ok(Command::Block(BlockCommand::Read { extent: extent(0x0102_0304, 0x0506) })));
    let twelve = [0xa8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0];
    assert_eq!(parse(&twelve), Ok(Command::Block(BlockCommand::Read { extent: extent(0x0102_0304, 0x0506_0708) })));
    let sixteen = [0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0];
    assert_eq!(
        parse(&sixteen),
        Ok(Command::Block(BlockCommand::Read { extent: extent(0x0102_0304_0506_0708, 0x090a_0b0c) }))
    );
    assert_eq!(
        parse(&[0x28, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        Ok(Command::Block(BlockCommand::Read { extent: extent(0, 0) }))
    );
}

#[test]
fn writes_carry_fua() {
    for (cdb, force_unit_access) in [
        (&[0x0a, 0, 0, 2, 3, 0][..], false),
        (&[0x2a, 0x08, 0, 0, 0, 2, 0, 0, 3, 0], true),
        (&[0xaa, 0x10, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0], false),
        (&[0x8a, 0x18, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0], true),
    ] {
        assert_eq!(parse(cdb), Ok(Command::Block(BlockCommand::Write { extent: extent(2, 3), force_unit_access })));
    }
}

#[test]
fn commands_that_compare_and_change_have_their_own_fields() {
    let caw = [0x89, 0x08, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 255, 0, 0];
    assert_eq!(
        parse(&caw),
        Ok(Command::Block(BlockCommand::CompareAndWrite { extent: extent(2, 255), force_unit_access: true }))
    );
    let wide = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0];
    assert_eq!(parse(&wide), Err(Sense::invalid_field_in_cdb(12, Some(0))), "the length is one byte");
    let or = [0x8b, 0x10, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 1, 3, 0, 0];
    assert_eq!(
        parse(&or),
        Ok(Command::Block(BlockCommand::OrWrite { extent: extent(2, 259), force_unit_access: false }))
    );
}

#[test]
fn an_atomic_write_has_a_short_length() {
    let write = [0x9c, 0x18, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 1, 3, 0, 0];
    assert_eq!(
        parse(&write),
        Ok(Command::Block(BlockCommand::WriteAtomic { extent: extent(2, 259), force_unit_access: true }))
    );
    let bounded = [0x9c, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 8, 0, 3, 0, 0];
    assert_eq!(parse(&bounded), Err(Sense::invalid_field_in_cdb(11, Some(3))), "no atomic boundary");
}

#[test]
fn sanitize_has_three_forms_and_no_cryptographic_one() {
    let sanitize = |action| parse(&[0x48, action, 0, 0, 0, 0, 0, 2, 4, 0]);
    let overwrite =
        Sanitize { method: SanitizeMethod::Overwrite, immediate: true, unrestricted_exit: false, parameter_bytes: 516 };
    assert_eq!(sanitize(0x81), Ok(Command::Block(BlockCommand::Sanitize(overwrite))));
    let erase = Sanitize { method: SanitizeMethod::BlockErase, immediate: false, unrestricted_exit: true, ..overwrite };
    assert_eq!(sanitize(0x22), Ok(Command::Block(BlockCommand::Sanitize(erase))));
    let exit = Sanitize { method: SanitizeMethod::ExitFailureMode, unrestricted_exit: false, ..erase };
    assert_eq!(sanitize(0x1f), Ok(Command::Block(BlockCommand::Sanitize(exit))));
    assert_eq!(sanitize(0x03), Err(Sense::invalid_field_in_cdb(1, Some(4))));
    assert_eq!(sanitize(0x41), Err(Sense::invalid_field_in_cdb(1, Some(6))), "ZNR");
}

#[test]
fn start_and_stop_may_load_and_eject() {
    let stop = StartStop { power_condition: 0, no_flush: true, load_eject: true, start: false };
    assert_eq!(parse(&[0x1b, 1, 0, 0, 0x06, 0]), Ok(Command::Block(BlockCommand::StartStopUnit(stop))));
    let idle = StartStop { power_condition: 2, no_flush: false, load_eject: false, start: true };
    assert_eq!(parse(&[0x1b, 0, 0, 0, 0x21, 0]), Ok(Command::Block(BlockCommand::StartStopUnit(idle))));
}

#[test]
fn an_obsolete_fua_nv_is_a_fua() {
    let write = [0x2a, 0x02, 0, 0, 0, 2, 0, 0, 3, 0];
    assert_eq!(
        parse(&write),
        Ok(Command::Block(BlockCommand::Write { extent: extent(2, 3), force_unit_access: true }))
    );
    assert_eq!(
        parse(&[0x28, 0x0a, 0, 0, 0, 2, 0, 0, 3, 0]),
        Ok(Command::Block(BlockCommand::Read { extent: extent(2, 3) }))
    );
}

#[test]
fn what_may_wait_says_so() {
    let sync = |flags| parse(&[0x35, flags, 0, 0, 0, 2, 0, 0, 3, 0]);
    assert_eq!(
        sync(0x04),
        Ok(Command::Block(BlockCommand::SynchronizeCache { extent: extent(2, 3), immediate: false })),
        "SYNC_NV"
    );
    assert_eq!(
        sync(0x02),
        Ok(Command::Block(BlockCommand::SynchronizeCache { extent: extent(2, 3), immediate: true }))
    );
    let fetch = [0x34, 0x02, 0, 0, 0, 2, 3, 0, 3, 0];
    assert_eq!(
        parse(&fetch),
        Ok(Command::Block(BlockCommand::PreFetch { extent: extent(2, 3), immediate: true })),
        "in group 3"
    );
    let fetch = [0x90, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0x3f, 0];
    assert_eq!(parse(&fetch), Ok(Command::Block(BlockCommand::PreFetch { extent: extent(2, 3), immediate: false })));
}

#[test]
fn byte_check_has_three_values() {
    for (flags, check) in [(0x00, ByteCheck::Medium), (0x12, ByteCheck::Data), (0x06, ByteCheck::OneBlock)] {
        let verify = [0x2f, flags, 0, 0, 0, 2, 0, 0, 3, 0];
        assert_eq!(parse(&verify), Ok(Command::Block(BlockCommand::Verify { extent: extent(2, 3), check })));
        let write = [0xae, flags, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0];
        assert_eq!(parse(&write), Ok(Command::Block(BlockCommand::WriteAndVerify { extent: extent(2, 3), check })));
    }
    let verify = [0x8f, 0x04, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0];
    assert_eq!(parse(&verify), Err(Sense::invalid_field_in_cdb(1, Some(2))), "10b is reserved");
}

#[test]
fn protection_information_and_other_unsupported_bits_are_refused() {
    for (cdb, byte, bit) in [
        (&[0x28, 0x20, 0, 0, 0, 0, 0, 0, 1, 0][..], 1, 5),
        (&[0x2a, 0xe0, 0, 0, 0, 0, 0, 0, 1, 0], 1, 7),
        (&[0x28, 0x04, 0, 0, 0, 0, 0, 0, 1, 0], 1, 2),
        (&[0x41, 0x10, 0, 0, 0, 0, 0, 0, 1, 0], 1, 4),
        (&[0x41, 0x01, 0, 0, 0, 0, 0, 0, 1, 0], 1, 0),
        (&[0x42, 0x01, 0, 0, 0, 0, 0, 0, 24, 0], 1, 0),
        (&[0x15, 0x11, 0, 0, 4, 0], 1, 0),
        (&[0x1b, 0, 0, 0, 0x08, 0], 4, 3),
        (&[0x12, 0x02, 0, 0, 36, 0], 1, 1),
        (&[0x25, 0, 0, 0, 0, 1, 0, 0, 0, 0], 5, 0),
    ] {
        assert_eq!(parse(cdb), Err(Sense::invalid_field_in_cdb(byte, Some(bit))), "{cdb:02x?}");
    }
}

#[test]
fn who_reads_the_write_verifier_page_may_say_that_it_heeds_it() {
    let asked = Command::Primary(PrimaryCommand::Inquiry { page: Some(0xc0), allocation_bytes: 64, as_writer: true });
    assert_eq!(parse(&[0x12, 1, 0xc0, 0, 64, 0x80]), Ok(asked));
    for cdb in [[0x12, 1, 0x83, 0, 64, 0x80], [0x12, 0, 0, 0, 64, 0x80]] {
        assert_eq!(parse(&cdb), Err(Sense::invalid_field_in_cdb(5, Some(7))), "no other page");
    }
    assert_eq!(parse(&[0x12, 1, 0xc0, 0, 64, 0x40]), Err(Sense::invalid_field_in_cdb(5, Some(6))));
}

#[test]
fn inquiry_needs_evpd_for_a_page() {
    assert_eq!(
        parse(&[0x12, 1, 0xb0, 0, 64, 0]),
        Ok(Command::Primary(PrimaryCommand::Inquiry { page: Some(0xb0), allocation_bytes: 64, as_writer: false }))
    );
    assert_eq!(parse(&[0x12, 0, 0xb0, 0, 64, 0]), Err(Sense::invalid_field_in_cdb(2, None)));
}

#[test]
fn reports_take_their_options() {
    let luns = |select| parse(&[0xa0, 0, select, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(
        luns(0),
        Ok(Command::Primary(PrimaryCommand::ReportLuns { reported: ReportedLuns::All, allocation_bytes: 256 }))
    );
    assert_eq!(
        luns(1),
        Ok(Command::Primary(PrimaryCommand::ReportLuns { reported: ReportedLuns::WellKnown, allocation_bytes: 256 }))
    );
    assert_eq!(luns(0x10), Err(Sense::invalid_field_in_cdb(2, None)));
    let operations = |option| parse(&[0xa3, 0x0c, option, 0x9e, 0, 0x10, 0, 0, 1, 0, 0, 0]);
    let reported = ReportedOperations::Either(0x9e, 0x10);
    let expected =
        Command::Primary(PrimaryCommand::ReportSupportedOperations { reported, timeouts: true, allocation_bytes: 256 });
    assert_eq!(operations(0x83), Ok(expected));
    assert_eq!(operations(0x04), Err(Sense::invalid_field_in_cdb(2, Some(2))));
    let functions = |room| parse(&[0xa3, 0x0d, 0x80, 0, 0, 0, 0, 0, 0, room, 0, 0]);
    let expected =
        Command::Primary(PrimaryCommand::ReportTaskManagementFunctions { extended: true, allocation_bytes: 16 });
    assert_eq!(functions(16), Ok(expected));
    assert_eq!(functions(3), Err(Sense::invalid_field_in_cdb(6, None)));
    let status = [0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 24, 0, 0];
    assert_eq!(parse(&status), Ok(Command::Block(BlockCommand::GetLbaStatus { lba: 5, allocation_bytes: 24 })));
    let defects = ReadDefectData { is_long: false, request: 0x1d, allocation_bytes: 258 };
    assert_eq!(parse(&[0x37, 0, 0x1d, 0, 0, 0, 0, 1, 2, 0]), Ok(Command::Block(BlockCommand::ReadDefectData(defects))));
    let defects = ReadDefectData { is_long: true, ..defects };
    assert_eq!(
        parse(&[0xb7, 0x1d, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0]),
        Ok(Command::Block(BlockCommand::ReadDefectData(defects)))
    );
}

#[test]
fn mode_commands_have_two_forms() {
    let expected = ModeSense {
        form: ModeForm::Ten,
        no_descriptors: true,
        long_lba: true,
        control: PageControl::Default,
        page: 0x3f,
        subpage: 0xff,
        allocation_bytes: 512,
    };
    assert_eq!(
        parse(&[0x5a, 0x18, 0xbf, 0xff, 0, 0, 0, 2, 0, 0]),
        Ok(Command::Primary(PrimaryCommand::ModeSense(expected)))
    );
    let select =
        Command::Primary(PrimaryCommand::ModeSelect { form: ModeForm::Ten, page_format: true, parameter_bytes: 28 });
    assert_eq!(parse(&[0x55, 0x10, 0, 0, 0, 0, 0, 0, 28, 0]), Ok(select));
}

#[test]
fn what_a_disk_does_not_know_is_no_operation() {
    let unknown = Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    for code in [0x04, 0x0b, 0x1c, 0x40, 0x7f, 0x9d, 0xc0] {
        assert_eq!(parse(&[code; 16]), Err(unknown), "{code:02x}");
    }
}

proptest! {
    /// No CDB makes the parser panic, and what it accepts has no bit outside the usage data.
    #[test]
    fn any_cdb_is_read(bytes in prop::collection::vec(any::<u8>(), 1..=32), thin: bool, atomic: bool, tokens: bool) {
        let cdb = Cdb::new(&bytes).unwrap();
        if parse_with(&cdb, Features { thin, atomic, tokens }).is_ok() {
            let operation = CommandSet::disk(Features { thin, atomic, tokens }).find(&cdb).unwrap();
            let usage = operation.usage_data();
            for (at, byte) in bytes.iter().enumerate() {
                prop_assert_eq!(byte & !usage.get(at).copied().unwrap_or(0), 0);
            }
        }
    }
}
