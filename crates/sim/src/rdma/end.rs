//! One end of a connection, for its owner.

use std::ops::Range;

use sanwire_buffer::Frame;
use sanwire_iser::{Counts, QueuePair};
use sanwire_iwarp::{Event, Memory, Order, Refusal, Refused, Registration, Stag, WorkId};

use super::Cable;
use super::completions::Completion;
use super::side::{Phase, Post, Reading, Receives, Side, Window, Word};

/// Where windows lie, as the other end calls it.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;
const ADDRESSES_OF_WINDOW: u64 = 1 << 32;

/// The most data of a packet between adapters in memory, as they say: there are no packets.
pub const PATH_MTU_BYTES: u32 = 4096;

/// One end of a connection by adapters in memory.
pub struct End {
    cable: Cable,
    of: usize,
}

impl End {
    pub(super) fn new(cable: Cable, of: usize) -> Self {
        End { cable, of }
    }

    fn on<T>(&self, act: impl FnOnce(&mut Side) -> T) -> T {
        self.cable.with(|state| act(&mut state.sides[self.of]))
    }

    fn answer(&self, word: Word) -> Result<(), Refusal> {
        self.on(|side| {
            if side.phase != Phase::Deciding || !side.words.is_empty() {
                return Err(Refusal::NotConnected);
            }
            side.words.push_back(word);
            Ok(())
        })
    }
}

impl QueuePair for End {
    fn poll_event(&mut self) -> Option<Event> {
        self.cable.with(|state| {
            loop {
                let side = &mut state.sides[self.of];
                let event = match side.completions.pop()? {
                    Completion::Sent(last, orders) => {
                        side.under_way -= orders.len();
                        return Some(Event::Sent(last));
                    }
                    Completion::Event(event) => event,
                };
                match &event {
                    Event::ReadDone { .. } => {
                        side.under_way -= 1;
                        side.reads_under_way -= 1;
                    }
                    Event::Connected(_) => side.is_established = side.phase == Phase::Open,
                    Event::Message(_) if !state.may_have_message(self.of) => continue,
                    _ => {}
                }
                return Some(event);
            }
        })
    }

    fn accept(&mut self, private_data: &[u8]) -> Result<(), Refusal> {
        self.answer(Word::Accept(private_data.to_vec()))
    }

    fn reject(&mut self, private_data: &[u8]) -> Result<(), Refusal> {
        self.answer(Word::Reject(private_data.to_vec()))
    }

    #[expect(clippy::result_large_err, reason = "the order itself comes back, as the trait says")]
    fn order(&mut self, order: Order, id: Option<WorkId>) -> Result<(), Refused<Order>> {
        self.on(|side| {
            let invalidates = matches!(&order, Order::Send { kind, .. } if kind.invalidate.is_some());
            let refusal = if !side.is_established {
                Refusal::NotConnected
            } else if invalidates && !side.plan.invalidates || id.is_none() {
                Refusal::Range
            } else if side.under_way >= side.plan.queue_max {
                Refusal::Full
            } else {
                side.under_way += 1;
                let bound: Vec<Stag> = side.unbound().collect();
                side.windows.values_mut().for_each(|window| window.is_unbound = false);
                side.queue.push_back(Post::Order(order, id.unwrap_or(WorkId(0)), bound));
                return Ok(());
            };
            Err(Refused { refusal, given: order })
        })
    }

    fn read(
        &mut self,
        id: WorkId,
        frame: Frame,
        part: Range<usize>,
        stag: Stag,
        address: u64,
    ) -> Result<(), Refused<Frame>> {
        self.on(|side| {
            let fits = part.start <= part.end && part.end <= frame.len();
            let refusal = if !side.is_established {
                Refusal::NotConnected
            } else if side.reads_max == 0 {
                Refusal::NoReads
            } else if !fits || address.checked_add(part.len() as u64).is_none() {
                Refusal::Range
            } else if side.under_way >= side.plan.queue_max || side.reads_under_way >= side.reads_max.into() {
                Refusal::Full
            } else {
                side.under_way += 1;
                side.reads_under_way += 1;
                side.queue.push_back(Post::Read(Reading { id, frame, part, stag, address }));
                return Ok(());
            };
            Err(Refused { refusal, given: frame })
        })
    }

    fn limit_reads(&mut self, at_a_time: u16) {
        self.on(|side| side.reads_max = side.reads_max.min(at_a_time));
    }

    fn register(&mut self, registration: Registration) -> Result<(Stag, u64), Refused<Registration>> {
        self.on(|side| {
            let (start, end) = (registration.range.start, registration.range.end);
            let fits = start < end && end <= registration.memory.length_bytes();
            let is_writable = matches!(registration.memory, Memory::Frame(_)) || !registration.rights.remote_write;
            let refusal = if side.phase == Phase::Ended {
                Refusal::NotConnected
            } else if !fits || !is_writable {
                Refusal::Range
            } else if side.windows.len() >= side.plan.windows_max
                || side.unbound().count() >= side.plan.queue_max.max(2)
            {
                Refusal::Full
            } else {
                side.registered_ever += 1;
                let stag = side.next_key();
                let address = FIRST_ADDRESS + side.registered_ever * ADDRESSES_OF_WINDOW + start as u64;
                let is_unbound = side.plan.has_memory_windows;
                let window = Window { registration, address, is_valid: !is_unbound, is_unbound, is_ended: false };
                side.windows.insert(stag, window);
                return Ok((stag, address));
            };
            Err(Refused { refusal, given: registration })
        })
    }

    fn deregister(&mut self, stag: Stag) -> Option<Memory> {
        self.on(|side| side.close(stag))
    }

    fn expect_messages(&mut self, count: usize, longest_bytes: usize) {
        self.on(|side| match &mut side.receives {
            Receives::Own(posted) if posted.len() < count => posted.resize(count, longest_bytes),
            Receives::Own(_) => {}
            Receives::Shared(left, bytes) => (*left, *bytes) = ((*left).max(count), longest_bytes),
        });
    }

    fn disconnect(&mut self) {
        self.cable.with(|state| state.part(self.of));
    }

    fn is_established(&self) -> bool {
        self.on(|side| side.is_established)
    }

    fn invalidates(&self) -> bool {
        self.on(|side| side.plan.invalidates)
    }

    fn trouble(&self) -> Option<String> {
        self.on(|side| side.trouble.map(str::to_owned))
    }

    fn adapter(&self) -> Option<String> {
        let way = self.on(|side| match (side.shares(), side.plan.has_memory_windows) {
            (true, _) => ", shared receives",
            (false, true) => ", memory windows",
            (false, false) => "",
        });
        Some(format!("memory0 (RDMA in memory{way})"))
    }

    fn counts(&self) -> Counts {
        self.on(|side| Counts {
            moved_bytes: side.moved_bytes,
            copied_bytes: 0,
            registered: side.windows.len() as u64,
            registered_ever: side.registered_ever,
            receives: side.receives.len() as u64,
            segment_bytes: side.is_established.then_some(PATH_MTU_BYTES),
        })
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let given = self.cable.with(|state| {
            state.part(self.of);
            state.give_back_receives(self.of);
            let side = &mut state.sides[self.of];
            // Only now nothing touches it any more.
            (
                std::mem::take(&mut side.kept),
                std::mem::take(&mut side.kept_untold),
                std::mem::take(&mut side.windows),
                std::mem::take(&mut side.completions),
            )
        });
        drop(given);
    }
}
