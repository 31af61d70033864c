//! What there is to know of a module before its functions are decoded.

use wasmparser::{
    CompositeInnerType, ConstExpr, ExternalKind, FunctionBody, Global, Operator, Parser, Payload, SubType, ValType,
};

/// The parts of a module.
#[derive(Debug, Default)]
pub(super) struct Outline<'m> {
    pub(super) globals: Vec<KnownGlobal>,
    /// Bytes of its memory when it is started.
    pub(super) memory_bytes: u64,
    /// Of types that no function here can have, there is none.
    signatures: Vec<Option<Signature>>,
    /// Of the functions, the numbers of their types.
    types: Vec<u32>,
    functions: Vec<FunctionBody<'m>>,
    exported: Vec<(&'m str, u32)>,
}

/// What a function takes and gives: values of 32 or 64 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signature {
    pub(super) parameters: usize,
    pub(super) has_result: bool,
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
                Payload::TypeSection(types) => {
                    for group in types {
                        outline.signatures.extend(group.ok()?.into_types().map(|ty| signature(&ty)));
                    }
                }
                Payload::FunctionSection(functions) => {
                    outline.types = functions.into_iter().collect::<Result<_, _>>().ok()?;
                }
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

    /// The number of a function.
    pub(super) fn number_of(&self, name: &str) -> Option<u32> {
        self.exported.iter().find(|(exported, _)| *exported == name).map(|(_, number)| *number)
    }

    /// A function by its number: a module imports none, so they are numbered from 0 on.
    pub(super) fn function(&self, number: u32) -> Option<(&FunctionBody<'m>, Signature)> {
        let number = usize::try_from(number).ok()?;
        let of = usize::try_from(*self.types.get(number)?).ok()?;
        Some((self.functions.get(number)?, (*self.signatures.get(of)?)?))
    }
}

fn signature(of: &SubType) -> Option<Signature> {
    let CompositeInnerType::Func(function) = &of.composite_type.inner else { return None };
    let is_plain = |values: &[ValType]| values.iter().all(|of| matches!(of, ValType::I32 | ValType::I64));
    let (parameters, results) = (function.params(), function.results());
    let is_plain = is_plain(parameters) && is_plain(results) && results.len() <= 1;
    is_plain.then_some(Signature { parameters: parameters.len(), has_result: !results.is_empty() })
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
