//! What adapters do to the thread of the logins.

use std::io::{PipeReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use sanwire_buffer::Packet;
use sanwire_io::Waker;
use sanwire_rdma as rdma;

use super::absences::PAUSE;
use super::*;
use crate::budget::Budget;
use crate::channel::Listener;
use crate::front::{LoginPhase, TallyFamily};
use crate::management_queue::ManagementQueue;
use crate::registry::Registry;

static RESULTS: TallyFamily = TallyFamily { name: "logins", help: "How logins have ended", label: "result" };

/// A service that refuses everybody by an answer, which nobody takes.
struct Refusing;

struct Unheard {
    outcome: Option<LoginOutcome>,
}

impl LoginService for Refusing {
    fn name(&self) -> &'static str {
        "a login"
    }

    fn results(&self) -> &'static TallyFamily {
        &RESULTS
    }

    fn may_permit(&self, _peer: IpAddr, _is_local: bool) -> bool {
        false
    }

    fn begin(&self, _caller: Caller, _seed: [u8; 32], _now: Instant) -> Box<dyn LoginPhase> {
        Box::new(Unheard { outcome: Some(LoginOutcome::Refused("nobody may".to_owned())) })
    }
}

impl LoginPhase for Unheard {
    fn handle_input(&mut self, _bytes: &[u8], _now: Instant) {}

    fn is_all_sent(&self) -> bool {
        false
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn has_spoken(&self) -> bool {
        true
    }

    fn poll_transmit(&mut self) -> Option<Packet> {
        None
    }

    fn poll_outcome(&mut self) -> Option<LoginOutcome> {
        self.outcome.take()
    }
}

/// A portal whose adapter is gone.
struct Gone(PipeReader);

impl rdma::Listener for Gone {
    fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(here())
    }

    fn accept(&mut self) -> io::Result<Option<rdma::Accepted>> {
        Err(io::Error::new(io::ErrorKind::NetworkDown, "the adapter is gone"))
    }
}

impl AsFd for Gone {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn here() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 3260).into()
}

fn desk(portals: Vec<Portal>) -> LoginListener {
    let budget = Budget::new(1 << 20);
    LoginListener::new(FrontDeskParts {
        portals,
        registry: Arc::new(Registry::new(1, &budget)),
        inbox: ManagementQueue::new().0,
        budget,
        accounts: Arc::new(LoginAccounts::new(&budget)),
        shards: Vec::new().into(),
        waker: Waker::new().unwrap(),
        stop: Arc::new(AtomicBool::new(false)),
    })
}

/// An initiator by an adapter that posts no receives never takes what it is told.
#[test]
fn a_refusal_that_nobody_takes_does_not_keep_its_connection() {
    let (events, mut adapter) = std::io::pipe().unwrap();
    let channel = Channel::Adapter { events: events.into(), local_address: here() };
    let mut desk = desk(Vec::new());
    let caller = Caller { portal: (here(), 1), peer: here(), queue_pair: None };
    desk.begin(channel, caller, &Refusing, Instant::ZERO).unwrap();
    adapter.write_all(&[1]).unwrap();
    desk.turn(Instant::ZERO).unwrap();
    assert_eq!((desk.count(), desk.deadlines.next_at()), (1, Some(Instant::ZERO + ANSWER_MAX)), "it has some time");
    desk.turn(Instant::ZERO + ANSWER_MAX).unwrap();
    assert_eq!(desk.count(), 0);
}

/// Adapters of which the one for every address is there after some tries.
#[derive(Debug)]
struct Returning {
    tries: AtomicUsize,
    /// Where it is heard that somebody connects.
    events: Mutex<Option<PipeReader>>,
}

impl rdma::Adapters for Returning {
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn rdma::Listener>> {
        assert_eq!(address, here());
        match self.tries.fetch_add(1, Ordering::Relaxed) {
            0 => Err(io::ErrorKind::AddrNotAvailable.into()),
            1 => Err(io::ErrorKind::OutOfMemory.into()),
            _ => Ok(Box::new(Gone(self.events.lock().unwrap().take().unwrap()))),
        }
    }

    fn connect(&self, _to: SocketAddr) -> io::Result<rdma::Connection> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Nor does it keep the others: they are not paused, as when the system is short of something.
#[test]
fn a_portal_whose_adapter_is_gone_listens_again_when_that_is_back() {
    let [(events, _adapter), (later, mut adapter)] = [(); 2].map(|()| std::io::pipe().unwrap());
    let adapters = Arc::new(Returning { tries: AtomicUsize::new(0), events: Mutex::new(Some(later)) });
    let listener = Listener::Rdma { port: Box::new(Gone(events)), rdma: rdma::Rdma::by(Arc::clone(&adapters) as _) };
    let mut desk = desk(vec![Portal { listener: Some(listener), group_tag: 1, logins: Arc::new(Refusing) }]);
    desk.accept(0, Instant::ZERO);
    assert!(desk.pause_until.is_none() && desk.parts.listeners().next().is_none(), "it is closed");
    let is_known = |desk: &LoginListener| desk.parts.accounts.is_closed(here());
    assert!(is_known(&desk));
    for tries in 1..4 {
        assert_eq!(desk.deadline(), Some(Instant::ZERO + tries * PAUSE));
        desk.turn(Instant::ZERO + tries * PAUSE).unwrap();
        assert_eq!(adapters.tries.load(Ordering::Relaxed), tries as usize);
    }
    assert_eq!((desk.deadline(), desk.parts.listeners().count(), is_known(&desk)), (None, 1, false));
    // It is watched, and may go again.
    adapter.write_all(&[1]).unwrap();
    let later = Instant::ZERO + Duration::from_secs(60);
    assert_eq!(desk.turn(later).unwrap(), 1);
    assert_eq!((desk.deadline(), desk.parts.listeners().count()), (Some(later + PAUSE), 0));
}
