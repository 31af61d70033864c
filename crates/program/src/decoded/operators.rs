//! What the operators of WebAssembly are as operations, and what they cost.

use wasmparser::{MemArg, Operator};

use super::operation::Code;

/// An operator that makes something of values, or reads or writes memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Unary(Code),
    /// A comparison of one value with 0.
    IsZero,
    Binary(Code),
    /// The same with its two values the other way round.
    Turned(Code),
    /// A division, which traps where it has no result.
    Division(Code),
    Load(Code, Access),
    Store(Code, Access),
    /// From 32 bits without a sign to 64: they have zeroes above already.
    Same,
}

/// Where memory is read or written, beside what an operand says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) offset: u32,
    pub(super) bytes: u64,
}

/// The fuel of an operator: what wasmi takes for it by default.
pub(super) fn fuel(operator: &Operator<'_>) -> u32 {
    match operator {
        Operator::Nop
        | Operator::Drop
        | Operator::Block { .. }
        | Operator::Loop { .. }
        | Operator::Unreachable
        | Operator::Return
        | Operator::Else
        | Operator::End => 0,
        _ => 1,
    }
}

/// `None`: it is none of these, or none that is decoded.
pub(super) fn kind(operator: &Operator<'_>) -> Option<Kind> {
    arithmetic(operator)
        .map(Kind::Binary)
        .or_else(|| comparison(operator))
        .or_else(|| division(operator).map(Kind::Division))
        .or_else(|| unary(operator))
        .or_else(|| load(operator))
        .or_else(|| store(operator))
}

fn arithmetic(operator: &Operator<'_>) -> Option<Code> {
    Some(match operator {
        Operator::I32Add => Code::Add32,
        Operator::I64Add => Code::Add64,
        Operator::I32Sub => Code::Sub32,
        Operator::I64Sub => Code::Sub64,
        Operator::I32Mul => Code::Mul32,
        Operator::I64Mul => Code::Mul64,
        Operator::I32And | Operator::I64And => Code::And,
        Operator::I32Or | Operator::I64Or => Code::Or,
        Operator::I32Xor | Operator::I64Xor => Code::Xor,
        Operator::I32Shl => Code::Shl32,
        Operator::I64Shl => Code::Shl64,
        Operator::I32ShrS => Code::ShrS32,
        Operator::I64ShrS => Code::ShrS64,
        Operator::I32ShrU => Code::ShrU32,
        Operator::I64ShrU => Code::ShrU64,
        Operator::I32Rotl => Code::Rotl32,
        Operator::I64Rotl => Code::Rotl64,
        Operator::I32Rotr => Code::Rotr32,
        Operator::I64Rotr => Code::Rotr64,
        _ => return None,
    })
}

fn comparison(operator: &Operator<'_>) -> Option<Kind> {
    Some(match operator {
        Operator::I32Eqz | Operator::I64Eqz => Kind::IsZero,
        Operator::I32Eq | Operator::I64Eq => Kind::Binary(Code::Eq),
        Operator::I32Ne | Operator::I64Ne => Kind::Binary(Code::Ne),
        Operator::I32LtU | Operator::I64LtU => Kind::Binary(Code::LtU),
        Operator::I32LeU | Operator::I64LeU => Kind::Binary(Code::LeU),
        Operator::I32GtU | Operator::I64GtU => Kind::Turned(Code::LtU),
        Operator::I32GeU | Operator::I64GeU => Kind::Turned(Code::LeU),
        Operator::I32LtS => Kind::Binary(Code::LtS32),
        Operator::I64LtS => Kind::Binary(Code::LtS64),
        Operator::I32LeS => Kind::Binary(Code::LeS32),
        Operator::I64LeS => Kind::Binary(Code::LeS64),
        Operator::I32GtS => Kind::Turned(Code::LtS32),
        Operator::I64GtS => Kind::Turned(Code::LtS64),
        Operator::I32GeS => Kind::Turned(Code::LeS32),
        Operator::I64GeS => Kind::Turned(Code::LeS64),
        _ => return None,
    })
}

fn division(operator: &Operator<'_>) -> Option<Code> {
    Some(match operator {
        Operator::I32DivU | Operator::I64DivU => Code::DivU,
        Operator::I32DivS => Code::DivS32,
        Operator::I64DivS => Code::DivS64,
        Operator::I32RemU | Operator::I64RemU => Code::RemU,
        Operator::I32RemS => Code::RemS32,
        Operator::I64RemS => Code::RemS64,
        _ => return None,
    })
}

fn unary(operator: &Operator<'_>) -> Option<Kind> {
    Some(Kind::Unary(match operator {
        Operator::I32Clz => Code::Clz32,
        Operator::I64Clz => Code::Clz64,
        Operator::I32Ctz => Code::Ctz32,
        Operator::I64Ctz => Code::Ctz64,
        Operator::I32Popcnt | Operator::I64Popcnt => Code::Popcnt,
        Operator::I32WrapI64 => Code::Wrap,
        Operator::I32Extend8S => Code::Extend8S32,
        Operator::I32Extend16S => Code::Extend16S32,
        Operator::I64Extend8S => Code::Extend8S64,
        Operator::I64Extend16S => Code::Extend16S64,
        Operator::I64Extend32S | Operator::I64ExtendI32S => Code::Extend32S,
        Operator::I64ExtendI32U => return Some(Kind::Same),
        _ => return None,
    }))
}

fn load(operator: &Operator<'_>) -> Option<Kind> {
    let (code, bytes, at) = match operator {
        Operator::I32Load8U { memarg } | Operator::I64Load8U { memarg } => (Code::Load8U, 1, memarg),
        Operator::I32Load16U { memarg } | Operator::I64Load16U { memarg } => (Code::Load16U, 2, memarg),
        Operator::I32Load { memarg } | Operator::I64Load32U { memarg } => (Code::Load32U, 4, memarg),
        Operator::I64Load { memarg } => (Code::Load64, 8, memarg),
        Operator::I32Load8S { memarg } => (Code::Load8S32, 1, memarg),
        Operator::I64Load8S { memarg } => (Code::Load8S64, 1, memarg),
        Operator::I32Load16S { memarg } => (Code::Load16S32, 2, memarg),
        Operator::I64Load16S { memarg } => (Code::Load16S64, 2, memarg),
        Operator::I64Load32S { memarg } => (Code::Load32S64, 4, memarg),
        _ => return None,
    };
    Some(Kind::Load(code, access(at, bytes)?))
}

fn store(operator: &Operator<'_>) -> Option<Kind> {
    let (code, bytes, at) = match operator {
        Operator::I32Store8 { memarg } | Operator::I64Store8 { memarg } => (Code::Store8, 1, memarg),
        Operator::I32Store16 { memarg } | Operator::I64Store16 { memarg } => (Code::Store16, 2, memarg),
        Operator::I32Store { memarg } | Operator::I64Store32 { memarg } => (Code::Store32, 4, memarg),
        Operator::I64Store { memarg } => (Code::Store64, 8, memarg),
        _ => return None,
    };
    Some(Kind::Store(code, access(at, bytes)?))
}

fn access(at: &MemArg, bytes: u64) -> Option<Access> {
    Some(Access { offset: u32::try_from(at.offset).ok().filter(|_| at.memory == 0)?, bytes })
}
