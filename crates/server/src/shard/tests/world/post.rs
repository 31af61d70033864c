//! The mail between the threads of a server: it takes a while, and comes to each shard in the order in which it was sent.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::Instant;
use sanwire_io::Waker;
use sanwire_sim::random::Random;

use super::{Outcome, told};
use crate::messages::{Mailbox, ShardMessage};
use crate::server::ShardPlace;

pub(super) struct Post {
    lanes: Vec<Lane>,
    delay_max: Duration,
    random: Random,
}

/// The way to one shard.
struct Lane {
    /// Rung for all that is sent, and by whoever only wakes the shard.
    bell: Waker,
    sent: Receiver<ShardMessage>,
    underway: VecDeque<(Instant, ShardMessage)>,
    door: Mailbox,
}

impl Post {
    pub(super) fn new(delay_max: Duration, random: Random) -> Self {
        Post { lanes: Vec::new(), delay_max, random }
    }

    /// A place for one more shard.
    pub(super) fn place(&mut self, memory: Region) -> Outcome<ShardPlace> {
        // Nobody sleeps on the first one.
        let bell = Waker::new().map_err(told)?;
        let (mailbox, sent) = Mailbox::new(bell.clone());
        let waker = Waker::new().map_err(told)?;
        let (door, mail) = Mailbox::new(waker.clone());
        self.lanes.push(Lane { bell, sent, underway: VecDeque::new(), door });
        Ok(ShardPlace { memory, waker, mailbox, mail })
    }

    /// Takes what was sent, and delivers what has had its time; whether there was anything.
    pub(super) fn carry(&mut self, now: Instant) -> bool {
        let mut is_moving = false;
        for Lane { bell, sent, underway, door } in &mut self.lanes {
            let is_rung = !bell.prepare_to_sleep();
            bell.drain();
            let mut is_mail = false;
            while let Ok(message) = sent.try_recv() {
                let at = now + self.random.micros(0..=self.delay_max.as_micros() as u64);
                let at = underway.back().map_or(at, |(last, _)| at.max(*last));
                underway.push_back((at, message));
                (is_moving, is_mail) = (true, true);
            }
            if is_rung && !is_mail {
                door.wake();
                is_moving = true;
            }
            while let Some((_, message)) = underway.pop_front_if(|(at, _)| *at <= now) {
                door.send(message);
                is_moving = true;
            }
        }
        is_moving
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.lanes.iter().filter_map(|lane| lane.underway.front()).map(|(at, _)| *at).min()
    }
}
