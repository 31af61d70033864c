//! Descriptor format sense data (SPC-5 4.5.2): a header, and descriptors of what there is to say besides.

use super::{AdditionalSense, AtaStatus, Information, Meaning, OtherProgress, Sense, SenseKey, StreamFlags};
use crate::bytes::{u16_at, u64_at};

/// The types of descriptors (SPC-5 table 27).
mod kind {
    pub(super) const INFORMATION: u8 = 0x00;
    pub(super) const COMMAND_SPECIFIC: u8 = 0x01;
    pub(super) const KEY_SPECIFIC: u8 = 0x02;
    pub(super) const STREAM_COMMANDS: u8 = 0x04;
    /// As the one before, of block devices (SBC-4 4.18.4): it has ILI only.
    pub(super) const BLOCK_COMMANDS: u8 = 0x05;
    pub(super) const ATA_STATUS_RETURN: u8 = 0x09;
    pub(super) const ANOTHER_PROGRESS: u8 = 0x0a;
}

impl Sense {
    /// Descriptor format (SPC-5 4.5.2).
    #[must_use]
    pub fn to_descriptor(&self) -> Vec<u8> {
        let code = 0x72 | u8::from(self.is_deferred);
        let mut bytes = vec![code, self.key as u8, self.additional.code, self.additional.qualifier, 0, 0, 0, 0];
        let mut append = |kind: u8, body: &[u8]| {
            bytes.extend([kind, body.len() as u8]);
            bytes.extend(body);
        };
        if let Some(information) = self.information {
            append(kind::INFORMATION, &wide(0x80, information.to_64_bits()));
        }
        if let Some(segment) = self.segment {
            append(kind::COMMAND_SPECIFIC, &wide(0, segment.number.into()));
        }
        if let Some([flags, high, low]) = self.key_specific() {
            append(kind::KEY_SPECIFIC, &[0, 0, flags, high, low, 0]);
        }
        if self.stream != StreamFlags::default() {
            append(kind::STREAM_COMMANDS, &[0, self.stream.to_bits()]);
        }
        if let Some(ata) = self.ata {
            append(kind::ATA_STATUS_RETURN, &ata.to_descriptor());
        }
        if let Some(OtherProgress { key, additional, progress }) = self.other_progress {
            let [high, low] = progress.to_be_bytes();
            append(kind::ANOTHER_PROGRESS, &[key as u8, additional.code, additional.qualifier, 0, high, low]);
        }
        bytes[7] = (bytes.len() - 8) as u8;
        bytes
    }

    fn note_descriptor(&mut self, kind: u8, body: &[u8], meaning: Meaning) {
        let flags = |at: usize| body.get(at).copied().unwrap_or(0);
        match kind {
            kind::INFORMATION if flags(0) & 0x80 != 0 => {
                self.information = u64_at(body, 2).map(|bits| Information::from_64_bits(bits, meaning));
            }
            kind::COMMAND_SPECIFIC => self.set_command_specific(u16_at(body, 8)),
            kind::KEY_SPECIFIC => self.set_key_specific(body.get(2..5).unwrap_or(&[])),
            kind::STREAM_COMMANDS => self.stream = StreamFlags::from_bits(flags(1)),
            kind::BLOCK_COMMANDS => self.stream.incorrect_length = StreamFlags::from_bits(flags(1)).incorrect_length,
            kind::ATA_STATUS_RETURN => self.ata = AtaStatus::from_descriptor(body),
            kind::ANOTHER_PROGRESS => {
                // Of several commands it is the first one's.
                self.other_progress = self.other_progress.or_else(|| other_progress(body));
            }
            _ => {}
        }
    }
}

impl Information {
    fn to_64_bits(self) -> u64 {
        match self {
            Information::Place(place) => place,
            Information::Residue(residue) => residue.cast_unsigned(),
        }
    }

    fn from_64_bits(bits: u64, meaning: Meaning) -> Self {
        match meaning {
            Meaning::Place => Information::Place(bits),
            Meaning::Residue => Information::Residue(bits.cast_signed()),
        }
    }
}

pub(super) fn parse(bytes: &[u8], meaning: Meaning) -> Option<Sense> {
    let key = SenseKey::from_code(bytes.get(1)? & 0x0f)?;
    let mut sense = Sense::new(key, AdditionalSense { code: *bytes.get(2)?, qualifier: *bytes.get(3)? });
    let more = usize::from(bytes.get(7).copied().unwrap_or(0));
    let mut rest = bytes.get(8..).unwrap_or(&[]);
    rest = &rest[..more.min(rest.len())];
    while let [kind, length, after @ ..] = rest {
        let Some(body) = after.get(..usize::from(*length)) else { break };
        sense.note_descriptor(*kind, body, meaning);
        rest = &after[usize::from(*length)..];
    }
    Some(sense)
}

/// Two bytes, the first of which are flags, and a number.
fn wide(flags: u8, number: u64) -> [u8; 10] {
    let mut body = [0; 10];
    body[0] = flags;
    body[2..].copy_from_slice(&number.to_be_bytes());
    body
}

fn other_progress(body: &[u8]) -> Option<OtherProgress> {
    let [key, code, qualifier, _, high, low] = *body.first_chunk()?;
    let (key, progress) = (SenseKey::from_code(key & 0x0f)?, u16::from_be_bytes([high, low]));
    Some(OtherProgress { key, additional: AdditionalSense { code, qualifier }, progress })
}
