//! The way from jobs to the front end of a shard, and back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sanwire_core::{NexusId, Principal};
use sanwire_device::LogicalUnits;
use sanwire_scsi::{Reply, Task};

use crate::messages::Mailbox;

/// Nexuses of copies are numbered from here on, far above those of the wires below.
const NEXUS_BASE: u64 = 5 << 60;

/// The end of a command, by its number; without a reply it was aborted.
pub(crate) type Ended = (u64, Option<Reply>);

/// Something for the front end of a shard.
pub(super) enum Order {
    Open(Box<Opening>),
    Begin { nexus: NexusId, number: u64, task: Task },
    Close(NexusId),
}

/// A session that begins.
pub(super) struct Opening {
    pub(super) nexus: NexusId,
    pub(super) terms: CopyTaker,
    pub(super) answers: Sender<Ended>,
}

/// For whom copies are made, and between which units.
pub(crate) struct CopyTaker {
    /// What it sees, and nothing else.
    pub(crate) units: Arc<LogicalUnits>,
    pub(crate) principal: Principal,
    /// Who, for people.
    pub(crate) who: String,
    /// Where that is.
    pub(crate) address: String,
}

/// What the jobs have for one shard.
#[derive(Default)]
pub(crate) struct Orders(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    orders: VecDeque<Order>,
    /// The shard has ended: nobody takes any.
    is_closed: bool,
}

impl Orders {
    fn put(&self, order: Order) {
        let mut queue = self.lock();
        if !queue.is_closed {
            queue.orders.push_back(order);
        }
    }

    pub(super) fn take(&self) -> Option<Order> {
        self.lock().orders.pop_front()
    }

    pub(super) fn len(&self) -> usize {
        self.lock().orders.len()
    }

    /// From now on none is taken, and those that wait are gone: their jobs learn of it.
    pub(super) fn close(&self) {
        let mut queue = self.lock();
        queue.is_closed = true;
        drop(std::mem::take(&mut queue.orders));
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The places of all shards.
pub(crate) struct Copiers {
    places: Vec<(Arc<Orders>, Mailbox)>,
    opened: AtomicU64,
}

impl Copiers {
    pub(crate) fn new(shards: &[Mailbox]) -> Self {
        let places = shards.iter().map(|shard| (Arc::default(), shard.clone())).collect();
        Copiers { places, opened: AtomicU64::new(0) }
    }

    /// What the front end of a shard takes.
    pub(crate) fn orders(&self, shard: u32) -> Arc<Orders> {
        self.places.get(shard as usize).map_or_else(Arc::default, |(orders, _)| Arc::clone(orders))
    }

    /// Begins a session, in one shard after the other; `None` without any.
    pub(crate) fn open(&self, terms: CopyTaker) -> Option<CopySession> {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let place = number.checked_rem(self.places.len() as u64)?;
        let (orders, home) = self.places.get(place as usize)?.clone();
        let nexus = NexusId(NEXUS_BASE + number);
        let (answers, ended) = mpsc::channel();
        let session = CopySession { nexus, orders, home, ended, last: 0 };
        session.tell(Order::Open(Box::new(Opening { nexus, terms, answers })));
        Some(session)
    }
}

/// A session of a job. It ends when this is dropped: what is under way then is aborted.
pub(crate) struct CopySession {
    nexus: NexusId,
    orders: Arc<Orders>,
    home: Mailbox,
    ended: Receiver<Ended>,
    last: u64,
}

/// The server has ended the session.
#[derive(Debug)]
pub(crate) struct Dropped;

impl CopySession {
    /// Gives a command; gives its number.
    pub(crate) fn begin(&mut self, task: Task) -> u64 {
        self.last += 1;
        self.tell(Order::Begin { nexus: self.nexus, number: self.last, task });
        self.last
    }

    /// The next command that has ended, if one does in this time.
    pub(crate) fn wait(&self, patience: Duration) -> Result<Option<Ended>, Dropped> {
        match self.ended.recv_timeout(patience) {
            Ok(ended) => Ok(Some(ended)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Dropped),
        }
    }

    fn tell(&self, order: Order) {
        self.orders.put(order);
        self.home.wake();
    }
}

impl Drop for CopySession {
    fn drop(&mut self) {
        self.tell(Order::Close(self.nexus));
    }
}
