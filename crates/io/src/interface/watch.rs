//! This host's interfaces for those who ask often, or must not wait: a thread of its own looks at them, when the kernel says that
//! something has changed. The look takes long where there are many, or while somebody else changes them.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, sockaddr_nl, socklen_t};
use sanwire_core::Peer;

use super::{Interface, is_among, is_loopback, list};
use crate::sys;
use crate::waker::{Waker, WeakWaker};

/// What changes one after the other is looked at once; while it goes on, the looks take a twentieth of the time at the most.
const SETTLE: Duration = Duration::from_millis(100);
const REST: u32 = 20;

/// After a look that has failed, and between two of them where the kernel does not tell of changes.
const RETRY_EVERY: Duration = Duration::from_secs(2);

/// Changes that are read before the next look.
const NEWS_MAX: usize = 1000;

/// What a thread does to see the interfaces.
type List = Box<dyn Fn() -> io::Result<Vec<Interface>> + Send + Sync>;

/// The interfaces as they were a moment ago.
pub struct Watch {
    seen: Arc<Seen>,
    /// Without a thread each caller looks for itself.
    look: Option<List>,
}

/// What the last look has shown, and who is woken when the next one shows something else.
#[derive(Default)]
struct Seen {
    known: Mutex<Option<Arc<Vec<Interface>>>>,
    wakers: Mutex<Vec<WeakWaker>>,
}

/// The watch of this process, over the network namespace of the thread that asks first.
pub fn watch() -> &'static Watch {
    static WATCH: OnceLock<Watch> = OnceLock::new();
    WATCH.get_or_init(|| Watch::begin(Box::new(list), News::open()))
}

impl Watch {
    /// The first look is the caller's.
    fn begin(list: List, mut news: News) -> Watch {
        let seen = Arc::new(Seen::default());
        let _ = seen.look(&list);
        let (watched, list) = (Arc::clone(&seen), Arc::new(list));
        let looking = Arc::clone(&list);
        let watching = thread::Builder::new().name("interfaces".to_owned()).spawn(move || {
            let (mut has_failed, mut rest) = (lock(&watched.known).is_none(), SETTLE);
            loop {
                news.wait(has_failed);
                thread::sleep(rest);
                news.clear();
                let begun = Instant::now();
                has_failed = watched.look(&looking).is_err();
                rest = SETTLE.max(begun.elapsed() * REST);
            }
        });
        let look: Option<List> = watching.is_err().then(|| Box::new(move || list()) as List);
        Watch { seen, look }
    }

    /// The interfaces of the last look, by index; the same ones until something has changed. `None`: the kernel has not told them
    /// yet. Never waits for a look.
    #[must_use]
    pub fn known(&self) -> Option<Arc<Vec<Interface>>> {
        if let Some(list) = &self.look {
            // What was known before is better than nothing.
            let _ = self.seen.look(list);
        }
        lock(&self.seen.known).clone()
    }

    /// Wakes a thread from now on whenever a look has shown something new, as long as it has its waker. Without that a thread which has
    /// nothing to do does not hear that an interface is there again.
    pub fn wake(&self, thread: &Waker) {
        lock(&self.seen.wakers).push(thread.downgrade());
    }

    /// Whether the peer is this very host: one of its IP addresses or of its interfaces' hardware addresses. While the kernel does
    /// not say, only the loopback is.
    #[must_use]
    pub fn contains(&self, peer: Peer) -> bool {
        is_loopback(peer) || self.known().is_some_and(|interfaces| is_among(peer, &interfaces))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl Seen {
    fn look(&self, list: &List) -> io::Result<()> {
        let interfaces = list()?;
        let mut known = lock(&self.known);
        if known.as_deref() == Some(&interfaces) {
            return Ok(());
        }
        *known = Some(Arc::new(interfaces));
        drop(known);
        lock(&self.wakers).retain(WeakWaker::wake);
        Ok(())
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while a lock is held.
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the kernel tells that interfaces or their addresses have changed (rtnetlink(7)); what, the look shows.
struct News(Option<OwnedFd>);

impl News {
    fn open() -> News {
        News(subscribe().ok())
    }

    /// Waits until something has changed, or until it is time to look all the same.
    fn wait(&mut self, has_failed: bool) {
        let Some(socket) = &self.0 else {
            thread::sleep(RETRY_EVERY);
            return *self = News::open();
        };
        let patience_ms = if has_failed { RETRY_EVERY.as_millis() as c_int } else { -1 };
        let mut entry = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, which lives during the call.
        unsafe { libc::poll(&raw mut entry, 1, patience_ms) };
    }

    fn clear(&mut self) {
        let Some(socket) = &self.0 else { return };
        let mut news = [0u8; 64];
        for _ in 0..NEWS_MAX {
            // SAFETY: the kernel writes at most the length of `news`, which lives; the rest of a message is dropped.
            let result = unsafe { libc::recv(socket.as_raw_fd(), news.as_mut_ptr().cast(), news.len(), 0) };
            let error = (result < 0).then(|| io::Error::last_os_error().raw_os_error()).flatten();
            match error {
                None | Some(libc::EINTR) => {}
                // There was more than the socket holds: a look shows it all.
                Some(libc::ENOBUFS) => {}
                Some(libc::EAGAIN) => return,
                Some(_) => return self.0 = None,
            }
        }
    }
}

fn subscribe() -> io::Result<OwnedFd> {
    let socket = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    // SAFETY: a sockaddr_nl of zeroes is a valid one.
    let mut address: sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_groups = (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
    let length = size_of::<sockaddr_nl>() as socklen_t;
    // SAFETY: `address` lives and has that length.
    sys::check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use sanwire_core::MacAddress;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(120);

    fn loopback(index: u32) -> Vec<Interface> {
        let interfaces = list().unwrap().into_iter().filter(|interface| interface.is_loopback);
        interfaces.map(|interface| Interface { index, ..interface }).collect()
    }

    /// Somebody changes interfaces and holds the kernel's lock over them.
    #[test]
    fn who_asks_never_waits_for_a_look_that_does_not_end_and_sees_what_it_has_shown() {
        let (sender, looks) = mpsc::channel::<u32>();
        let looks = Mutex::new(looks);
        let begun = mpsc::channel();
        sender.send(1).unwrap();
        let look = Box::new(move || {
            let _ = begun.0.send(());
            Ok(loopback(looks.lock().unwrap().recv_timeout(TIMEOUT).map_err(io::Error::other)?))
        });
        let index = |watch: &Watch| watch.known().map(|interfaces| interfaces[0].index);
        let watch = Watch::begin(look, News(None));
        let first = watch.known().unwrap();
        begun.1.recv_timeout(TIMEOUT).unwrap();
        begun.1.recv_timeout(TIMEOUT).unwrap();
        let asked = Instant::now();
        for _ in 0..1000 {
            assert!(asked.elapsed() < TIMEOUT / 2);
            assert!(Arc::ptr_eq(&first, &watch.known().unwrap()) && watch.contains(Peer::Ethernet(MacAddress([0; 6]))));
        }
        sender.send(2).unwrap();
        let end = Instant::now() + TIMEOUT;
        while index(&watch) != Some(2) {
            assert!(Instant::now() < end, "the change was not seen");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn who_wants_it_is_woken_by_what_is_new_and_by_nothing_else() {
        let seen = Seen::default();
        let [awake, gone] = [(); 2].map(|()| Waker::new().unwrap());
        lock(&seen.wakers).extend([&gone, &awake].map(Waker::downgrade));
        drop(gone);
        for (index, is_new) in [(1, true), (1, false), (2, true)] {
            seen.look(&(Box::new(move || Ok(loopback(index))) as List)).unwrap();
            assert_eq!(awake.is_woken(), is_new, "{index}");
            awake.drain();
        }
        assert_eq!(lock(&seen.wakers).len(), 1, "who is gone is forgotten");
    }

    #[test]
    fn what_the_kernel_does_not_say_is_not_local_but_the_loopback_is() {
        let watch = Watch::begin(Box::new(|| Err(io::ErrorKind::Other.into())), News(None));
        assert!(watch.known().is_none() && watch.contains(Peer::Udp(([127, 0, 0, 1], 1).into())));
        assert!(!watch.contains(Peer::Ethernet(MacAddress([0; 6]))));
    }

    #[test]
    fn only_our_addresses_are_local() {
        let udp = |text: &str| Peer::Udp(text.parse().unwrap());
        for (peer, expected) in [
            (udp("127.0.0.1:1"), true),
            (udp("127.9.9.9:1"), true),
            (udp("[::1]:1"), true),
            (udp("[::ffff:127.0.0.1]:1"), true),
            (udp("192.0.2.1:1"), false),
            (udp("[2001:db8::1]:1"), false),
            (Peer::Ethernet(MacAddress([0; 6])), true),
            (Peer::Ethernet(MacAddress([2, 0xde, 0xad, 0xbe, 0xef, 1])), false),
            (Peer::Ethernet(MacAddress::BROADCAST), false),
        ] {
            assert_eq!(watch().contains(peer), expected, "{peer}");
        }
        for interface in list().unwrap() {
            for address in interface.addresses {
                assert!(watch().contains(Peer::Udp((address, 1).into())), "{address}");
            }
        }
    }
}
