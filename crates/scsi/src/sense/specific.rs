//! What sense data says besides that depends on its key: the sense key specific bytes (SPC-5 4.5.2.4), and of copies the segment.

use super::{FailedSegment, FieldPointer, Sense, SenseKey};
use crate::bytes::u16_at;

impl Sense {
    /// The sense key specific bytes, when there is something to say.
    pub(super) fn key_specific(&self) -> Option<[u8; 3]> {
        let progress = || self.progress.map(u16::to_be_bytes).map(|[high, low]| [0x80, high, low]);
        let in_segment = || self.segment?.byte.map(u16::to_be_bytes).map(|[high, low]| [0xa0, high, low]);
        self.field.map(field_to_wire).or_else(in_segment).or_else(progress)
    }

    pub(super) fn set_key_specific(&mut self, bytes: &[u8]) {
        self.field = field_from_wire(self.key, bytes);
        self.progress = progress_from_wire(self.key, bytes);
        if let Some(segment) = &mut self.segment {
            segment.byte = segment_byte_from_wire(bytes);
        }
    }

    /// The command-specific information: of copies, the segment.
    pub(super) fn set_command_specific(&mut self, number: Option<u16>) {
        if self.key == SenseKey::CopyAborted {
            self.segment = number.map(|number| FailedSegment { number, byte: None });
        }
    }
}

fn field_to_wire(field: FieldPointer) -> [u8; 3] {
    let in_cdb = if field.in_cdb { 0x40 } else { 0 };
    let bit = field.bit.map_or(0, |bit| 0x08 | (bit & 0x07));
    let [high, low] = field.byte.to_be_bytes();
    [0x80 | in_cdb | bit, high, low]
}

fn field_from_wire(key: SenseKey, bytes: &[u8]) -> Option<FieldPointer> {
    let flags = *bytes.first()?;
    if key != SenseKey::IllegalRequest || flags & 0x80 == 0 {
        return None;
    }
    let bit = (flags & 0x08 != 0).then_some(flags & 0x07);
    Some(FieldPointer { in_cdb: flags & 0x40 != 0, byte: u16_at(bytes, 1)?, bit })
}

/// The segment pointer, when it counts from the segment's descriptor (SD).
fn segment_byte_from_wire(bytes: &[u8]) -> Option<u16> {
    u16_at(bytes, 1).filter(|_| bytes.first().is_some_and(|flags| flags & 0xa0 == 0xa0))
}

fn progress_from_wire(key: SenseKey, bytes: &[u8]) -> Option<u16> {
    let is_valid = matches!(key, SenseKey::NotReady | SenseKey::NoSense) && bytes.first()? & 0x80 != 0;
    u16_at(bytes, 1).filter(|_| is_valid)
}
