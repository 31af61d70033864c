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

/// A read of 32,768 bytes that met a block of 65,536, and one of 10 blocks that met a filemark after 3 (SSC-5 4.2.10).
#[test]
fn a_tape_tells_what_it_met_and_how_much_is_left() {
    let incorrect_length = StreamFlags { incorrect_length: true, ..StreamFlags::default() };
    let long = Sense::new(SenseKey::NoSense, AdditionalSense::NONE).with_stream(incorrect_length).with_residue(-32_768);
    assert_eq!(long.to_fixed(), [0xf0, 0, 0x20, 0xff, 0xff, 0x80, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let body = [0x72, 0, 0, 0, 0, 0, 0, 16, 0, 10, 0x80, 0, 255, 255, 255, 255, 255, 255, 0x80, 0, 4, 2, 0, 0x20];
    assert_eq!(long.to_descriptor(), body);
    assert_eq!([long.to_fixed(), long.to_descriptor()].map(|bytes| Sense::parse_of_stream(&bytes)), [Some(long); 2]);
    assert_eq!(Sense::parse(&long.to_fixed()).unwrap().information, Some(Information::Place(0xffff_8000)));

    let filemark = StreamFlags { filemark: true, ..StreamFlags::default() };
    let short = Sense::new(SenseKey::NoSense, AdditionalSense::FILEMARK_DETECTED).with_stream(filemark).with_residue(7);
    assert_eq!(short.to_fixed(), [0xf0, 0, 0x80, 0, 0, 0, 7, 10, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(short.to_descriptor()[18..], [0, 7, 4, 2, 0, 0x80][..]);
    assert_eq!(short.to_string(), "no sense: Filemark detected (00h/01h), 7 left, at a filemark");
    let end = StreamFlags { end_of_medium: true, ..StreamFlags::default() };
    let full = Sense::new(SenseKey::VolumeOverflow, AdditionalSense::END_OF_PARTITION_OR_MEDIUM_DETECTED);
    assert_eq!(full.with_stream(end).to_fixed()[..3], [0x70, 0, 0x4d]);
    let too_long = full.with_residue(-(1 << 31) - 1);
    assert_eq!((too_long.to_fixed()[0], too_long.to_descriptor()[7]), (0x70, 12), "32 bits do not hold it");
    let of_a_disk = [0x72, 5, 0x24, 0, 0, 0, 0, 4, 5, 2, 0, 0x20];
    assert!(Sense::parse(&of_a_disk).unwrap().stream.incorrect_length, "READ LONG");
}

/// SAT-4 12.2.2.6 and 12.2.2.7: IDENTIFY DEVICE, and a READ EXT of a place that only 48 bits hold.
#[test]
fn the_registers_of_an_ata_device_come_in_both_formats() {
    let status = AtaStatus {
        is_extended: true,
        error: 0x40,
        status: 0x51,
        device: 0xe0,
        count: 0x0102,
        lba: 0x0605_0403_0201,
        has_more_count: false,
        has_more_lba: false,
    };
    let sense = Sense::of_ata(status);
    let body = [0x72, 1, 0, 0x1d, 0, 0, 0, 14, 9, 12, 1, 0x40, 1, 2, 4, 1, 5, 2, 6, 3, 0xe0, 0x51];
    assert_eq!(sense.to_descriptor(), body);
    assert_eq!(Sense::parse(&body), Some(sense));
    let fixed = [0xf0, 0, 1, 0x40, 0x51, 0xe0, 2, 10, 0xe0, 1, 2, 3, 0, 0x1d, 0, 0, 0, 0];
    assert_eq!(sense.to_fixed(), fixed);
    let cut = AtaStatus { count: 2, lba: 0x03_0201, has_more_count: true, has_more_lba: true, ..status };
    assert_eq!(Sense::parse(&fixed), Some(Sense::of_ata(cut)));
    assert_eq!(Sense::of_ata(cut).to_fixed(), fixed);
    assert!(sense.to_string().ends_with(", ATA status 51h, error 40h"), "{sense}");
}

#[test]
fn progress_is_told_of_the_unit_and_of_another_command() {
    let format = AdditionalSense { code: 0x04, qualifier: 0x04 };
    let mut sense = Sense::new(SenseKey::NoSense, AdditionalSense::OPERATION_IN_PROGRESS).with_progress(0x8000);
    assert_eq!(sense.to_fixed()[12..], [0, 0x16, 0, 0x80, 0x80, 0]);
    sense.other_progress = Some(OtherProgress { key: SenseKey::NotReady, additional: format, progress: 0x1234 });
    let body = [0x72, 0, 0, 0x16, 0, 0, 0, 16, 2, 6, 0, 0, 0x80, 0x80, 0, 0, 10, 6, 2, 4, 4, 0, 0x12, 0x34];
    assert_eq!(sense.to_descriptor(), body);
    assert_eq!(Sense::parse(&body), Some(sense));
}

proptest! {
    #[test]
    fn both_formats_survive(
        key in prop::sample::select(SenseKey::ALL.to_vec()), code: u8, qualifier: u8, information: Option<u32>,
        field in prop::option::of((any::<bool>(), any::<u16>(), prop::option::of(0u8..8))),
        progress: Option<u16>, number: u16, byte: Option<u16>, is_deferred: bool, stream in 0u8..8,
    ) {
        let field = field.filter(|_| key == SenseKey::IllegalRequest);
        let field = field.map(|(in_cdb, byte, bit)| FieldPointer { in_cdb, byte, bit });
        let progress = progress.filter(|_| matches!(key, SenseKey::NotReady | SenseKey::NoSense));
        let stream = StreamFlags::from_bits(stream << 5);
        // These bytes say that INFORMATION is an ATA device's.
        prop_assume!((code, qualifier) != (0x00, 0x1d));
        let segment = (key == SenseKey::CopyAborted).then_some(FailedSegment { number, byte });
        let place = information.map(|value| Information::Place(value.into()));
        let condition = Sense::new(key, AdditionalSense { code, qualifier });
        let sense = Sense { information: place, stream, field, segment, progress, is_deferred, ..condition };
        prop_assert_eq!(Sense::parse(&sense.to_fixed()), Some(sense));
        let residue = information.map(|value| Information::Residue(value.cast_signed().into()));
        let of_tape = Sense { information: residue, ..sense };
        prop_assert_eq!(Sense::parse_of_stream(&of_tape.to_fixed()), Some(of_tape));
        prop_assert_eq!(Sense::parse_of_stream(&of_tape.to_descriptor()), Some(of_tape));
        let wide = Sense { information: information.map(|value| Information::Place(u64::from(value) << 32 | 7)), ..sense };
        prop_assert_eq!(Sense::parse(&wide.to_descriptor()), Some(wide));
    }

    #[test]
    fn registers_survive(
        is_extended: bool, error: u8, status: u8, device: u8, count: u16, lba in 0u64..1 << 48,
        key in prop::sample::select(SenseKey::ALL.to_vec()), code: u8, qualifier: u8, progress: u16,
    ) {
        let whole = AtaStatus { is_extended, error, status, device, count, lba, has_more_count: false, has_more_lba: false };
        let additional = AdditionalSense { code, qualifier };
        let sense = Sense { other_progress: Some(OtherProgress { key, additional, progress }), ..Sense::of_ata(whole) };
        prop_assert_eq!(Sense::parse(&sense.to_descriptor()), Some(sense));
        let told = Sense::parse(&sense.to_fixed()).and_then(|sense| sense.ata).unwrap();
        prop_assert_eq!((told.count, told.lba), (count & 0xff, lba & 0xff_ffff));
        prop_assert_eq!((told.has_more_count, told.has_more_lba), (count > 0xff, lba > 0xff_ffff));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), code in 0x70u8..0x74) {
        let mut bytes = bytes;
        let _ = (Sense::parse(&bytes), Sense::parse_of_stream(&bytes));
        if let Some(first) = bytes.first_mut() {
            *first = code;
            let _ = Sense::parse(&bytes);
        }
    }
}
