//! What the reports answer: LUNs, operation codes (SPC-5 6.33 and 6.35), task management functions, defects.

use sanwire_core::Lun;

use crate::bytes::{AnswerError, put, u32_at, u64_at};
use crate::command::{ReadDefectData, ReportedOperations};
use crate::operation::{CommandSet, Operation};
use crate::sense::Sense;

/// REPORT LUNS data.
#[must_use]
pub fn luns(luns: &[Lun]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + 8 * luns.len());
    bytes.extend((8 * luns.len() as u32).to_be_bytes());
    bytes.extend([0; 4]);
    luns.iter().for_each(|lun| bytes.extend(lun.to_wire()));
    bytes
}

/// Reads the header of REPORT LUNS data: how many bytes the whole of it has, also where the allocation was too small for them.
///
/// # Errors
/// [`AnswerError::Short`] when there is not even a header.
pub fn luns_bytes(bytes: &[u8]) -> Result<usize, AnswerError> {
    let list_bytes = u32_at(bytes, 0).ok_or(AnswerError::Short("REPORT LUNS"))?;
    Ok((list_bytes as usize).saturating_add(8))
}

/// Reads REPORT LUNS data: the units that can be addressed with one level, in the order told. When the allocation was
/// too small for all, those that fitted.
///
/// # Errors
/// [`AnswerError::Short`] when there is not even a header.
pub fn parse_luns(bytes: &[u8]) -> Result<Vec<Lun>, AnswerError> {
    let length = u32_at(bytes, 0).ok_or(AnswerError::Short("REPORT LUNS"))? as usize;
    let list = bytes.get(8..).ok_or(AnswerError::Short("REPORT LUNS"))?;
    let list = &list[..length.min(list.len())];
    Ok(list.as_chunks::<8>().0.iter().filter_map(|entry| Lun::from_wire(*entry)).collect())
}

/// A run of blocks in GET LBA STATUS data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LbaRun {
    /// Its first block.
    pub lba: u64,
    /// How many there are.
    pub blocks: u32,
    /// Whether space stands behind them, or that is not known; the others are deallocated.
    pub is_mapped: bool,
}

/// Reads GET LBA STATUS data (SBC-4 5.6.2): the runs that came, in the order told.
///
/// # Errors
/// [`AnswerError::Short`] when there is not even a header.
pub fn parse_lba_status(bytes: &[u8]) -> Result<Vec<LbaRun>, AnswerError> {
    const DEALLOCATED: u8 = 1;
    let short = AnswerError::Short("GET LBA STATUS");
    // The length does not count itself.
    let length = (u32_at(bytes, 0).ok_or(short)? as usize).saturating_sub(4);
    let list = bytes.get(8..).ok_or(short)?;
    let list = &list[..length.min(list.len())];
    Ok(list
        .as_chunks::<16>()
        .0
        .iter()
        .map(|run| LbaRun {
            lba: u64_at(run, 0).unwrap_or(0),
            blocks: u32_at(run, 8).unwrap_or(0),
            is_mapped: run[12] & 0xf != DEALLOCATED,
        })
        .collect())
}

/// REPORT SUPPORTED OPERATION CODES data, with the timeouts for a medium of so many bytes, if they are wanted.
///
/// # Errors
/// INVALID FIELD IN CDB when a service action is asked of an operation that has none, or the reverse.
pub fn operations(reported: ReportedOperations, timeouts: Option<u64>, set: CommandSet) -> Result<Vec<u8>, Sense> {
    match reported {
        ReportedOperations::All => Ok(all_operations(timeouts, set)),
        ReportedOperations::Code(code) => {
            if takes_actions(code, set) {
                return Err(Sense::invalid_field_in_cdb(2, Some(2)));
            }
            Ok(one_operation(find(code, None, set), timeouts))
        }
        ReportedOperations::CodeAndAction(code, action) => {
            if set.of_code(code).next().is_some() && !takes_actions(code, set) {
                return Err(Sense::invalid_field_in_cdb(2, Some(2)));
            }
            Ok(one_operation(find(code, Some(action), set), timeouts))
        }
        ReportedOperations::Either(code, action) => {
            let asked = if takes_actions(code, set) { Some(action) } else { None };
            // SPC-5 6.35.1: without service actions, a requested one other than zero is not supported.
            let found = find(code, asked, set).filter(|_| asked.is_some() || action == 0);
            Ok(one_operation(found, timeouts))
        }
    }
}

fn takes_actions(code: u8, set: CommandSet) -> bool {
    set.of_code(code).any(|operation| operation.service_action.is_some())
}

fn find(code: u8, action: Option<u16>, set: CommandSet) -> Option<&'static Operation> {
    set.of_code(code).find(|operation| operation.service_action.map(u16::from) == action)
}

/// The all_commands parameter data (SPC-5 6.35.2).
fn all_operations(timeouts: Option<u64>, set: CommandSet) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for operation in set.operations() {
        let flags = u8::from(timeouts.is_some()) << 1 | u8::from(operation.service_action.is_some());
        let [_, length] = (operation.cdb_bytes() as u16).to_be_bytes();
        bytes.extend([operation.code, 0, 0, operation.service_action.unwrap_or(0), 0, flags, 0, length]);
        if let Some(medium_bytes) = timeouts {
            bytes.extend(operation.timeouts(medium_bytes));
        }
    }
    let length = (bytes.len() - 4) as u32;
    put(&mut bytes, 0, length.to_be_bytes());
    bytes
}

/// The one_command parameter data (SPC-5 6.35.3).
fn one_operation(operation: Option<&Operation>, timeouts: Option<u64>) -> Vec<u8> {
    let Some(operation) = operation else {
        return vec![0, 0x01, 0, 0];
    };
    let usage = operation.usage_data();
    let mut bytes = vec![0, u8::from(timeouts.is_some()) << 7 | 0x03, 0, usage.len() as u8];
    bytes.extend(usage);
    if let Some(medium_bytes) = timeouts {
        bytes.extend(operation.timeouts(medium_bytes));
    }
    bytes
}

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS data (SPC-5 6.36): ABORT TASK, ABORT TASK SET, CLEAR TASK SET and
/// LOGICAL UNIT RESET, which each wire maps to what it has.
#[must_use]
pub fn task_management_functions(extended: bool) -> Vec<u8> {
    let mut bytes = vec![0x80 | 0x40 | 0x10 | 0x08, 0, 0, 0];
    if extended {
        bytes[3] = 12;
        bytes.resize(16, 0);
    }
    bytes
}

/// READ DEFECT DATA (SBC-3 5.18 and 5.19): the medium has no defects to tell of.
#[must_use]
pub fn no_defects(asked: &ReadDefectData) -> Vec<u8> {
    if asked.is_long { vec![0, asked.request, 0, 0, 0, 0, 0, 0] } else { vec![0, asked.request, 0, 0] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Features;

    const THIN: CommandSet = CommandSet::disk(Features { thin: true, atomic: false, tokens: false });

    #[test]
    fn lun_lists_survive() {
        let list = [0, 1, 300].map(|number| Lun::new(number).unwrap());
        let bytes = luns(&list);
        let expected = [0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x41, 0x2c];
        assert_eq!((bytes.len(), &bytes[..26]), (32, &expected[..]));
        assert_eq!(parse_luns(&bytes), Ok(list.to_vec()));
        assert_eq!(parse_luns(&bytes[..23]), Ok(list[..1].to_vec()), "cut by a small allocation");
        assert!(parse_luns(&bytes[..7]).is_err());
        assert_eq!(
            (luns_bytes(&bytes), luns_bytes(&bytes[..8])),
            (Ok(32), Ok(32)),
            "what is cut says how much it would be"
        );
        assert!(luns_bytes(&bytes[..3]).is_err());
    }

    #[test]
    fn one_operation_shows_its_usage() {
        let write_10 = [0, 3, 0, 10, 0x2a, 0x1a, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0];
        assert_eq!(operations(ReportedOperations::Code(0x2a), None, THIN), Ok(write_10.to_vec()));
        let mut with_timeouts = write_10.to_vec();
        with_timeouts[1] = 0x83;
        with_timeouts.extend([0, 10, 0, 0, 0, 0, 0, 1, 0, 0, 0, 60]);
        assert_eq!(operations(ReportedOperations::Code(0x2a), Some(1 << 40), THIN), Ok(with_timeouts));
        let capacity = [0, 3, 0, 16, 0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0];
        assert_eq!(operations(ReportedOperations::CodeAndAction(0x9e, 0x10), None, THIN), Ok(capacity.to_vec()));
        assert_eq!(operations(ReportedOperations::Either(0x9e, 0x10), None, THIN), Ok(capacity.to_vec()));
        assert_eq!(operations(ReportedOperations::Either(0x2a, 0), None, THIN), Ok(write_10.to_vec()));
    }

    #[test]
    fn what_may_touch_all_of_the_medium_has_as_much_time_as_that_takes() {
        let recommended_s = |asked, medium_bytes| {
            let bytes = operations(asked, Some(medium_bytes), THIN).unwrap();
            u32::from_be_bytes(*bytes.last_chunk().unwrap())
        };
        let (write_same, sanitize) = (ReportedOperations::Code(0x93), ReportedOperations::CodeAndAction(0x48, 1));
        for asked in [ReportedOperations::Code(0x41), write_same, sanitize, ReportedOperations::CodeAndAction(0x48, 2)]
        {
            assert_eq!(recommended_s(asked, 10 << 40), (1 << 20) + 3600, "12 days for 10 TiB: {asked:?}");
            assert_eq!(recommended_s(asked, u64::MAX), u32::MAX);
        }
        let copy = ReportedOperations::CodeAndAction(0x83, 0);
        assert_eq!((recommended_s(copy, 10 << 40), recommended_s(copy, 0)), (3600, 3600), "it has an end");
    }

    #[test]
    fn there_are_no_defects_and_four_task_management_functions() {
        let asked = ReadDefectData { is_long: false, request: 0x1d, allocation_bytes: 99 };
        assert_eq!(no_defects(&asked), [0, 0x1d, 0, 0]);
        assert_eq!(no_defects(&ReadDefectData { is_long: true, ..asked }), [0, 0x1d, 0, 0, 0, 0, 0, 0]);
        assert_eq!(task_management_functions(false), [0xd8, 0, 0, 0]);
        assert_eq!(task_management_functions(true)[..4], [0xd8, 0, 0, 12]);
    }

    #[test]
    fn what_is_not_supported_is_said_so() {
        let no = Ok(vec![0, 1, 0, 0]);
        assert_eq!(operations(ReportedOperations::Code(0xc0), Some(0), THIN), no);
        assert_eq!(operations(ReportedOperations::CodeAndAction(0x9e, 0x13), None, THIN), no);
        assert_eq!(operations(ReportedOperations::Code(0x42), None, CommandSet::disk(Features::default())), no);
        assert_ne!(operations(ReportedOperations::Code(0x42), None, THIN), no);
        assert_eq!(operations(ReportedOperations::Either(0x2a, 7), None, THIN), no);
        let wrong = Err(Sense::invalid_field_in_cdb(2, Some(2)));
        assert_eq!(operations(ReportedOperations::Code(0x9e), None, THIN), wrong);
        assert_eq!(operations(ReportedOperations::CodeAndAction(0x2a, 0), None, THIN), wrong);
    }

    #[test]
    fn all_operations_are_listed_once() {
        for (timeouts, each) in [(None, 8), (Some(0), 20)] {
            let bytes = operations(ReportedOperations::All, timeouts, THIN).unwrap();
            assert_eq!(bytes.len(), 4 + each * THIN.operations().count());
            assert_eq!(bytes[..4], ((bytes.len() - 4) as u32).to_be_bytes());
        }
    }
}
