//! What an instruction leaves on the native stack: nothing.
//!
//! The interpreter goes from one instruction to the next by a loop. Its other way, calls in the last place, relies on the compiler making jumps
//! of them, which Rust does not promise: a build in which it is not so for one instruction has a hostile program take a server's stack with it.
//! Whoever chooses that way, or another interpreter, is told here: the test of such an instruction overflows its own stack, which ends the
//! process of the test.

use std::thread;

use super::support::*;
use crate::Failure;

/// A call takes some KiB of it. A loop that leaves a frame at each of its turns, be it of 16 bytes, needs more long before its fuel is gone.
const STACK_BYTES: usize = 64 << 10;

const TYPES: [&str; 2] = ["i32", "i64"];
const BINARY: [&str; 15] = [
    "add", "sub", "mul", "and", "or", "xor", "shl", "shr_s", "shr_u", "rotl", "rotr", "div_s", "div_u", "rem_s",
    "rem_u",
];
const COMPARING: [&str; 10] = ["eq", "ne", "lt_s", "lt_u", "gt_s", "gt_u", "le_s", "le_u", "ge_s", "ge_u"];
const UNARY: [(&str, &str, &str); 16] = [
    ("i32", "i32.clz", "i32"),
    ("i32", "i32.ctz", "i32"),
    ("i32", "i32.popcnt", "i32"),
    ("i32", "i32.eqz", "i32"),
    ("i32", "i32.extend8_s", "i32"),
    ("i32", "i32.extend16_s", "i32"),
    ("i32", "i32.wrap_i64", "i64"),
    ("i64", "i64.clz", "i64"),
    ("i64", "i64.ctz", "i64"),
    ("i64", "i64.popcnt", "i64"),
    ("i32", "i64.eqz", "i64"),
    ("i64", "i64.extend8_s", "i64"),
    ("i64", "i64.extend16_s", "i64"),
    ("i64", "i64.extend32_s", "i64"),
    ("i64", "i64.extend_i32_s", "i32"),
    ("i64", "i64.extend_i32_u", "i32"),
];
const LOADS: [(&str, &str); 12] = [
    ("i32", "load"),
    ("i32", "load8_s"),
    ("i32", "load8_u"),
    ("i32", "load16_s"),
    ("i32", "load16_u"),
    ("i64", "load"),
    ("i64", "load8_s"),
    ("i64", "load8_u"),
    ("i64", "load16_s"),
    ("i64", "load16_u"),
    ("i64", "load32_s"),
    ("i64", "load32_u"),
];
const STORES: [(&str, &str); 7] = [
    ("i32", "store"),
    ("i32", "store8"),
    ("i32", "store16"),
    ("i64", "store"),
    ("i64", "store8"),
    ("i64", "store16"),
    ("i64", "store32"),
];

/// What there is beside `judge`.
const PARTS: &str = r#"
    (type $nothing (func))
    (table $t 8 funcref)
    (elem declare func $nothing)
    (elem $elements func $nothing $nothing)
    (elem $dropped func $nothing)
    (data $bytes "0123456789")
    (data $forgotten "0")
    (global $g32 (mut i32) (i32.const 1))
    (global $g64 (mut i64) (i64.const 1))
    (func $nothing)
    (func $early (param i32) (if (local.get 0) (then (return))))
    (func $given (param i32 i64) (result i32) (local.get 0))"#;

/// Values that the compiler does not know: two of each type, of which the second stays 3, a place in the memory, and a zero.
const BEGIN: &str = "
    (local $i32 i32) (local $i32b i32) (local $i64 i64) (local $i64b i64) (local $at i32) (local $zero i32)
    (drop (memory.grow (i32.const 3)))
    (table.set $t (i32.const 0) (ref.func $nothing))
    (local.set $zero (i32.load (i32.const 60000)))
    (local.set $i32b (i32.or (local.get $zero) (i32.const 3)))
    (local.set $i64b (i64.extend_i32_u (local.get $i32b)))
    (local.set $at (i32.or (local.get $zero) (i32.const 32768)))";

/// Instructions that are none of a table of many.
const OTHERS: [&str; 47] = [
    "",
    "(nop)",
    "(local.set $i32 (local.get $i32b))",
    "(local.set $i64 (local.tee $i64 (local.get $i64b)))",
    "(local.set $i32 (i32.const 70000))",
    "(local.set $i64 (i64.const 0x123456789a))",
    "(local.set $i32 (block (result i32) (local.get $i32b)))",
    "(local.set $i32 (if (result i32) (local.get $i32) (then (local.get $i32b)) (else (i32.const 7))))",
    "(global.set $g32 (global.get $g32))",
    "(global.set $g32 (local.get $i32))",
    "(global.set $g32 (i32.const 7))",
    "(global.set $g32 (i32.add (global.get $g32) (i32.const 1)))",
    "(local.set $i32 (global.get $g32))",
    "(global.set $g64 (global.get $g64))",
    "(global.set $g64 (local.get $i64))",
    "(global.set $g64 (i64.const 7))",
    "(global.set $g64 (i64.add (global.get $g64) (i64.const 1)))",
    "(local.set $i64 (global.get $g64))",
    "(drop (memory.size))",
    "(local.set $i32 (memory.size))",
    "(drop (memory.grow (i32.const 0)))",
    "(local.set $i32 (memory.grow (local.get $zero)))",
    "(memory.fill (local.get $at) (i32.const 1) (i32.const 8))",
    "(memory.fill (local.get $at) (local.get $i32) (local.get $i32b))",
    "(memory.copy (local.get $at) (i32.const 16) (i32.const 8))",
    "(memory.init $bytes (local.get $at) (i32.const 1) (i32.const 4))",
    "(data.drop $forgotten)",
    "(table.set $t (i32.const 1) (ref.func $nothing))",
    "(table.set $t (local.get $i32b) (table.get $t (local.get $zero)))",
    "(local.set $i32 (ref.is_null (table.get $t (local.get $i32b))))",
    "(drop (table.size $t))",
    "(local.set $i32 (table.size $t))",
    "(drop (table.grow $t (ref.null func) (i32.const 0)))",
    "(table.fill $t (i32.const 4) (ref.null func) (i32.const 2))",
    "(table.copy $t $t (i32.const 4) (i32.const 5) (i32.const 2))",
    "(table.init $t $elements (i32.const 4) (i32.const 0) (i32.const 2))",
    "(elem.drop $dropped)",
    "(call $nothing)",
    "(call $early (local.get $i32b))",
    "(local.set $i32 (call $given (local.get $i32b) (local.get $i64)))",
    "(call_indirect $t (type $nothing) (i32.const 0))",
    "(call_indirect $t (type $nothing) (local.get $zero))",
    "(call_indirect $t (type $nothing) (i32.and (local.get $i32b) (i32.const 4)))",
    "(local.set $i32 (i32.add (local.get $i32) (i32.const 1)))
     (block $a (block $b (br_table $a $b $on (i32.and (local.get $i32) (i32.const 3)))))",
    "(block $a (block $b (br_table $a $b $a (local.get $zero))))",
    "(local.set $i32 (block $a (result i32) (block $b (result i32)
       (br_table $a $b (local.get $i32) (i32.and (local.get $at) (i32.const 1))))))",
    "(local.set $i32 (block $out (result i32) (br_if $out (local.get $i32b) (local.get $i32b))))",
];

/// A value as it is kept, as it is written, and as it was just made: instructions differ in that.
fn values(of: &str) -> [String; 3] {
    let made = format!("({of}.or (local.get ${of}b) ({of}.const 1))");
    [format!("(local.get ${of}b)"), format!("({of}.const 5)"), made]
}

fn pairs(of: &str) -> Vec<(String, String)> {
    let first = [
        format!("(local.get ${of})"),
        format!("({of}.const 100)"),
        format!("({of}.xor (local.get ${of}) ({of}.const 1))"),
    ];
    let all = first.iter().flat_map(|one| values(of).map(|other| (one.clone(), other)));
    all.filter(|(one, other)| !(one.ends_with("const 100)") && other.ends_with("const 5)"))).collect()
}

/// Where a condition, which is not known, decides: as a value, and how it goes on.
fn decisions(of: &str, condition: &str) -> [String; 5] {
    [
        format!("(local.set $i32 {condition})"),
        format!("(br_if $on {condition})"),
        format!("(block $out (br_if $out (i32.eqz {condition})))"),
        format!("(if {condition} (then (local.set $at (i32.const 32768))) (else (local.set $at (i32.const 32760))))"),
        format!("(local.set ${of} (select (local.get ${of}) (local.get ${of}b) {condition}))"),
    ]
}

fn accesses() -> Vec<String> {
    let addresses = ["(local.get $at)", "(i32.const 128)", "(i32.and (local.get $at) (i32.const 0xff8))"];
    // The last one does not fit into 16 bits.
    let places =
        addresses.iter().flat_map(|at| ["", "offset=8 ", "offset=70000 "].map(|offset| format!("{offset}{at}")));
    let places: Vec<String> = places.collect();
    let loads = LOADS
        .iter()
        .flat_map(|(of, load)| places.iter().map(move |place| format!("(local.set ${of} ({of}.{load} {place}))")));
    let store = |of: &str, store: &str, place: &str| values(of).map(|value| format!("({of}.{store} {place} {value})"));
    let stores = STORES.iter().flat_map(|(of, name)| places.iter().flat_map(move |place| store(of, name, place)));
    loads.chain(stores).collect()
}

/// What a program does again and again.
pub(super) fn bodies() -> Vec<String> {
    let mut all: Vec<String> = OTHERS.iter().map(|body| (*body).to_owned()).collect();
    for of in TYPES {
        for (one, other) in pairs(of) {
            for operation in BINARY {
                let value = format!("({of}.{operation} {one} {other})");
                all.push(format!("(local.set ${of} {value})"));
                let is_zero = format!("({of}.eqz {value})");
                all.extend([format!("(br_if $on {is_zero})"), format!("(br_if $on (i32.eqz {is_zero}))")]);
            }
            let conditions = COMPARING.map(|compare| format!("({of}.{compare} {one} {other})"));
            all.extend(conditions.iter().flat_map(|condition| decisions(of, condition)));
        }
    }
    for (to, operation, of) in UNARY {
        for value in [format!("(local.get ${of}b)"), format!("({of}.xor (local.get ${of}) ({of}.const 1))")] {
            all.push(format!("(local.set ${to} ({operation} {value}))"));
        }
    }
    all.extend(decisions("i64", "(local.get $i32b)"));
    all.extend(decisions("i64", "(i32.eqz (local.get $i32b))"));
    all.extend(accesses());
    all
}

#[test]
fn no_instruction_leaves_anything_on_the_stack() {
    for body in bodies() {
        let judge = format!("{BEGIN} (loop $on {body} (br $on)) (i32.const 1)");
        let program = load(&module(FIELDS, &judge, PARTS)).unwrap_or_else(|error| panic!("{body}: {error}"));
        let failure = thread::scope(|scope| {
            let small = thread::Builder::new().stack_size(STACK_BYTES);
            let asked = small.spawn_scoped(scope, || judge_once(&program)).expect("a thread");
            asked.join().unwrap_or_else(|_| panic!("{body}: it panics"))
        });
        assert_eq!(failure, Some(Failure::OutOfFuel), "{body}");
    }
}

/// A second call would begin with a new instance, which takes more of the stack.
fn judge_once(program: &crate::Program) -> Option<Failure> {
    judge(program).failure
}
