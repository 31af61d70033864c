//! How a unit is made from another one.

use std::fmt::Debug;
use std::sync::Arc;

use sanwire_core::{Principal, WallClock};

use crate::allowed_operations::AllowedOperations;
use crate::command_program::CommandProgram;

/// A run of bytes of a unit from which another one is derived.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DerivedExtent {
    /// Where it begins: a multiple of the unit's block.
    pub offset_bytes: u64,
    /// How long it is: a positive multiple of the block.
    pub length_bytes: u64,
}

/// Who may use a unit.
pub trait Admission: Debug + Send + Sync {
    /// Whether this one may. It is asked when a nexus first uses the unit, and again when more is known of who that is; for each pair the
    /// answer stays the same for as long as the unit is there.
    fn admits(&self, principal: &Principal) -> bool;
}

/// What the owner of a unit gives to somebody else: a derived virtual device (R. Van Meter and others, 1996), which is another
/// logical unit with some of its blocks.
#[derive(Clone, Debug)]
pub struct Derivation {
    /// Its blocks, in their order: at least one extent, at most [`sanwire_store::EXTENTS_MAX`], none of which overlap.
    pub extents: Vec<DerivedExtent>,
    /// What may be done with it. Without any operation that changes blocks it is write protected.
    pub operations: AllowedOperations,
    /// Who may use it, of those who see it and may use the unit that it is derived from, if that is derived too; `None`: all of these.
    pub admission: Option<Arc<dyn Admission>>,
    /// Until when, in milliseconds after the beginning of 1970, and in any case no longer than the unit that it is derived from; `None`: as long
    /// as that one. It can be changed while the unit is there ([`Derived::set_until`](crate::Derived::set_until)).
    pub until_unix_ms: Option<u64>,
    /// What is asked about its commands.
    pub program: Option<Arc<dyn CommandProgram>>,
    /// What time it is.
    pub clock: WallClock,
}
