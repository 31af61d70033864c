//! Whether the shards turn, for a watchdog.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::messages::{Mailbox, ShardMessage};
use crate::server::Server;

/// The way to ask the shards of a server whether they turn. It does not keep the server.
#[derive(Clone)]
pub struct Pulse(Arc<[Mailbox]>);

impl Pulse {
    pub(crate) fn new(shards: Arc<[Mailbox]>) -> Self {
        Pulse(shards)
    }

    /// Whether every shard has read its mail within this time.
    #[must_use]
    pub fn beats(&self, within: Duration) -> bool {
        let (sender, heard) = mpsc::channel();
        self.0.iter().for_each(|shard| shard.send(ShardMessage::Turn(sender.clone())));
        drop(sender);
        let end = Instant::now() + within;
        self.0.iter().all(|_| heard.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok())
    }
}

impl Server {
    /// The way to ask the shards whether they turn.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        Pulse::new(self.mailboxes())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;
    use std::thread;

    use sanwire_io::Waker;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(10);

    fn turn(mail: Receiver<ShardMessage>) {
        thread::spawn(move || {
            for message in mail {
                if let ShardMessage::Turn(answer) = message {
                    // Who has asked may have lost patience.
                    let _ = answer.send(());
                }
            }
        });
    }

    #[test]
    fn one_shard_that_hangs_or_has_ended_is_enough() {
        let shard = || Mailbox::new(Waker::new().unwrap());
        let ((first, turning), (second, other)) = (shard(), shard());
        turn(turning);
        let pulse = Pulse::new([first, second].into());
        assert!(!pulse.beats(SHORT), "the second one reads nothing");
        turn(other);
        assert!(pulse.beats(LONG));
        let (third, ended) = shard();
        drop(ended);
        assert!(!Pulse::new([third].into()).beats(LONG), "it has ended");
    }
}
