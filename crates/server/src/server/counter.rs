//! What the shards of a running server have counted.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::counting::{CommandUnderWay, Counted};
use crate::messages::{Mailbox, ShardMessage};

/// How long shards may take to tell what they have counted.
const COUNT_TIMEOUT: Duration = Duration::from_secs(2);

/// The way to what the shards have counted.
pub(crate) struct Counter(Arc<[Mailbox]>);

impl Counter {
    pub(super) fn of(shards: Arc<[Mailbox]>) -> Counter {
        Counter(shards)
    }

    /// What the shards have counted; a shard that does not answer is left out.
    pub(crate) fn count(&self) -> Vec<Counted> {
        self.ask(ShardMessage::Count)
    }

    /// The commands for the volume in this slot that have been under way for longest, so many of each shard at the most.
    pub(crate) fn commands(&self, slot: u16, max: usize) -> Vec<CommandUnderWay> {
        self.ask(|answer| ShardMessage::Commands(slot, max, answer)).into_iter().flatten().collect()
    }

    fn ask<T>(&self, question: impl Fn(mpsc::Sender<T>) -> ShardMessage) -> Vec<T> {
        let (sender, counted) = mpsc::channel();
        self.0.iter().for_each(|shard| shard.send(question(sender.clone())));
        drop(sender);
        let end = Instant::now() + COUNT_TIMEOUT;
        let next = || counted.recv_timeout(end.saturating_duration_since(Instant::now())).ok();
        std::iter::from_fn(next).take(self.0.len()).collect()
    }
}
