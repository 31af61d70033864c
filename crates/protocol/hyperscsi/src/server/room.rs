//! Clients that were told that there is no room for what they send, and are told when there is some.

use std::time::Duration;

use sanwire_core::Instant;

use super::Server;

/// So long memory is kept for clients that were told of it, though others wait: for about as long as their packets take.
const KEPT_FOR: Duration = Duration::from_millis(5);

impl Server {
    /// Those for whom there is room now are told so, who has waited longest first. For the others, the region tells of its next
    /// release.
    pub(super) fn tell_of_room(&mut self, now: Instant) {
        if self.starved.is_empty() {
            return;
        }
        // No memory was freed since: to ask them all again with each packet that is sent would be for nothing.
        if self.looked_at == Some(self.config.memory.releases()) {
            return;
        }
        self.looked_at = Some(self.config.memory.await_release());
        let mut free_bytes = self.config.memory.free_bytes();
        let mut is_any_told = false;
        for id in std::mem::take(&mut self.starved) {
            let Some(connection) = self.connections.get_mut(&id).filter(|connection| connection.wants_room()) else {
                continue;
            };
            match connection.tell_of_room(free_bytes, now) {
                Some(taken_bytes) => {
                    free_bytes -= taken_bytes;
                    is_any_told = true;
                    self.touch(id);
                }
                None => self.starved.push_back(id),
            }
        }
        // They may leave unused what is kept for them, and nothing tells of that.
        if is_any_told && !self.starved.is_empty() {
            self.kept_until = Some(now + KEPT_FOR);
        }
    }

    /// What was kept for clients is not any more: others are told of it with the next packets.
    pub(super) fn keep_room_no_longer(&mut self, now: Instant) {
        if self.kept_until.take_if(|until| *until <= now).is_some() {
            self.looked_at = None;
        }
    }
}
