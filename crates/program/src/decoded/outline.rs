//! What there is to know of a module before its functions are decoded.

use wasmparser::{ConstExpr, ExternalKind, FunctionBody, Global, Operator, Parser, Payload, ValType};

/// The parts of a module.
#[derive(Debug, Default)]
pub(super) struct Outline<'m> {
    pub(super) globals: Vec<KnownGlobal>,
    /// Bytes of its memory when it is started.
    pub(super) memory_bytes: u64,
    functions: Vec<FunctionBody<'m>>,
    exported: Vec<(&'m str, u32)>,
}

/// A global variable, which has 32 or 64 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownGlobal {
    pub(super) is_mutable: bool,
    /// At first.
    pub(super) value: u64,
}

impl<'m> Outline<'m> {
    /// `None` where a part is of a kind that is not decoded.
    pub(super) fn of(module: &'m [u8]) -> Option<Outline<'m>> {
        let mut outline = Outline::default();
        for payload in Parser::new(0).parse_all(module) {
            match payload.ok()? {
                Payload::MemorySection(memories) => {
                    for memory in memories {
                        let memory = memory.ok()?;
                        let is_plain = !memory.memory64 && !memory.shared && memory.page_size_log2.is_none();
                        outline.memory_bytes = memory.initial.checked_mul(65536).filter(|_| is_plain)?;
                    }
                }
                Payload::GlobalSection(globals) => {
                    for global in globals {
                        outline.globals.push(known(&global.ok()?)?);
                    }
                }
                Payload::ExportSection(exports) => {
                    let exports = exports.into_iter().flatten();
                    let functions = exports.filter(|export| export.kind == ExternalKind::Func);
                    outline.exported.extend(functions.map(|export| (export.name, export.index)));
                }
                Payload::CodeSectionEntry(body) => outline.functions.push(body),
                _ => {}
            }
        }
        Some(outline)
    }

    pub(super) fn global(&self, number: u32) -> Option<KnownGlobal> {
        self.globals.get(usize::try_from(number).ok()?).copied()
    }

    pub(super) fn exports(&self, name: &str) -> bool {
        self.exported.iter().any(|(exported, _)| *exported == name)
    }

    /// A function by its name. A module imports none, so they are numbered from 0 on.
    pub(super) fn function(&self, name: &str) -> Option<&FunctionBody<'m>> {
        let (_, number) = self.exported.iter().find(|(exported, _)| *exported == name)?;
        self.functions.get(usize::try_from(*number).ok()?)
    }
}

fn known(global: &Global<'_>) -> Option<KnownGlobal> {
    let value = value(&global.init_expr)?;
    let is_plain = matches!(global.ty.content_type, ValType::I32 | ValType::I64) && !global.ty.shared;
    is_plain.then_some(KnownGlobal { is_mutable: global.ty.mutable, value })
}

/// Of an expression that is a constant and nothing else.
fn value(expression: &ConstExpr<'_>) -> Option<u64> {
    let mut operators = expression.get_operators_reader();
    let value = match operators.read().ok()? {
        Operator::I32Const { value } => value.cast_unsigned().into(),
        Operator::I64Const { value } => value.cast_unsigned(),
        _ => return None,
    };
    matches!(operators.read().ok()?, Operator::End).then_some(value)
}
