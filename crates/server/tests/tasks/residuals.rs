//! Writes whose data is not what their command block says.

use sanwire_scsi::{AdditionalSense, Cdb, Sense, SenseKey, Status, build};

use super::{PROMPT, World};
use crate::initiator::GOOD;

const WRONG_DATA: Sense =
    Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);

const WRITE_TWO_BLOCKS: [u8; 10] = [0x2a, 0, 0, 0, 0, 4, 0, 0, 2, 0];

#[test]
fn nobody_is_told_that_data_was_written_which_was_not() {
    let world = World::new();
    let mut own = world.login(1);
    for lba in [4, 5] {
        let tag = own.write(PROMPT, lba, 1);
        assert_eq!(own.hear(), super::initiator::Said::Status(tag, GOOD));
    }
    for data in [&[2; 200][..], &[2; 511], &[2; 700]] {
        assert_eq!(own.ask(PROMPT, Cdb::from(WRITE_TWO_BLOCKS), data), (Status::CheckCondition, Some(WRONG_DATA)));
        assert_eq!((own.read(PROMPT, 4), own.read(PROMPT, 5)), (1, 1), "{} bytes", data.len());
    }
    // Without the flag that it writes, no residual tells of what it did not write.
    assert_eq!(own.ask(PROMPT, Cdb::from(WRITE_TWO_BLOCKS), &[]), (Status::CheckCondition, Some(WRONG_DATA)));
    assert_eq!(own.ask(PROMPT, Cdb::from(WRITE_TWO_BLOCKS), &[3; 512]).0, Status::Good, "a whole block");
    assert_eq!((own.read(PROMPT, 4), own.read(PROMPT, 5)), (3, 1));
    assert_eq!(own.ask(PROMPT, build::test_unit_ready(), &[]).0, Status::Good, "the session goes on");
}
