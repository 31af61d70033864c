//! Units and commands of any kind.

use proptest::prelude::*;
use sanwire_scsi::OperationClasses;

use super::NEXUSES;
use super::rules::Rule;

pub(super) const READ_16: u8 = 0x88;
pub(super) const WRITE_16: u8 = 0x8a;

/// How a unit is derived.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// From which of those before it.
    pub(super) parent: usize,
    /// Where that is cut.
    pub(super) cuts: Vec<u64>,
    pub(super) classes: OperationClasses,
    /// Operations besides, as far as its parent has them.
    pub(super) codes: Vec<u8>,
    /// For which nexuses.
    pub(super) admitted: u8,
    /// When it ends, in milliseconds.
    pub(super) until_ms: Option<u64>,
    pub(super) rule: Rule,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Deed {
    Read,
    Write(u8),
    Same(u8, bool),
    Unmap,
    /// Of one block, from what is there or not.
    Swap(bool, u8),
    Verify,
    Revoke,
    /// Has a token made of the blocks.
    Populate,
    /// Asks for that token. It follows the other one.
    Ask,
    /// Writes one of the tokens from the first of the blocks on, if there is any.
    Use(usize),
    /// Has as many blocks of a unit, from this one on, copied there.
    Copy(usize, u64),
    /// Has the unit for one nexus alone.
    Reserve,
    Release,
}

impl Deed {
    /// Whether it is about blocks of several units, which are named in its data.
    pub(super) fn is_copy(self) -> bool {
        matches!(self, Deed::Populate | Deed::Use(_) | Deed::Copy(..))
    }

    /// Whether its command names no blocks itself.
    pub(super) fn names_no_blocks(self) -> bool {
        self.is_copy() || matches!(self, Deed::Ask | Deed::Reserve | Deed::Release)
    }
}

fn rule() -> impl Strategy<Value = Rule> {
    prop_oneof![
        6 => Just(Rule::None),
        1 => (0..40_u64).prop_map(Rule::RefuseFrom),
        1 => (0..NEXUSES).prop_map(Rule::RefuseNexus),
        2 => (0..6_u64).prop_map(Rule::Move),
        1 => Just(Rule::First),
        1 => prop::sample::select(vec![Rule::Nonsense, Rule::Defer(3), Rule::Defer(1500), Rule::Defer(u32::MAX)]),
    ]
}

pub(super) fn plan() -> impl Strategy<Value = Plan> {
    let classes = prop::sample::select(vec![0xff_u8, 0xff, 0x02, 0x04, 0x06, 0x08, 0x0e, 0x42, 0x84, 0xc0, 0x00]);
    let until = prop_oneof![4 => Just(None), 1 => (1..30_000_u64).prop_map(Some)];
    let codes = prop::sample::subsequence(vec![READ_16, WRITE_16], 0..=2);
    let cuts = prop::collection::vec(0..1000_u64, 2..8);
    (0..8_usize, cuts, classes, codes, 1..8_u8, until, rule()).prop_map(
        |(parent, cuts, classes, codes, admitted, until_ms, rule)| Plan {
            parent,
            cuts,
            classes: OperationClasses::from_bits(classes | 1),
            codes,
            admitted,
            until_ms,
            rule,
        },
    )
}

pub(super) fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        4 => Just(Deed::Read),
        6 => any::<u8>().prop_map(Deed::Write),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(seed, unmap)| Deed::Same(seed, unmap)),
        2 => Just(Deed::Unmap),
        2 => (any::<bool>(), any::<u8>()).prop_map(|(is_right, seed)| Deed::Swap(is_right, seed)),
        1 => Just(Deed::Verify),
        1 => Just(Deed::Revoke),
        4 => Just(Deed::Populate),
        6 => any::<usize>().prop_map(Deed::Use),
        4 => (0..8_usize, 0..30_u64).prop_map(|(source, lba)| Deed::Copy(source, lba)),
        1 => Just(Deed::Reserve),
        3 => Just(Deed::Release),
    ]
}
