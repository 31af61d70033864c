//! The third-party copy page (SPC-4 7.8.17, SBC-4 6.6.9): what EXTENDED COPY can do, for initiators that do not ask RECEIVE COPY RESULTS,
//! and what tokens can stand for.

use super::{build, page};
use crate::bytes::put;
use crate::copy::results::granularity;
use crate::copy::{
    COPIES_MAX, COPIES_OF_NEXUS_MAX, DESCRIPTOR_TYPES, DESCRIPTORS_MAX_BYTES, SEGMENT_MAX_BYTES, SEGMENTS_MAX,
    TARGETS_MAX,
};
use crate::operation::code::{EXTENDED_COPY, RECEIVE_COPY_RESULTS};
use crate::rod::{
    INACTIVITY_DEFAULT_S, INACTIVITY_MAX_S, LIFETIME_S, RANGES_MAX, ROD_MAX_BYTES, ROD_OPTIMAL_BYTES, rod_type,
};

const TOKEN_LIMITS: u16 = 0x0000;
const SUPPORTED_COMMANDS: u16 = 0x0001;
const PARAMETER_DATA: u16 = 0x0004;
const SUPPORTED_DESCRIPTORS: u16 = 0x0008;
const TOKEN_FEATURES: u16 = 0x0106;
const SUPPORTED_ROD_TYPES: u16 = 0x0108;
const GENERAL_COPY_OPERATIONS: u16 = 0x8001;

/// The page of a unit with this block, that makes and takes tokens or does not.
#[must_use]
pub fn third_party_copy(block_bytes: u32, has_tokens: bool) -> Vec<u8> {
    let mut body = Vec::with_capacity(384);
    if has_tokens {
        push(&mut body, TOKEN_LIMITS, &token_limits(block_bytes));
    }
    // Each command with its service actions, counted.
    let commands: &[u8] = match has_tokens {
        true => &[EXTENDED_COPY, 4, 0x00, 0x10, 0x11, 0x1c, RECEIVE_COPY_RESULTS, 6, 0, 1, 3, 4, 5, 7],
        false => &[EXTENDED_COPY, 1, 0, RECEIVE_COPY_RESULTS, 4, 0, 1, 3, 4],
    };
    push_list(&mut body, SUPPORTED_COMMANDS, commands);
    let mut parameters = vec![0; 4];
    parameters.extend((TARGETS_MAX as u16).to_be_bytes());
    parameters.extend((SEGMENTS_MAX as u16).to_be_bytes());
    parameters.extend((DESCRIPTORS_MAX_BYTES as u32).to_be_bytes());
    parameters.resize(0x1c, 0);
    push(&mut body, PARAMETER_DATA, &parameters);
    push_list(&mut body, SUPPORTED_DESCRIPTORS, &DESCRIPTOR_TYPES);
    if has_tokens {
        push(&mut body, TOKEN_FEATURES, &token_features());
        push(&mut body, SUPPORTED_ROD_TYPES, &rod_types());
    }
    let mut general = Vec::with_capacity(0x20);
    general.extend(u32::from(COPIES_MAX).to_be_bytes());
    general.extend(u32::from(COPIES_OF_NEXUS_MAX).to_be_bytes());
    general.extend(SEGMENT_MAX_BYTES.to_be_bytes());
    general.push(granularity(block_bytes));
    general.resize(0x20, 0);
    push(&mut body, GENERAL_COPY_OPERATIONS, &general);
    build(page::THIRD_PARTY_COPY, &body)
}

/// Block device ROD token limits (SBC-4 6.6.9.3).
fn token_limits(block_bytes: u32) -> [u8; 32] {
    let blocks = |bytes: u64| (bytes / u64::from(block_bytes.max(1))).to_be_bytes();
    let mut limits = [0; 32];
    put(&mut limits, 6, (RANGES_MAX as u16).to_be_bytes());
    put(&mut limits, 8, INACTIVITY_MAX_S.to_be_bytes());
    put(&mut limits, 12, INACTIVITY_DEFAULT_S.to_be_bytes());
    put(&mut limits, 16, blocks(ROD_MAX_BYTES));
    put(&mut limits, 24, blocks(ROD_OPTIMAL_BYTES));
    limits
}

/// ROD token features, with the descriptor of block devices (SPC-4 7.8.17.8). Tokens of other copy managers are not taken.
fn token_features() -> [u8; 92] {
    const BLOCK_AT: usize = 44;
    let mut features = [0; 92];
    // MINIMUM and MAXIMUM TOKEN LIFETIME, MAXIMUM TOKEN INACTIVITY TIMEOUT
    put(&mut features, 12, LIFETIME_S.to_be_bytes());
    put(&mut features, 16, LIFETIME_S.to_be_bytes());
    put(&mut features, 20, INACTIVITY_MAX_S.to_be_bytes());
    put(&mut features, BLOCK_AT - 2, 0x30_u16.to_be_bytes());
    put(&mut features, BLOCK_AT + 2, 0x2c_u16.to_be_bytes());
    put(&mut features, BLOCK_AT + 8, ROD_MAX_BYTES.to_be_bytes());
    for optimal in [16, 24, 32] {
        put(&mut features, BLOCK_AT + optimal, ROD_OPTIMAL_BYTES.to_be_bytes());
    }
    features
}

/// Supported ROD types (SPC-4 7.8.17.9), without a preference among them.
fn rod_types() -> [u8; 132] {
    const TOKEN_IN: u8 = 0x02;
    const TOKEN_OUT: u8 = 0x01;
    const DESCRIPTOR_BYTES: u16 = 64;
    let mut types = [0; 132];
    put(&mut types, 2, (2 * DESCRIPTOR_BYTES).to_be_bytes());
    put(&mut types, 4, rod_type::CHANGE_VULNERABLE.to_be_bytes());
    types[8] = TOKEN_IN | TOKEN_OUT;
    put(&mut types, 68, rod_type::ZEROES.to_be_bytes());
    types[72] = TOKEN_IN;
    types
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
        let page = third_party_copy(512, false);
        assert_eq!(page[..4], [0, 0x8f, 0, 92]);
        assert_eq!(page[4..20], [0, 1, 0, 12, 9, 0x83, 1, 0, 0x84, 4, 0, 1, 3, 4, 0, 0]);
        assert_eq!(page[20..36], [0, 4, 0, 28, 0, 0, 0, 0, 0, 16, 0, 16, 0, 0, 8, 0]);
        assert_eq!(page[52..60], [0, 8, 0, 4, 3, 0x02, 0x0a, 0xe4]);
        assert_eq!(page[60..80], [0x80, 1, 0, 32, 0, 0, 0, 64, 0, 0, 0, 32, 4, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(page.len(), 96);
    }

    #[test]
    fn a_unit_with_tokens_tells_what_they_can_stand_for() {
        let page = third_party_copy(4096, true);
        assert_eq!((&page[..4], page.len()), (&[0, 0x8f, 0x01, 0x6c][..], 368));
        assert_eq!(page[4..24], [0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0x0e, 0x10, 0, 0, 0, 30]);
        assert_eq!(page[24..40], [0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0], "1 GiB and 64 MiB");
        let commands = [0, 1, 0, 16, 14, 0x83, 4, 0, 0x10, 0x11, 0x1c, 0x84, 6, 0, 1, 3, 4, 5, 7, 0];
        assert_eq!(page[40..60], commands);
        assert_eq!((&page[60..64], &page[92..100]), (&[0, 4, 0, 28][..], &[0, 8, 0, 4, 3, 0x02, 0x0a, 0xe4][..]));
        let features = &page[100..196];
        assert_eq!(features[..8], [1, 6, 0, 0x5c, 0, 0, 0, 0]);
        assert_eq!(features[16..28], [0, 0, 0x0e, 0x10, 0, 0, 0x0e, 0x10, 0, 0, 0x0e, 0x10]);
        assert_eq!(features[46..56], [0, 0x30, 0, 0, 0, 0x2c, 0, 0, 0, 0]);
        assert_eq!(features[56..64], [0, 0, 0, 0, 0x40, 0, 0, 0], "1 GiB");
        assert!(features[64..88].as_chunks::<8>().0.iter().all(|optimal| *optimal == [0, 0, 0, 0, 4, 0, 0, 0]));
        let types = &page[196..332];
        assert_eq!(types[..14], [1, 8, 0, 0x84, 0, 0, 0, 0x80, 0, 0x80, 0, 1, 3, 0]);
        assert_eq!(types[72..77], [0xff, 0xff, 0, 1, 2]);
        assert_eq!(page[332..336], [0x80, 1, 0, 32]);
        let kinds: Vec<u16> = descriptors(&page[4..]).collect();
        assert!(kinds.is_sorted() && kinds.len() == 7, "{kinds:04x?}");
    }

    fn descriptors(mut rest: &[u8]) -> impl Iterator<Item = u16> {
        std::iter::from_fn(move || {
            let [high, low, long, short, after @ ..] = rest else { return None };
            rest = &after[usize::from(u16::from_be_bytes([*long, *short]))..];
            Some(u16::from_be_bytes([*high, *low]))
        })
    }
}
