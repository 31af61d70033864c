use super::*;
use crate::command::{ModeForm, PageControl};
use crate::sense::{AdditionalSense, SenseKey};
use proptest::prelude::*;

const NOT_REPORTING: Thresholds = {
    let off = Threshold { is_enabled: false, count: 0 };
    Thresholds { is_reporting: false, available: off, used: off }
};

const VALUES: ModeValues = ModeValues {
    settings: Settings { write_cache: true, descriptor_sense: false, software_write_protect: false },
    thresholds: NOT_REPORTING,
};

const STATE: ModeState = ModeState {
    current: VALUES,
    default: VALUES,
    counted: CountedResources { available: false, used: false },
    write_protected: false,
    blocks: 0x0102_0304,
    block_bytes: 512,
};

fn asked(form: ModeForm, control: PageControl, page: u8) -> ModeSense {
    ModeSense { form, no_descriptors: true, long_lba: false, control, page, subpage: 0, allocation_bytes: 255 }
}

#[test]
fn the_caching_page_has_the_bytes_of_the_standard() {
    let bytes = sense(&asked(ModeForm::Six, PageControl::Current, page::CACHING), &STATE).unwrap();
    let mut expected = vec![23, 0, 0x10, 0, 8, 18, 4];
    expected.resize(24, 0);
    assert_eq!(bytes, expected);
    let changeable = sense(&asked(ModeForm::Six, PageControl::Changeable, page::CACHING), &STATE).unwrap();
    assert_eq!(changeable, expected, "WCE is all that can be changed");
    let read_only = ModeState { write_protected: true, ..STATE };
    assert_eq!(sense(&asked(ModeForm::Six, PageControl::Current, 8), &read_only).unwrap()[2], 0x90);
}

#[test]
fn all_pages_come_in_order_with_a_descriptor() {
    let asked = ModeSense { no_descriptors: false, ..asked(ModeForm::Six, PageControl::Current, page::ALL) };
    let bytes = sense(&asked, &STATE).unwrap();
    assert_eq!(bytes[..12], [(bytes.len() - 1) as u8, 0, 0x10, 8, 1, 2, 3, 4, 0, 0, 2, 0]);
    let data = ModeData::parse(ModeForm::Six, &bytes).unwrap();
    assert_eq!(data.pages().map(|page| page.code).collect::<Vec<_>>(), [0x01, 0x08, 0x0a, 0x1c]);
    assert!(data.force_unit_access && !data.write_protected);
    assert_eq!(data.write_cache(), Some(true));
    let cut = ModeData::parse(ModeForm::Six, &bytes[..30]).unwrap();
    assert_eq!((cut.pages().count(), cut.write_cache()), (1, None), "cut within the caching page");
}

#[test]
fn the_long_form_has_a_long_descriptor() {
    let asked = ModeSense {
        no_descriptors: false,
        long_lba: true,
        ..asked(ModeForm::Ten, PageControl::Default, page::CONTROL)
    };
    let state = ModeState { blocks: 1 << 40, ..STATE };
    let bytes = sense(&asked, &state).unwrap();
    assert_eq!(bytes[..8], [0, 34, 0, 0x10, 1, 0, 0, 16]);
    assert_eq!(bytes[8..24], [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    assert_eq!(bytes[24..], [10, 10, 0, 0x10, 0, 0x40, 0, 0, 0xff, 0xff, 0, 0]);
    assert_eq!(ModeData::parse(ModeForm::Ten, &bytes).unwrap().pages().count(), 1);
    let short = ModeSense { long_lba: false, ..asked };
    assert_eq!(sense(&short, &state).unwrap()[8..12], [0xff; 4], "too many blocks for the short form");
}

#[test]
fn what_is_not_there_is_refused() {
    let saved = Sense::new(SenseKey::IllegalRequest, AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED);
    assert_eq!(sense(&asked(ModeForm::Six, PageControl::Saved, 8), &STATE), Err(saved));
    let unknown = asked(ModeForm::Six, PageControl::Current, 2);
    assert_eq!(sense(&unknown, &STATE), Err(Sense::invalid_field_in_cdb(2, Some(5))));
    for (page, subpage) in [(page::CONTROL, 2), (page::CACHING, 1), (page::ALL, 1), (0x1c, 2)] {
        let subpage = ModeSense { subpage, ..asked(ModeForm::Six, PageControl::Current, page) };
        assert_eq!(sense(&subpage, &STATE), Err(Sense::invalid_field_in_cdb(3, None)));
    }
}

#[test]
fn the_write_cache_can_be_switched() {
    let told = sense(&asked(ModeForm::Six, PageControl::Current, page::CACHING), &STATE).unwrap();
    let list = caching_parameters(&told[4..], false);
    let expected = ModeValues { settings: Settings { write_cache: false, ..VALUES.settings }, ..VALUES };
    assert_eq!(select(ModeForm::Six, &list, &STATE), Ok(expected));
    let mut ten = vec![0; 8];
    ten.extend(&list[4..]);
    assert_eq!(select(ModeForm::Ten, &ten, &STATE), Ok(expected));
    assert_eq!(select(ModeForm::Six, &caching_parameters(&told[4..], true), &STATE), Ok(STATE.current));
    assert_eq!(select(ModeForm::Six, &[], &STATE), Ok(STATE.current), "an empty list changes nothing");
}

#[test]
fn what_cannot_be_changed_is_pointed_at() {
    let list = |pages: &[u8]| [&[0, 0, 0, 0], pages].concat();
    let refused = |list: &[u8]| select(ModeForm::Six, list, &STATE).unwrap_err();
    let told = sense(&asked(ModeForm::Six, PageControl::Current, page::CACHING), &STATE).unwrap();
    let mut caching = told[4..].to_vec();
    caching[2] |= 0x01; // RCD
    assert_eq!(refused(&list(&caching)), Sense::invalid_field_in_parameters(6, Some(0)));
    caching[1] = 10;
    assert_eq!(refused(&list(&caching)), Sense::invalid_field_in_parameters(5, None));
    assert_eq!(refused(&list(&[2, 14])), Sense::invalid_field_in_parameters(4, Some(5)));
    let too_short = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    assert_eq!(refused(&list(&[8])), too_short);
    assert_eq!(refused(&list(&[8, 18, 4])), too_short);
    assert_eq!(refused(&[0, 0, 0]), too_short);
    assert_eq!(refused(&[0, 0, 0, 8, 0]), too_short);
    assert_eq!(refused(&[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0x10, 0]), Sense::invalid_field_in_parameters(4, None));
    assert_eq!(refused(&[0, 0, 0, 4, 0, 0, 0, 0]), Sense::invalid_field_in_parameters(3, None));
    assert_eq!(select(ModeForm::Six, &[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 2, 0], &STATE), Ok(STATE.current));
}

/// SPC-5 6.14.1: a page with all its subpages, or all pages with all of theirs.
#[test]
fn subpages_are_asked_for_together_and_alone() {
    let list = |page, subpage, counted| {
        let asked = ModeSense { subpage, ..asked(ModeForm::Ten, PageControl::Current, page) };
        let bytes = sense(&asked, &ModeState { counted, ..STATE }).unwrap();
        let data = ModeData::parse(ModeForm::Ten, &bytes).unwrap();
        data.pages().map(|page| page.bytes[..2].to_vec()).collect::<Vec<_>>()
    };
    let (none, all) = (CountedResources::default(), CountedResources { available: true, used: true });
    assert_eq!(list(page::CONTROL, 0xff, none), [[0x0a, 10], [0x4a, 1]]);
    assert_eq!(list(page::CONTROL, 1, none), [[0x4a, 1]]);
    assert_eq!(list(0x1c, 0xff, all), [[0x1c, 10], [0x5c, 2]]);
    assert_eq!(list(page::ALL, 0, all), [[1, 10], [8, 18], [0x0a, 10], [0x1c, 10]]);
    assert_eq!(list(page::ALL, 0xff, all), [[1, 10], [8, 18], [0x0a, 10], [0x4a, 1], [0x1c, 10], [0x5c, 2]]);
    assert_eq!(list(page::ALL, 0xff, none).len(), 5);
    let asked = ModeSense { subpage: 1, ..asked(ModeForm::Six, PageControl::Current, page::CONTROL) };
    let mut extension = vec![0x4a, 1, 0, 28, 1];
    extension.resize(32, 0);
    assert_eq!(sense(&asked, &STATE).unwrap()[4..], extension, "SPC-5 7.5.11: IALUAE");
}

/// SBC-4 6.5.9 and 6.5.10.
#[test]
fn thresholds_are_for_what_is_counted() {
    let state = ModeState { counted: CountedResources { available: true, used: true }, ..STATE };
    let page_of = |control, state: &ModeState| {
        let asked = ModeSense { subpage: 2, ..asked(ModeForm::Six, control, 0x1c) };
        sense(&asked, state).unwrap()[4..].to_vec()
    };
    let mut now = page_of(PageControl::Current, &state);
    assert_eq!(now[..16], [0x5c, 2, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(now[16..], [0, 1, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0], "decreasing, increasing");
    let changeable = page_of(PageControl::Changeable, &state);
    assert_eq!(changeable[16..], [0x80, 0, 0, 0, 255, 255, 255, 255, 0x80, 0, 0, 0, 255, 255, 255, 255]);
    now[16] = 0x80;
    now[20..24].copy_from_slice(&7_u32.to_be_bytes());
    now[31] = 9;
    let mut errors = sense(&asked(ModeForm::Six, PageControl::Current, 1), &state).unwrap()[4..].to_vec();
    errors[7] = 0x80;
    let list = [&[0; 4][..], &now, &errors].concat();
    let available = Threshold { is_enabled: true, count: 7 };
    let used = Threshold { is_enabled: false, count: 9 };
    let thresholds = Thresholds { is_reporting: true, available, used };
    assert_eq!(select(ModeForm::Six, &list, &state), Ok(ModeValues { thresholds, ..VALUES }));
    let changed = ModeState { current: ModeValues { thresholds, ..VALUES }, ..state };
    assert_eq!(page_of(PageControl::Current, &changed), now);
    assert_eq!(select(ModeForm::Six, &list, &STATE), Err(Sense::invalid_field_in_parameters(5, None)));
    let place = |at| Err(Sense::invalid_field_in_parameters(at, Some(0)));
    for (byte, at) in [(4, 8), (17, 21)] {
        let mut list = list.clone();
        list[4 + byte] ^= 1;
        assert_eq!(select(ModeForm::Six, &list, &state), place(at), "SITUA and the resource stay");
    }
    let memory = CountedResources { available: false, used: true };
    assert_eq!(page_of(PageControl::Current, &ModeState { counted: memory, ..STATE })[16..18], [1, 2]);
    assert_eq!((threshold_at(0), threshold_at(1)), (16, 24));
    let reporting = sense(&asked(ModeForm::Six, PageControl::Changeable, 1), &STATE).unwrap();
    assert_eq!(reporting[11], 0, "LBPERE is for thresholds only");
}

proptest! {
    #[test]
    fn any_list_and_any_answer_is_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        for form in [ModeForm::Six, ModeForm::Ten] {
            for used in [false, true] {
                let counted = CountedResources { available: used, used };
                let _ = select(form, &bytes, &ModeState { counted, ..STATE });
            }
            if let Ok(data) = ModeData::parse(form, &bytes) {
                prop_assert!(data.pages().count() <= bytes.len());
                let _ = data.write_cache();
            }
        }
    }

    #[test]
    fn settings_survive_their_bits(bits in 0u8..8) {
        prop_assert_eq!(Settings::from_bits(bits).to_bits(), bits);
    }
}
