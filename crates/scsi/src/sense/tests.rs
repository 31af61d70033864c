use super::*;
use proptest::prelude::*;

#[test]
fn fixed_format_has_the_bytes_of_the_standard() {
    let sense = Sense::invalid_field_in_cdb(1, Some(7));
    assert_eq!(sense.to_fixed(), [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xcf, 0, 1]);
    let sense = Sense::new(SenseKey::MediumError, AdditionalSense::UNRECOVERED_READ_ERROR).with_information(0x1234);
    assert_eq!(sense.to_fixed(), [0xf0, 0, 3, 0, 0, 0x12, 0x34, 10, 0, 0, 0, 0, 0x11, 0, 0, 0, 0, 0]);
    assert_eq!(sense.with_information(1 << 32).to_fixed()[..7], [0x70, 0, 3, 0, 0, 0, 0], "too large: not valid");
}

#[test]
fn descriptor_format_has_the_bytes_of_the_standard() {
    let mut sense = Sense::invalid_field_in_parameters(0x102, None).with_information(1 << 32);
    let body = [0x72, 5, 0x26, 0, 0, 0, 0, 20, 0, 10, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2, 6, 0, 0, 0x80, 1, 2, 0];
    assert_eq!(sense.to_descriptor(), body);
    sense.is_deferred = true;
    assert_eq!(sense.to_descriptor()[0], 0x73);
}

#[test]
fn a_failed_segment_is_pointed_at_in_both_formats() {
    let segment = FailedSegment { number: 3, byte: Some(0x0114) };
    let sense = Sense::copy_aborted(AdditionalSense::UNREACHABLE_COPY_TARGET, segment);
    assert_eq!(sense.to_fixed(), [0x70, 0, 0x0a, 0, 0, 0, 0, 10, 0, 0, 0, 3, 8, 4, 0, 0xa0, 1, 0x14]);
    let body = [0x72, 0x0a, 8, 4, 0, 0, 0, 20, 1, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 2, 6, 0, 0, 0xa0, 1, 0x14, 0];
    assert_eq!(sense.to_descriptor(), body);
    assert_eq!(sense.to_string(), "copy aborted: Unreachable copy target (08h/04h) in segment 3");
}

#[test]
fn sense_data_reads_like_a_sentence() {
    let sense = Sense::new(SenseKey::MediumError, AdditionalSense::WRITE_ERROR).with_information(7);
    assert_eq!(sense.to_string(), "medium error: Write error (0ch/00h) at block 7");
    let sense = Sense::invalid_field_in_cdb(1, Some(7));
    assert_eq!(sense.to_string(), "illegal request: Invalid field in CDB (24h/00h) in byte 1 of the CDB");
}

/// What an initiator meets at any target: from our own device, or from somebody else's.
#[test]
fn conditions_have_the_words_of_the_standard() {
    for (code, qualifier, words) in [
        (0x4b, 0x06, "Initiator response timeout (4bh/06h)"),
        (0x0c, 0x0d, "Write error - not enough unsolicited data (0ch/0dh)"),
        (0x47, 0x7f, "Some commands cleared by iSCSI protocol event (47h/7fh)"),
        (0x02, 0x00, "No seek complete (02h/00h)"),
        (0x74, 0x71, "Logical unit access not authorized (74h/71h)"),
        (0x40, 0x85, "Diagnostic failure on component (40h/85h)"),
        (0x04, 0x80, "vendor specific condition (04h/80h)"),
        (0x80, 0x00, "vendor specific condition (80h/00h)"),
        (0x7f, 0x7f, "unknown condition (7fh/7fh)"),
    ] {
        assert_eq!(AdditionalSense { code, qualifier }.to_string(), words);
    }
}

proptest! {
    #[test]
    fn both_formats_survive(
        key in prop::sample::select(SenseKey::ALL.to_vec()), code: u8, qualifier: u8, information: Option<u32>,
        field in prop::option::of((any::<bool>(), any::<u16>(), prop::option::of(0u8..8))),
        progress: Option<u16>, number: u16, byte: Option<u16>, is_deferred: bool,
    ) {
        let field = field.filter(|_| key == SenseKey::IllegalRequest);
        let field = field.map(|(in_cdb, byte, bit)| FieldPointer { in_cdb, byte, bit });
        let progress = progress.filter(|_| matches!(key, SenseKey::NotReady | SenseKey::NoSense));
        let information = information.map(u64::from);
        let segment = (key == SenseKey::CopyAborted).then_some(FailedSegment { number, byte });
        let sense = Sense { key, additional: AdditionalSense { code, qualifier }, information, field, segment, progress, is_deferred };
        prop_assert_eq!(Sense::parse(&sense.to_fixed()), Some(sense));
        let wide = Sense { information: information.map(|value| value << 32 | 7), ..sense };
        prop_assert_eq!(Sense::parse(&wide.to_descriptor()), Some(wide));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), code in 0x70u8..0x74) {
        let mut bytes = bytes;
        let _ = Sense::parse(&bytes);
        if let Some(first) = bytes.first_mut() {
            *first = code;
            let _ = Sense::parse(&bytes);
        }
    }
}
