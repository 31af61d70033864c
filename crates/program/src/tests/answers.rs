use sanwire_device::{CommandProgram, Keeping, Verdict};
use sanwire_scsi::{AdditionalSense, Cdb, Sense, SenseKey};

use super::support::*;
use crate::{Failure, Judged, Nonsense};

/// A body that writes these 32-bit words into the answer, at their offsets, and returns this.
fn answering(words: &[(u32, u32)], returned: u32) -> String {
    let stores = words.iter().map(|(at, word)| format!("(i32.store (i32.const {}) (i32.const {word}))", ANSWER + at));
    stores.collect::<String>() + &format!("(i32.const {returned})")
}

/// The verdict of a program that answers so; it has a function `ended`.
fn answer(words: &[(u32, u32)], returned: u32) -> Judged {
    let ended = r#"(func (export "ended") (param i64 i32) (result i32) (i32.const 0))"#;
    let program = load(&module(FIELDS, &answering(words, returned), ended)).unwrap();
    judge_twice(&program)
}

fn verdict(words: &[(u32, u32)], returned: u32) -> Verdict {
    let judged = answer(words, returned);
    assert_eq!(judged.failure, None);
    judged.judgement.verdict
}

fn failure(words: &[(u32, u32)], returned: u32) -> Nonsense {
    let judged = answer(words, returned);
    let refused = Sense::new(SenseKey::HardwareError, AdditionalSense::INTERNAL_TARGET_FAILURE);
    assert!(matches!(judged.judgement.verdict, Verdict::Refuse(sense) if sense == refused), "{judged:?}");
    assert_eq!((judged.judgement.keep, judged.judgement.end), (None, None));
    match judged.failure {
        Some(Failure::Nonsense(nonsense)) => nonsense,
        other => panic!("{other:?}"),
    }
}

/// The four bytes of the sense fields.
fn sense(key: u8, code: u8, qualifier: u8) -> (u32, u32) {
    (0, u32::from_le_bytes([key, code, qualifier, 0]))
}

#[test]
fn each_verdict_is_taken_as_it_stands() {
    assert!(matches!(verdict(&[], 1), Verdict::Allow));
    let Verdict::Refuse(refusal) = verdict(&[sense(0x7, 0x27, 0x02)], 2) else { panic!() };
    assert_eq!((refusal.key, refusal.additional), (SenseKey::DataProtect, AdditionalSense::SOFTWARE_WRITE_PROTECTED));
    let Verdict::Refuse(refusal) = verdict(&[], 2) else { panic!() };
    assert_eq!(
        (refusal.key, refusal.additional),
        (SenseKey::IllegalRequest, AdditionalSense::ACCESS_DENIED_NO_ACCESS_RIGHTS)
    );
    assert!(matches!(verdict(&[(8, 9_992)], 3), Verdict::Redirect { lba: 9_992 }));
    let cdb = [(24, 10), (32, u32::from_le_bytes([0x28, 0, 0, 0])), (36, u32::from_le_bytes([0, 5, 0, 0])), (40, 1)];
    let Verdict::Rewrite(read) = verdict(&cdb, 4) else { panic!() };
    assert_eq!(read, Cdb::from([0x28, 0, 0, 0, 0, 5, 0, 0, 1, 0]));
    assert!(matches!(verdict(&[(4, 250)], 5), Verdict::Defer { milliseconds: 250 }));
}

#[test]
fn who_asks_to_be_told_of_the_end_gives_a_number_for_it() {
    let end = |words: &[(u32, u32)], returned| answer(words, returned).judgement.end;
    assert_eq!(end(&[(16, 7), (20, 1)], 0x201), Some(7 + (1 << 32)));
    assert_eq!(end(&[(16, 7), (8, 5)], 0x203), Some(7));
    assert_eq!(end(&[(16, 7)], 0x202), None, "what is refused does not begin");
    assert_eq!(end(&[(16, 7), (4, 1)], 0x205), None, "what is deferred is asked about again");
    assert_eq!(end(&[(16, 7)], 1), None);
}

#[test]
fn an_answer_without_sense_refuses_and_is_counted() {
    assert_eq!(failure(&[], 0), Nonsense::Verdict(0));
    assert_eq!(failure(&[], 6), Nonsense::Verdict(6));
    assert_eq!(failure(&[], 0x401), Nonsense::Verdict(0x401));
    assert_eq!(failure(&[], u32::MAX), Nonsense::Verdict(u32::MAX));
    for key in [0x1, 0xc, 0xf, 0xff] {
        assert_eq!(failure(&[sense(key, 0x27, 0)], 2), Nonsense::SenseKey(key));
    }
    assert_eq!(failure(&[sense(0, 0x27, 0)], 2), Nonsense::SenseKey(0));
    assert_eq!(failure(&[(8, 9_993)], 3), Nonsense::Lba(9_993), "8 blocks do not fit in the last 7");
    assert_eq!(failure(&[(8, u32::MAX), (12, u32::MAX)], 3), Nonsense::Lba(u64::MAX));
    assert_eq!(failure(&[], 5), Nonsense::Delay(0));
    assert_eq!(failure(&[(4, 60_001)], 5), Nonsense::Delay(60_001));
    assert_eq!(failure(&[], 4), Nonsense::CdbLength(0));
    assert_eq!(failure(&[(24, 33)], 4), Nonsense::CdbLength(33));
    assert_eq!(failure(&[(24, u32::MAX)], 4), Nonsense::CdbLength(u32::MAX));
    assert_eq!(failure(&[(24, 10), (32, 0xff)], 4), Nonsense::Cdb(0xff), "no such operation");
    assert_eq!(failure(&[(24, 6), (32, 0x28)], 4), Nonsense::Cdb(0x28), "READ (10) has ten bytes");
    let reserved_bit = u32::from_le_bytes([0x28, 0x01, 0, 0]);
    assert_eq!(failure(&[(24, 10), (32, reserved_bit)], 4), Nonsense::Cdb(0x28));
}

#[test]
fn what_is_about_no_single_range_goes_nowhere_else() {
    let program = program(&answering(&[(8, 5)], 3));
    for ranges in [&[][..], &[sanwire_device::BlockRange { lba: 1, blocks: 1 }; 2]] {
        let judged = with_write(|command| program.run(&sanwire_device::JudgedCommand { ranges, ..command }));
        assert_eq!(judged.failure, Some(Failure::Nonsense(Nonsense::NoBlocks)));
    }
}

#[test]
fn who_cannot_be_told_of_the_end_must_not_ask_for_it() {
    let judged = judge_twice(&program("(i32.const 0x201)"));
    assert_eq!(judged.failure, Some(Failure::Nonsense(Nonsense::NoEnded)));
}

/// A program may forget to set what it has set before: it must not be taken for said again.
#[test]
fn nothing_of_an_answer_stays_for_the_next_command() {
    let more = "(global $calls (mut i32) (i32.const 0))";
    let judge_body = format!(
        "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
         (if (i32.eq (global.get $calls) (i32.const 1))
            (then (i32.store (i32.const {ANSWER}) (i32.const 0x002707))))
         (i32.const 2)"
    );
    let program = load(&module(FIELDS, &judge_body, more)).unwrap();
    let keys = [judge(&program), judge(&program)].map(|judged| match judged.judgement.verdict {
        Verdict::Refuse(sense) => sense.key,
        other => panic!("{other:?}"),
    });
    assert_eq!(keys, [SenseKey::DataProtect, SenseKey::IllegalRequest]);
}

#[test]
fn every_answer_is_counted() {
    let more = "(global $calls (mut i32) (i32.const 0))";
    let words = [sense(0x7, 0x27, 0), (4, 5), (24, 6)];
    let words = words.map(|(at, word)| format!("(i32.store (i32.const {}) (i32.const {word}))", ANSWER + at)).concat();
    let judge_body = format!(
        "{words}
         (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
         (global.get $calls)"
    );
    let program = load(&module(FIELDS, &judge_body, more)).unwrap();
    for _ in 0..7 {
        // Allowed, refused, redirected, rewritten (TEST UNIT READY), deferred, nonsense; and 1 again after that.
        judge(&program);
    }
    let counted = program.statistics();
    assert_eq!(counted.calls, 7);
    assert_eq!((counted.allowed, counted.refused, counted.redirected), (2, 1, 1));
    assert_eq!((counted.rewritten, counted.deferred, counted.nonsense, counted.failed), (1, 1, 1, 1));
    assert_eq!(counted.last_failure, Some(Failure::Nonsense(Nonsense::Verdict(6))));
    assert!(counted.fuel > counted.fuel_max && counted.fuel_max > 0, "{counted:?}");
}

#[test]
fn who_fails_to_take_the_end_has_the_command_fail() {
    for ended in ["unreachable", "(i32.const 1)", "(loop $on (br $on)) (i32.const 0)"] {
        let more = format!(r#"(func (export "ended") (param i64 i32) (result i32) {ended})"#);
        let program = load(&module(FIELDS, "(i32.const 0x201)", &more)).unwrap();
        assert_eq!(judge(&program).failure, None);
        let wish = program.ended(0, true).unwrap();
        assert_eq!(program.keeping(wish), Keeping::Failed);
        assert_eq!((program.statistics().failed, program.statistics().ends), (1, 1));
    }
}
