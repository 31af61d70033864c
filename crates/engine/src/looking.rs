//! What there is to see of an engine for who measures it.

use std::time::Duration;

use sanwire_core::Instant;

use crate::engine::{Command, Engine, Handle};
use crate::meter::{Operation, Place};

/// A command under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnderWay<H> {
    /// Which.
    pub handle: H,
    /// What it does.
    pub operation: Operation,
    /// Where; `None` when its block does not say it.
    pub place: Option<Place>,
    /// How long ago it arrived.
    pub age: Duration,
    /// For what it waits.
    pub waits_for: WaitsFor,
}

/// For what a command waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitsFor {
    /// Its store works for it.
    Store,
    /// Its store is full or gone, and is asked again.
    Space,
    /// Others use its blocks, or must end before it.
    Others,
    /// All memory is used.
    Memory,
    /// The end of the commands that it aborts.
    Aborts,
    /// More of its data, or that its initiator takes some.
    Data,
    /// That its client is resumed.
    Resume,
}

impl<H: Handle> Engine<H> {
    /// The oldest commands under way for the volume in this slot, `max` of them at the most.
    #[must_use]
    pub fn oldest_under_way(&self, slot: u16, now: Instant, max: usize) -> Vec<UnderWay<H>> {
        let is_stalled = |tag: usize| self.stalled.iter().any(|(_, stalled)| *stalled as usize == tag);
        let running = self.running.iter().enumerate().filter_map(|(tag, running)| {
            let command = running.as_ref()?.command.as_ref()?;
            Some((command, tag))
        });
        let running = running.map(|(command, tag)| (command, WaitsFor::Store, Some(tag)));
        let waiting = |waits_for| move |command| (command, waits_for, None);
        let held = self.held.iter().filter_map(|held| held.command.as_ref()).map(waiting(WaitsFor::Others));
        let at_barrier = self.at_barrier.values().filter_map(|waiting| waiting.command.as_ref());
        let between = self.between.iter().map(|between| &between.command).map(waiting(WaitsFor::Data));
        let starved = self.starvation.handles().map(waiting(WaitsFor::Memory));
        let paused = self.paused.commands().map(waiting(WaitsFor::Resume));
        let all = running.chain(held).chain(at_barrier.map(waiting(WaitsFor::Aborts))).chain(between);
        let all = all.chain(starved).chain(paused);
        let mut found: Vec<(&Command<H>, WaitsFor, Option<usize>)> =
            all.filter(|(command, ..)| command.meter.slot() == slot).collect();
        found.sort_by_key(|(command, ..)| command.meter.begun_at);
        found.truncate(max);
        let told = found.into_iter().map(|(Command { handle, meter }, waits_for, tag)| UnderWay {
            handle: *handle,
            operation: meter.operation(),
            place: meter.place(),
            age: now.saturating_since(meter.begun_at),
            waits_for: if tag.is_some_and(is_stalled) { WaitsFor::Space } else { waits_for },
        });
        told.collect()
    }

    /// Which volumes the commands under way are for, by their slots ([`Meter::slot`]), one for each command.
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
