//! MODE SELECT (SPC-5 6.12): the parameter list and what it may change.

use super::pages::{self, PageId};
use super::{ModeState, ModeValues, select_pages};
use crate::command::ModeForm;
use crate::sense::Sense;

/// The MODE SELECT (6) parameter list that switches the write cache, given the caching page as MODE SENSE told it.
#[must_use]
pub fn caching_parameters(current_page: &[u8], write_cache: bool) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend(current_page);
    if let Some([code, _, flags, ..]) = bytes.get_mut(4..) {
        *code &= 0x7f; // PS is reserved here
        *flags = *flags & !0x04 | u8::from(write_cache) << 2;
    }
    bytes
}

/// The values of a disk after a parameter list has been obeyed. All of it is checked before any of it counts.
///
/// # Errors
/// Those of [`select_pages`].
pub fn select(form: ModeForm, list: &[u8], state: &ModeState) -> Result<ModeValues, Sense> {
    let mut values = state.current;
    for page in select_pages(form, list, state.header(), &state.pages())? {
        if let Some(id) = PageId::of(state.counted).find(|id| id.is_of(page)) {
            pages::take(id, page, &mut values, state.counted);
        }
    }
    Ok(values)
}
