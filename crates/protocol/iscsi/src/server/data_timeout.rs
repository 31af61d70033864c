//! Data that does not come: it is asked for once more, or its command ends (RFC 7143 7.1.4.1, 7.2.1).

use std::time::Duration;

use sanwire_core::Instant;

use super::commands::Phase;
use super::session::Session;
use super::shared::{Shared, Starved};

/// So long a sequence of Data-Out may stand still.
pub(super) const RECEPTION_MAX: Duration = Duration::from_secs(10);

impl Session {
    /// Data is awaited from now on.
    pub(super) fn await_data(&mut self, shared: &mut Shared, now: Instant) {
        if self.reception_at.is_none() {
            let at = now + RECEPTION_MAX;
            self.reception_at = Some(at);
            self.wake_at(at, shared);
        }
    }

    /// Looks for sequences that stand still, if it is time for that.
    pub(super) fn check_reception(&mut self, shared: &mut Shared, now: Instant) {
        if self.reception_at.is_none_or(|at| at > now) {
            return;
        }
        let recovers = self.parameters.error_recovery_level > 0;
        let (mut stopped, mut next) = (Vec::new(), None::<Instant>);
        for command in self.commands.iter_mut() {
            let Phase::Gathering(gathering) = &mut command.phase else { continue };
            // One that waits for another connection begins anew there.
            let home = self.connections.iter().find(|connection| connection.id == command.connection);
            let Some(home) = home else { continue };
            let is_deaf = home.is_waiting();
            if !is_deaf && gathering.stop_silent(home.data_at, recovers, now) {
                stopped.push(command.number);
            }
            let due = if is_deaf { Some(now + RECEPTION_MAX) } else { gathering.due(home.data_at) };
            next = next.into_iter().chain(due).min();
        }
        self.reception_at = next;
        stopped.into_iter().for_each(|number| self.go_on(number, shared, now));
    }

    /// There is memory again, perhaps: asks for the data of a command that waited for it. `false`: there is none.
    pub(super) fn solicit_starved(&mut self, number: u64, shared: &mut Shared, now: Instant) -> bool {
        let Some(command) = self.commands.get_mut(number) else { return true };
        let connection = command.connection;
        if self.is_suspended(connection) {
            // It asks for its data on the connection that it goes on on.
            if let Some(Phase::Gathering(gathering)) = self.commands.get_mut(number).map(|command| &mut command.phase) {
                gathering.is_starved = false;
            }
            return true;
        }
        if self.withhold(number, shared) {
            return true;
        }
        self.await_data(shared, now);
        self.solicit(number, shared, now)
    }

    /// Asks for data of a command; it waits for memory if there is none, and without any while its unit is held back.
    pub(super) fn solicit_or_wait(&mut self, number: u64, shared: &mut Shared, now: Instant) {
        if self.withhold(number, shared) {
            return;
        }
        self.await_data(shared, now);
        if !self.solicit(number, shared, now) {
            self.is_starved = true;
            shared.starved.push_back(Starved::Command(self.nexus, number));
        }
    }
}
