//! Running a decoded function.

use wasmi::TrapCode;

use super::function::Function;
use super::operation::{Code, Frame, Operation};

/// What a function works on, beside its frame.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    pub(super) memory: &'a mut [u8],
    pub(super) globals: &'a mut [u64],
    /// What is left of the call's fuel.
    pub(super) fuel: &'a mut u64,
}

/// Calls a function whose frame has its parameters. Gives its result.
///
/// It ends: each turn of a loop takes fuel.
///
/// # Errors
/// What ends it, as wasmi would say it.
pub(super) fn run(function: &Function, frame: &mut Frame, machine: &mut Machine<'_>) -> Result<u64, TrapCode> {
    if function.parameters < function.locals {
        frame[function.parameters..function.locals].fill(0);
    }
    let operations = &function.operations[..];
    let mut at = machine.begin(operations)?;
    loop {
        let Operation { code, to, a, b, more } = operations[at];
        at += 1;
        let (x, y) = (frame[usize::from(a)], frame[usize::from(b)]);
        let is_taken = match code {
            Code::Charge => {
                machine.charge(more)?;
                continue;
            }
            Code::Jump => true,
            Code::JumpIf => x != 0,
            Code::JumpUnless => x == 0,
            Code::JumpEq => x == y,
            Code::JumpNe => x != y,
            Code::JumpLtU => x < y,
            Code::JumpLeU => x <= y,
            Code::JumpLtS32 => (x as i32) < y as i32,
            Code::JumpLeS32 => x as i32 <= y as i32,
            Code::JumpLtS64 => x.cast_signed() < y.cast_signed(),
            Code::JumpLeS64 => x.cast_signed() <= y.cast_signed(),
            Code::Table => {
                let table = &function.targets[more as usize..];
                at = table[1 + (x as u32).min(table[0]) as usize] as usize;
                continue;
            }
            Code::Store8 => {
                *machine.place(x, more)? = [y as u8];
                continue;
            }
            Code::Store16 => {
                *machine.place(x, more)? = (y as u16).to_le_bytes();
                continue;
            }
            Code::Store32 => {
                *machine.place(x, more)? = (y as u32).to_le_bytes();
                continue;
            }
            Code::Store64 => {
                *machine.place(x, more)? = y.to_le_bytes();
                continue;
            }
            Code::GlobalSet => {
                machine.globals[more as usize] = x;
                continue;
            }
            Code::Return => return Ok(x),
            Code::Unreachable => return Err(TrapCode::UnreachableCodeReached),
            Code::Select => {
                frame[usize::from(to)] = if frame[usize::from(more as u8)] == 0 { y } else { x };
                continue;
            }
            _ => {
                frame[usize::from(to)] = value(code, x, y, more, machine)?;
                continue;
            }
        };
        if is_taken {
            at = more as usize;
        }
    }
}

/// What the other operations set their slot to.
#[inline(always)]
fn value(code: Code, x: u64, y: u64, more: u32, machine: &mut Machine<'_>) -> Result<u64, TrapCode> {
    Ok(match code {
        Code::Load8U => machine.place::<1>(x, more)?[0].into(),
        Code::Load16U => u16::from_le_bytes(*machine.place(x, more)?).into(),
        Code::Load32U => u32::from_le_bytes(*machine.place(x, more)?).into(),
        Code::Load64 => u64::from_le_bytes(*machine.place(x, more)?),
        Code::Load8S32 => of_32(i8::from_le_bytes(*machine.place(x, more)?).into()),
        Code::Load16S32 => of_32(i16::from_le_bytes(*machine.place(x, more)?).into()),
        Code::Load8S64 => of_64(i8::from_le_bytes(*machine.place(x, more)?).into()),
        Code::Load16S64 => of_64(i16::from_le_bytes(*machine.place(x, more)?).into()),
        Code::Load32S64 => of_64(i32::from_le_bytes(*machine.place(x, more)?).into()),
        Code::MemorySize => (machine.memory.len() / 65536) as u64,
        Code::GlobalGet => machine.globals[more as usize],
        Code::DivU | Code::DivS32 | Code::DivS64 | Code::RemU | Code::RemS32 | Code::RemS64 => divided(code, x, y)?,
        _ => computed(code, x, y),
    })
}

#[inline(always)]
fn computed(code: Code, x: u64, y: u64) -> u64 {
    let (x32, y32) = (x as u32, y as u32);
    match code {
        Code::Add32 => x32.wrapping_add(y32).into(),
        Code::Add64 => x.wrapping_add(y),
        Code::Sub32 => x32.wrapping_sub(y32).into(),
        Code::Sub64 => x.wrapping_sub(y),
        Code::Mul32 => x32.wrapping_mul(y32).into(),
        Code::Mul64 => x.wrapping_mul(y),
        Code::And => x & y,
        Code::Or => x | y,
        Code::Xor => x ^ y,
        Code::Shl32 => x32.wrapping_shl(y32).into(),
        Code::Shl64 => x.wrapping_shl(y32),
        Code::ShrS32 => of_32(x32.cast_signed().wrapping_shr(y32)),
        Code::ShrS64 => of_64(x.cast_signed().wrapping_shr(y32)),
        Code::ShrU32 => x32.wrapping_shr(y32).into(),
        Code::ShrU64 => x.wrapping_shr(y32),
        Code::Rotl32 => x32.rotate_left(y32 % 32).into(),
        Code::Rotl64 => x.rotate_left(y32 % 64),
        Code::Rotr32 => x32.rotate_right(y32 % 32).into(),
        Code::Rotr64 => x.rotate_right(y32 % 64),
        Code::Eq => (x == y).into(),
        Code::Ne => (x != y).into(),
        Code::LtU => (x < y).into(),
        Code::LeU => (x <= y).into(),
        Code::LtS32 => (x32.cast_signed() < y32.cast_signed()).into(),
        Code::LeS32 => (x32.cast_signed() <= y32.cast_signed()).into(),
        Code::LtS64 => (x.cast_signed() < y.cast_signed()).into(),
        Code::LeS64 => (x.cast_signed() <= y.cast_signed()).into(),
        Code::Clz32 => x32.leading_zeros().into(),
        Code::Clz64 => x.leading_zeros().into(),
        Code::Ctz32 => x32.trailing_zeros().into(),
        Code::Ctz64 => x.trailing_zeros().into(),
        Code::Popcnt => x.count_ones().into(),
        Code::Wrap => x32.into(),
        Code::Extend8S32 => of_32((x as i8).into()),
        Code::Extend16S32 => of_32((x as i16).into()),
        Code::Extend8S64 => of_64((x as i8).into()),
        Code::Extend16S64 => of_64((x as i16).into()),
        Code::Extend32S => of_64((x as i32).into()),
        // All others are done where they are met.
        _ => x,
    }
}

fn divided(code: Code, x: u64, y: u64) -> Result<u64, TrapCode> {
    // One of 32 bits has zeroes above.
    if y == 0 {
        return Err(TrapCode::IntegerDivisionByZero);
    }
    let (x32, y32) = (x as i32, y as i32);
    let (x64, y64) = (x.cast_signed(), y.cast_signed());
    Ok(match code {
        Code::DivS32 => of_32(x32.checked_div(y32).ok_or(TrapCode::IntegerOverflow)?),
        Code::DivS64 => of_64(x64.checked_div(y64).ok_or(TrapCode::IntegerOverflow)?),
        Code::RemS32 => of_32(x32.wrapping_rem(y32)),
        Code::RemS64 => of_64(x64.wrapping_rem(y64)),
        Code::RemU => x % y,
        _ => x / y,
    })
}

fn of_32(value: i32) -> u64 {
    value.cast_unsigned().into()
}

fn of_64(value: i64) -> u64 {
    value.cast_unsigned()
}

impl Machine<'_> {
    /// Does the first operation if it takes fuel: all functions begin so, and most have no other one of these. Gives the next one.
    #[inline(always)]
    fn begin(&mut self, operations: &[Operation]) -> Result<usize, TrapCode> {
        match operations.first() {
            Some(Operation { code: Code::Charge, more, .. }) => self.charge(*more).map(|()| 1),
            _ => Ok(0),
        }
    }

    #[inline(always)]
    fn charge(&mut self, fuel: u32) -> Result<(), TrapCode> {
        *self.fuel = self.fuel.checked_sub(fuel.into()).ok_or(TrapCode::OutOfFuel)?;
        Ok(())
    }

    /// So many bytes of the memory, from an address and an offset on.
    #[inline(always)]
    fn place<const BYTES: usize>(&mut self, address: u64, offset: u32) -> Result<&mut [u8; BYTES], TrapCode> {
        let at = usize::try_from(address + u64::from(offset)).map_err(|_| TrapCode::MemoryOutOfBounds)?;
        let place = self.memory.get_mut(at..).and_then(<[u8]>::first_chunk_mut);
        place.ok_or(TrapCode::MemoryOutOfBounds)
    }
}
