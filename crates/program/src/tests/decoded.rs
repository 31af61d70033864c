//! What is decoded does what the interpreter does: the same result or trap, the same fuel, the same memory.

mod author;

use proptest::prelude::*;

use super::support::*;
use crate::engine::{Code, Running, Trap};
use crate::limits::Limits;

use author::{Author, LOCALS, PARTS};

/// Enough for every generated program that ends; endless loops use it up.
const FUEL: u64 = 3_000;

/// The instances of a module whose calls are decoded, and interpreted; `None` if they are not decoded.
fn both(module: &[u8]) -> Option<[Code; 2]> {
    let compile = || Code::compile(module, Limits::default()).unwrap_or_else(|error| panic!("{error}"));
    let (decoded, mut interpreted) = (compile(), compile());
    interpreted.leave_to_interpreter();
    decoded.is_decoded().then_some([decoded, interpreted])
}

/// Calls both. Gives the fuel that was taken, and whether they go on.
fn same(
    running: &mut [Running; 2],
    what: &str,
    call: impl Fn(&mut Running) -> (Result<u32, Trap>, u64),
) -> (u64, Result<u32, Trap>) {
    let [decoded, interpreted] = running;
    let (ours, theirs) = (call(decoded), call(interpreted));
    assert_eq!(ours, theirs, "{what}");
    assert!(decoded.memory() == interpreted.memory(), "their memories differ: {what}");
    (ours.1, ours.0)
}

/// Calls `judge` again and again, with fuel enough and with less; and `ended` between.
fn run_both(module: &[u8], what: &str) -> Option<Vec<Result<u32, Trap>>> {
    let codes = both(module)?;
    let start = || codes.each_ref().map(|code| code.start().unwrap_or_else(|error| panic!("{error}: {what}")));
    let mut running = start();
    let mut returned = vec![];
    for turn in 0..6 {
        let (taken, result) = same(&mut running, what, |running| running.judge(FUEL, |_| {}));
        returned.push(result);
        if result.is_err() {
            running = start();
        }
        // Where it stops does not differ either.
        for fuel in [taken / 2, taken.saturating_sub(1), taken.saturating_sub(5), turn] {
            if same(&mut running, what, |running| running.judge(fuel, |_| {})).1.is_err() {
                running = start();
            }
        }
        if same(&mut running, what, |running| running.ended(turn << 40 | 7, turn % 2 == 0, FUEL)).1.is_err() {
            running = start();
        }
    }
    Some(returned)
}

/// The local variables of both functions: of 32 bits, and of 64.
const OF_JUDGE: [[u32; 2]; 2] = [[0, 1], [2, 3]];
const OF_ENDED: [[u32; 2]; 2] = [[1, 2], [0, 3]];

/// A program that some bytes have written.
fn written(bytes: &[u8]) -> String {
    let (judge, ended) = bytes.split_at(bytes.len() * 3 / 4);
    let (judge, ended) = (Author::new(judge, OF_JUDGE).function(), Author::new(ended, OF_ENDED).function());
    // What it works on is in the memory, so that nobody knows it before.
    let begin = "(local.set 0 (i32.load (i32.const 512))) (local.set 1 (i32.load (i32.const 516)))
                 (local.set 2 (i64.load (i32.const 520))) (local.set 3 (i64.load (i32.const 528)))";
    format!(
        r#"(module
            (memory (export "memory") 1)
            (global (export "sanwire_abi_1") i32 (i32.const 0))
            (data (i32.const 512) "\01\00\00\00\f0\ff\ff\ff\02\00\00\00\01\00\00\00\ff\ff\ff\ff\ff\ff\ff\7f")
            {PARTS}
            (func (export "judge") (result i32) {LOCALS} {begin} {judge})
            (func (export "ended") (param i64 i32) (result i32) (local i32 i64) {ended}))"#
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn whatever_is_decoded_does_what_the_interpreter_does(bytes in prop::collection::vec(any::<u8>(), 40..400)) {
        let text = written(&bytes);
        run_both(&wat(&text), &text);
    }
}

/// Else the test above would prove nothing.
#[test]
fn most_of_what_is_written_is_decoded_and_does_something() {
    let mut bytes = 0x1234_5678_u32;
    let mut next = || {
        // Marsaglia's xorshift.
        bytes ^= bytes << 13;
        bytes ^= bytes >> 17;
        bytes ^= bytes << 5;
        bytes as u8
    };
    let (mut decoded, mut returned, mut trapped, mut exhausted) = (0, 0, 0, 0);
    for number in 0..200 {
        let bytes: Vec<u8> = (0..100 + number).map(|_| next()).collect();
        let text = written(&bytes);
        for result in run_both(&wat(&text), &text).iter().inspect(|_| decoded += 1).flatten() {
            match result {
                Ok(_) => returned += 1,
                Err(Trap::OutOfFuel) => exhausted += 1,
                Err(_) => trapped += 1,
            }
        }
    }
    let counts =
        format!("of 200 {decoded} decoded; {returned} calls returned, {trapped} trapped, {exhausted} had no fuel");
    assert!(decoded >= 120 && returned >= 200 && trapped >= 20 && exhausted >= 20, "{counts}");
}

/// Each of the instructions, in each way in which others depend on it.
#[test]
fn no_instruction_does_anything_else_than_in_the_interpreter() {
    let begin =
        "(local $i32 i32) (local $i32b i32) (local $i64 i64) (local $i64b i64) (local $at i32) (local $zero i32)
        (local.set $zero (i32.load (i32.const 60000)))
        (local.set $i32b (i32.or (local.get $zero) (i32.const 3)))
        (local.set $i64b (i64.extend_i32_u (local.get $i32b)))
        (local.set $at (i32.or (local.get $zero) (i32.const 32768)))";
    let globals = "(global $g32 (mut i32) (i32.const 1)) (global $g64 (mut i64) (i64.const 1))";
    let (mut decoded, mut left) = (0, vec![]);
    for body in super::stack::bodies().into_iter().filter(|body| !body.contains("$t") && !body.contains("$nothing")) {
        let end = "(i32.xor (local.get $i32) (i32.wrap_i64 (local.get $i64)))";
        let judge = format!(
            "{begin} (loop $on {body} (br_if $on (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 1))) (i32.const 32800)))) {end}"
        );
        let Ok(module) = wat::parse_str(text(FIELDS, &judge, globals)) else { continue };
        match run_both(&module, &body) {
            Some(_) => decoded += 1,
            None => left.push(body),
        }
    }
    assert!(decoded > 1_000 && left.len() < decoded / 5, "{decoded} decoded, and not {left:#?}");
}

/// The last address, and the first that is none; divisions without a result.
#[test]
fn what_ends_a_program_ends_it_in_the_same_way() {
    let local = "(local $zero i32) (local.set $zero (i32.load (i32.const 60000)))";
    for (body, expected) in [
        ("(i32.load offset=65532 (local.get $zero))", Ok(0)),
        ("(i32.load offset=65533 (local.get $zero))", Err("out of bounds memory access")),
        ("(i32.load8_u offset=4294967295 (local.get $zero))", Err("out of bounds memory access")),
        ("(i32.load (i32.sub (local.get $zero) (i32.const 1)))", Err("out of bounds memory access")),
        ("(i32.load offset=4294967295 (i32.sub (local.get $zero) (i32.const 1)))", Err("out of bounds memory access")),
        (
            "(i64.store offset=65528 (local.get $zero) (i64.const -1)) (i32.load8_u offset=65535 (local.get $zero))",
            Ok(255),
        ),
        ("(i64.store offset=65529 (local.get $zero) (i64.const -1)) (i32.const 1)", Err("out of bounds memory access")),
        ("(i32.store8 offset=65536 (local.get $zero) (i32.const 1)) (i32.const 1)", Err("out of bounds memory access")),
        ("(i32.div_s (local.get $zero) (local.get $zero))", Err("integer divide by zero")),
        ("(i32.rem_u (local.get $zero) (local.get $zero))", Err("integer divide by zero")),
        (
            "(i32.div_s (i32.xor (local.get $zero) (i32.const 0x80000000)) (i32.sub (local.get $zero) (i32.const 1)))",
            Err("integer overflow"),
        ),
        (
            "(i32.rem_s (i32.xor (local.get $zero) (i32.const 0x80000000)) (i32.sub (local.get $zero) (i32.const 1)))",
            Ok(0),
        ),
        (
            "(i32.wrap_i64 (i64.div_s (i64.xor (i64.extend_i32_u (local.get $zero)) (i64.const 0x8000000000000000)) (i64.extend_i32_s (i32.sub (local.get $zero) (i32.const 1)))))",
            Err("integer overflow"),
        ),
        ("(unreachable)", Err("wasm `unreachable` instruction executed")),
        (
            "(if (i32.eqz (local.get $zero)) (then (unreachable))) (i32.const 1)",
            Err("wasm `unreachable` instruction executed"),
        ),
    ] {
        let returned = run_both(&module(FIELDS, &format!("{local} {body}"), ""), body).expect(body);
        assert_eq!(returned[0], expected.map_err(Trap::Other), "{body}");
    }
}

/// These are interpreted: constants that wasmi folds when it compiles, which changes the fuel, recursion, memory that grows, tables, and
/// variables that another function of the program sets.
#[test]
fn what_could_differ_is_not_decoded() {
    let parts = "(func $f (call $f)) (table 1 funcref) (global $sixteen i32 (i32.const 16))";
    for body in [
        "(if (i32.const 1) (then (nop))) (i32.const 1)",
        "(if (global.get $sixteen) (then (nop))) (i32.const 1)",
        "(if (i32.add (i32.const 1) (i32.const 2)) (then (nop))) (i32.const 1)",
        "(block (br_if 0 (i32.const 1))) (i32.const 1)",
        "(block (block (br_table 0 1 (i32.const 1)))) (i32.const 1)",
        "(i32.div_u (i32.load (i32.const 0)) (i32.const 0))",
        "(i32.load (i32.const 65533))",
        "(i32.load (i32.add (i32.const 1) (i32.const 2)))",
        "(call $f) (i32.const 1)",
        "(drop (memory.grow (i32.const 0))) (i32.const 1)",
        "(memory.fill (i32.const 0) (i32.const 0) (i32.const 0)) (i32.const 1)",
        "(drop (table.get 0 (i32.const 0))) (i32.const 1)",
    ] {
        assert!(both(&module(FIELDS, body, parts)).is_none(), "{body}");
    }
    let grows = r#"(global $g (mut i32) (i32.const 0)) (func (export "ended") (param i64 i32) (result i32)
                   (drop (memory.grow (i32.const 1))) (global.set $g (i32.const 1)) (i32.const 0))"#;
    assert!(both(&module(FIELDS, "(global.get $g)", grows)).is_none(), "the variable is the interpreter's");
    let returned = run_both(&module(FIELDS, "(memory.size)", grows), "the memory grows").unwrap();
    assert_eq!(returned[..2], [Ok(1), Ok(2)], "the memory is that of both");
}

/// What is called is read again for each call, and its local variables are zeroed: neither shows in its fuel.
#[test]
fn calls_of_what_is_long_to_read_or_to_begin_are_not_decoded() {
    let value = "(i32.load (i32.const 0))";
    let table = |targets| format!("(func $f (return) (block (br_table {} (i32.const 0))))", "0 ".repeat(targets));
    let locals = |count| format!("(func $f (local {}))", "i64 ".repeat(count));
    for (parts, calls, is_decoded) in [
        (table(1_000), 50, true),
        (table(1_000), 100, false),
        (table(60_000), 1, true),
        (table(60_000), 2, false),
        (locals(32), 10, true),
        (locals(33), 1, false),
    ] {
        let module = module(FIELDS, &format!("{} {value}", "(call $f)".repeat(calls)), &parts);
        assert_eq!(both(&module).is_some(), is_decoded, "{calls} calls, {}", parts.len());
        if is_decoded {
            run_both(&module, "calls");
        }
    }
}

/// What is too much is left to the interpreter, soon.
#[test]
fn functions_that_are_no_small_filters_are_not_decoded() {
    let value = "(i32.load (i32.const 0))";
    for (body, is_decoded) in [
        (format!("{} {value}", "(drop (i32.load (i32.const 0)))".repeat(4_000)), true),
        (format!("{} {value}", "(drop (i32.load (i32.const 0)))".repeat(4_200)), false),
        (format!("{} {value}", "(block ".repeat(200) + &")".repeat(200)), true),
        (format!("{} {value}", "(block ".repeat(300) + &")".repeat(300)), false),
        (format!("(local {}) {value}", "i32 ".repeat(250)), true),
        (format!("(local {}) {value}", "i32 ".repeat(300)), false),
        (format!("{value} {} {}", value.repeat(200), "(drop)".repeat(200)), true),
        (format!("{value} {} {}", value.repeat(300), "(drop)".repeat(300)), false),
        ((1..200).map(|number| format!("(drop (i32.const {number}))")).collect::<String>() + value, true),
        ((1..300).map(|number| format!("(drop (i32.const {number}))")).collect::<String>() + value, false),
        (format!("(block (br_table {} {value})) {value}", "0 ".repeat(4_000)), true),
        (format!("(block (br_table {} {value})) {value}", "0 ".repeat(4_200)), false),
    ] {
        let module = module(FIELDS, &body, "");
        assert_eq!(both(&module).is_some(), is_decoded, "{}", &body[..60]);
        if is_decoded {
            run_both(&module, &body[..60]);
        }
    }
}
