//! ShardMessage between the shards of a simulated server: it comes in the order in which it was sent, and takes a while.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use sanwire_core::Instant;
use sanwire_engine::{AbortBarrier, Selection};

use crate::random::Random;

/// Something for a shard. `W` is who has wanted tasks ended.
pub enum ShardMessage<H, W> {
    /// End tasks.
    Abort(Selection<H>, Arc<AbortBarrier>),
    /// What this one wanted ended has ended in all shards.
    BarrierPassed(W),
}

/// All mailboxes of a server.
pub struct Post<H, W> {
    /// What is on its way to each shard, and when it comes.
    boxes: Vec<VecDeque<(Instant, ShardMessage<H, W>)>>,
    passed: Receiver<(usize, W)>,
    pass: Sender<(usize, W)>,
    longest: Duration,
    random: Random,
}

impl<H: Clone, W: Send + Sync + 'static> Post<H, W> {
    /// The mail of so many shards, each taking so long at the most.
    #[must_use]
    pub fn new(shards: usize, longest: Duration, random: Random) -> Self {
        let (pass, passed) = mpsc::channel();
        let boxes = (0..shards).map(|_| VecDeque::new()).collect();
        Post { boxes, passed, pass, longest, random }
    }

    /// A barrier whose passing is told to a shard.
    #[must_use]
    pub fn barrier(&self, home: usize, wanted: W) -> Arc<AbortBarrier> {
        let pass = self.pass.clone();
        AbortBarrier::new(move || {
            // A server that is killed reads no mail.
            let _ = pass.send((home, wanted));
        })
    }

    /// Has all other shards end tasks.
    pub fn abort_elsewhere(
        &mut self,
        home: usize,
        selection: &Selection<H>,
        barrier: &Arc<AbortBarrier>,
        now: Instant,
    ) {
        for shard in (0..self.boxes.len()).filter(|shard| *shard != home) {
            self.send(shard, ShardMessage::Abort(selection.clone(), Arc::clone(barrier)), now);
        }
    }

    fn send(&mut self, shard: usize, mail: ShardMessage<H, W>, now: Instant) {
        let at = now + self.random.micros(0..=self.longest.as_micros() as u64);
        let last = self.boxes[shard].back().map_or(at, |(last, _)| *last);
        self.boxes[shard].push_back((at.max(last), mail));
    }

    /// Sends word of the barriers that were passed since the last time.
    pub fn collect(&mut self, now: Instant) {
        while let Ok((home, wanted)) = self.passed.try_recv() {
            self.send(home, ShardMessage::BarrierPassed(wanted), now);
        }
    }

    /// When the next mail comes.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        self.boxes.iter().filter_map(|mail| mail.front()).map(|(at, _)| *at).min()
    }

    /// The mail that has come by now, one after the other, each with its shard.
    pub fn take(&mut self, now: Instant) -> Option<(usize, ShardMessage<H, W>)> {
        let mut boxes = self.boxes.iter_mut().enumerate();
        boxes.find_map(|(shard, mail)| Some((shard, mail.pop_front_if(|(at, _)| *at <= now)?.1)))
    }

    /// Whether none is on its way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.boxes.iter().all(VecDeque::is_empty)
    }
}

impl<H, W> fmt::Debug for Post<H, W> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "mail for shards: {:?}", self.boxes.iter().map(VecDeque::len).collect::<Vec<_>>())
    }
}
