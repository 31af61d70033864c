//! Fixed format sense data (SPC-5 4.5.3).

use super::{AdditionalSense, AtaStatus, Information, Meaning, Sense, SenseKey, StreamFlags};
use crate::bytes::{put, u16_at, u32_at};

/// The length of the fixed format as built here, in bytes.
pub const FIXED_BYTES: usize = 18;

/// INFORMATION is valid.
const VALID: u8 = 0x80;

impl Sense {
    /// Fixed format (SPC-5 4.5.3). An INFORMATION value that 32 bits do not hold is left out, as the standard says.
    #[must_use]
    pub fn to_fixed(&self) -> Vec<u8> {
        let mut bytes = vec![0; FIXED_BYTES];
        bytes[0] = 0x70 | u8::from(self.is_deferred);
        bytes[2] = self.stream.to_bits() | self.key as u8;
        if let Some(information) = self.information.and_then(Information::to_32_bits) {
            bytes[0] |= VALID;
            put(&mut bytes, 3, information.to_be_bytes());
        }
        bytes[7] = (FIXED_BYTES - 8) as u8;
        if let Some(segment) = self.segment {
            put(&mut bytes, 8, u32::from(segment.number).to_be_bytes());
        }
        if let Some(ata) = self.ata {
            let (information, specific) = ata.to_fixed();
            bytes[0] |= VALID;
            put(&mut bytes, 3, information);
            put(&mut bytes, 8, specific);
        }
        bytes[12] = self.additional.code;
        bytes[13] = self.additional.qualifier;
        if let Some(specific) = self.key_specific() {
            put(&mut bytes, 15, specific);
        }
        bytes
    }
}

impl Information {
    fn to_32_bits(self) -> Option<u32> {
        match self {
            Information::Place(place) => u32::try_from(place).ok(),
            Information::Residue(residue) => i32::try_from(residue).ok().map(i32::cast_unsigned),
        }
    }

    fn from_32_bits(bits: u32, meaning: Meaning) -> Self {
        match meaning {
            Meaning::Place => Information::Place(bits.into()),
            Meaning::Residue => Information::Residue(bits.cast_signed().into()),
        }
    }
}

pub(super) fn parse(bytes: &[u8], meaning: Meaning) -> Option<Sense> {
    let flags = *bytes.get(2)?;
    let key = SenseKey::from_code(flags & 0x0f)?;
    // Devices may end early: what is past the additional length is zero.
    let end = bytes.get(7).map_or(bytes.len(), |&more| (8 + usize::from(more)).min(bytes.len()));
    let bytes = &bytes[..end];
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let mut sense = Sense::new(key, AdditionalSense { code: byte(12), qualifier: byte(13) });
    sense.stream = StreamFlags::from_bits(flags);
    if sense.additional == AdditionalSense::ATA_PASS_THROUGH_INFORMATION_AVAILABLE {
        // SAT-4 12.2.2.7: whatever VALID says, for not all translators set it.
        let four = |at: usize| [byte(at), byte(at + 1), byte(at + 2), byte(at + 3)];
        sense.ata = Some(AtaStatus::from_fixed(four(3), four(8)));
    } else if byte(0) & VALID != 0 {
        sense.information = u32_at(bytes, 3).map(|bits| Information::from_32_bits(bits, meaning));
    }
    sense.set_command_specific(u16_at(bytes, 10));
    if let Some(specific) = bytes.get(15..18) {
        sense.set_key_specific(specific);
    }
    Some(sense)
}
