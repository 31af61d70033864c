//! What there is to see of an engine for who measures it.

use crate::engine::{Engine, Handle};

impl<H: Handle> Engine<H> {
    /// Which volumes the commands are for that have come and are not over, by their slots ([`Meter::slot`]), one for each command.
    pub fn slots_under_way(&self) -> impl Iterator<Item = u16> {
        let running = self.running.iter().flatten().filter_map(|running| running.command.as_ref());
        let held = self.held.iter().filter_map(|held| held.command.as_ref());
        let at_barrier = self.at_barrier.values().filter_map(|waiting| waiting.command.as_ref());
        let between = self.between.iter().map(|between| &between.command);
        let begun = running.chain(held).chain(at_barrier).chain(between);
        begun.chain(self.starvation.handles()).chain(self.paused.commands()).map(|command| command.meter.slot())
    }

    /// The bytes of the memory that are used, and those that are free.
    #[must_use]
    pub fn memory_bytes(&self) -> (u64, u64) {
        let (all, free) = (self.memory.length_bytes() as u64, self.memory.free_bytes() as u64);
        (all.saturating_sub(free), free)
    }
}
