//! Log pages (SPC-5 7.3, SBC-4 6.4): what LOG SENSE tells.

use crate::bytes::put;
use crate::command::LogSense;
use crate::sense::Sense;

/// Page codes.
#[allow(missing_docs, reason = "each is named by its page")]
pub mod page {
    pub const SUPPORTED_PAGES: u8 = 0x00;
    pub const LOGICAL_BLOCK_PROVISIONING: u8 = 0x0c;
}

/// The subpage of page 00h that lists subpages too.
const ALL_SUBPAGES: u8 = 0xff;

/// The LBA mapping resources of a thin unit, in threshold sets; `None` for what is not counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ResourceCounts {
    /// Still to be had, for this and for other units.
    pub available: Option<u32>,
    /// Taken by this unit.
    pub used: Option<u32>,
}

/// Parameter codes of the logical block provisioning page (SBC-4 6.4.5).
const AVAILABLE_RESOURCES: u16 = 0x0001;
const USED_RESOURCES: u16 = 0x0002;

/// SCOPE of a count.
const DEDICATED: u8 = 0b01;
const NOT_DEDICATED: u8 = 0b10;

/// LOG SENSE data, whole; the caller cuts it to the allocation length. A unit that counts nothing gives no counts.
///
/// # Errors
/// INVALID FIELD IN CDB for a page that is not there and for a parameter behind the last of its page.
pub fn sense(asked: &LogSense, counts: Option<ResourceCounts>) -> Result<Vec<u8>, Sense> {
    let pages: &[u8] = match counts {
        Some(_) => &[page::SUPPORTED_PAGES, page::LOGICAL_BLOCK_PROVISIONING],
        None => &[page::SUPPORTED_PAGES],
    };
    match (asked.page, asked.subpage, counts) {
        (page::SUPPORTED_PAGES, 0, _) => build(asked, pages.to_vec()),
        (page::SUPPORTED_PAGES, ALL_SUBPAGES, _) => build(asked, pages_and_subpages(pages)),
        (page::LOGICAL_BLOCK_PROVISIONING, 0, Some(counts)) => provisioning(asked, counts),
        (page, _, _) if pages.contains(&page) => Err(Sense::invalid_field_in_cdb(3, None)),
        _ => Err(Sense::invalid_field_in_cdb(2, Some(5))),
    }
}

/// The supported log pages and subpages page (SPC-5 7.3.20).
fn pages_and_subpages(pages: &[u8]) -> Vec<u8> {
    let mut body = vec![page::SUPPORTED_PAGES, 0, page::SUPPORTED_PAGES, ALL_SUBPAGES];
    pages.iter().filter(|code| **code != page::SUPPORTED_PAGES).for_each(|code| body.extend([*code, 0]));
    body
}

fn provisioning(asked: &LogSense, counts: ResourceCounts) -> Result<Vec<u8>, Sense> {
    let parameters = [(AVAILABLE_RESOURCES, counts.available, NOT_DEDICATED), (USED_RESOURCES, counts.used, DEDICATED)];
    let mut body = Vec::new();
    for (code, count, scope) in parameters {
        if let Some(count) = count.filter(|_| code >= asked.parameter_pointer) {
            let [high, low] = code.to_be_bytes();
            // FORMAT AND LINKING 11b: a binary list, which neither saves nor compares anything.
            body.extend([high, low, 0x03, 8]);
            body.extend(count.to_be_bytes());
            body.extend([scope, 0, 0, 0]);
        }
    }
    build(asked, body)
}

/// The page. SPC-5 6.8: a pointer behind the last parameter is an error, and lists of pages have no parameters.
fn build(asked: &LogSense, body: Vec<u8>) -> Result<Vec<u8>, Sense> {
    let has_parameters = asked.page != page::SUPPORTED_PAGES;
    if asked.parameter_pointer != 0 && (!has_parameters || body.is_empty()) {
        return Err(Sense::invalid_field_in_cdb(5, None));
    }
    let subpage_format = u8::from(asked.subpage != 0) << 6;
    let mut bytes = vec![asked.page | subpage_format, asked.subpage, 0, 0];
    put(&mut bytes, 2, (body.len() as u16).to_be_bytes());
    bytes.extend(body);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: Option<ResourceCounts> = Some(ResourceCounts { available: Some(0x0102_0304), used: Some(5) });

    fn asked(page: u8, subpage: u8, parameter_pointer: u16) -> LogSense {
        LogSense { page, subpage, parameter_pointer, allocation_bytes: 255 }
    }

    #[test]
    fn pages_are_listed_alone_and_with_their_subpages() {
        assert_eq!(sense(&asked(0, 0, 0), COUNTS), Ok(vec![0, 0, 0, 2, 0, 0x0c]));
        assert_eq!(sense(&asked(0, 0, 0), None), Ok(vec![0, 0, 0, 1, 0]));
        let with_subpages = vec![0x40, 0xff, 0, 6, 0, 0, 0, 0xff, 0x0c, 0];
        assert_eq!(sense(&asked(0, 0xff, 0), COUNTS), Ok(with_subpages));
        assert_eq!(sense(&asked(0, 1, 0), COUNTS), Err(Sense::invalid_field_in_cdb(3, None)));
        assert_eq!(sense(&asked(0x0c, 1, 0), COUNTS), Err(Sense::invalid_field_in_cdb(3, None)));
        assert_eq!(sense(&asked(0x0c, 0, 0), None), Err(Sense::invalid_field_in_cdb(2, Some(5))));
        assert_eq!(sense(&asked(0x0d, 0, 0), COUNTS), Err(Sense::invalid_field_in_cdb(2, Some(5))));
        assert_eq!(sense(&asked(0, 0, 1), COUNTS), Err(Sense::invalid_field_in_cdb(5, None)));
    }

    /// SBC-4 6.4.5.
    #[test]
    fn counts_are_told_from_the_parameter_asked_for() {
        let available = [0, 1, 3, 8, 1, 2, 3, 4, 2, 0, 0, 0];
        let used = [0, 2, 3, 8, 0, 0, 0, 5, 1, 0, 0, 0];
        let page = |parameters: &[[u8; 12]]| {
            Ok([&[0x0c, 0, 0, 12 * parameters.len() as u8][..], &parameters.concat()].concat())
        };
        assert_eq!(sense(&asked(0x0c, 0, 0), COUNTS), page(&[available, used]));
        assert_eq!(sense(&asked(0x0c, 0, 2), COUNTS), page(&[used]));
        assert_eq!(sense(&asked(0x0c, 0, 3), COUNTS), Err(Sense::invalid_field_in_cdb(5, None)));
        let memory = Some(ResourceCounts { available: None, used: Some(5) });
        assert_eq!(sense(&asked(0x0c, 0, 0), memory), page(&[used]));
    }
}
