use proptest::prelude::*;

use super::*;

fn range(lba: u64, blocks: u32) -> Vec<u8> {
    let mut bytes = lba.to_be_bytes().to_vec();
    bytes.extend(blocks.to_be_bytes());
    bytes.resize(16, 0);
    bytes
}

/// A list of POPULATE TOKEN with these flags, this timeout and this type.
fn populating(flags: u8, timeout: u8, kind: u32, ranges: &[Vec<u8>]) -> Vec<u8> {
    let ranges = ranges.concat();
    let mut bytes = (14 + ranges.len() as u16).to_be_bytes().to_vec();
    bytes.extend([flags, 0, 0, 0, 0, timeout]);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend((ranges.len() as u16).to_be_bytes());
    bytes.extend(ranges);
    bytes
}

fn writing(flags: u8, offset: u64, token: u8, ranges: &[Vec<u8>]) -> Vec<u8> {
    let ranges = ranges.concat();
    let mut bytes = (534 + ranges.len() as u16).to_be_bytes().to_vec();
    bytes.extend([flags, 0, 0, 0, 0, 0]);
    bytes.extend(offset.to_be_bytes());
    bytes.extend([token; TOKEN_BYTES]);
    bytes.extend([0; 6]);
    bytes.extend((ranges.len() as u16).to_be_bytes());
    bytes.extend(ranges);
    bytes
}

fn refused(list: &[u8]) -> Sense {
    PopulateToken::parse(list, 512).unwrap_err()
}

const TOO_MANY: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS);

#[test]
fn lists_are_read_as_the_standard_lays_them_out() {
    let bytes = populating(0x03, 9, 0x0080_ffff, &[range(7, 8), range(1 << 40, 0), range(0, 7)]);
    let runs = [(7, 8), (1 << 40, 0), (0, 7)].map(|(lba, blocks)| BlockRun { lba, blocks });
    let read = PopulateToken { inactivity_s: 9, ranges: runs.to_vec(), is_immediate: true };
    assert_eq!(PopulateToken::parse(&bytes, 512), Ok(read));
    let plain = PopulateToken::parse(&populating(0, 0, 0x0001_0000, &[range(0, 1)]), 512).unwrap();
    assert_eq!((plain.inactivity_s, plain.is_immediate), (30, false), "the type counts only with RTV");
    let bytes = writing(0x02, 5, 0x44, &[range(7, 8)]);
    let ranges = vec![BlockRun { lba: 7, blocks: 8 }];
    let token = [0x44; TOKEN_BYTES];
    let read = WriteUsingToken { offset_blocks: 5, token, ranges, is_immediate: false, deletes: true };
    assert_eq!(WriteUsingToken::parse(&bytes, 512), Ok(read));
}

#[test]
fn what_the_standard_forbids_is_refused_at_its_field() {
    let good = populating(0, 0, 0, &[range(0, 1)]);
    assert_eq!(refused(&good[..15]), LENGTH_ERROR);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        refused(&bytes)
    };
    assert_eq!(with(1, 29), invalid(0), "a data length without a range");
    assert_eq!(with(15, 15), invalid(14), "no whole range");
    assert_eq!(with(6, 0x0f), invalid(4), "3840 seconds");
    for kind in [0x0001_0000, 0x0080_0002, 0xffff_0001, 0] {
        assert_eq!(refused(&populating(2, 0, kind, &[range(0, 1)])), invalid(8), "{kind:08x}");
    }
    assert_eq!(refused(&populating(0, 0, 0, &[range(4, 4), range(0, 5)])), invalid(32), "block 4 twice");
    assert_eq!(refused(&populating(0, 0, 0, &[range(0, 1 << 20), range(u64::MAX, 1 << 21)])), invalid(40), "1.5 GiB");
    let many: Vec<_> = (0..65).map(|lba| range(lba, 1)).collect();
    assert_eq!(refused(&populating(0, 0, 0, &many)), TOO_MANY);
    assert_eq!(PopulateToken::parse(&populating(0, 0, 0, &many[..64]), 512).unwrap().ranges.len(), 64);
    let good = writing(0, 0, 0, &[range(0, 1)]);
    let refused = |bytes: &[u8]| WriteUsingToken::parse(bytes, 512).unwrap_err();
    assert_eq!(refused(&good[..535]), LENGTH_ERROR);
    let mut other = good.clone();
    other[1] += 16;
    assert_eq!(refused(&other), invalid(0), "both lengths say the same");
    assert_eq!(refused(&writing(0, 0, 0, &[])), invalid(0));
    assert_eq!(refused(&writing(0, 0, 0, &[range(3, 1), range(3, 1)])), invalid(552));
    assert_eq!(refused(&writing(0, 0, 0, &many)), TOO_MANY);
}

#[test]
fn ranges_that_are_cut_off_are_ignored() {
    let bytes = populating(0, 0, 0, &[range(0, 1), range(8, 1)]);
    assert_eq!(PopulateToken::parse(&bytes[..47], 512).unwrap().ranges.len(), 1, "by the length in the CDB");
    assert_eq!(PopulateToken::parse(&bytes[..16], 512).unwrap().ranges.len(), 0);
    let mut odd = bytes.clone();
    odd[15] = 31;
    assert_eq!(PopulateToken::parse(&odd, 512).unwrap().ranges.len(), 1, "half a descriptor");
    let mut short = bytes;
    short[1] = 30;
    assert_eq!(PopulateToken::parse(&short, 512).unwrap().ranges.len(), 1, "by the length of the data");
    let whole = writing(0, 0, 0, &[range(0, 1), range(8, 1)]);
    assert_eq!(WriteUsingToken::parse(&whole[..552], 512).unwrap().ranges.len(), 1);
}

proptest! {
    #[test]
    fn any_list_is_read_within_its_bounds(
        mut list in prop::collection::vec(any::<u8>(), 1..700),
        has_lengths: bool,
    ) {
        if has_lengths && list.len() > 536 {
            let ranges = (list.len() - 536) as u16;
            list[..2].copy_from_slice(&(534 + ranges).to_be_bytes());
            list[534..536].copy_from_slice(&ranges.to_be_bytes());
        }
        let total = |ranges: &[BlockRun]| ranges.iter().map(|range| u64::from(range.blocks) * 4096).sum::<u64>();
        if let Ok(read) = PopulateToken::parse(&list, 4096) {
            prop_assert!(read.ranges.len() <= RANGES_MAX && total(&read.ranges) <= ROD_MAX_BYTES);
            prop_assert!((1..=INACTIVITY_MAX_S).contains(&read.inactivity_s));
        }
        if let Ok(read) = WriteUsingToken::parse(&list, 4096) {
            prop_assert!(read.ranges.len() <= RANGES_MAX && total(&read.ranges) <= ROD_MAX_BYTES);
        }
    }
}
