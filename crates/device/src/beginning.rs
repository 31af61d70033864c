//! What the handler of a command is given.

use std::cell::Cell;
use std::sync::Arc;

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId, Principal};
use sanwire_scsi::vpd::{Designator, TargetPort};
use sanwire_scsi::{Rest, Task};
use sanwire_store::Geometry;

use crate::copy_targets::CopyTargetUnit;
use crate::derived::Guest;
use crate::judged::Judged;
use crate::piece::Part;
use crate::refusal::Refusal;
use crate::unit_state::UnitState;

/// A task that has found its unit.
pub(crate) struct Beginning<'a> {
    pub(crate) target: &'a dyn Surroundings,
    pub(crate) unit: &'a Arc<UnitState>,
    pub(crate) geometry: Geometry,
    pub(crate) nexus: NexusId,
    /// The same as a unit that is derived knows it.
    pub(crate) guest: Option<&'a Guest>,
    pub(crate) memory: &'a Region,
    /// What its reply will say of its data.
    pub(crate) account: Cell<Account>,
    /// What programs have said of the command.
    pub(crate) judged: Cell<Option<Box<Judged>>>,
    /// Since when they have deferred it.
    pub(crate) deferred_since: Option<Instant>,
    pub(crate) now: Instant,
}

/// What commands of a unit ask of the target in which it is.
pub(crate) trait Surroundings {
    /// The unit that a copy of this nexus may use under this name now.
    fn copy_target(&self, nexus: NexusId, designator: &Designator, now: Instant) -> Option<CopyTargetUnit>;

    /// Who is behind the nexus.
    fn principal(&self, nexus: NexusId) -> Principal;

    /// The port through which it comes.
    fn port(&self, nexus: NexusId) -> TargetPort;

    /// Whether the nexus may do something now that all others of the unit are told of.
    fn may_disturb(&self, unit: &UnitState, by: NexusId, now: Instant) -> bool;
}

/// What a command's reply says of its data besides.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Account {
    /// Nothing: it takes what came with it.
    Even,
    /// So many bytes it takes, and another amount came with it.
    Takes(u64),
    /// This is left of it, when it is well.
    Left(Rest),
}

impl Beginning<'_> {
    /// Notes how much data the command takes from its initiator.
    pub(crate) fn takes(&self, taken_bytes: u64, task: &Task) {
        let is_even = taken_bytes == task.data_out_bytes();
        self.account.set(if is_even { Account::Even } else { Account::Takes(taken_bytes) });
    }

    /// Whether something may be done now that the unit's other initiators are told of.
    pub(crate) fn check_quiet(&self) -> Result<(), Refusal> {
        let may_disturb = self.target.may_disturb(self.unit, self.nexus, self.now);
        if may_disturb { Ok(()) } else { Err(Refusal::Busy) }
    }

    /// The unit itself, as a copy uses it.
    pub(crate) fn own_target(&self) -> CopyTargetUnit {
        let present = self.unit.derived().and_then(|derived| derived.users.guest(self.nexus));
        let guest = present.map(|present| present.to_guest());
        CopyTargetUnit { guest, ..CopyTargetUnit::new(Arc::clone(self.unit), self.nexus) }
    }

    /// Notes what comes after a part of a command, on the medium of its first part.
    pub(crate) fn part(&self, part: Part) -> Part {
        let medium = if part.from_bytes == 0 { Some(self.unit.medium()) } else { None };
        let on_medium = |rest: Rest| Rest { medium: medium.unwrap_or(rest.medium), ..rest };
        part.rest.into_iter().for_each(|rest| self.account.set(Account::Left(on_medium(rest))));
        part
    }
}
