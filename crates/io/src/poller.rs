//! The one place where a driver thread sleeps.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use sanwire_core::Instant;

use crate::streams::{Interest, Streams};
use crate::{Clock, Port, Waker, sys};

/// A thread's timers fire within this many nanoseconds of their time; the kernel's own default is 50 us.
const TIMER_SLACK_NANOS: libc::c_ulong = 1_000;

/// How long a new poller looks at the ports before it sleeps, at the most: more than what going to sleep and being woken
/// cost both processors together (about 30 us). With less than that, one end that has slept once is so late that the other
/// one has gone to sleep when the answer arrives, and so on: 4 KiB reads at depth 1 over a veth pair fell from 95,000 to
/// 47,000 a second, or to 20,000, with 20 us.
const SPIN_DEFAULT: Duration = Duration::from_micros(50);

/// Time between two attempts to receive from sockets: each holds the lock of one, for which what arrives must wait.
const ATTEMPT_PAUSE: Duration = Duration::from_micros(1);

/// After a look in vain this many waits at the most go by without one.
const SPIN_PAUSE_WAITS_MAX: u32 = 64;

/// Sleeps until a packet, an event, a wake-up or a deadline comes.
///
/// One poller belongs to one thread. See the crate's documentation for the loop around it.
///
/// Before it sleeps, a poller watches the ports for some microseconds, as long as that pays: on a virtual link the
/// sender pays for each wake-up of the receiver, which more than halves the throughput when every few packets wake it (see
/// `packet/ring.rs` for figures). After a look in vain it sleeps at once for a growing number of waits, so an idle thread
/// uses no time, and one that serves rare requests next to none.
#[derive(Debug)]
pub struct Poller {
    slack_is_set: bool,
    spin: Duration,
    /// Waits to come that sleep at once.
    pause_waits: u32,
    /// How many such waits the next look in vain brings.
    next_pause_waits: u32,
    /// Made for the first stream.
    streams: Option<Streams>,
    /// What the last wait asked for: its memory is used again.
    entries: Vec<libc::pollfd>,
}

impl Default for Poller {
    fn default() -> Self {
        Poller::new()
    }
}

/// Why [`Poller::wait`] came back. None of it set means that the deadline has passed.
///
/// It does not say which port it was: whoever has few ports asks each of them, and those who have thousands of connections have
/// streams, of which [`Poller::poll_streams`] tells only those that are ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ready {
    /// Some port has something to receive.
    pub ports: bool,
    /// Some other descriptor is readable (or has failed: reading tells).
    pub fds: bool,
    /// Another thread called [`Waker::wake`].
    pub woken: bool,
    /// [`Poller::poll_streams`] will tell which streams are ready.
    pub streams: bool,
}

impl Ready {
    /// Whether nothing came until the deadline.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        *self == Ready::default()
    }
}

impl Poller {
    /// A poller with the usual balance of latency and processor time.
    #[must_use]
    pub const fn new() -> Self {
        Poller::with_spin(SPIN_DEFAULT)
    }

    /// A poller that watches the ports for up to `spin`; zero means that it sleeps at once. Much more than the default
    /// burns a processor, for round trips without a wake-up.
    #[must_use]
    pub const fn with_spin(spin: Duration) -> Self {
        Poller { slack_is_set: false, spin, pause_waits: 0, next_pause_waits: 1, streams: None, entries: Vec::new() }
    }

    /// Puts a stream (or a listener) under watch; `key` is what [`Poller::poll_streams`] calls it. Dropping the stream ends
    /// its watch.
    ///
    /// # Errors
    /// The kernel's, out of descriptors or memory.
    pub fn add_stream(&mut self, stream: &impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        let streams = match self.streams.take() {
            Some(streams) => streams,
            None => Streams::new()?,
        };
        self.streams.insert(streams).add(stream.as_fd(), key, interest)
    }

    /// Watches a stream for something else from now on.
    ///
    /// # Errors
    /// `NotFound` for a stream that is not under watch.
    pub fn change_stream(&mut self, stream: &impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        self.streams.as_ref().ok_or(io::ErrorKind::NotFound)?.change(stream.as_fd(), key, interest)
    }

    /// Ends the watch of a stream that goes to another thread.
    ///
    /// # Errors
    /// `NotFound` for a stream that is not under watch.
    pub fn remove_stream(&mut self, stream: &impl AsFd) -> io::Result<()> {
        self.streams.as_ref().ok_or(io::ErrorKind::NotFound)?.remove(stream.as_fd())
    }

    /// Tells the keys of streams that are ready, and for what; does not wait.
    ///
    /// # Errors
    /// The kernel's.
    pub fn poll_streams(&mut self, each: &mut dyn FnMut(u64, Interest)) -> io::Result<usize> {
        self.streams.as_ref().map_or(Ok(0), |streams| streams.poll(each))
    }

    /// Waits until one of `ports` has a packet, one of `fds` is readable, `waker` is called or `deadline` has passed
    /// (`None`: for ever; a deadline in the past: not at all). Signals do not end the wait.
    ///
    /// Give in `fds` only what is expected to become ready: while there are any, the poller does not watch the ports.
    /// [`Ready::woken`] may stay unset when packets came first: look for other threads' work after every wait.
    ///
    /// # Errors
    /// `InvalidInput` for a descriptor that is not open; the kernel's, out of memory.
    pub fn wait(
        &mut self,
        ports: &[Port],
        fds: &[BorrowedFd<'_>],
        waker: Option<&Waker>,
        deadline: Option<Instant>,
        clock: &Clock,
    ) -> io::Result<Ready> {
        let found = Ready { ports: true, ..Ready::default() };
        if has_input(ports) {
            return if fds.is_empty() { Ok(found) } else { self.glance(ports, fds, clock) };
        }
        if fds.is_empty() && !ports.is_empty() && self.watch(self.spin, ports, waker, deadline, clock, &mut || false) {
            return Ok(found);
        }
        let mut entries = Entries::new(&mut self.entries, ports, fds, waker, self.streams.as_ref());
        if waker.is_some_and(|waker| !waker.prepare_to_sleep()) {
            return Ok(Ready { woken: true, ..Ready::default() });
        }
        if !self.slack_is_set {
            set_slack();
            self.slack_is_set = true;
        }
        let result = entries.poll(deadline, clock);
        if let Some(waker) = waker {
            waker.drain();
        }
        result?;
        let ready = entries.ready(ports.len(), fds.len())?;
        // Only here: who spins would pay for it at every look.
        entries.woken_by(ports).for_each(Port::take_error);
        Ok(ready)
    }

    /// Watches the ports, and does what `attempt` tries (receiving from the busiest streams), for up to `spin`, while that
    /// pays. Tells whether something came or was done; if not, [`Poller::wait`].
    pub fn watch(
        &mut self,
        spin: Duration,
        ports: &[Port],
        waker: Option<&Waker>,
        deadline: Option<Instant>,
        clock: &Clock,
        attempt: &mut dyn FnMut() -> bool,
    ) -> bool {
        if spin.is_zero() || self.pause_waits > 0 {
            self.pause_waits = self.pause_waits.saturating_sub(1);
            return false;
        }
        let mut now = clock.now();
        let end = deadline.map_or(now + spin, |deadline| deadline.min(now + spin));
        let mut attempt_at = now;
        while now < end {
            let is_due = now >= attempt_at;
            if is_due {
                attempt_at = now + ATTEMPT_PAUSE;
            }
            // A wake-up is left for the way to sleep, which takes note of it.
            let found = is_due && (attempt() || self.is_any_readable(ports, clock)) || has_input(ports);
            if found || waker.is_some_and(Waker::is_woken) {
                self.next_pause_waits = 1;
                return found;
            }
            std::hint::spin_loop();
            now = clock.now();
        }
        self.pause_waits = self.next_pause_waits;
        self.next_pause_waits = (self.next_pause_waits * 2).min(SPIN_PAUSE_WAITS_MAX);
        false
    }

    /// Whether the kernel has packets for a port without a ring, which cannot tell by itself.
    fn is_any_readable(&mut self, ports: &[Port], clock: &Clock) -> bool {
        if ports.iter().all(Port::has_ring) {
            return false;
        }
        let mut entries = Entries::new(&mut self.entries, ports, &[], None, None);
        entries.poll(Some(Instant::ZERO), clock).is_ok() && entries.ready(ports.len(), 0).is_ok_and(|ready| ready.ports)
    }

    /// Some port has input. Whether other descriptors are ready too, so that busy rings do not starve them.
    fn glance(&mut self, ports: &[Port], fds: &[BorrowedFd<'_>], clock: &Clock) -> io::Result<Ready> {
        let mut entries = Entries::new(&mut self.entries, ports, fds, None, None);
        entries.poll(Some(Instant::ZERO), clock)?;
        Ok(Ready { ports: true, ..entries.ready(ports.len(), fds.len())? })
    }
}

fn set_slack() {
    // SAFETY: no memory is involved; it changes the calling thread only. A refusal only costs precision.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK_NANOS) };
}

/// Whether a port holds a packet already.
fn has_input(ports: &[Port]) -> bool {
    ports.iter().any(Port::has_input)
}

/// What `ppoll` is asked and what it answers: the ports, the other descriptors, the waker, the streams, in this order.
struct Entries<'a> {
    entries: &'a mut Vec<libc::pollfd>,
    has_waker: bool,
}

impl<'a> Entries<'a> {
    fn new(
        entries: &'a mut Vec<libc::pollfd>,
        ports: &[Port],
        fds: &[BorrowedFd<'_>],
        waker: Option<&Waker>,
        streams: Option<&Streams>,
    ) -> Self {
        let all = ports.iter().map(Port::as_fd).chain(fds.iter().copied()).chain(waker.map(Waker::as_fd));
        let all = all.chain(streams.map(Streams::as_fd));
        entries.clear();
        entries.extend(all.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }));
        Entries { entries, has_waker: waker.is_some() }
    }

    fn poll(&mut self, deadline: Option<Instant>, clock: &Clock) -> io::Result<()> {
        loop {
            let left = deadline.map(|deadline| timespec(deadline.saturating_since(clock.now())));
            let timeout = left.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            let count = self.entries.len() as libc::nfds_t;
            // SAFETY: the list has `count` entries; `timeout` is null or points to `left`, which
            // lives; no signal mask is given.
            match sys::check(unsafe { libc::ppoll(self.entries.as_mut_ptr(), count, timeout, std::ptr::null()) }) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map(drop),
            }
        }
    }

    /// The ports that are ready.
    fn woken_by<'p>(&self, ports: &'p [Port]) -> impl Iterator<Item = &'p Port> {
        ports.iter().zip(&*self.entries).filter(|(_, entry)| entry.revents != 0).map(|(port, _)| port)
    }

    fn ready(&self, ports: usize, fds: usize) -> io::Result<Ready> {
        let mut ready = Ready::default();
        for (index, entry) in self.entries.iter().enumerate().filter(|(_, entry)| entry.revents != 0) {
            if entry.revents & libc::POLLNVAL != 0 {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "waiting for a descriptor that is not open"));
            }
            if entry.revents & libc::POLLERR != 0 {
                clear_error(entry.fd);
            }
            match index.checked_sub(ports) {
                None => ready.ports = true,
                Some(other) if other < fds => ready.fds = true,
                Some(other) if other == fds && self.has_waker => ready.woken = true,
                Some(_) => ready.streams = true,
            }
        }
        Ok(ready)
    }
}

/// Takes the pending error of a socket (interface down, ICMP unreachable), which would end every later wait at once.
fn clear_error(fd: libc::c_int) {
    // SAFETY: the descriptor was borrowed for the wait that is going on, so it is open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    // Reading the option clears the error. What is no socket refuses, and keeps its error for its owner to see.
    let _ = sys::get_option_int(fd, libc::SOL_SOCKET, libc::SO_ERROR);
}

fn timespec(duration: Duration) -> libc::timespec {
    let seconds = libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX);
    libc::timespec { tv_sec: seconds, tv_nsec: libc::c_long::from(duration.subsec_nanos() as i32) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalAddress;

    #[test]
    fn a_deadline_ends_the_wait_and_not_before() {
        let (mut poller, clock, waker) = (Poller::new(), Clock::new(), Waker::new().unwrap());
        for wait in [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(20)] {
            let deadline = clock.now() + wait;
            let ready = poller.wait(&[], &[], Some(&waker), Some(deadline), &clock).unwrap();
            assert!(ready.is_timeout());
            assert!(clock.now() >= deadline, "woke before {wait:?} had passed");
        }
        let past = poller.wait(&[], &[], None, Some(Instant::ZERO), &clock).unwrap();
        assert!(past.is_timeout());
    }

    #[test]
    fn what_is_ready_is_told_by_its_kind() {
        let (mut poller, clock) = (Poller::new(), Clock::new());
        let (quiet, loud, waker) = (Waker::new().unwrap(), Waker::new().unwrap(), Waker::new().unwrap());
        assert!(loud.prepare_to_sleep());
        loud.wake();
        let ready = poller.wait(&[], &[quiet.as_fd(), loud.as_fd()], Some(&waker), None, &clock).unwrap();
        assert_eq!(ready, Ready { fds: true, ..Ready::default() });
        loud.drain();
        waker.wake();
        let ready = poller.wait(&[], &[quiet.as_fd(), loud.as_fd()], Some(&waker), None, &clock).unwrap();
        assert_eq!(ready, Ready { woken: true, ..Ready::default() });
    }

    #[test]
    fn a_port_without_a_ring_is_watched_too() {
        let (mut poller, clock) = (Poller::new(), Clock::new());
        let ports = [Port::Udp(Box::new(crate::UdpPort::open("127.0.0.1:0".parse().unwrap()).unwrap()))];
        let LocalAddress::Udp(address) = ports[0].local_address() else { unreachable!() };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(5));
                std::net::UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[0; 100], address).unwrap();
            });
            let (spin, deadline) = (Duration::from_secs(60), clock.now() + Duration::from_secs(60));
            assert!(poller.watch(spin, &ports, None, Some(deadline), &clock, &mut || false));
        });
    }

    #[test]
    fn any_number_of_ports_and_descriptors_is_waited_for() {
        let open = |_| Port::Udp(Box::new(crate::UdpPort::open("127.0.0.1:0".parse().unwrap()).unwrap()));
        let mut ports: Vec<Port> = (0..300).map(open).collect();
        let (mut poller, clock, waker) = (Poller::new(), Clock::new(), Waker::new().unwrap());
        let (quiet, loud) = (Waker::new().unwrap(), Waker::new().unwrap());
        let mut fds = vec![quiet.as_fd(); 200];
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for place in [0, 63, 64, 255, 299] {
            let LocalAddress::Udp(address) = ports[place].local_address() else { panic!("a UDP port") };
            sender.send_to(b"packet", address).unwrap();
            let ready = poller.wait(&ports, &fds, Some(&waker), None, &clock).unwrap();
            assert_eq!(ready, Ready { ports: true, ..Ready::default() });
            let receive =
                |port: &mut Port| port.receive(1, &mut |_, packet| assert_eq!(packet.bytes(), b"packet")).unwrap();
            let loud: Vec<usize> = (0..ports.len()).filter(|place| receive(&mut ports[*place]) == 1).collect();
            assert_eq!(loud, [place]);
        }
        assert!(loud.prepare_to_sleep());
        loud.wake();
        fds.push(loud.as_fd());
        let ready = poller.wait(&ports, &fds, Some(&waker), None, &clock).unwrap();
        assert_eq!(ready, Ready { fds: true, ..Ready::default() });
    }
}
