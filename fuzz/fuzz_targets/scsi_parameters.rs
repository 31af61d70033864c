//! Parameter lists of MODE SELECT, UNMAP, EXTENDED COPY, POPULATE TOKEN, WRITE USING TOKEN, SET TARGET PORT GROUPS and PERSISTENT RESERVE OUT.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_scsi::copy::{CopyList, SEGMENTS_MAX, TARGETS_MAX};
use sanwire_scsi::mode::{CountedResources, ModeState, ModeValues, Settings, select};
use sanwire_scsi::reservation::{Order, OrderAction, TransportId, order};
use sanwire_scsi::rod::{
    BlockRun, INACTIVITY_MAX_S, PopulateToken, PresentedToken, RANGES_MAX, ROD_MAX_BYTES, WriteUsingToken,
};
use sanwire_scsi::{ModeForm, UnmapList, port_groups};

fuzz_target!(|input: &[u8]| {
    let Some((&bits, list)) = input.split_first() else { return };
    let state = ModeState {
        current: ModeValues { settings: Settings::from_bits(bits & 7), ..ModeValues::default() },
        default: ModeValues::default(),
        counted: CountedResources { available: bits & 32 != 0, used: bits & 64 != 0 },
        write_protected: bits & 8 != 0,
        blocks: 1 << 20,
        block_bytes: if bits & 16 == 0 { 512 } else { 4096 },
    };
    for form in [ModeForm::Six, ModeForm::Ten] {
        if let Ok(values) = select(form, list, &state) {
            assert_eq!(select(form, list, &ModeState { current: values, ..state }), Ok(values));
        }
    }
    if let Ok(unmap) = UnmapList::parse(list) {
        assert_eq!(unmap.extents().count(), unmap.len());
    }
    if let Ok(copy) = CopyList::parse(list) {
        assert!(copy.targets.len() <= TARGETS_MAX && copy.segments.len() <= SEGMENTS_MAX);
    }
    check_tokens(list, state.block_bytes);
    if let Ok(states) = port_groups::parse_set(list) {
        assert_eq!(4 + 4 * states.len(), list.len());
    }
    if let Some(action) = OrderAction::from_code(bits & 7) {
        match order(action, bits >> 3, list) {
            Ok(Order::Register { others: Some(others), .. }) => others.iter().for_each(check_id),
            Ok(Order::Move { initiator, .. }) => check_id(&initiator),
            _ => {}
        }
    }
});

/// No list stands for more than there is room for, or for a block twice; a token is read whatever it holds.
fn check_tokens(list: &[u8], block_bytes: u32) {
    if let Ok(asked) = PopulateToken::parse(list, block_bytes) {
        assert!((1..=INACTIVITY_MAX_S).contains(&asked.inactivity_s));
        check_ranges(&asked.ranges, block_bytes);
    }
    if let Ok(asked) = WriteUsingToken::parse(list, block_bytes) {
        check_ranges(&asked.ranges, block_bytes);
        let _ = PresentedToken::parse(&asked.token);
    }
    if let Some(token) = list.first_chunk() {
        let _ = PresentedToken::parse(token);
    }
}

fn check_ranges(ranges: &[BlockRun], block_bytes: u32) {
    let bytes: u64 = ranges.iter().map(|range| u64::from(range.blocks) * u64::from(block_bytes)).sum();
    assert!(ranges.len() <= RANGES_MAX && bytes <= ROD_MAX_BYTES);
    let mut ends: Vec<(u64, u64)> = ranges
        .iter()
        .filter(|range| range.blocks > 0)
        .map(|range| (range.lba, range.lba.saturating_add(range.blocks.into())))
        .collect();
    ends.sort_unstable();
    assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0));
}

fn check_id(id: &TransportId) {
    assert_eq!(TransportId::parse(id.as_bytes()).as_ref(), Some(id));
}
