//! What adapters do to the thread of the logins.

use std::io::{PipeReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;

use sanwire_buffer::Packet;
use sanwire_io::Waker;
use sanwire_rdma as rdma;

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

/// Nor does it keep the others: they are not paused, as when the system is short of something.
#[test]
fn a_portal_whose_adapter_is_gone_is_not_waited_for() {
    let (events, _adapter) = std::io::pipe().unwrap();
    let listener = Listener::Rdma(Box::new(Gone(events)));
    let mut desk = desk(vec![Portal { listener, group_tag: 1, logins: Arc::new(Refusing) }]);
    desk.accept(0, Instant::ZERO);
    assert_eq!(desk.deadline(), None);
}
