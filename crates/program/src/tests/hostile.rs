//! Modules that mean harm: what they cost is bounded, the command that they were asked about is refused, and the next one is judged.

use std::time::{Duration, Instant};

use sanwire_device::{CommandProgram, Verdict};
use sanwire_scsi::SenseKey;

use super::support::*;
use crate::{Failure, Limits, LoadError, Program, ProgramStatistics};

fn failure(program: &Program) -> Failure {
    let judged = judge_twice(program);
    let Verdict::Refuse(sense) = judged.judgement.verdict else { panic!("{judged:?}") };
    assert_eq!(sense.key, SenseKey::HardwareError);
    assert_eq!(program.statistics().failed, program.statistics().calls);
    judged.failure.unwrap()
}

fn is_allowed(program: &Program) -> bool {
    let allows = || matches!(judge(program).judgement.verdict, Verdict::Allow);
    allows() && allows()
}

#[test]
fn who_runs_for_ever_runs_out_of_fuel() {
    let fill = "(loop $on (memory.fill (i32.const 32768) (i32.const 1) (i32.const 32768)) (br $on)) (i32.const 1)";
    let copy = "(loop $on (memory.copy (i32.const 0) (i32.const 1) (i32.const 65535)) (br $on)) (i32.const 1)";
    let grow = "(loop $on (drop (memory.grow (i32.const 0))) (br $on)) (i32.const 1)";
    for body in ["(loop $on (br $on)) (i32.const 1)", fill, copy, grow] {
        let program = program(body);
        assert_eq!(failure(&program), Failure::OutOfFuel);
        let statistics = program.statistics();
        assert!(statistics.fuel_max <= Limits::default().fuel, "{statistics:?}");
        assert_eq!((statistics.out_of_fuel, statistics.trapped), (2, 0));
    }
}

/// A function that calls itself takes native stack in an interpreter that calls itself for that.
#[test]
fn who_calls_without_end_comes_to_the_end_of_its_stack() {
    let simple = "(func $on (call $on))";
    let locals = format!("(func $on (local {}) (call $on) (call $on))", "i64 ".repeat(1_000));
    let table = "(type $f (func)) (table 1 funcref) (elem (i32.const 0) $on)
                 (func $on (call_indirect (type $f) (i32.const 0)))";
    for functions in [simple, &locals, table] {
        let module = module(FIELDS, "(call $on) (i32.const 1)", functions);
        let program = Program::load(&module, Limits { fuel: 100_000_000, ..Limits::default() }, None).unwrap();
        assert!(matches!(failure(&program), Failure::Trapped(_)), "{functions}");
    }
}

#[test]
fn memory_grows_to_its_limit_and_no_further() {
    let body = "(loop $on (br_if $on (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
                (i32.eq (memory.size) (i32.const PAGES))";
    for pages in [1, 4, 16] {
        let module = module(FIELDS, &body.replace("PAGES", &pages.to_string()), "");
        let limits = Limits { memory_bytes: pages * Limits::PAGE_BYTES, ..Limits::default() };
        assert!(is_allowed(&Program::load(&module, limits, None).unwrap()), "{pages}");
    }
    // At once rather than page by page.
    assert!(is_allowed(&program("(i32.eq (memory.grow (i32.const 65535)) (i32.const -1))")));
}

#[test]
fn a_table_is_small_and_stays_small() {
    let error = load(&module(FIELDS, "(i32.const 1)", "(table 10000000 funcref)")).unwrap_err();
    assert!(matches!(error, LoadError::TooMany { what: "elements of its table", .. }), "{error}");
    let body = "(i32.eq (table.grow (ref.null func) (i32.const 10000000)) (i32.const -1))";
    assert!(is_allowed(&load(&module(FIELDS, body, "(table 1 funcref)")).unwrap()));
    let error = load(&module(FIELDS, "(i32.const 1)", &"(table 1 funcref)".repeat(2))).unwrap_err();
    assert!(matches!(error, LoadError::TooMany { what: "tables", count: 2, max: 1 }), "{error}");
}

#[test]
fn each_trap_refuses_the_command_and_is_named() {
    for (body, words) in [
        ("unreachable", "unreachable"),
        ("(i32.div_u (i32.const 1) (i32.load (i32.const 60000)))", "divide by zero"),
        ("(i32.load (i32.const -1))", "out of bounds memory"),
        ("(memory.fill (i32.const 65535) (i32.const 0) (i32.const 2)) (i32.const 1)", "out of bounds memory"),
        ("(call_indirect (type $f) (i32.const 0)) (i32.const 1)", "uninitialized element"),
        ("(call_indirect (type $f) (i32.const 1)) (i32.const 1)", "undefined element"),
    ] {
        let program = load(&module(FIELDS, body, "(type $f (func)) (table 1 funcref)")).unwrap();
        let failed = failure(&program).to_string();
        assert!(failed.contains(words), "{body}: {failed}");
        assert_eq!((program.statistics().trapped, program.statistics().out_of_fuel), (2, 0));
    }
}

#[test]
fn who_traps_in_the_hundredth_call_begins_anew() {
    let calls = "(global $calls (mut i32) (i32.const 0))";
    let body = "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
                (if (i32.eq (global.get $calls) (i32.const 100)) (then unreachable))
                (i32.const 1)";
    let program = load(&module(FIELDS, body, calls)).unwrap();
    let failed: Vec<usize> = (1..=250).filter(|_| judge(&program).failure.is_some()).collect();
    assert_eq!(failed, [100, 200]);
    assert_eq!((program.statistics().allowed, program.statistics().trapped), (248, 2));
}

/// Else a program would take a processor in places for which nobody asks it to pay.
#[test]
fn what_ends_and_failures_take_is_told_with_a_judgement() {
    let most = Limits::default().fuel;
    assert!(judge(&program("unreachable")).judgement.fuel >= most, "with a new instance");
    let ended = r#"(func (export "ended") (param i64 i32) (result i32) (loop $on (br $on)) (i32.const 0))"#;
    let program = load(&module(FIELDS, "(i32.const 0x201)", ended)).unwrap();
    assert!(judge(&program).judgement.fuel < 1_000);
    assert!(program.ended(0, true).is_some(), "it fails");
    let told = judge(&program).judgement.fuel;
    assert!(told > most && told < 3 * most, "{told}");
    assert!(judge(&program).judgement.fuel < 1_000, "once");
}

/// What is told and what is not yet is all that was taken, whatever the verdicts are.
#[test]
fn no_fuel_of_small_calls_is_lost() {
    for body in ["(i32.const 1)", "(i32.const 2)", "(i32.const 77)"] {
        let program = program(body);
        let told: Vec<u64> = (0..5_000).map(|_| judge(&program).judgement.fuel).collect();
        let ProgramStatistics { fuel, failed, .. } = program.statistics();
        let taken = fuel + failed * Limits::default().fuel;
        let untold = taken - told.iter().sum::<u64>();
        assert!(untold < 1_000 && taken > 2_000, "{body}: {untold} of {taken}");
        assert!(told.iter().all(|told| *told == 0 || *told >= 1_000), "{body}");
    }
}

/// Refused before a byte of it is read.
#[test]
fn a_module_of_100_megabytes_is_not_looked_at() {
    let mut module = module(FIELDS, "(i32.const 1)", "");
    module.resize(100_000_000, 0);
    let error = load(&module).unwrap_err();
    assert!(matches!(error, LoadError::TooLong { bytes: 100_000_000, max_bytes: 1_048_576 }), "{error}");
}

#[test]
fn more_of_anything_than_a_program_needs_is_refused() {
    let blocks = format!("(func {} {})", "(block ".repeat(60_000), ")".repeat(60_000));
    for (parts, what) in [
        ("(func)".repeat(100_000), "functions"),
        (format!("(func (local {}))", "i32 ".repeat(40_000)), "local variables of a function"),
        ("(type (func (param i32)))".repeat(2_000), "types of functions"),
        (format!("(func (param {}))", "i32 ".repeat(100)), "parameters of a function"),
        (format!("(type (func (result {})))", "i32 ".repeat(100)), "results of a function"),
        ("(global i32 (i32.const 0))".repeat(2_000), "global variables"),
        (r#"(data "")"#.repeat(2_000), "segments of its memory"),
        (format!("(table 1 funcref) (func $f) {}", "(elem func $f)".repeat(2_000)), "segments of its table"),
        ((0..2_000).map(|n| format!(r#"(export "{n}" (memory 0))"#)).collect(), "exports"),
        (blocks, "bytes of a function"),
    ] {
        let error = load(&module(FIELDS, "(i32.const 1)", &parts)).unwrap_err();
        assert!(matches!(error, LoadError::TooMany { what: found, .. } if found == what), "{what}: {error}");
    }
}

/// As much of each part as is taken at all: the time that this takes is what a stranger can take from a server by one module. It is some
/// milliseconds; the bound is for a busy machine.
#[test]
fn the_worst_module_that_is_taken_is_loaded_soon() {
    let locals = "i64 ".repeat(1_000);
    let functions = format!("(func (local {locals}))").repeat(3_990);
    let nested = format!("(func {} {})", "(block ".repeat(40_000), ")".repeat(40_000));
    let jumps = "0 ".repeat(120_000);
    let targets = format!("(func (param i32) (block (br_table {jumps} (local.get 0))))");
    let valued = "(block (result i32) (local.get 0)";
    let values = format!("(func (param i32) (result i32) {valued} (br_table {jumps} (local.get 0))))");
    let preserved =
        format!("(func (param i32) {} {})", "(local.get 0) ".repeat(30_000), "(local.set 0) ".repeat(30_000));
    let branches = format!("(func (param i32) {})", "(if (local.get 0) (then)) ".repeat(20_000));
    for (what, parts) in [
        ("functions with locals", functions),
        ("nested blocks", nested.repeat(8)),
        ("jump targets", targets.repeat(8)),
        ("jump targets with values", values.repeat(8)),
        ("values of a variable that changes", preserved.repeat(8)),
        ("branches", branches.repeat(8)),
    ] {
        let module = module(FIELDS, "(i32.const 1)", &parts);
        let started = Instant::now();
        let loaded = load(&module);
        assert!(loaded.is_ok(), "{what}: {:?}", loaded.err());
        assert!(started.elapsed() < Duration::from_secs(60), "{what}: {:?}", started.elapsed());
    }
}
