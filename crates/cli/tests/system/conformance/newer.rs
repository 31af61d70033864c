//! What the suite of libiscsi's repository asks beyond Debian's version of it, which cannot be installed: tests of our own ask the
//! same whenever they run, and it was run by hand.

use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The version that was run by hand, and what came of it in the set-ups of this page.
const RUN: &str = "libiscsi's repository at 65ebd14 (June 2026), run by hand in these set-ups in November 2026: of 246 tests 235 pass, 3 are \
    skipped and one is not run as above, and 7 fail by their own fault.";

/// Tests of the suite, the tests of our own that stand for them, and where these are.
const OWN: [(&str, &str, &str); 12] = [
    (
        "CompareAndWrite.MiscompareSense",
        "a_miscompare_tells_each_place_of_a_block",
        "device/src/tests/compare_and_write.rs",
    ),
    ("ExtendedCopy.Large", "one_segment_copies_as_much_as_the_unit_says_that_it_may", "device/src/tests/copy.rs"),
    ("Inquiry.VPDPageCodesSorted", "pages_have_the_bytes_of_the_standard", "scsi/src/vpd.rs"),
    (
        "ReportTargetPortGroups.Simple, AllocLength",
        "a_report_that_is_cut_still_tells_how_long_it_is",
        "device/src/tests/port_groups.rs",
    ),
    ("ReportLUNs.Simple", "each_unit_is_listed_once_whatever_the_room_for_the_list", "device/src/tests/inventory.rs"),
    (
        "iSCSICHAP.Simple, Invalid",
        "the_first_algorithm_of_the_initiators_list_that_is_allowed_is_taken",
        "protocol/iscsi/src/login/tests/chap.rs",
    ),
    (
        "iSCSICHAP.HexName, Base64Name",
        "names_are_text_even_if_they_look_like_numbers",
        "protocol/iscsi/src/login/tests/chap.rs",
    ),
    ("iSCSICHAP.Base64", "responses_come_in_any_notation_and_only_once", "protocol/iscsi/src/login/tests/chap.rs"),
    ("iSCSICHAP.Base64Oversize", "one_wrong_response_ends_the_login", "protocol/iscsi/src/login/tests/chap.rs"),
    (
        "iSCSINop.Simple",
        "a_ping_comes_back_with_its_data_and_a_silent_connection_is_pinged",
        "protocol/iscsi/src/server/tests/basic.rs",
    ),
    (
        "iSCSIResiduals.Write10Residuals, Write12Residuals, Write16Residuals (data that ends within a block)",
        "nobody_is_told_that_data_was_written_which_was_not",
        "server/tests/tasks/residuals.rs",
    ),
    (
        "iSCSITMF.LogoutDuringIOAsync",
        "a_logout_ends_the_session_also_with_commands_under_way",
        "protocol/iscsi/src/server/tests/basic.rs",
    ),
];

/// Tests of the suite that fail where a target does what the standards say.
const ITS_FAULTS: [(&str, &str); 5] = [
    (
        "CompareAndWrite.InvalidDataOutSize",
        "a comparison in it stands the wrong way round, so that it changes no command, and it asks for the error that its change would cause",
    ),
    ("GetLBAStatus.UnmapSingle, WriteSame10.UnmapUntilEnd", "as above"),
    (
        "iSCSISendTargets.Simple",
        "it wants SendTargets=All answered in a normal session, which RFC 7143 appendix C forbids: we answer Reject",
    ),
    (
        "iSCSISendTargets.Invalid",
        "its library takes NotUnderstood (RFC 7143 6.2) for a failure, connects again and never ends",
    ),
    (
        "iSCSITMF.AbortTaskSimpleAsync, LUNResetSimpleAsync",
        "they assert that a PDU still waits which their library has sent at once, and pass without that line",
    ),
];

/// The section of the page.
pub fn document() -> String {
    let mut text = format!(
        "\n## Newer versions of the suite\n\n{RUN}\n\n| test that Debian's has not | our own test of the same |\n|---|---|\n"
    );
    for (test, own, place) in OWN {
        let _ = writeln!(text, "| {test} | `{own}` in `crates/{place}` |");
    }
    text.push_str("\n| test that fails | why |\n|---|---|\n");
    for (test, why) in ITS_FAULTS {
        let _ = writeln!(text, "| {test} | {why} |");
    }
    text
}

#[test]
fn the_tests_that_stand_for_those_of_newer_suites_are_there() {
    for (test, own, place) in OWN {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(place);
        let source = fs::read_to_string(&path).expect(place);
        assert!(source.contains(&format!("fn {own}()")), "{test}: {place} has no {own}");
    }
}
