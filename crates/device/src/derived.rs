//! What a derived unit keeps of its derivation: where its blocks lie, and who may do what with them.

mod budget;
mod end;
mod judges;
mod users;

use std::sync::Arc;

use sanwire_core::quota::Usage;
use sanwire_core::{Instant, Principal, WallClock};
use sanwire_scsi::{Cdb, CommandSet, OperationClasses, operation_code};
use sanwire_store::{ExtentMap, ExtentStore};

use crate::allowed_operations::AllowedOperations;
use crate::command_program::CommandProgram;
use crate::derivation::{Admission, Derivation, DerivedExtent};

use budget::Budget;
pub(crate) use end::End;
pub(crate) use judges::Judge;
pub use users::{DerivedStatistics, PrincipalStatistics, PrincipalUsage};
pub(crate) use users::{Guest, Present, Refused, Users};

/// Of a derived unit: how it is derived, and what was done with it.
#[derive(Debug)]
pub struct Derived {
    /// Its blocks, in the unit that it is derived from.
    extents: Vec<DerivedExtent>,
    /// In the unit at the end of the line.
    pub(crate) in_root: Arc<ExtentMap>,
    pub(crate) store: Arc<ExtentStore>,
    operations: AllowedOperations,
    admission: Option<Arc<dyn Admission>>,
    end: Arc<End>,
    program: Option<Arc<dyn CommandProgram>>,
    clock: WallClock,
    budget: Arc<Budget>,
    /// Its own first, then those of what it is derived from.
    pub(crate) judges: Box<[Judge]>,
    /// Nobody judges its commands, and all operations of a disk are allowed: what is left to be looked at is where its blocks end, and the
    /// disk does that for all commands.
    pub(crate) is_unrestricted: bool,
    pub(crate) users: Arc<Users>,
}

/// Where the blocks of a derived unit lie.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) in_parent: Arc<ExtentMap>,
    pub(crate) in_root: Arc<ExtentMap>,
    pub(crate) store: Arc<ExtentStore>,
}

impl Derived {
    /// As its owner wants it, within what its parent allows; `of_parent`: the programs that are asked for the parent, for these blocks.
    pub(crate) fn new(derivation: Derivation, placed: Placed, of_parent: Vec<Judge>, parent: Option<&Derived>) -> Self {
        let Derivation { extents, operations, admission, until_unix_ms, program, clock } = derivation;
        let Placed { in_root, store, .. } = placed;
        let users = Arc::<Users>::default();
        let budget = Arc::new(Budget::new(parent.map(|parent| Arc::clone(&parent.budget))));
        let judge = |program: &Arc<dyn CommandProgram>| {
            Judge::new(Arc::clone(program), &users, &budget, in_root.length_bytes())
        };
        let judges: Box<[Judge]> = program.as_ref().map(judge).into_iter().chain(of_parent).collect();
        let is_unrestricted = judges.is_empty() && operations.classes() == OperationClasses::ALL;
        let end = End::new(until_unix_ms, parent.map(|parent| Arc::clone(&parent.end)));
        Derived {
            extents,
            in_root,
            store,
            operations,
            admission,
            end,
            program,
            clock,
            budget,
            judges,
            is_unrestricted,
            users,
        }
    }

    /// Where its blocks lie in the unit that it is derived from, in their order.
    #[must_use]
    pub fn extents(&self) -> &[DerivedExtent] {
        &self.extents
    }

    /// What may be done with it.
    #[must_use]
    pub fn operations(&self) -> &AllowedOperations {
        &self.operations
    }

    /// Until when it can be used, in milliseconds after the beginning of 1970: also because what it is derived from ends then.
    #[must_use]
    pub fn until_unix_ms(&self) -> Option<u64> {
        self.end.unix_ms()
    }

    /// From now on it ends then, by itself; `None`: with what it is derived from. So does all that is derived from it: at that time, if not
    /// before. It never ends later than what it is derived from.
    pub fn set_until(&self, until_unix_ms: Option<u64>) {
        self.end.set(until_unix_ms);
    }

    /// How the fuel of its programs is used.
    pub(crate) fn fuel_usage(&self) -> Usage {
        self.budget.usage()
    }

    /// What is asked about its commands, besides what is asked about those of the unit that it is derived from.
    #[must_use]
    pub fn program(&self) -> Option<&Arc<dyn CommandProgram>> {
        self.program.as_ref()
    }

    /// What was done with it, and by whom.
    #[must_use]
    pub fn statistics(&self) -> DerivedStatistics {
        self.users.statistics()
    }

    /// What all have done with it together, and how many commands came from those who may not use it.
    #[must_use]
    pub fn sum(&self) -> (PrincipalUsage, u64) {
        self.users.sum()
    }

    /// Whether its own rules admit this one.
    pub(crate) fn admits(&self, principal: &Principal) -> bool {
        self.admission.as_ref().is_none_or(|admission| admission.admits(principal))
    }

    /// Whether its time is over.
    pub(crate) fn is_expired(&self, now: Instant) -> bool {
        self.end.unix_ms().is_some_and(|until| self.unix_ms(now) >= until)
    }

    pub(crate) fn unix_ms(&self, now: Instant) -> u64 {
        self.clock.unix_ms(now)
    }

    /// Whether a command is one like each to a disk that is not derived: nothing but its blocks can be amiss.
    pub(crate) fn is_free(&self, cdb: &Cdb) -> bool {
        // What is about the whole target is nobody's who has a part of a unit.
        self.is_unrestricted && cdb.operation_code() != operation_code::MAINTENANCE_OUT
    }

    /// What is left of the operations of the unit's type.
    pub(crate) fn commands(&self, commands: CommandSet) -> CommandSet {
        commands.retaining(|operation| self.operations.allow_operation(operation))
    }

    /// Which byte of it that is, if it is one, by the numbers of the store on which it stands.
    pub(crate) fn number_of(&self, offset_bytes: u64) -> Option<u64> {
        let end_bytes = offset_bytes.checked_add(1)?;
        self.in_root.numbers_of(offset_bytes..end_bytes).map(|number| number.start)
    }
}
