//! What mode parameters have around their pages, and which pages are asked for: the same for all device types.

use crate::bytes::{put, u16_at, u32_at, u64_at};
use crate::command::{ModeForm, ModeSense, PageControl};
use crate::mode::page;
use crate::sense::{AdditionalSense, Sense, SenseKey};

/// A mode page, from its code on, with each kind of values. All three have the same length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageValues {
    /// Those in effect.
    pub current: Vec<u8>,
    /// Those after a reset.
    pub default: Vec<u8>,
    /// A one for each bit that MODE SELECT may change, behind the header.
    pub changeable: Vec<u8>,
}

impl PageValues {
    fn code(&self) -> u8 {
        self.current.first().map_or(0, |byte| byte & 0x3f)
    }

    fn has_subpage(&self) -> bool {
        self.current.first().is_some_and(|byte| byte & 0x40 != 0)
    }

    fn subpage(&self) -> u8 {
        if self.has_subpage() { self.current.get(1).copied().unwrap_or(0) } else { 0 }
    }

    /// Bytes before the first field: code, subpage and length.
    fn header_bytes(&self) -> usize {
        if self.has_subpage() { 4 } else { 2 }
    }
}

/// What is said before the pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModeHeader {
    /// The DEVICE-SPECIFIC PARAMETER.
    pub device_specific: u8,
    /// How many blocks there are, and the bytes of one, for types that have block descriptors.
    pub blocks: Option<(u64, u32)>,
}

/// MODE SENSE data of these pages, whole; the caller cuts it to the allocation length.
///
/// # Errors
/// SAVING PARAMETERS NOT SUPPORTED for saved values, INVALID FIELD IN CDB for a page or a subpage that is not there.
pub fn sense_pages(asked: &ModeSense, header: ModeHeader, pages: &[PageValues]) -> Result<Vec<u8>, Sense> {
    if asked.control == PageControl::Saved {
        return Err(Sense::new(SenseKey::IllegalRequest, AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED));
    }
    let pages = asked_pages(asked, pages)?;
    let mut bytes = header_bytes(asked, header);
    for page in pages {
        bytes.extend(match asked.control {
            PageControl::Changeable => &page.changeable,
            PageControl::Default => &page.default,
            PageControl::Current | PageControl::Saved => &page.current,
        });
    }
    match asked.form {
        ModeForm::Six => bytes[0] = (bytes.len() - 1) as u8,
        ModeForm::Ten => {
            let length = (bytes.len() - 2) as u16;
            put(&mut bytes, 0, length.to_be_bytes());
        }
    }
    Ok(bytes)
}

/// SPC-5 table 175: one page, or all pages, with one subpage, or with all of them.
fn asked_pages<'a>(asked: &ModeSense, pages: &'a [PageValues]) -> Result<Vec<&'a PageValues>, Sense> {
    const ALL_SUBPAGES: u8 = 0xff;
    let is_code = |page: &&PageValues| asked.page == page::ALL || asked.page == page.code();
    let of_page: Vec<&PageValues> = pages.iter().filter(is_code).collect();
    if of_page.is_empty() {
        return Err(Sense::invalid_field_in_cdb(2, Some(5)));
    }
    let is_asked = |page: &&PageValues| asked.subpage == ALL_SUBPAGES || asked.subpage == page.subpage();
    let found: Vec<&PageValues> = of_page.into_iter().filter(is_asked).collect();
    // All pages are asked for with all subpages or with none.
    let is_legal = asked.page != page::ALL || matches!(asked.subpage, 0 | ALL_SUBPAGES);
    if found.is_empty() || !is_legal { Err(Sense::invalid_field_in_cdb(3, None)) } else { Ok(found) }
}

/// The mode parameter header with its block descriptor (SPC-5 7.5.5 and 7.5.6); the length comes later.
fn header_bytes(asked: &ModeSense, header: ModeHeader) -> Vec<u8> {
    let device_specific = header.device_specific;
    let long = asked.long_lba && asked.form == ModeForm::Ten;
    let descriptor = match (header.blocks.filter(|_| !asked.no_descriptors), long) {
        (None, _) => Vec::new(),
        (Some(blocks), false) => short_descriptor(blocks).to_vec(),
        (Some(blocks), true) => long_descriptor(blocks).to_vec(),
    };
    let length = descriptor.len() as u8;
    let mut bytes = match asked.form {
        ModeForm::Six => vec![0, 0, device_specific, length],
        ModeForm::Ten => vec![0, 0, 0, device_specific, u8::from(long && length != 0), 0, 0, length],
    };
    bytes.extend(descriptor);
    bytes
}

fn short_descriptor((blocks, block_bytes): (u64, u32)) -> [u8; 8] {
    let mut bytes = [0; 8];
    put(&mut bytes, 0, u32::try_from(blocks).unwrap_or(u32::MAX).to_be_bytes());
    put(&mut bytes, 4, block_bytes.to_be_bytes());
    bytes
}

fn long_descriptor((blocks, block_bytes): (u64, u32)) -> [u8; 16] {
    let mut bytes = [0; 16];
    put(&mut bytes, 0, blocks.to_be_bytes());
    put(&mut bytes, 12, block_bytes.to_be_bytes());
    bytes
}

/// The pages of a parameter list of MODE SELECT, each whole and from its code on, in the order sent. All of the list is checked.
///
/// # Errors
/// PARAMETER LIST LENGTH ERROR when it ends within a field; INVALID FIELD IN PARAMETER LIST, with the place, for a page
/// that is not there, has another length, or changes what cannot be changed.
pub fn select_pages<'a>(
    form: ModeForm,
    list: &'a [u8],
    header: ModeHeader,
    pages: &[PageValues],
) -> Result<Vec<&'a [u8]>, Sense> {
    let mut selected = Vec::new();
    if list.is_empty() {
        return Ok(selected);
    }
    let mut at = descriptors_end(form, list, header)?;
    while at < list.len() {
        let page = select_page(list, at, pages)?;
        at += page.len();
        selected.push(page);
    }
    Ok(selected)
}

/// Checks header and block descriptor; gives the place of the first page.
fn descriptors_end(form: ModeForm, list: &[u8], header: ModeHeader) -> Result<usize, Sense> {
    let (header_bytes, length_at, is_long) = match form {
        ModeForm::Six => (4, 3, false),
        ModeForm::Ten => (8, 6, list.get(4).ok_or(TOO_SHORT)? & 1 != 0),
    };
    let length = match form {
        ModeForm::Six => usize::from(*list.get(length_at).ok_or(TOO_SHORT)?),
        ModeForm::Ten => usize::from(u16_at(list, length_at).ok_or(TOO_SHORT)?),
    };
    let end = header_bytes + length;
    let descriptor = list.get(header_bytes..end).ok_or(TOO_SHORT)?;
    let unchanged = match (descriptor.len(), is_long, header.blocks) {
        (0, _, _) => true,
        (8, false, Some(blocks)) => is_short_unchanged(descriptor, blocks),
        (16, true, Some(blocks)) => is_long_unchanged(descriptor, blocks),
        _ => return Err(Sense::invalid_field_in_parameters(length_at as u16, None)),
    };
    // Neither the number nor the size of the blocks can be changed.
    if unchanged { Ok(end) } else { Err(Sense::invalid_field_in_parameters(header_bytes as u16, None)) }
}

fn is_short_unchanged(descriptor: &[u8], (blocks, block_bytes): (u64, u32)) -> bool {
    let current = u32::try_from(blocks).unwrap_or(u32::MAX);
    let sent = u32_at(descriptor, 0);
    (sent == Some(0) || sent == Some(current)) && u32_at(descriptor, 4) == Some(block_bytes)
}

fn is_long_unchanged(descriptor: &[u8], (blocks, block_bytes): (u64, u32)) -> bool {
    let sent = u64_at(descriptor, 0);
    (sent == Some(0) || sent == Some(blocks)) && u32_at(descriptor, 12) == Some(block_bytes)
}

/// The page at `at`, checked.
fn select_page<'a>(list: &'a [u8], at: usize, pages: &[PageValues]) -> Result<&'a [u8], Sense> {
    let invalid = |byte: usize, bit| Sense::invalid_field_in_parameters(u16::try_from(at + byte).unwrap_or(0), bit);
    // Bit 7 (PS) is reserved here; initiators that send back what they were told are forgiven.
    let code = list[at] & 0x3f;
    let subpage = if list[at] & 0x40 != 0 { *list.get(at + 1).ok_or(TOO_SHORT)? } else { 0 };
    let of_code = || pages.iter().filter(|page| page.code() == code);
    if of_code().next().is_none() {
        return Err(invalid(0, Some(5)));
    }
    let page = of_code().find(|page| page.subpage() == subpage).ok_or(invalid(1, None))?;
    let (header, now) = (page.header_bytes(), &page.current);
    let length_at = header / 2;
    if list.get(at + length_at..at + header).ok_or(TOO_SHORT)? != &now[length_at..header] {
        return Err(invalid(length_at, None));
    }
    let new = list.get(at..at + now.len()).ok_or(TOO_SHORT)?;
    for byte in header..now.len() {
        let refused = (new[byte] ^ now[byte]) & !page.changeable[byte];
        if refused != 0 {
            return Err(invalid(byte, Some(7 - refused.leading_zeros() as u8)));
        }
    }
    Ok(new)
}

const TOO_SHORT: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
