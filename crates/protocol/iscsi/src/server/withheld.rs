//! Commands whose data is not asked for, because what waits for the store of their logical unit keeps too much of the memory.

use std::collections::BTreeSet;

use sanwire_core::Instant;

use super::Server;
use super::commands::Phase;
use super::event::CommandHandle;
use super::session::Session;
use super::shared::Shared;
use crate::login::TargetId;

/// A logical unit of a target.
pub(super) type Unit = (TargetId, [u8; 8]);

impl Server {
    /// Asks for no more data of commands for the logical units of these commands, and of no others, until the next call: these wait
    /// for their stores, and keep too much of the memory. Others of the same units wait without taking any; what comes
    /// unasked is taken all the same.
    pub fn hold_back(&mut self, stalled: &[CommandHandle], now: Instant) {
        if stalled.is_empty() && self.shared.held_back.is_empty() {
            return;
        }
        let units: BTreeSet<Unit> = stalled.iter().filter_map(|handle| self.unit_of(*handle)).collect();
        if units == self.shared.held_back {
            return;
        }
        self.shared.held_back = units;
        for session in self.sessions.values_mut() {
            session.ask_for_withheld(&mut self.shared, now);
        }
    }

    fn unit_of(&mut self, handle: CommandHandle) -> Option<Unit> {
        let session = self.sessions.get_mut(handle.nexus)?;
        Some((session.target()?, session.commands.get_mut(handle.number)?.lun))
    }
}

impl Session {
    /// Whether the data of a command is not to be asked for now: it would need memory, and its unit is held back.
    pub(super) fn withhold(&mut self, number: u64, shared: &Shared) -> bool {
        let Some(target) = self.target() else { return false };
        let Some(command) = self.commands.get_mut(number) else { return false };
        let is_held_back = shared.held_back.contains(&(target, command.lun));
        let Phase::Gathering(gathering) = &mut command.phase else { return false };
        gathering.is_withheld = is_held_back && gathering.frame.is_none() && !gathering.is_lent;
        gathering.is_starved &= !gathering.is_withheld;
        gathering.is_withheld
    }

    /// Goes on with what was withheld, as far as its units are not held back any more.
    fn ask_for_withheld(&mut self, shared: &mut Shared, now: Instant) {
        let is_withheld = |phase: &Phase| matches!(phase, Phase::Gathering(gathering) if gathering.is_withheld);
        let withheld = self.commands.iter().filter(|command| is_withheld(&command.phase));
        // One that waits for another connection asks for its data there.
        let withheld = withheld.filter(|command| !self.is_suspended(command.connection));
        let mut withheld: Vec<u64> = withheld.map(|command| command.number).collect();
        withheld.sort_unstable();
        withheld.into_iter().for_each(|number| self.go_on(number, shared, now));
    }
}
