use super::*;
use crate::command::{ConfigurationRequest, TocFormat, TrackAddress};

const DISC: Disc = Disc { blocks: 1000 };

#[test]
fn one_track_of_data_ends_at_the_lead_out() {
    let toc = |format, in_time| table_of_contents(format, in_time, DISC);
    let all = toc(TocFormat::Tracks { first: 0 }, false).unwrap();
    let expected = [0, 18, 1, 1, 0, 0x14, 1, 0, 0, 0, 0, 0, 0, 0x14, 0xaa, 0, 0, 0, 3, 0xe8];
    assert_eq!(all, expected);
    let lead_out = toc(TocFormat::Tracks { first: 0xaa }, true).unwrap();
    assert_eq!(lead_out, [0, 10, 1, 1, 0, 0x14, 0xaa, 0, 0, 0, 15, 25], "1150 frames from the lead-in");
    assert_eq!(toc(TocFormat::Tracks { first: 2 }, false), Err(Sense::invalid_field_in_cdb(6, None)));
    assert_eq!(toc(TocFormat::Sessions, false).unwrap(), [0, 10, 1, 1, 0, 0x14, 1, 0, 0, 0, 0, 0]);
    let full = toc(TocFormat::Full { first: 1 }, true).unwrap();
    assert_eq!((full.len(), full[1]), (4 + 4 * 11, 46));
    assert_eq!(full[26..37], [1, 0x14, 0, 0xa2, 0, 0, 0, 0, 0, 15, 25]);
    let far = table_of_contents(TocFormat::Tracks { first: 0xaa }, true, Disc { blocks: u32::MAX }).unwrap();
    assert_eq!(far[8..], [0, 255, 59, 74], "there is no time for it");
}

#[test]
fn the_size_decides_which_disc_it_is() {
    for (blocks, profile) in [(1, 8), (360_000, 8), (360_001, 0x10), (4_173_824, 0x10), (4_173_825, 0x40)] {
        let disc = Some(Disc { blocks });
        let bytes = configuration(ConfigurationRequest::All, 0, ConfiguredDrive { disc, serial: "ABCDE" });
        assert_eq!(bytes[..8], [0, 0, 0, (bytes.len() - 4) as u8, 0, 0, 0, profile], "{blocks}");
        let serial = configuration(ConfigurationRequest::One, 0x108, ConfiguredDrive { disc, serial: "ABCDE" });
        assert_eq!(serial[8..], *b"\x01\x08\x03\x08ABCDE   ");
    }
    let empty = ConfiguredDrive { disc: None, serial: "" };
    let current = configuration(ConfigurationRequest::Current, 0x10, empty);
    assert_eq!(current[6..], [0, 0, 1, 0, 3, 0, 1, 5, 3, 0, 1, 8, 3, 0], "power management, timeout, serial number");
}

#[test]
fn a_track_is_found_by_its_number_its_session_and_its_blocks() {
    let of = |address| track_information(address, DISC);
    let bytes = of(TrackAddress::Track(1)).unwrap();
    assert_eq!((bytes.len(), &bytes[..8]), (36, &[0, 34, 1, 1, 0, 4, 1, 2][..]));
    assert_eq!(bytes[24..32], [0, 0, 3, 0xe8, 0, 0, 3, 0xe7]);
    assert_eq!(of(TrackAddress::Session(1)).unwrap(), bytes);
    assert_eq!(of(TrackAddress::Lba(999)).unwrap(), bytes);
    assert_eq!(of(TrackAddress::Lba(1000)).unwrap_err().additional, AdditionalSense::LBA_OUT_OF_RANGE);
    assert_eq!(of(TrackAddress::Track(0xff)), Err(Sense::invalid_field_in_cdb(2, None)), "no invisible track");
    assert_eq!(disc_information()[..9], [0, 32, 0x0e, 1, 1, 1, 1, 0x20, 0]);
}

#[test]
fn events_say_how_the_tray_stands() {
    assert_eq!(media_event_status(Some(MediaEvent::NewMedia), false, true), [0, 6, 4, 0x14, 2, 2, 0, 0]);
    assert_eq!(media_event_status(None, true, false), [0, 6, 4, 0x14, 0, 1, 0, 0]);
    assert_eq!(format_capacities(None)[4..], [0xff, 0xff, 0xff, 0xff, 3, 0, 8, 0]);
    assert_eq!(format_capacities(Some(DISC))[4..], [0, 0, 3, 0xe8, 2, 0, 8, 0]);
}

#[test]
fn only_a_dvd_has_the_structures_of_one() {
    let asked = |format| crate::command::DiscStructure { is_blu_ray: false, format, layer: 0 };
    let dvd = Disc { blocks: 1_000_000 };
    let physical = disc_structure(asked(0), dvd).unwrap();
    assert_eq!((physical.len(), &physical[..2]), (2052, &[8, 2][..]));
    assert_eq!(physical[8..16], [0, 3, 0, 0, 0, 0x12, 0x42, 0x3f]);
    assert_eq!(disc_structure(asked(1), dvd).unwrap(), [0, 6, 0, 0, 0, 0, 0, 0], "nothing is protected");
    assert_eq!(disc_structure(asked(4), dvd), Err(Sense::invalid_field_in_cdb(7, None)));
    assert_eq!(disc_structure(asked(0), DISC).unwrap_err().additional, AdditionalSense::INCOMPATIBLE_FORMAT);
}
