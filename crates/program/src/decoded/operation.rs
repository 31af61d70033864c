//! The operations of which a decoded function consists. They work on the slots of a frame, and not on a stack: so most of what
//! WebAssembly only pushes and pops is no operation at all.

/// Slots of a frame: from the lowest on the local variables and what waits for its use, from the highest on the constants. A number of a
/// slot is a byte, so none can be outside.
pub(super) const SLOTS: usize = 256;

/// Where values are: those of 32 bits with zeroes above.
pub(super) type Frame = [u64; SLOTS];

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Operation {
    pub(super) code: Code,
    /// The slot that it sets, if it sets one.
    pub(super) to: u8,
    /// The slots that it reads: `a` has the address of a load or store, and `b` what is stored.
    pub(super) a: u8,
    pub(super) b: u8,
    /// An offset in the memory, fuel, a label, the number of a global variable, or a third slot.
    pub(super) more: u32,
}

/// What a step does. Up to `GlobalGet` they set a slot. Numbers tell how wide an operation is where that makes a difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Code {
    Copy,
    Add32,
    Add64,
    Sub32,
    Sub64,
    Mul32,
    Mul64,
    And,
    Or,
    Xor,
    Shl32,
    Shl64,
    ShrS32,
    ShrS64,
    ShrU32,
    ShrU64,
    Rotl32,
    Rotl64,
    Rotr32,
    Rotr64,
    Eq,
    Ne,
    LtU,
    LeU,
    LtS32,
    LeS32,
    LtS64,
    LeS64,
    Clz32,
    Clz64,
    Ctz32,
    Ctz64,
    Popcnt,
    Wrap,
    Extend8S32,
    Extend16S32,
    Extend8S64,
    Extend16S64,
    Extend32S,
    DivU,
    DivS32,
    DivS64,
    RemU,
    RemS32,
    RemS64,
    /// `a` if the slot `more` is not 0, else `b`.
    Select,
    Load8U,
    Load16U,
    Load32U,
    Load64,
    Load8S32,
    Load8S64,
    Load16S32,
    Load16S64,
    Load32S64,
    MemorySize,
    GlobalGet,
    GlobalSet,
    Store8,
    Store16,
    Store32,
    Store64,
    /// Takes fuel for what comes up to the next of these.
    Charge,
    Jump,
    /// Jumps if `a` is not 0, or is.
    JumpIf,
    JumpUnless,
    JumpEq,
    JumpNe,
    JumpLtU,
    JumpLeU,
    JumpLtS32,
    JumpLeS32,
    JumpLtS64,
    JumpLeS64,
    /// Jumps by the number in `a`. From `more` on, the targets are: their number, those, and the one for all other numbers.
    Table,
    Return,
    Unreachable,
}

impl Operation {
    pub(super) fn new(code: Code, to: u8, a: u8, b: u8) -> Operation {
        Operation { code, to, a, b, more: 0 }
    }

    pub(super) fn with(self, more: u32) -> Operation {
        Operation { more, ..self }
    }

    /// Whether it sets this slot.
    pub(super) fn sets(&self, slot: u8) -> bool {
        self.code as u8 <= Code::GlobalGet as u8 && self.to == slot
    }

    /// Whether `more` is a label.
    pub(super) fn jumps(&self) -> bool {
        (Code::Jump as u8..=Code::JumpLeS64 as u8).contains(&(self.code as u8))
    }

    /// The comparison that is true where this one is not.
    pub(super) fn opposite(self) -> Option<Operation> {
        let Operation { a, b, .. } = self;
        let (code, a, b) = match self.code {
            Code::Eq => (Code::Ne, a, b),
            Code::Ne => (Code::Eq, a, b),
            // What is not less is the other way round less or equal.
            Code::LtU => (Code::LeU, b, a),
            Code::LeU => (Code::LtU, b, a),
            Code::LtS32 => (Code::LeS32, b, a),
            Code::LeS32 => (Code::LtS32, b, a),
            Code::LtS64 => (Code::LeS64, b, a),
            Code::LeS64 => (Code::LtS64, b, a),
            _ => return None,
        };
        Some(Operation { code, a, b, ..self })
    }

    /// The jump to a label that is taken where this comparison is true.
    pub(super) fn jump_to(self, label: u32) -> Option<Operation> {
        let code = match self.code {
            Code::Eq => Code::JumpEq,
            Code::Ne => Code::JumpNe,
            Code::LtU => Code::JumpLtU,
            Code::LeU => Code::JumpLeU,
            Code::LtS32 => Code::JumpLtS32,
            Code::LeS32 => Code::JumpLeS32,
            Code::LtS64 => Code::JumpLtS64,
            Code::LeS64 => Code::JumpLeS64,
            _ => return None,
        };
        Some(Operation { code, to: 0, more: label, ..self })
    }
}
