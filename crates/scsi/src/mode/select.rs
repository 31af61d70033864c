//! MODE SELECT (SPC-5 6.12): the parameter list and what it may change.

use super::pages::{self, PageId};
use super::{ModeState, ModeValues};
use crate::bytes::{u16_at, u32_at, u64_at};
use crate::command::ModeForm;
use crate::sense::{AdditionalSense, Sense, SenseKey};

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

/// The values after a parameter list has been obeyed. All of it is checked before any of it counts.
///
/// # Errors
/// PARAMETER LIST LENGTH ERROR when it ends within a field; INVALID FIELD IN PARAMETER LIST, with the place, for a page
/// that is not there, has another length, or changes what cannot be changed.
pub fn select(form: ModeForm, list: &[u8], state: &ModeState) -> Result<ModeValues, Sense> {
    let mut values = state.current;
    if list.is_empty() {
        return Ok(values);
    }
    let mut at = descriptors_end(form, list, state)?;
    while at < list.len() {
        at = select_page(list, at, &mut values, state)?;
    }
    Ok(values)
}

/// Checks header and block descriptor; gives the place of the first page.
fn descriptors_end(form: ModeForm, list: &[u8], state: &ModeState) -> Result<usize, Sense> {
    let (header, length_at, is_long) = match form {
        ModeForm::Six => (4, 3, false),
        ModeForm::Ten => (8, 6, list.get(4).ok_or(TOO_SHORT)? & 1 != 0),
    };
    let length = match form {
        ModeForm::Six => usize::from(*list.get(length_at).ok_or(TOO_SHORT)?),
        ModeForm::Ten => usize::from(u16_at(list, length_at).ok_or(TOO_SHORT)?),
    };
    let end = header + length;
    let descriptor = list.get(header..end).ok_or(TOO_SHORT)?;
    let unchanged = match (descriptor.len(), is_long) {
        (0, _) => true,
        (8, false) => is_short_unchanged(descriptor, state),
        (16, true) => is_long_unchanged(descriptor, state),
        _ => return Err(Sense::invalid_field_in_parameters(length_at as u16, None)),
    };
    // Neither the number nor the size of the blocks can be changed.
    if unchanged { Ok(end) } else { Err(Sense::invalid_field_in_parameters(header as u16, None)) }
}

fn is_short_unchanged(descriptor: &[u8], state: &ModeState) -> bool {
    let current = u32::try_from(state.blocks).unwrap_or(u32::MAX);
    let blocks = u32_at(descriptor, 0);
    (blocks == Some(0) || blocks == Some(current)) && u32_at(descriptor, 4) == Some(state.block_bytes)
}

fn is_long_unchanged(descriptor: &[u8], state: &ModeState) -> bool {
    let blocks = u64_at(descriptor, 0);
    (blocks == Some(0) || blocks == Some(state.blocks)) && u32_at(descriptor, 12) == Some(state.block_bytes)
}

/// Takes the page at `at`; gives the place after it.
fn select_page(list: &[u8], at: usize, values: &mut ModeValues, state: &ModeState) -> Result<usize, Sense> {
    let invalid = |byte: usize, bit| Sense::invalid_field_in_parameters(u16::try_from(at + byte).unwrap_or(0), bit);
    // Bit 7 (PS) is reserved here; initiators that send back what they were told are forgiven.
    let code = list[at] & 0x3f;
    let subpage = if list[at] & 0x40 != 0 { *list.get(at + 1).ok_or(TOO_SHORT)? } else { 0 };
    let of_code = || PageId::of(state.counted).filter(|id| id.code == code);
    if of_code().next().is_none() {
        return Err(invalid(0, Some(5)));
    }
    let id = of_code().find(|id| id.subpage == subpage).ok_or(invalid(1, None))?;
    let header = id.header_bytes();
    let now = pages::page(id, &state.current, state.counted);
    let length_at = header / 2;
    if list.get(at + length_at..at + header).ok_or(TOO_SHORT)? != &now[length_at..header] {
        return Err(invalid(length_at, None));
    }
    let new = list.get(at..at + now.len()).ok_or(TOO_SHORT)?;
    let changeable = pages::changeable(id, state.counted);
    for byte in header..now.len() {
        let refused = (new[byte] ^ now[byte]) & !changeable[byte];
        if refused != 0 {
            return Err(invalid(byte, Some(7 - refused.leading_zeros() as u8)));
        }
    }
    pages::take(id, new, values, state.counted);
    Ok(at + now.len())
}

const TOO_SHORT: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
