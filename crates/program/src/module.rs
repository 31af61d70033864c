//! Whether a module is one of a program, before anything is compiled: each of its parts is counted, so that a hostile one costs
//! little time and no memory.

use wasmparser::{
    CompositeInnerType, Encoding, FunctionBody, MemoryType, Parser, Payload, SectionLimited, TableSectionReader,
};

use crate::error::LoadError;
use crate::limits::{self, Limits};

/// Looks at all parts of a module but the instructions of its functions, which the compiler validates.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check(module: &[u8], limits: &Limits) -> Result<(), LoadError> {
    if module.len() > limits.module_bytes {
        return Err(LoadError::TooLong { bytes: module.len(), max_bytes: limits.module_bytes });
    }
    if !module.starts_with(b"\0asm") {
        return Err(LoadError::NoModule { is_text: is_text(module) });
    }
    let mut has_memory = false;
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        has_memory |= matches!(&payload, Payload::MemorySection(memories) if memories.count() > 0);
        check_part(payload, limits)?;
    }
    if has_memory { Ok(()) } else { Err(LoadError::NoMemory) }
}

fn check_part(part: Payload<'_>, limits: &Limits) -> Result<(), LoadError> {
    match part {
        Payload::Version { encoding: Encoding::Component, .. } => Err(LoadError::Component),
        Payload::Version { num, .. } if num != 1 => Err(LoadError::Invalid {
            reason: format!("it is of version {num} of WebAssembly's binary format, and 1 is known"),
        }),
        Payload::TypeSection(types) => {
            count("types of functions", &types, limits::TYPES_MAX)?;
            check_types(types)
        }
        Payload::ImportSection(imports) => match imports.into_iter().next() {
            Some(import) => {
                let import = import?;
                Err(LoadError::Import { module: shown(import.module), name: shown(import.name) })
            }
            None => Ok(()),
        },
        Payload::FunctionSection(functions) => count("functions", &functions, limits::FUNCTIONS_MAX),
        Payload::TableSection(tables) => check_tables(tables),
        Payload::MemorySection(memories) => {
            count("memories", &memories, 1)?;
            memories.into_iter().try_for_each(|memory| check_memory(memory?, limits))
        }
        Payload::GlobalSection(globals) => count("global variables", &globals, limits::GLOBALS_MAX),
        Payload::ExportSection(exports) => count("exports", &exports, limits::EXPORTS_MAX),
        Payload::StartSection { .. } => Err(LoadError::Start),
        Payload::ElementSection(elements) => count("segments of its table", &elements, limits::ELEMENT_SEGMENTS_MAX),
        Payload::DataSection(data) => count("segments of its memory", &data, limits::DATA_SEGMENTS_MAX),
        Payload::CodeSectionEntry(body) => check_body(&body),
        Payload::UnknownSection { id, range, .. } => {
            let reason = format!("there is no section of kind {id}, at byte {}", range.start);
            Err(LoadError::Invalid { reason })
        }
        _ => Ok(()),
    }
}

fn count<T>(what: &'static str, section: &SectionLimited<'_, T>, max: u64) -> Result<(), LoadError> {
    within(what, section.count().into(), max)
}

fn within(what: &'static str, count: u64, max: u64) -> Result<(), LoadError> {
    if count <= max { Ok(()) } else { Err(LoadError::TooMany { what, count, max }) }
}

fn check_types(types: wasmparser::TypeSectionReader<'_>) -> Result<(), LoadError> {
    for group in types {
        for ty in group?.into_types() {
            if let CompositeInnerType::Func(function) = &ty.composite_type.inner {
                within("parameters of a function", function.params().len() as u64, limits::VALUES_MAX)?;
                within("results of a function", function.results().len() as u64, limits::VALUES_MAX)?;
            }
        }
    }
    Ok(())
}

fn check_tables(tables: TableSectionReader<'_>) -> Result<(), LoadError> {
    count("tables", &tables, limits::TABLES_MAX)?;
    for table in tables {
        within("elements of its table", table?.ty.initial, limits::TABLE_ELEMENTS_MAX)?;
    }
    Ok(())
}

fn check_memory(memory: MemoryType, limits: &Limits) -> Result<(), LoadError> {
    let bytes = memory.initial.saturating_mul(Limits::PAGE_BYTES as u64);
    if bytes > limits.memory_bytes as u64 {
        return Err(LoadError::Memory { bytes, max_bytes: limits.memory_bytes });
    }
    Ok(())
}

/// A function may declare many local variables in few bytes, and the compiler has something to do for each.
fn check_body(body: &FunctionBody<'_>) -> Result<(), LoadError> {
    within("bytes of a function", body.range().len() as u64, limits::FUNCTION_MAX_BYTES)?;
    let mut locals = 0;
    for group in body.get_locals_reader()? {
        locals += u64::from(group?.0);
        within("local variables of a function", locals, limits::LOCALS_MAX)?;
    }
    Ok(())
}

fn is_text(module: &[u8]) -> bool {
    let module = module.trim_ascii_start();
    module.starts_with(b"(") || module.starts_with(b";;")
}

/// What a stranger chose as a name, fit for a line of a terminal.
fn shown(name: &str) -> String {
    let shown = name.chars().take(64).map(|c| if c.is_control() { '?' } else { c }).collect::<String>();
    if name.chars().count() > 64 { shown + "..." } else { shown }
}
