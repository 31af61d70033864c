//! Parameter lists of MODE SELECT, UNMAP, EXTENDED COPY, SET TARGET PORT GROUPS and PERSISTENT RESERVE OUT.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sanwire_scsi::copy::{CopyList, SEGMENTS_MAX, TARGETS_MAX};
use sanwire_scsi::mode::{CountedResources, ModeState, ModeValues, Settings, select};
use sanwire_scsi::reservation::{Order, OrderAction, TransportId, order};
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

fn check_id(id: &TransportId) {
    assert_eq!(TransportId::parse(id.as_bytes()).as_ref(), Some(id));
}
