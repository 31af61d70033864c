//! MODE SENSE data as an initiator reads it.

use super::page;
use crate::bytes::{AnswerError, u16_at};
use crate::command::ModeForm;

/// What MODE SENSE answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModeData<'a> {
    /// Writes are refused (WP).
    pub write_protected: bool,
    /// FUA and DPO are understood (DPOFUA).
    pub force_unit_access: bool,
    pages: &'a [u8],
}

/// One page of the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModePage<'a> {
    /// The page code.
    pub code: u8,
    /// The page, from its code on.
    pub bytes: &'a [u8],
}

impl<'a> ModeData<'a> {
    /// Reads the answer to the six- or the ten-byte command; pages that were cut off are left out.
    ///
    /// # Errors
    /// [`AnswerError`] when the header is cut short or announces more descriptors than there are bytes.
    pub fn parse(form: ModeForm, bytes: &'a [u8]) -> Result<Self, AnswerError> {
        const SHORT: AnswerError = AnswerError::Short("MODE SENSE");
        let (length, device_specific, descriptors, after) = match (form, bytes) {
            (ModeForm::Six, [length, _, specific, descriptors, after @ ..]) => {
                (usize::from(*length) + 1, *specific, usize::from(*descriptors), after)
            }
            (ModeForm::Ten, [_, _, _, specific, _, _, _, _, after @ ..]) => {
                let field = |at| u16_at(bytes, at).map(usize::from).ok_or(SHORT);
                (field(0)? + 2, *specific, field(6)?, after)
            }
            _ => return Err(SHORT),
        };
        let header = bytes.len() - after.len();
        let after = &after[..length.saturating_sub(header).min(after.len())];
        let pages = after.get(descriptors..).ok_or(SHORT)?;
        Ok(ModeData {
            write_protected: device_specific & 0x80 != 0,
            force_unit_access: device_specific & 0x10 != 0,
            pages,
        })
    }

    /// The whole pages of the answer, in order; subpages included.
    pub fn pages(&self) -> impl Iterator<Item = ModePage<'a>> {
        let mut rest = self.pages;
        std::iter::from_fn(move || {
            let code = rest.first()? & 0x3f;
            let length =
                if rest[0] & 0x40 == 0 { usize::from(*rest.get(1)?) + 2 } else { usize::from(u16_at(rest, 2)?) + 4 };
            let (bytes, after) = rest.split_at_checked(length)?;
            rest = after;
            Some(ModePage { code, bytes })
        })
    }

    /// Whether the write cache is on, when the caching page is there.
    #[must_use]
    pub fn write_cache(&self) -> Option<bool> {
        let page = self.pages().find(|page| page.code == page::CACHING && page.bytes[0] & 0x40 == 0)?;
        page.bytes.get(2).map(|flags| flags & 0x04 != 0)
    }
}
