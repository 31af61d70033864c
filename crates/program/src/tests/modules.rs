//! Modules that are none of programs: each is refused with words that say what to do.

use super::support::*;
use crate::{Limits, LoadError, Program};

fn refused(text: &str) -> String {
    refusal(&wat(text))
}

fn refusal(module: &[u8]) -> String {
    let error = load(module).unwrap_err().to_string();
    let described = Program::describe(module, Limits::default()).unwrap_err().to_string();
    assert_eq!(error, described);
    error
}

/// A module with these parts beside what a program has.
fn with(parts: &str) -> Vec<u8> {
    module(FIELDS, "(i32.const 1)", parts)
}

fn check(module: &[u8], words: &str) {
    let found = refusal(module);
    assert!(found.contains(words), "{found}");
}

#[test]
fn what_is_no_module_is_refused() {
    for (bytes, words) in [
        (&b""[..], "no WebAssembly module"),
        (b"\x7fELF", "no WebAssembly module"),
        (b"\n  (module)", "text form"),
        (b";; A program\n(module)", "text form"),
        (b"\0asm\x01\0\0", "not valid"),
        (b"\0asm\x02\0\0\0", "not valid"),
        (b"\0asm\x01\0\0\0\x63\0", "not valid"),
        (b"\0asm\x0d\0\x01\0", "component"),
    ] {
        check(bytes, words);
    }
    let whole = with("");
    for end in 8..whole.len() {
        assert!(load(&whole[..end]).is_err(), "cut at {end} of {}", whole.len());
    }
    let long = [&whole[..], &vec![0; 1 << 20]].concat();
    check(&long, "strip");
}

#[test]
fn what_stands_behind_the_end_of_a_function_is_refused() {
    const BEFORE: &[u8] = b"\0asm\x01\0\0\0\
        \x01\x05\x01\x60\0\x01\x7f\
        \x03\x02\x01\0\
        \x05\x03\x01\0\x01\
        \x06\x06\x01\x7f\0\x41\0\x0b\
        \x07\x22\x03\x06memory\x02\0\x0dsanwire_abi_1\x03\0\x05judge\0\0";
    let with_body = |behind: &[u8]| {
        let body = [&b"\0\x41\x01\x0b"[..], behind].concat();
        let length = body.len() as u8;
        [BEFORE, &[0x0a, length + 2, 1, length], &body].concat()
    };
    check(&with_body(&[]), "header");
    for behind in [
        &b"\x41\0\x0b"[..],
        b"\x41\0",
        b"\x0b",
        b"\x0f\x0b",
        b"\x02\x40\x0b\x0b",
        b"\x41\0\x04\x40\x05\x0b\x0b",
        b"\x41\0\x2d\0\0\x1a\x0b",
        b"\x41\0\x0d\0\x0b",
        b"\x20\0\x0b",
        b"\x10\0\x0b",
        b"\0",
    ] {
        check(&with_body(behind), "not valid");
    }
}

#[test]
fn what_a_program_must_export_is_said() {
    let header = r#"(global (export "sanwire_abi_1") i32 (i32.const 0))"#;
    let judge = r#"(func (export "judge") (result i32) (i32.const 1))"#;
    let memory = r#"(memory (export "memory") 1)"#;
    for (text, words) in [
        (format!("(module {header} {judge})"), "no memory"),
        (format!("(module (memory 1) {header} {judge})"), "its memory"),
        (format!("(module {memory} {judge})"), "sanwire_abi_1"),
        (format!("(module {memory} {header})"), "a function judge() -> i32"),
        (
            format!(r#"(module {memory} {header} (func (export "judge") (result i64) (i64.const 1)))"#),
            "a function judge()",
        ),
        (
            format!(r#"(module {memory} {header} (func (export "judge") (param i32) (result i32) (i32.const 1)))"#),
            "judge()",
        ),
        (format!(r#"(module {memory} {judge} (global (export "sanwire_abi_1") i64 (i64.const 0)))"#), "sanwire_abi_1"),
        (format!(r#"(module {memory} {judge} (func (export "sanwire_abi_1")))"#), "sanwire_abi_1"),
        (format!(r#"(module {memory} {header} {judge} (func (export "ended")))"#), "a function ended(token"),
        (format!("(module {memory} {header} {judge})"), "header (sanwire_abi_1) is wrong at byte"),
    ] {
        let found = refused(&text);
        assert!(found.contains(words), "{found}");
    }
}

#[test]
fn what_programs_do_not_have_is_refused() {
    for (parts, words) in [
        ("(func (param f32))", "floating"),
        ("(func (result f64) (f64.const 1))", "floating"),
        ("(memory 1)", "2 memories"),
        ("(func $on (return_call $on))", "tail"),
        ("(func $main) (start $main)", "start function"),
        ("(func (param v128))", "not valid"),
        ("(tag)", "not valid"),
    ] {
        check(&with(parts), words);
    }
    let shared = r#"(module (memory (export "memory") 1 1 shared))"#;
    assert!(refused(shared).contains("not valid"));
    let long = r#"(module (memory (export "memory") i64 1))"#;
    assert!(refused(long).contains("not valid"));
}

#[test]
fn an_import_is_named() {
    let found = refused(r#"(module (import "env" "memcpy" (func)) (import "env" "memory" (memory 1)))"#);
    assert!(found.contains("imports memcpy from env") && found.contains("nothing to call"), "{found}");
    let ugly = format!(r#"(module (import "a\1b[2J" "{}" (func)))"#, "x".repeat(10_000));
    let found = refused(&ugly);
    assert!(found.len() < 400 && !found.contains('\x1b'), "{found}");
}

#[test]
fn a_memory_that_is_too_large_says_how_to_make_it_smaller() {
    let found = refused(r#"(module (memory (export "memory") 17))"#);
    assert!(found.contains("1114112 bytes") && found.contains("-zstack-size"), "{found}");
    let module = with("");
    for bytes in [0, 1, 65_535, 65_537, (1 << 20) + 65_536, usize::MAX] {
        let limits = Limits { memory_bytes: bytes, ..Limits::default() };
        let error = Program::load(&module, limits, None).unwrap_err();
        assert!(matches!(error, LoadError::MemoryLimit { .. }), "{error}");
    }
    let limits = Limits { memory_bytes: 65_536, ..Limits::default() };
    assert!(Program::load(&module, limits, None).is_ok());
}

#[test]
fn segments_that_do_not_fit_are_refused() {
    check(&with(r#"(data (i32.const 65536) "x")"#), "cannot be started");
    check(&with("(table 1 funcref) (func $f) (elem (i32.const 1) $f)"), "cannot be started");
}

#[test]
fn a_program_says_what_it_is() {
    let fields = Fields { data_max_bytes: 512, state_bytes: 8, classes: 0x0c, ..FIELDS };
    let module = module(fields, "(i32.const 1)", "");
    let described = Program::describe(&module, Limits::default()).unwrap();
    assert_eq!((described.abi, described.memory_bytes, described.state_bytes), (1, 65_536, 8));
    assert_eq!((described.data_head_bytes, described.hears_of_ends), (512, false));
    assert_eq!(described.classes.bits(), 0x0c);
    assert!(matches!(load(&module), Err(LoadError::NoKeeper { bytes: 8 })));
}
