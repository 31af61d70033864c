//! The program at the interface: requests of our EtherTypes, for its address or for everybody, go to our sockets; all others on their usual
//! way.

use std::os::fd::{AsRawFd, BorrowedFd};

use sanwire_core::MacAddress;

use super::bpf::Instruction;

/// Destination, source, EtherType.
const ETHERNET_HEADER_BYTES: i16 = 14;

/// Where the packets of one EtherType go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rule {
    pub(super) ethertype: u16,
    /// The big-endian u32 at this byte behind the Ethernet header, modulo the number of shards, is the shard.
    pub(super) word_at: u16,
    pub(super) shards: u16,
    /// Packets with any of these bits in their first byte behind the Ethernet header are answers, for initiators of this host.
    pub(super) answer_bits: u8,
    /// The socket of shard S for receive queue Q has the number `first + Q * shards + S` in the map.
    pub(super) first: u16,
}

/// `XDP_PASS`: to the kernel, as if there were no program.
const PASS: i32 = 2;

/// `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;

// Registers. R0 is what a call and the program give, R1 to R5 are a call's arguments, R6 to R9 outlast it.
const R0: u8 = 0;
const R1: u8 = 1;
const QUEUE: u8 = 2;
const DATA: u8 = 2;
const END: u8 = 3;
const R3: u8 = 3;
const PROBE: u8 = 4;
const ETHERTYPE: u8 = 5;
const CONTEXT: u8 = 6;
const SHARD: u8 = 7;
const TO_FIRST: u8 = 8;
const TO_LAST: u8 = 9;

// Fields of `struct xdp_md`.
const CONTEXT_DATA: i16 = 0;
const CONTEXT_END: i16 = 4;
const CONTEXT_QUEUE: i16 = 16;

/// The program for these rules, on an interface with this address and so many receive queues.
pub(super) fn program(rules: &[Rule], own: MacAddress, queues: u16, map: BorrowedFd<'_>) -> Vec<Instruction> {
    let pass = [set(R0, PASS), exit()];
    let mut body: Vec<Instruction> = Vec::new();
    for rule in rules {
        let redirect = redirect(rule, queues, map);
        body.push(jump_unless_equal(ETHERTYPE, rule.ethertype.to_be().into(), redirect.len() as i16));
        body.extend(redirect);
    }
    let [a, b, c, d, e, f] = own.0;
    let (first, last) = (i32::from_ne_bytes([a, b, c, d]), u16::from_ne_bytes([e, f]));
    let rest = body.len() as i16;
    let mut program = vec![
        copy(CONTEXT, R1),
        load_word(DATA, CONTEXT, CONTEXT_DATA),
        load_word(END, CONTEXT, CONTEXT_END),
        copy(PROBE, DATA),
        add(PROBE, ETHERNET_HEADER_BYTES.into()),
        // A packet without a whole Ethernet header is none of ours.
        jump_if_above(PROBE, END, 7 + rest),
        load_word(TO_FIRST, DATA, 0),
        load_half(TO_LAST, DATA, 4),
        jump_unless_same_word(TO_FIRST, first, 1),
        jump_if_equal(TO_LAST, last.into(), 2),
        jump_unless_same_word(TO_FIRST, -1, 2 + rest),
        jump_unless_equal(TO_LAST, 0xffff, 1 + rest),
        load_half(ETHERTYPE, DATA, ETHERNET_HEADER_BYTES - 2),
    ];
    program.extend(body);
    program.extend(pass);
    program
}

/// What is done with the packets of one rule.
fn redirect(rule: &Rule, queues: u16, map: BorrowedFd<'_>) -> Vec<Instruction> {
    let mut steps = vec![set(SHARD, 0)];
    if rule.shards > 1 {
        let word_at = ETHERNET_HEADER_BYTES + rule.word_at.cast_signed();
        steps.extend([
            copy(PROBE, DATA),
            add(PROBE, i32::from(word_at) + 4),
            // One that is too short goes to shard 0.
            jump_if_above(PROBE, END, 3),
            load_word(SHARD, DATA, word_at),
            from_big_endian(SHARD),
            modulo(SHARD, rule.shards.into()),
        ]);
    }
    let [map_low, map_high] = load_map(R1, map);
    steps.extend([
        load_word(QUEUE, CONTEXT, CONTEXT_QUEUE),
        // A queue that there was not when the sockets were opened has none.
        jump_unless_below(QUEUE, queues.into(), 8),
        multiply(QUEUE, rule.shards.into()),
        add_register(QUEUE, SHARD),
        add(QUEUE, rule.first.into()),
        map_low,
        map_high,
        set(R3, PASS),
        call(REDIRECT_MAP),
        exit(),
        set(R0, PASS),
        exit(),
    ]);
    if rule.answer_bits != 0 {
        let to_pass = steps.len() as i16 - 2;
        let is_request = [
            copy(PROBE, DATA),
            add(PROBE, i32::from(ETHERNET_HEADER_BYTES) + 1),
            jump_if_above(PROBE, END, 3 + to_pass),
            load_byte(PROBE, DATA, ETHERNET_HEADER_BYTES),
            and(PROBE, rule.answer_bits.into()),
            jump_unless_equal(PROBE, 0, to_pass),
        ];
        steps.splice(0..0, is_request);
    }
    steps
}

fn instruction(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: destination | source << 4, offset, immediate }
}

fn copy(destination: u8, source: u8) -> Instruction {
    instruction(0xbf, destination, source, 0, 0)
}

fn set(destination: u8, value: i32) -> Instruction {
    instruction(0xb7, destination, 0, 0, value)
}

fn add(destination: u8, value: i32) -> Instruction {
    instruction(0x07, destination, 0, 0, value)
}

fn add_register(destination: u8, source: u8) -> Instruction {
    instruction(0x0f, destination, source, 0, 0)
}

fn multiply(destination: u8, value: i32) -> Instruction {
    instruction(0x27, destination, 0, 0, value)
}

fn modulo(destination: u8, value: i32) -> Instruction {
    instruction(0x97, destination, 0, 0, value)
}

fn and(destination: u8, value: i32) -> Instruction {
    instruction(0x57, destination, 0, 0, value)
}

fn from_big_endian(destination: u8) -> Instruction {
    instruction(0xdc, destination, 0, 0, 32)
}

fn load_word(destination: u8, source: u8, offset: i16) -> Instruction {
    instruction(0x61, destination, source, offset, 0)
}

fn load_byte(destination: u8, source: u8, offset: i16) -> Instruction {
    instruction(0x71, destination, source, offset, 0)
}

fn load_half(destination: u8, source: u8, offset: i16) -> Instruction {
    instruction(0x69, destination, source, offset, 0)
}

/// One instruction in two places.
fn load_map(destination: u8, map: BorrowedFd<'_>) -> [Instruction; 2] {
    // Source 1: the number is a descriptor (`BPF_PSEUDO_MAP_FD`).
    [instruction(0x18, destination, 1, 0, map.as_raw_fd()), instruction(0, 0, 0, 0, 0)]
}

fn jump_if_above(left: u8, right: u8, over: i16) -> Instruction {
    instruction(0x2d, left, right, over, 0)
}

fn jump_unless_equal(left: u8, value: i32, over: i16) -> Instruction {
    instruction(0x55, left, 0, over, value)
}

fn jump_if_equal(left: u8, value: i32, over: i16) -> Instruction {
    instruction(0x15, left, 0, over, value)
}

/// Compares 32 bits.
fn jump_unless_same_word(left: u8, value: i32, over: i16) -> Instruction {
    instruction(0x56, left, 0, over, value)
}

fn jump_unless_below(left: u8, value: i32, over: i16) -> Instruction {
    instruction(0x35, left, 0, over, value)
}

fn call(function: i32) -> Instruction {
    instruction(0x85, 0, 0, 0, function)
}

fn exit() -> Instruction {
    instruction(0x95, 0, 0, 0, 0)
}
