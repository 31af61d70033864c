//! The third-party copy page (SPC-4 7.8.17): what EXTENDED COPY can do, for initiators that do not ask RECEIVE COPY RESULTS.

use super::{build, page};
use crate::copy::results::granularity;
use crate::copy::{COPIES_MAX, DESCRIPTOR_TYPES, DESCRIPTORS_MAX_BYTES, SEGMENT_MAX_BYTES, SEGMENTS_MAX, TARGETS_MAX};
use crate::operation::code::{EXTENDED_COPY, RECEIVE_COPY_RESULTS};

const SUPPORTED_COMMANDS: u16 = 0x0001;
const PARAMETER_DATA: u16 = 0x0004;
const SUPPORTED_DESCRIPTORS: u16 = 0x0008;
const GENERAL_COPY_OPERATIONS: u16 = 0x8001;

/// The page of a unit with this block.
#[must_use]
pub fn third_party_copy(block_bytes: u32) -> Vec<u8> {
    let mut body = Vec::with_capacity(96);
    // Each command with its service actions, counted.
    push_list(&mut body, SUPPORTED_COMMANDS, &[EXTENDED_COPY, 1, 0, RECEIVE_COPY_RESULTS, 4, 0, 1, 3, 4]);
    let mut parameters = vec![0; 4];
    parameters.extend((TARGETS_MAX as u16).to_be_bytes());
    parameters.extend((SEGMENTS_MAX as u16).to_be_bytes());
    parameters.extend((DESCRIPTORS_MAX_BYTES as u32).to_be_bytes());
    parameters.resize(0x1c, 0);
    push(&mut body, PARAMETER_DATA, &parameters);
    push_list(&mut body, SUPPORTED_DESCRIPTORS, &DESCRIPTOR_TYPES);
    let mut general = Vec::with_capacity(0x20);
    general.extend(u32::from(COPIES_MAX).to_be_bytes());
    general.extend(u32::from(COPIES_MAX).to_be_bytes());
    general.extend(SEGMENT_MAX_BYTES.to_be_bytes());
    general.push(granularity(block_bytes));
    general.resize(0x20, 0);
    push(&mut body, GENERAL_COPY_OPERATIONS, &general);
    build(page::THIRD_PARTY_COPY, &body)
}

/// A descriptor whose body is a short list, after its length and padded to four bytes.
fn push_list(page: &mut Vec<u8>, kind: u16, list: &[u8]) {
    let mut body = vec![list.len() as u8];
    body.extend(list);
    body.resize(body.len().next_multiple_of(4), 0);
    push(page, kind, &body);
}

fn push(page: &mut Vec<u8>, kind: u16, body: &[u8]) {
    page.extend(kind.to_be_bytes());
    page.extend((body.len() as u16).to_be_bytes());
    page.extend(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_bytes_of_the_standard() {
        let page = third_party_copy(512);
        assert_eq!(page[..4], [0, 0x8f, 0, 92]);
        assert_eq!(page[4..20], [0, 1, 0, 12, 9, 0x83, 1, 0, 0x84, 4, 0, 1, 3, 4, 0, 0]);
        assert_eq!(page[20..36], [0, 4, 0, 28, 0, 0, 0, 0, 0, 16, 0, 16, 0, 0, 8, 0]);
        assert_eq!(page[52..60], [0, 8, 0, 4, 3, 0x02, 0x0a, 0xe4]);
        assert_eq!(page[60..80], [0x80, 1, 0, 32, 0, 0, 0, 64, 0, 0, 0, 64, 4, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(page.len(), 96);
    }
}
