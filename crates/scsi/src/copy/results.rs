//! The data of RECEIVE COPY RESULTS (SPC-3 6.17; in SPC-4 each service action is a command of its own).

use super::{
    COPIES_MAX, COPIES_OF_NEXUS_MAX, DESCRIPTOR_TYPES, DESCRIPTORS_MAX_BYTES, SEGMENT_MAX_BYTES, SEGMENTS_MAX,
    TARGETS_MAX,
};
use crate::bytes::put;
use crate::task::Status;

/// Which results are asked for: the service actions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum CopyResults {
    /// 00h: how far a copy is.
    Status = 0x00,
    /// 01h: data that a copy has kept for its initiator.
    HeldData = 0x01,
    /// 03h: what EXTENDED COPY can do.
    OperatingParameters = 0x03,
    /// 04h: why a segment was not copied.
    FailedSegmentDetails = 0x04,
}

/// How a copy stands (COPY MANAGER STATUS).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum CopyState {
    /// Under way.
    InProgress = 0x00,
    /// Done.
    Done = 0x01,
    /// Ended before all was done.
    Failed = 0x02,
}

/// How far a copy is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CopyStatus {
    /// How it stands.
    pub state: CopyState,
    /// Segments that were copied whole.
    pub segments: u16,
    /// Bytes written.
    pub bytes: u32,
}

impl CopyStatus {
    /// COPY STATUS data (SPC-3 6.17.2). The count is in bytes: no list can ask for more than fits.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        put(&mut bytes, 0, 8_u32.to_be_bytes());
        bytes[4] = self.state as u8;
        put(&mut bytes, 5, self.segments.to_be_bytes());
        put(&mut bytes, 8, self.bytes.to_be_bytes());
        bytes
    }
}

/// RECEIVE DATA data (SPC-3 6.17.3): none, for no supported segment holds any.
#[must_use]
pub fn held_data() -> [u8; 4] {
    [0; 4]
}

/// FAILED SEGMENT DETAILS data (SPC-3 6.17.5): with what the copy ended, when it failed.
#[must_use]
pub fn failed_segment_details(failure: Option<(Status, &[u8])>) -> Vec<u8> {
    let Some((status, sense)) = failure else { return vec![0; 4] };
    let mut bytes = vec![0; 60];
    bytes[56] = status as u8;
    // Sense data has at most 252 bytes (SPC-5 4.5.1).
    put(&mut bytes, 58, (sense.len() as u16).to_be_bytes());
    bytes.extend(sense);
    let available = (bytes.len() - 4) as u32;
    put(&mut bytes, 0, available.to_be_bytes());
    bytes
}

/// OPERATING PARAMETERS data (SPC-3 6.17.4) of a unit with this block.
#[must_use]
pub fn operating_parameters(block_bytes: u32) -> Vec<u8> {
    let mut bytes = vec![0; 44];
    bytes[4] = 0x01; // SNLID: LIST ID USAGE 11b is known
    put(&mut bytes, 8, (TARGETS_MAX as u16).to_be_bytes());
    put(&mut bytes, 10, (SEGMENTS_MAX as u16).to_be_bytes());
    put(&mut bytes, 12, (DESCRIPTORS_MAX_BYTES as u32).to_be_bytes());
    put(&mut bytes, 16, SEGMENT_MAX_BYTES.to_be_bytes());
    put(&mut bytes, 34, u16::from(COPIES_MAX).to_be_bytes());
    bytes[36] = COPIES_OF_NEXUS_MAX;
    bytes[37] = granularity(block_bytes);
    bytes[43] = DESCRIPTOR_TYPES.len() as u8;
    bytes.extend(DESCRIPTOR_TYPES);
    let available = (bytes.len() - 4) as u32;
    put(&mut bytes, 0, available.to_be_bytes());
    bytes
}

/// DATA SEGMENT GRANULARITY: a power of two.
pub(crate) fn granularity(block_bytes: u32) -> u8 {
    block_bytes.max(1).ilog2() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_bytes_of_the_standard() {
        let status = CopyStatus { state: CopyState::Failed, segments: 0x0102, bytes: 0x0304_0506 };
        assert_eq!(status.to_bytes(), [0, 0, 0, 8, 2, 1, 2, 0, 3, 4, 5, 6]);
        assert_eq!(failed_segment_details(None), [0; 4]);
        let details = failed_segment_details(Some((Status::CheckCondition, &[0x70, 0, 0x0a])));
        assert_eq!(details.len(), 63);
        assert_eq!((&details[..4], &details[56..]), (&[0, 0, 0, 59][..], &[2, 0, 0, 3, 0x70, 0, 0x0a][..]));
        let parameters = operating_parameters(4096);
        assert_eq!(parameters[..5], [0, 0, 0, 43, 1]);
        assert_eq!(parameters[8..20], [0, 16, 0, 16, 0, 0, 8, 0, 4, 0, 0, 0]);
        assert_eq!(parameters[34..], [0, 64, 32, 12, 0, 0, 0, 0, 0, 3, 0x02, 0x0a, 0xe4]);
    }
}
