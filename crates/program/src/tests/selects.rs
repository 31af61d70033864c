//! What a `select` gives, by its condition.

use sanwire_device::Verdict;

use super::support::*;

/// wasmi 2.0.0 compiled some to one that depends on the value before the condition.
#[test]
fn what_is_selected_depends_on_the_condition() {
    let begin = "(local $tested i32) (local $at i32) (local.set $at (i32.const 40000))
        (i32.store offset=4 (local.get $at) (i32.const 1)) (i32.store offset=8 (local.get $at) (i32.const 2))";
    let (allow, refuse) = ("(i32.load offset=4 (local.get $at))", "(i32.load offset=8 (local.get $at))");
    for (first, second, condition) in [
        (allow, "(i32.const 2)", "(i32.eqz (local.get $tested))"),
        (allow, refuse, "(i32.eqz (local.get $tested))"),
        (refuse, allow, "(i32.ne (local.get $tested) (i32.const 0))"),
        (refuse, "(i32.const 1)", "(i32.ne (i32.const 0) (local.get $tested))"),
        ("(i32.const 1)", refuse, "(i32.eq (local.get $tested) (i32.const 0))"),
        (allow, refuse, "(i32.eqz (i32.load (local.get $at)))"),
        (allow, refuse, "(i32.eqz (i32.and (local.get $tested) (i32.const 1)))"),
        (refuse, allow, "(local.get $tested)"),
    ] {
        for tested in [0, 1] {
            let body = format!(
                "{begin} (i32.store (local.get $at) (i32.const {tested})) (local.set $tested (i32.load (local.get $at)))
                 (select {first} {second} {condition})"
            );
            for program in [program(&body), program(&body).interpreted()] {
                let judged = judge_twice(&program);
                assert_eq!(matches!(judged.judgement.verdict, Verdict::Allow), tested == 0, "{body}");
            }
        }
    }
}
