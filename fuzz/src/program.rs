//! What the targets of programs share.

use std::io;
use std::sync::Arc;

use arbitrary::Unstructured;
use sanwire_program::{Limits, StateKeeper};
use wasm_smith::{Config, Module};
use wasmparser::{ExternalKind, GlobalSectionReader, Parser, Payload};

/// Nothing is kept there, and nothing was.
#[derive(Debug)]
pub struct NoPlace;

impl NoPlace {
    /// One for a program.
    #[must_use]
    #[allow(clippy::new_ret_no_self, reason = "programs take it so")]
    pub fn new() -> Arc<dyn StateKeeper> {
        Arc::new(NoPlace)
    }
}

impl StateKeeper for NoPlace {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn save(&self, _record: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn place(&self) -> String {
        "nowhere".into()
    }
}

/// Those of a server, with less fuel: so an input takes little time.
#[must_use]
pub fn limits() -> Limits {
    Limits { fuel: 10_000, ..Limits::default() }
}

/// What a program exports.
const EXPORTS: &str = r#"(module
    (memory (export "memory") 1)
    (global (export "sanwire_abi_1") i32 (i32.const 0))
    (func (export "judge") (result i32) (i32.const 1))
    (func (export "ended") (param i64 i32) (result i32) (i32.const 0)))"#;
/// The address of the header, and the same as a number of WebAssembly (signed LEB128).
const HEADER_AT: [u8; 2] = [0xc0, 0x00];
/// Command, answer, ranges, data and state, and the classes to judge.
const HEADER: [u32; 12] = [1024, 2048, 3072, 2, 4096, 512, 8192, 64, 0xff, 0, 0, 0];

/// A module that is valid and has a header that is right, whose functions are made of this input.
#[must_use]
pub fn made(input: &[u8]) -> Option<Vec<u8>> {
    let config = Config {
        exports: Some(wat::parse_str(EXPORTS).ok()?),
        allow_floats: false,
        allow_start_export: false,
        // Its data is replaced, so it must not be named.
        bulk_memory_enabled: false,
        gc_enabled: false,
        simd_enabled: false,
        relaxed_simd_enabled: false,
        threads_enabled: false,
        exceptions_enabled: false,
        tail_call_enabled: false,
        multi_value_enabled: false,
        memory64_enabled: false,
        wide_arithmetic_enabled: false,
        max_imports: 0,
        // None but that which is exported.
        max_memories: 0,
        max_memory32_bytes: 1 << 20,
        max_tables: 1,
        max_table_elements: 1000,
        max_instructions: 400,
        ..Config::default()
    };
    let made = Module::new(config, &mut Unstructured::new(input)).ok()?.to_bytes();
    with_header(&made)
}

/// The same module with a header in its memory, and nothing else.
fn with_header(module: &[u8]) -> Option<Vec<u8>> {
    let header_global = header_global(module)?;
    let mut changed = module[..8].to_vec();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload.ok()?;
        match &payload {
            Payload::GlobalSection(globals) => push(&mut changed, 6, &globals_with(globals, header_global, module)?),
            Payload::DataSection(_) => {}
            other => {
                if let Some((id, range)) = other.as_section() {
                    push(&mut changed, id, &module[range]);
                }
            }
        }
    }
    let mut data = vec![1, 0x00, 0x41, HEADER_AT[0], HEADER_AT[1], 0x0b, 48];
    data.extend(HEADER.iter().flat_map(|field| field.to_le_bytes()));
    push(&mut changed, 11, &data);
    Some(changed)
}

/// The number of the global variable that says where the header is.
fn header_global(module: &[u8]) -> Option<u32> {
    let exports = Parser::new(0).parse_all(module).find_map(|payload| match payload {
        Ok(Payload::ExportSection(exports)) => Some(exports),
        _ => None,
    });
    let export = exports?.into_iter().flatten().find(|export| export.name == "sanwire_abi_1")?;
    (export.kind == ExternalKind::Global).then_some(export.index)
}

/// The section of global variables, where this one has the address of the header.
fn globals_with(globals: &GlobalSectionReader<'_>, number: u32, module: &[u8]) -> Option<Vec<u8>> {
    let mut starts = vec![];
    for global in globals.clone().into_iter_with_offsets() {
        starts.push(global.ok()?.0);
    }
    starts.push(globals.range().end);
    let mut section = module[globals.range().start..*starts.first()?].to_vec();
    for (at, bounds) in (0..).zip(starts.windows(2)) {
        match at == number {
            // An i32 that does not change.
            true => section.extend([0x7f, 0x00, 0x41, HEADER_AT[0], HEADER_AT[1], 0x0b]),
            false => section.extend(&module[bounds[0]..bounds[1]]),
        }
    }
    Some(section)
}

fn push(module: &mut Vec<u8>, id: u8, section: &[u8]) {
    module.push(id);
    let mut length = section.len();
    while length >= 0x80 {
        module.push(length as u8 | 0x80);
        length >>= 7;
    }
    module.push(length as u8);
    module.extend(section);
}
