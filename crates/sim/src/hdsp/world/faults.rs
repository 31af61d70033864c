//! What goes wrong in a world, and that it comes back from that.

use std::time::Duration;

use sanwire_buffer::UNIT_BYTES;

use super::super::participants::server;
use super::super::plan::Plan;
use super::{Event, World};
use crate::world::Outcome;

/// Clients may send as much as ever when nobody has wanted anything for so long.
const RECOVERED_AFTER: Duration = Duration::from_secs(4);

impl World {
    /// The server says what it takes, and does not mean it; at last it does.
    pub(super) fn change_flow(&mut self) {
        if self.is_healed {
            let Plan { window_packets, group_packets, .. } = self.plan;
            for nexus in &self.nexuses {
                self.server.change_flow(*nexus, window_packets, group_packets, 0, self.now);
            }
            return;
        }
        if let Some(nexus) = self.nexuses.last() {
            let window = self.random.choose(&[0, 1, 2, 16, 1000, u32::MAX]);
            let group = self.random.choose(&[0, 1, 4, 64, u16::MAX]);
            let rate = self.random.choose(&[0, 1, 1_000_000, 1_000_000, u64::MAX]);
            self.server.change_flow(*nexus, window, group, rate, self.now);
        }
        self.at(Duration::from_millis(50), Event::ChangeFlow);
    }

    /// The server dies and starts again. What was at the disk is done, or not.
    pub(super) fn restart(&mut self, loses_power: bool) -> Outcome<()> {
        for (_, executing) in std::mem::take(&mut self.executing) {
            if executing.has_begun && self.random.chance(500_000) {
                self.disk.execute(&executing.request, false)?;
            }
        }
        if loses_power {
            self.disk.lose_power(&mut self.random);
            self.model.lose();
        }
        self.disk.restarted();
        self.run += 1;
        self.nexuses.clear();
        self.server = server(&self.plan, &self.memory, &mut self.random);
        Ok(())
    }

    /// Somebody else takes memory for a while.
    pub(super) fn take_memory(&mut self, micros: u64, left_bytes: usize) {
        if self.is_healed {
            return;
        }
        while self.memory.free_bytes() > left_bytes
            && let Some(frame) = self.memory.frame(UNIT_BYTES)
        {
            self.taken.push(frame);
        }
        self.at(Duration::from_micros(micros), Event::Relief);
    }

    /// Nobody wants anything for a while: then memory is no reason to send less.
    pub(super) fn recover(&mut self) -> Outcome<()> {
        self.taken.clear();
        let until = self.now + RECOVERED_AFTER;
        while self.next_at() <= until {
            self.step(self.next_at())?;
        }
        let agreed_packets = self.plan.agreed_window_packets();
        let windows: Vec<u32> = self.server.connections().map(|connection| connection.window_packets).collect();
        match self.plan.changes_flow || windows.iter().all(|packets| *packets == agreed_packets) {
            true => Ok(()),
            false => Err(format!("{windows:?} packets of {agreed_packets}, {:?}", self.server.window_changes())),
        }
    }
}
