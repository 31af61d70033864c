//! Commands that wait for others to leave their blocks, or to end.

use std::sync::Arc;

use sanwire_buffer::UNIT_BYTES;
use sanwire_core::Instant;
use sanwire_device::{LogicalUnits, Progress, Waiting};

use crate::engine::{Command, Engine, Handle, SLOW};

/// A command that waits for another one.
pub(crate) struct Held<H> {
    pub(crate) command: Option<Command<H>>,
    pub(crate) units: Arc<LogicalUnits>,
    pub(crate) waiting: Waiting,
    /// The memory that its data takes.
    pub(crate) kept_bytes: usize,
}

impl<H> Held<H> {
    fn new(command: Option<Command<H>>, units: Arc<LogicalUnits>, waiting: Waiting) -> Self {
        // Once: data may lie in many pieces.
        let kept_bytes = waiting.kept_bytes().next_multiple_of(UNIT_BYTES);
        Held { command, units, waiting, kept_bytes }
    }
}

impl<H: Handle> Engine<H> {
    /// Keeps a command that waits; its driver is woken when it may go on.
    pub(crate) fn hold(
        &mut self,
        command: Option<Command<H>>,
        units: &Arc<LogicalUnits>,
        mut waiting: Waiting,
        now: Instant,
    ) {
        waiting.wake(&self.completions);
        // What it waits for may have ended before that: the next turn looks.
        self.completions.wake();
        self.held.push_back(Held::new(command, Arc::clone(units), waiting));
        self.look_at.get_or_insert(now + SLOW);
    }

    /// Tries the commands that waited for another one, and those that found no memory.
    pub fn retry(&mut self, now: Instant) {
        for _ in 0..self.held.len() {
            let Some(Held { command, units, mut waiting, .. }) = self.held.pop_front() else { break };
            waiting.wake(&self.completions);
            match units.retry(waiting, &self.memory) {
                Progress::Wait(waiting) => self.held.push_back(Held::new(command, units, waiting)),
                progress => self.go_on(command, &units, progress, now),
            }
        }
        self.feed_starved(now);
    }
}
