//! The order of commands over all connections of a session (RFC 7143 4.2.2.1).

use std::collections::VecDeque;

use sanwire_core::quota::{Account, ISCSI_COMMANDS_OF_SESSION, ISCSI_EARLY_BYTES, Usage};

use crate::ConnectionId;
use crate::receiver::Pdu;
use crate::serial::Serial;

/// The window of command numbers, and what has arrived before its turn.
pub(super) struct Order {
    /// The next number to be executed (ExpCmdSN).
    expected: Serial,
    /// The highest number that may come (MaxCmdSN). It never falls: each number that is settled opens it by one.
    max: Serial,
    /// What waits for its turn: the first place is that of `expected`.
    held: VecDeque<Option<Held>>,
    /// Nothing below this number is executed for now.
    held_below: Option<Serial>,
    /// Numbers that have arrived and are not settled.
    commands: Account,
    /// What is held outside the memory for data.
    early_data: Account,
}

/// A number that arrived.
pub(super) enum Held {
    /// With a request, from this connection.
    Request(ConnectionId, Pdu),
    /// It was aborted before it came: it counts as received, and nothing is executed.
    Void,
}

/// What is to be done with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// Its turn is now.
    Now,
    /// Others come first.
    Later,
    /// It is outside the window, or there already: silently ignored.
    Never,
}

impl Order {
    /// The window opens with this number.
    pub(super) fn new(first: Serial, commands_max: u32) -> Self {
        let commands_max = commands_max.max(1);
        Order {
            expected: first,
            max: first.plus(commands_max - 1),
            held: VecDeque::new(),
            held_below: None,
            commands: Account::within(&ISCSI_COMMANDS_OF_SESSION, commands_max.into()),
            early_data: Account::new(&ISCSI_EARLY_BYTES),
        }
    }

    /// How the quotas of commands, and of what is held, are used.
    pub(super) fn usages(&self) -> [Usage; 2] {
        [self.commands.usage(), self.early_data.usage()]
    }

    pub(super) fn expected(&self) -> Serial {
        self.expected
    }

    pub(super) fn max(&self) -> Serial {
        self.max
    }

    /// Whether a request with this number has its turn.
    pub(super) fn turn(&mut self, number: Serial) -> Turn {
        let Ok(at) = usize::try_from(number.since(self.expected)) else { return Turn::Never };
        if !self.commands.admits(self.under_way(), at as u64 + 1) {
            return Turn::Never;
        }
        match self.held.get(at) {
            Some(Some(_)) => Turn::Never,
            _ if at == 0 && !self.is_held_back() => Turn::Now,
            _ => Turn::Later,
        }
    }

    /// Whether an immediate command may begin beside so many commands: as many as the window has room for may be under way besides.
    pub(super) fn admits_immediate(&mut self, under_way: usize) -> bool {
        let besides = (under_way as u64).saturating_sub(self.commands.usage().limit);
        self.commands.admits(besides, 1)
    }

    /// Whether this number is in the window.
    pub(super) fn is_open(&self, number: Serial) -> bool {
        self.place(number).is_some()
    }

    /// Keeps what has arrived before its turn; `false` if that place is not free or not in the window. Of text and pings the data is
    /// dropped when there is too much of it.
    pub(super) fn hold(&mut self, number: Serial, mut held: Held) -> bool {
        let Some(at) = self.place(number) else { return false };
        let (before, more) = (self.early_bytes(), early_bytes(&held));
        if let Held::Request(_, pdu) = &mut held
            && more > 0
            && !self.early_data.admits(before, more)
        {
            pdu.data = None;
        }
        if self.held.len() <= at {
            self.held.resize_with(at + 1, || None);
        }
        let is_free = self.held[at].is_none();
        if is_free {
            self.held[at] = Some(held);
        }
        is_free
    }

    /// The expected number has arrived and is executed now.
    pub(super) fn advance(&mut self) {
        self.held.pop_front();
        self.expected = self.expected.next();
    }

    /// A number is settled: another one may come.
    pub(super) fn release(&mut self) {
        self.max = self.max.next();
    }

    /// What was held and has its turn now; the number counts as come.
    pub(super) fn next_held(&mut self) -> Option<Held> {
        if self.is_held_back() {
            return None;
        }
        let held = self.held.front_mut()?.take()?;
        self.advance();
        Some(held)
    }

    /// Nothing with a lower number is executed from now on; `None`: all in their turn.
    pub(super) fn hold_below(&mut self, end: Option<Serial>) {
        self.held_below = end;
    }

    fn is_held_back(&self) -> bool {
        self.held_below.is_some_and(|end| self.expected < end)
    }

    /// Numbers up to this one count as come, and nothing is executed for them.
    pub(super) fn void_below(&mut self, end: Serial) {
        let mut number = self.expected;
        while number < end && self.void(number) {
            number = number.next();
        }
    }

    /// A number counts as come, and nothing is executed for it; `false` if it is not in the window.
    fn void(&mut self, number: Serial) -> bool {
        let Some(at) = self.place(number) else { return false };
        if self.held.len() <= at {
            self.held.resize_with(at + 1, || None);
        }
        self.held[at] = Some(Held::Void);
        true
    }

    /// The task with this tag and number is aborted before its turn, or before it arrives; `false` if another one arrived under it.
    pub(super) fn abort(&mut self, tag: u32, number: Serial) -> bool {
        let found = self.place(number).and_then(|at| self.held.get(at)?.as_ref());
        let is_it = match found {
            None => true,
            Some(Held::Request(_, pdu)) => pdu.header.task_tag() == tag,
            Some(Held::Void) => false,
        };
        is_it && self.void(number)
    }

    /// What is held and waits for numbers that the initiator has not sent.
    pub(super) fn early(&self) -> impl Iterator<Item = &Held> {
        self.held().filter(|_| !self.is_held_back())
    }

    /// The requests that are held.
    pub(super) fn held(&self) -> impl Iterator<Item = &Held> {
        self.held.iter().flatten()
    }

    /// Forgets what is held and satisfies this: its number has not come. (The initiator sends it again.)
    pub(super) fn forget(&mut self, is_meant: impl Fn(&Held) -> bool) {
        for place in &mut self.held {
            if place.as_ref().is_some_and(&is_meant) {
                *place = None;
            }
        }
    }

    fn place(&self, number: Serial) -> Option<usize> {
        let is_inside = number >= self.expected && number <= self.max;
        if is_inside { usize::try_from(number.since(self.expected)).ok() } else { None }
    }

    /// Numbers that have arrived in their turn and are not settled.
    fn under_way(&self) -> u64 {
        let free = u64::try_from(self.max.next().since(self.expected)).unwrap_or_default();
        self.commands.usage().limit.saturating_sub(free)
    }

    fn early_bytes(&self) -> u64 {
        self.held().map(early_bytes).sum()
    }
}

fn early_bytes(held: &Held) -> u64 {
    match held {
        Held::Request(_, Pdu { data: Some(data), .. }) if data.region().is_none() => data.len() as u64,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_closes_with_what_is_under_way_and_opens_with_what_ends() {
        let mut order = Order::new(Serial(0xffff_fffe), 4);
        assert_eq!(order.max(), Serial(1));
        for _ in 0..4 {
            assert_eq!(order.turn(order.expected()), Turn::Now);
            order.advance();
        }
        assert_eq!(order.turn(Serial(2)), Turn::Never, "closed");
        order.release();
        assert_eq!((order.turn(Serial(2)), order.turn(Serial(1))), (Turn::Now, Turn::Never));
    }

    #[test]
    fn what_comes_early_waits_for_its_turn() {
        let mut order = Order::new(Serial(10), 8);
        assert!(order.hold(Serial(12), Held::Void) && !order.hold(Serial(12), Held::Void));
        assert!(order.hold(Serial(11), Held::Void) && !order.hold(Serial(18), Held::Void));
        assert_eq!((order.turn(Serial(11)), order.turn(Serial(13))), (Turn::Never, Turn::Later));
        assert!(order.next_held().is_none());
        order.advance();
        assert!(order.next_held().is_some() && order.next_held().is_some() && order.next_held().is_none());
        assert_eq!(order.expected(), Serial(13));
    }
}
