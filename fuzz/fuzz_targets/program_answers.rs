//! What a program says: whatever its header and its answers are, the program is refused, or each answer is a verdict that a device can
//! carry out, or the command is refused.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sanwire_core::Principal;
use sanwire_device::{BlockRange, CommandProgram, JudgedCommand, Verdict};
use sanwire_fuzz::program::{NoPlace, limits};
use sanwire_program::Program;
use sanwire_scsi::{Cdb, CommandSet, Features, OperationClasses, SenseKey};

/// A program that answers with what the data of the command says: first what it returns, then the 64 bytes of the answer.
const PROGRAM: &str = r#"(module
    (memory (export "memory") 1)
    (global (export "sanwire_abi_1") i32 (i32.const 64))
    (data (i32.const 64) "0123456789abcdef0123456789abcdef0123456789abcdef")
    (func (export "judge") (result i32)
        (memory.copy (i32.const 2048) (i32.const 4100) (i32.const 64))
        (i32.load (i32.const 4096)))
    (func (export "ended") (param i64 i32) (result i32) (i32.wrap_i64 (local.get 0))))"#;
const HEADER_BYTES: usize = 48;
/// Command, answer, ranges, data and state, and the classes to judge.
const HEADER: [u32; 12] = [1024, 2048, 3072, 2, 4096, 68, 8192, 16, 0xff, 0, 0, 0];

static MODULE: LazyLock<Vec<u8>> = LazyLock::new(|| wat::parse_str(PROGRAM).expect("it is WebAssembly"));

fn with_header(header: &[u8]) -> Vec<u8> {
    let mut module = MODULE.clone();
    let marker = b"0123456789abcdef";
    let at = module.windows(marker.len()).position(|window| window == marker).expect("it stands there");
    module[at..][..HEADER_BYTES].copy_from_slice(header);
    module
}

fn with_command(data: &[u8], ranges: &[BlockRange], asked: impl FnOnce(&JudgedCommand<'_>)) {
    asked(&JudgedCommand {
        cdb: &Cdb::from([0x2a, 0, 0, 0, 0, 100, 0, 0, 8, 0]),
        classes: OperationClasses::WRITE,
        ranges,
        capacity_blocks: 1000,
        block_bytes: 512,
        principal: &Principal::default(),
        principal_number: 0,
        unix_ms: 0,
        waited_ms: 0,
        data_out: data,
    });
}

/// What a device relies on.
fn check(program: &Program, command: &JudgedCommand<'_>) {
    let judgement = program.judge(command);
    let goes_on = match judgement.verdict {
        Verdict::Allow => true,
        Verdict::Refuse(sense) => {
            assert!(!matches!(sense.key, SenseKey::NoSense | SenseKey::RecoveredError | SenseKey::Completed));
            false
        }
        Verdict::Redirect { lba } => {
            assert!(command.ranges.len() == 1 && lba <= command.capacity_blocks - command.ranges[0].blocks);
            true
        }
        Verdict::Rewrite(cdb) => {
            assert!(CommandSet::disk(Features::ALL).find(&cdb).is_ok());
            true
        }
        Verdict::Defer { milliseconds } => {
            assert!((1..=60_000).contains(&milliseconds));
            false
        }
    };
    assert!(goes_on || judgement.end.is_none());
    if let Some(token) = judgement.end {
        let _ = program.ended(token, token & 1 == 0).map(|wish| program.keeping(wish));
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else { return };
    let own: Vec<u8> = HEADER.iter().flat_map(|field| field.to_le_bytes()).collect();
    let (header, rest) = match rest.split_at_checked(HEADER_BYTES).filter(|_| *first == 0) {
        Some((header, rest)) => (header, rest),
        None => (&own[..], rest),
    };
    let Ok(program) = Program::load(&with_header(header), limits(), Some(NoPlace::new())) else {
        return assert_ne!(header, own);
    };
    let ranges = [BlockRange { lba: 100, blocks: 8 }, BlockRange { lba: u64::MAX, blocks: u64::MAX }];
    for answer in rest.chunks(68) {
        let given = usize::from(*first) % 3;
        with_command(answer, &ranges[..given], |command| check(&program, command));
    }
    let counted = program.statistics();
    let verdicts = counted.allowed + counted.refused + counted.redirected + counted.rewritten + counted.deferred;
    assert!(counted.calls <= verdicts + counted.failed && verdicts <= counted.calls);
});
