//! Programs in text form, and commands for them.

use std::sync::Arc;

use sanwire_core::Principal;
use sanwire_device::{BlockRange, JudgedCommand};
use sanwire_scsi::{Cdb, OperationClasses};

use crate::{Judged, Limits, LoadError, Program, StateKeeper};

/// Where the programs of these tests have their structures.
pub(super) const HEADER: u32 = 0;
pub(super) const COMMAND: u32 = 1024;
pub(super) const ANSWER: u32 = 2048;
pub(super) const STATE: u32 = 4096;
pub(super) const RANGES: u32 = 8192;
pub(super) const DATA: u32 = 16384;

/// What a header says.
#[derive(Clone, Copy)]
pub(super) struct Fields {
    pub(super) ranges_max: u32,
    pub(super) data_max_bytes: u32,
    pub(super) state_bytes: u32,
    pub(super) classes: u32,
}

pub(super) const FIELDS: Fields = Fields { ranges_max: 0, data_max_bytes: 0, state_bytes: 0, classes: 0xff };

impl Fields {
    /// The twelve fields, as a text of WebAssembly.
    fn text(self) -> String {
        let Fields { ranges_max, data_max_bytes, state_bytes, classes } = self;
        let fields = [COMMAND, ANSWER, RANGES, ranges_max, DATA, data_max_bytes, STATE, state_bytes, classes, 0, 0, 0];
        fields.iter().flat_map(|field| field.to_le_bytes()).map(|byte| format!("\\{byte:02x}")).collect()
    }
}

/// A module whose `judge` has this body; `more` stands beside it.
pub(super) fn module(fields: Fields, judge: &str, more: &str) -> Vec<u8> {
    wat(&text(fields, judge, more))
}

pub(super) fn text(fields: Fields, judge: &str, more: &str) -> String {
    let header = fields.text();
    format!(
        r#"(module
            (memory (export "memory") 1)
            (global (export "sanwire_abi_1") i32 (i32.const {HEADER}))
            (data (i32.const {HEADER}) "{header}")
            {more}
            (func (export "judge") (result i32) {judge}))"#
    )
}

pub(super) fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

pub(super) fn load(module: &[u8]) -> Result<Program, LoadError> {
    Program::load(module, Limits::default(), None)
}

/// A program without state.
pub(super) fn program(judge: &str) -> Program {
    load(&module(FIELDS, judge, "")).unwrap()
}

pub(super) fn with_state(fields: Fields, judge: &str, more: &str, keeper: &Arc<impl StateKeeper + 'static>) -> Program {
    let keeper = Arc::clone(keeper) as Arc<dyn StateKeeper>;
    Program::load(&module(fields, judge, more), Limits::default(), Some(keeper)).unwrap()
}

/// Blocks of the device of these tests.
pub(super) const CAPACITY_BLOCKS: u64 = 10_000;

/// WRITE (10) of 8 blocks from LBA 100 on, at one minute after eight on 1 January 2026.
pub(super) fn with_write<T>(asked: impl FnOnce(JudgedCommand<'_>) -> T) -> T {
    asked(JudgedCommand {
        cdb: &Cdb::from([0x2a, 0, 0, 0, 0, 100, 0, 0, 8, 0]),
        classes: OperationClasses::WRITE,
        ranges: &[BlockRange { lba: 100, blocks: 8 }],
        capacity_blocks: CAPACITY_BLOCKS,
        block_bytes: 512,
        principal: &Principal::default(),
        principal_number: 3,
        unix_ms: 1_767_254_460_000,
        waited_ms: 0,
        data_out: b"",
    })
}

/// What the program says of that.
pub(super) fn judge(program: &Program) -> Judged {
    with_write(|command| program.run(&command))
}

/// The same twice in a row must be the same: no failure may leave anything behind.
pub(super) fn judge_twice(program: &Program) -> Judged {
    let first = judge(program);
    let second = judge(program);
    assert_eq!(format!("{first:?}"), format!("{second:?}"));
    second
}
