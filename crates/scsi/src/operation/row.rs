//! How the tables of operations are written.

use super::{CommandStandard, Effort, Need, Operation};

pub(super) const fn operation(standard: CommandStandard, code: u8, effort: Effort, usage: &'static [u8]) -> Operation {
    let evaluated = evaluated(usage, 0);
    Operation {
        standard,
        code,
        service_action: None,
        usage,
        evaluated,
        effort,
        need: Need::Nothing,
        changes_unit: false,
        ends_no_attention: false,
    }
}

pub(super) const fn action(standard: CommandStandard, code: u8, service_action: u8, usage: &'static [u8]) -> Operation {
    let evaluated = evaluated(usage, 0x1f);
    let service_action = Some(service_action);
    Operation {
        standard,
        code,
        service_action,
        usage,
        evaluated,
        effort: Effort::Control,
        need: Need::Nothing,
        changes_unit: false,
        ends_no_attention: false,
    }
}

const fn evaluated(usage: &[u8], action_bits: u8) -> u128 {
    let mut bytes = [0; 16];
    bytes.split_at_mut(usage.len()).0.copy_from_slice(usage);
    bytes[0] = 0xff;
    bytes[1] |= action_bits;
    u128::from_be_bytes(bytes)
}

impl Operation {
    /// The same, taking more time.
    pub(super) const fn taking(self, effort: Effort) -> Operation {
        Operation { effort, ..self }
    }

    /// The same, whatever its initiator must still be told.
    pub(super) const fn ending_no_attention(self) -> Operation {
        Operation { ends_no_attention: true, ..self }
    }

    /// The same, not for initiators that may only read.
    pub(super) const fn changing_unit(self) -> Operation {
        Operation { changes_unit: true, ..self }
    }

    /// The same, for units that have what it needs.
    pub(super) const fn needing(self, need: Need) -> Operation {
        Operation { need, ..self }
    }
}

/// Two tables in one, still ascending.
pub(super) const fn merged<const N: usize>(one: &[Operation], other: &[Operation]) -> [Operation; N] {
    assert!(one.len() + other.len() == N && !one.is_empty());
    let mut all = [one[0]; N];
    let (mut at, mut from_one) = (0, 0);
    while at < N {
        let from_other = at - from_one;
        let takes_one =
            from_other == other.len() || (from_one < one.len() && one[from_one].code < other[from_other].code);
        all[at] = if takes_one { one[from_one] } else { other[from_other] };
        from_one += takes_one as usize;
        at += 1;
    }
    all
}
