use super::*;
use crate::vpd::DesignatorKind;
use proptest::prelude::*;

/// A list with one NAA target for each block length, and these segment descriptors.
fn list(flags: u8, targets: usize, segments: &[Vec<u8>]) -> Vec<u8> {
    let segments = segments.concat();
    let mut bytes = vec![7, flags];
    bytes.extend((32 * targets as u16).to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend((segments.len() as u32).to_be_bytes());
    bytes.extend([0; 4]);
    for _ in 0..targets {
        bytes.extend([0xe4, 0, 0, 0, 1, 3, 0, 8, 0x30, 1, 2, 3, 4, 5, 6, 7]);
        bytes.extend([0; 12]);
        bytes.extend([0, 0, 2, 0]);
    }
    bytes.extend(segments);
    bytes
}

fn blocks(flags: u8, count: u16) -> Vec<u8> {
    let mut bytes = vec![0x02, flags, 0, 0x18, 0, 1, 0, 2, 0, 0];
    bytes.extend(count.to_be_bytes());
    bytes.extend(0x1122_3344_5566_7788_u64.to_be_bytes());
    bytes.extend(9_u64.to_be_bytes());
    bytes
}

fn offsets() -> Vec<u8> {
    let mut bytes = vec![0x0a, 0, 0, 0x1c, 0, 1, 0, 2, 0, 1, 0, 0];
    bytes.extend(0x1122_3344_5566_7788_u64.to_be_bytes());
    bytes.extend(9_u64.to_be_bytes());
    bytes.extend([0, 3, 0, 4]);
    bytes
}

#[test]
fn a_list_is_read_with_all_its_fields() {
    let read = CopyList::parse(&list(0x10, 2, &[blocks(0, 5), blocks(2, 6), offsets()])).unwrap();
    let designator = Designator { kind: DesignatorKind::Naa, association: 0, bytes: vec![0x30, 1, 2, 3, 4, 5, 6, 7] };
    let target = CopyTarget { designator, device_type: 0, block_bytes: 512 };
    assert_eq!((read.list_id, &read.targets), (Some(7), &vec![target.clone(), target]));
    let segment = |amount| CopySegment {
        source: 1,
        destination: 2,
        source_lba: 0x1122_3344_5566_7788,
        destination_lba: 9,
        amount,
    };
    let bytes = CopyAmount::Bytes { length: 0x10000, source_offset: 3, destination_offset: 4 };
    let amounts = [CopyAmount::SourceBlocks(5), CopyAmount::DestinationBlocks(6), bytes];
    assert_eq!(read.segments, amounts.map(segment));
}

#[test]
fn every_truncation_is_a_length_error() {
    let whole = list(0, 2, &[blocks(0, 5), offsets()]);
    for length in 1..whole.len() {
        assert_eq!(CopyList::parse(&whole[..length]), Err(LENGTH_ERROR), "{length}");
    }
    let mut odd = whole.clone();
    odd[11] -= 1;
    assert_eq!(CopyList::parse(&odd), Err(LENGTH_ERROR), "a segment descriptor that ends early");
    odd = whole.clone();
    odd[3] += 1;
    assert_eq!(CopyList::parse(&odd), Err(LENGTH_ERROR), "no whole number of targets");
    assert!(CopyList::parse(&[&whole[..], &[0; 9]].concat()).is_ok(), "more than the list says");
}

#[test]
fn lengths_beyond_all_bounds_are_refused() {
    for at in [8, 12] {
        let mut huge = list(0, 1, &[]);
        huge[at..at + 4].fill(0xff);
        assert_eq!(CopyList::parse(&huge), Err(LENGTH_ERROR));
    }
    let mut with_data = list(0, 0, &[]);
    with_data[15] = 4;
    with_data.extend([0; 4]);
    assert_eq!(CopyList::parse(&with_data), Err(illegal(AdditionalSense::INLINE_DATA_LENGTH_EXCEEDED)));
    let too_many = |targets, segments| CopyList::parse(&list(0, targets, &vec![blocks(0, 1); segments]));
    assert!(too_many(TARGETS_MAX, SEGMENTS_MAX).is_ok());
    assert_eq!(too_many(TARGETS_MAX + 1, 1), Err(illegal(AdditionalSense::TOO_MANY_TARGET_DESCRIPTORS)));
    assert_eq!(too_many(1, SEGMENTS_MAX + 1), Err(illegal(AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS)));
    assert_eq!(too_many(TARGETS_MAX + 1, 60), Err(LENGTH_ERROR), "longer than the longest list");
}

#[test]
fn the_list_identifier_follows_its_usage() {
    let id = |flags, id| {
        let mut bytes = list(flags, 0, &[]);
        bytes[0] = id;
        CopyList::parse(&bytes).map(|list| list.list_id)
    };
    assert_eq!(id(0x00, 0), Ok(Some(0)));
    assert_eq!(id(0x17, 255), Ok(Some(255)), "with any priority");
    assert_eq!(id(0x18, 0), Ok(None));
    assert_eq!(id(0x18, 1), Err(Sense::invalid_field_in_parameters(0, None)));
    assert_eq!(id(0x08, 1), Err(Sense::invalid_field_in_parameters(1, Some(4))));
}

#[test]
fn descriptors_that_are_not_understood_are_told_apart() {
    let change = |at: usize, byte: u8| {
        let mut bytes = list(0, 1, &[blocks(0, 1)]);
        bytes[at] = byte;
        CopyList::parse(&bytes).unwrap_err()
    };
    assert_eq!(change(16, 0xe0), illegal(AdditionalSense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE));
    assert_eq!(change(48, 0x03), illegal(AdditionalSense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE));
    assert_eq!(change(17, 0x20), Sense::invalid_field_in_parameters(17, Some(5)), "NUL");
    assert_eq!(change(21, 0x13), Sense::invalid_field_in_parameters(21, Some(5)), "a target port");
    assert_eq!(change(23, 21), Sense::invalid_field_in_parameters(23, None), "a designator of 21 bytes");
    assert_eq!(change(51, 0x17), Sense::invalid_field_in_parameters(50, None), "a wrong length");
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..120, byte: u8) {
        let _ = CopyList::parse(&bytes);
        let mut changed = list(0, 2, &[blocks(0, 5), offsets()]);
        changed[at] = byte;
        let _ = CopyList::parse(&changed);
    }
}
