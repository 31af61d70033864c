//! Who asks and is not allowed: they get no answer (HyperSCSI 6.2), and the administrator one line a minute for each of them.

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_core::{ClientId, Instant, Path};

/// Senders that are told apart; of others only the first is told of, while there are as many.
const SENDERS_MAX: usize = 64;

/// What comes within this after the first packet is told with it.
const FIRST: Duration = Duration::from_secs(1);

/// A sender is told of so often.
const INTERVAL: Duration = Duration::from_secs(60);

/// One that is not allowed.
struct Stranger {
    /// Where the first of these packets came from.
    path: Path,
    /// As whom it came then.
    client: ClientId,
    packets: u64,
    tell_at: Instant,
}

/// Those of the last minute, in the order in which they are told of or forgotten.
#[derive(Default)]
pub struct Strangers(VecDeque<Stranger>);

impl Strangers {
    /// A packet of somebody who is not allowed has come.
    pub fn note(&mut self, path: Path, client: ClientId, now: Instant) {
        let source = path.peer.source();
        if let Some(known) = self.0.iter_mut().find(|known| known.path.peer.source() == source) {
            known.packets += 1;
        } else if self.0.len() < SENDERS_MAX {
            let stranger = Stranger { path, client, packets: 1, tell_at: now + FIRST };
            // The others wait for a minute, most of them.
            let at = self.0.partition_point(|other| other.tell_at <= stranger.tell_at);
            self.0.insert(at, stranger);
        }
    }

    /// One to tell of; it is kept for a minute, and told of again if it goes on.
    pub fn poll(&mut self, now: Instant) -> Option<(Path, ClientId, u64)> {
        while let Some(mut stranger) = self.0.pop_front_if(|stranger| stranger.tell_at <= now) {
            let told = (stranger.path, stranger.client, std::mem::take(&mut stranger.packets));
            if told.2 > 0 {
                stranger.tell_at = now + INTERVAL;
                self.0.push_back(stranger);
                return Some(told);
            }
        }
        None
    }

    /// When there is one to tell of, or to forget.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.0.front().map(|stranger| stranger.tell_at)
    }
}

#[cfg(test)]
mod tests {
    use sanwire_core::{LinkId, Peer};

    use super::*;

    const CLIENT: ClientId = ClientId([7; 16]);

    fn path(host: u32) -> Path {
        let [_, a, b, c] = host.to_be_bytes();
        Path { link: LinkId(0), peer: Peer::Udp(([10, a, b, c], 5674).into()) }
    }

    #[test]
    fn who_is_not_allowed_is_told_of_once_a_minute() {
        let (mut strangers, mut now) = (Strangers::default(), Instant::ZERO);
        let mut told = Vec::new();
        for _ in 0..150 {
            strangers.note(path(1), CLIENT, now);
            now += Duration::from_secs(1);
            told.extend(strangers.poll(now));
        }
        assert_eq!(told, [(path(1), CLIENT, 1), (path(1), CLIENT, 60), (path(1), CLIENT, 60)]);
        now += INTERVAL;
        assert_eq!(strangers.poll(now).map(|told| told.2), Some(29));
        now += INTERVAL;
        assert_eq!((strangers.poll(now), strangers.0.len()), (None, 0), "who asks no more is forgotten");
    }

    #[test]
    fn a_flood_of_senders_is_bounded() {
        let mut strangers = Strangers::default();
        (0..10_000).for_each(|host| strangers.note(path(host), CLIENT, Instant::ZERO));
        assert_eq!(strangers.0.len(), SENDERS_MAX);
        let now = Instant::ZERO + FIRST;
        assert_eq!(std::iter::from_fn(|| strangers.poll(now)).count(), SENDERS_MAX);
    }
}
