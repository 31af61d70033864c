//! This host's own addresses, for those who ask often: the kernel is asked once in a while only.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sanwire_core::Peer;

use super::{Interface, is_among, is_loopback, list};

/// How long what the kernel has said is believed.
const BELIEVED_FOR: Duration = Duration::from_secs(1);

type List = Box<dyn Fn() -> io::Result<Vec<Interface>> + Send + Sync>;

/// The addresses of this host as they were within the last second. Shared by threads: one of them asks the kernel, which may take
/// a while, and the others go on with what was known.
pub struct LocalAddresses {
    list: List,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    interfaces: Arc<Vec<Interface>>,
    asked_at: Option<Instant>,
}

impl LocalAddresses {
    /// Those of the network namespace of whoever asks first, and then of whoever asks when they have become old.
    #[must_use]
    pub fn new() -> Self {
        LocalAddresses::of(Box::new(list))
    }

    fn of(list: List) -> Self {
        LocalAddresses { list, known: Mutex::default() }
    }

    /// Whether the peer is this very host: one of its IP addresses or of its interfaces' hardware addresses. While the kernel does
    /// not say, only the loopback is.
    #[must_use]
    pub fn contains(&self, peer: Peer) -> bool {
        is_loopback(peer) || is_among(peer, &self.interfaces(Instant::now()))
    }

    fn interfaces(&self, now: Instant) -> Arc<Vec<Interface>> {
        let mut known = self.lock();
        if known.asked_at.is_some_and(|at| now.saturating_duration_since(at) < BELIEVED_FOR) {
            return Arc::clone(&known.interfaces);
        }
        let is_first = known.asked_at.is_none();
        known.asked_at = Some(now);
        // The others wait for the first answer only: before it there is none to go on with.
        let held = is_first.then_some(known);
        let interfaces = Arc::new((self.list)().unwrap_or_default());
        let mut known = held.unwrap_or_else(|| self.lock());
        known.interfaces = Arc::clone(&interfaces);
        interfaces
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for LocalAddresses {
    fn default() -> Self {
        LocalAddresses::new()
    }
}

impl fmt::Debug for LocalAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalAddresses")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use sanwire_core::MacAddress;

    use super::*;

    #[test]
    fn the_kernel_is_asked_once_in_a_second_however_many_ask() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let local = LocalAddresses::of(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(list()?
                .into_iter()
                .map(|interface| Interface { index: count.load(Ordering::Relaxed), ..interface })
                .collect())
        }));
        let begun = Instant::now();
        let mut seen = 0;
        for number in 0..30_000 {
            let interfaces = local.interfaces(begun + Duration::from_micros(100) * number);
            seen = interfaces.first().map_or(0, |interface| interface.index);
        }
        assert_eq!((asked.load(Ordering::Relaxed), seen), (3, 3));
    }

    #[test]
    fn what_the_kernel_does_not_say_is_not_local_but_the_loopback_is() {
        let local = LocalAddresses::of(Box::new(|| Err(io::ErrorKind::Other.into())));
        assert!(local.contains(Peer::Udp(([127, 0, 0, 1], 1).into())));
        assert!(!local.contains(Peer::Ethernet(MacAddress([0; 6]))));
        let local = LocalAddresses::new();
        assert!(local.contains(Peer::Ethernet(MacAddress([0; 6]))), "that of the loopback");
        assert!(!local.contains(Peer::Udp(([192, 0, 2, 1], 1).into())));
    }
}
