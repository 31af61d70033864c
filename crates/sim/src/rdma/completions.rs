//! What an adapter has to tell.

use std::collections::VecDeque;

use sanwire_iwarp::{Event, Order, WorkId};

use crate::random::Random;

/// Something to tell.
pub(super) enum Completion {
    /// These orders are done, of which this is the last one. Their data is theirs as long.
    Sent(WorkId, Vec<Order>),
    /// Anything else.
    Event(Event),
}

impl Completion {
    pub(super) fn is_message(&self) -> bool {
        matches!(self, Completion::Event(Event::Message(_)))
    }
}

/// All of it, in its order.
#[derive(Default)]
pub(super) struct Completions {
    /// What has happened, and is not told yet.
    hidden: VecDeque<Completion>,
    visible: VecDeque<Completion>,
}

impl Completions {
    pub(super) fn push(&mut self, event: Event) {
        self.hidden.push_back(Completion::Event(event));
    }

    /// An order is done. One completion may tell of several.
    pub(super) fn push_sent(&mut self, id: WorkId, order: Order) {
        match self.hidden.back_mut() {
            Some(Completion::Sent(last, orders)) => {
                *last = id;
                orders.push(order);
            }
            _ => self.hidden.push_back(Completion::Sent(id, vec![order])),
        }
    }

    pub(super) fn has_hidden(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Some of what has happened can be told.
    pub(super) fn show(&mut self, random: &mut Random) {
        let most = self.hidden.len() as u64;
        let count = if random.chance(500_000) { most } else { random.range(1..=most) };
        self.visible.extend(self.hidden.drain(..count as usize));
    }

    /// Of what has happened something is never told.
    pub(super) fn lose_some(&mut self, random: &mut Random) -> Vec<Completion> {
        let kept = random.range(0..=self.hidden.len() as u64) as usize;
        self.hidden.drain(kept..).collect()
    }

    /// Messages that nobody was told of, or looks at, are gone. Gives how many they were.
    pub(super) fn drop_messages(&mut self) -> usize {
        let before = self.hidden.len() + self.visible.len();
        let is_other = |completion: &Completion| !completion.is_message();
        self.hidden.retain(is_other);
        self.visible.retain(is_other);
        before - self.hidden.len() - self.visible.len()
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.visible.is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<Completion> {
        self.visible.pop_front()
    }
}
