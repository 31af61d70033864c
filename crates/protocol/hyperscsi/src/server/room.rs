//! Clients that were told that there is no room for what they send, and are told when there is some.

use std::time::Duration;

use sanwire_core::Instant;

use super::Server;

/// Memory may be freed by others than this server: how often it looks.
const LOOK: Duration = Duration::from_millis(5);

impl Server {
    /// Those for whom there is room now are told so, who has waited longest first.
    pub(super) fn tell_of_room(&mut self, now: Instant) {
        if self.starved.is_empty() {
            return;
        }
        // No memory was freed since: to ask them all again with each packet that is sent would be for nothing.
        let releases = self.config.memory.releases();
        if self.looked_at == Some(releases) {
            return;
        }
        self.looked_at = Some(releases);
        let mut free_bytes = self.config.memory.free_bytes();
        for id in std::mem::take(&mut self.starved) {
            let Some(connection) = self.connections.get_mut(&id).filter(|connection| connection.wants_room()) else {
                continue;
            };
            match connection.tell_of_room(free_bytes, now) {
                Some(taken_bytes) => {
                    free_bytes -= taken_bytes;
                    self.touch(id);
                }
                None => self.starved.push_back(id),
            }
        }
        self.look_for_room_later(now);
    }

    pub(super) fn look_for_room_later(&mut self, now: Instant) {
        if !self.starved.is_empty() {
            self.wake_at(now + LOOK);
        }
    }
}
