//! Commands that wait, when the server has forgotten the session, until the layer above has seen that the logical units are
//! still the same.

use sanwire_core::Lun;

use super::{Client, Failure, State};

impl Client {
    /// From now on, when a server that has forgotten the session is connected again, commands under way wait for
    /// [`Client::release`]: the layer above can first see (by new commands, which do not wait) whether the logical units
    /// are still the same. They wait through further reconnections.
    pub fn hold_after_restart(&mut self) {
        self.holds_after_restart = true;
    }

    /// Gives the commands that were held.
    pub fn release(&mut self) {
        self.orders.release();
        self.ask_unasked();
    }

    /// Asks what was not asked on this connection, but for what is held.
    pub(super) fn ask_unasked(&mut self) {
        if matches!(self.state, State::Connected(_)) {
            self.orders.unasked_tags().into_iter().for_each(|tag| self.ask(tag));
        }
    }

    /// Gives up the commands for a logical unit that are held. What was asked on this session goes on to its answer: until
    /// that has arrived, its tag is not free for another command.
    pub fn abandon(&mut self, lun: Lun, failure: Failure) {
        self.fail(|orders| orders.take_held(lun), failure);
    }

    /// Gives up the command of this number, if it is held; it fails with [`Failure::InDoubt`].
    pub fn withdraw(&mut self, number: u64) {
        self.fail(|orders| orders.take_held_one(number), Failure::InDoubt);
    }
}
