//! What a connection has of its adapter.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;

use libc::c_int;
use sanwire_buffer::Frame;
use sanwire_iwarp::{Ended, Event, Fault, Memory, Message, Order, Refusal, Refused, Registration, Stag, WorkId};

use crate::completions::Completions;
use crate::domain::{Domain, Members};
use crate::error::Error;
use crate::ffi::{
    self, FLAGS_INVALIDATED, STATUS_FLUSHED, STATUS_LOCAL_LENGTH, STATUS_LOCAL_PROTECTION, STATUS_REMOTE_ACCESS,
    STATUS_REMOTE_INVALID_REQUEST, STATUS_REMOTE_OPERATION, STATUS_SUCCESS, WorkCompletion,
};
use crate::manager::Manager;
use crate::options::ConnectOptions;
use crate::orders::Orders;
use crate::queue::{Queue, Work};
use crate::readiness::Readiness;
use crate::reads::Reads;
use crate::receives::{Received, Receives};
use crate::shared_receives::SharedReceives;
use crate::windows::Windows;

/// Completions that are taken at once.
const COMPLETIONS_AT_ONCE: usize = 16;

/// Of these parts the queue pair is dropped first: then the adapter touches nothing any more of what the others hold.
pub(crate) struct Endpoint {
    queue: Queue,
    completions: Completions,
    receives: Receives,
    orders: Orders,
    reads: Reads,
    windows: Windows,
    domain: Arc<Domain>,
    /// Something has come back undone.
    is_flushed: bool,
    /// Requests that the queue pair has room for.
    sends_max: usize,
    receives_max: usize,
    registrations_max: usize,
}

/// What an adapter tells of.
pub(crate) enum Told {
    /// Something for the owner of the connection.
    Event(Event),
    /// Something has ended badly: the queue pair does nothing more.
    Broken(Breakage),
}

/// Why a queue pair does nothing more.
pub(crate) struct Breakage {
    /// The rule that was broken, where that is known.
    pub(crate) ended: Option<Ended>,
    /// What the adapter says.
    pub(crate) reason: String,
}

impl Endpoint {
    /// # Errors
    /// The adapter's.
    pub(crate) fn new(
        manager: &Arc<Manager>,
        domain: Arc<Domain>,
        shared: Option<Arc<SharedReceives>>,
        readiness: &Readiness,
        options: &ConnectOptions,
    ) -> Result<Self, Error> {
        let capabilities = &domain.capabilities;
        let most = capabilities.queue_max.min(capabilities.completions_max / 2);
        let [sends, receives] = [options.orders_max, options.receives_max].map(|wanted| wanted.clamp(1, most.max(1)));
        // A window is bound with the order behind it.
        let sends = if domain.members == Members::ByWindows { sends.max(4) } else { sends };
        // There is room for all that can be under way, also for all that connections share: a queue that overflows is lost.
        let received_max = shared.as_ref().map_or(receives, |shared| shared.most() as u32);
        let completions = Completions::new(&domain, sends + received_max, readiness)?;
        let orders = Orders::new(&domain, options.send_bytes)?;
        let queue = Queue::new(manager, &domain, &completions, [sends, receives], shared.as_deref())?;
        Ok(Endpoint {
            queue,
            completions,
            receives: Receives::new(shared),
            orders,
            reads: Reads::new(options.read_bytes),
            windows: Windows::default(),
            domain,
            is_flushed: false,
            sends_max: sends as usize,
            receives_max: receives as usize,
            registrations_max: options.registrations_max,
        })
    }

    /// As [`Receives::expect`]; no more than the adapter takes, where they are this connection's own.
    pub(crate) fn expect(&mut self, count: usize, longest_bytes: usize) -> Result<(), Error> {
        let count = if self.shares_receives() { count } else { count.min(self.receives_max) };
        self.receives.expect(count, longest_bytes, (&self.domain, &mut self.queue))
    }

    /// Requests that may still be posted now.
    fn room(&self) -> usize {
        self.sends_max.saturating_sub(self.orders.requests() + self.reads.len())
    }

    pub(crate) fn order(&mut self, order: &Order, id: Option<WorkId>) -> Result<(), Refusal> {
        let room = [self.room(), self.sends_max];
        if room[0] == 0 {
            return Err(Refusal::Full);
        }
        let posted = self.orders.post(order, id, room, self.windows.bindings(), (&self.domain, &mut self.queue));
        // What was not taken for good may have begun.
        if matches!(posted, Ok(()) | Err(Refusal::NotConnected)) {
            self.windows.note_bound();
        }
        posted
    }

    pub(crate) fn read(
        &mut self,
        id: WorkId,
        frame: Frame,
        part: Range<usize>,
        source: (Stag, u64),
        reads_max: usize,
    ) -> Result<(), Refused<Frame>> {
        if reads_max == 0 {
            return Err(Refused { refusal: Refusal::NoReads, given: frame });
        }
        if self.room() == 0 || self.reads.len() >= reads_max {
            return Err(Refused { refusal: Refusal::Full, given: frame });
        }
        self.reads.post(id, frame, part, source, (&self.domain, &mut self.queue))
    }

    pub(crate) fn register(&mut self, registration: Registration) -> Result<(Stag, u64), Refused<Registration>> {
        // All that are to be bound go with one order.
        if self.windows.len() >= self.registrations_max || self.windows.unbound() + 1 >= self.sends_max {
            return Err(Refused { refusal: Refusal::Full, given: registration });
        }
        self.windows.open(registration, &self.domain)
    }

    pub(crate) fn deregister(&mut self, stag: Stag) -> Option<Memory> {
        self.windows.close(stag)
    }

    /// Whether all that was ordered is sent.
    pub(crate) fn is_all_sent(&self) -> bool {
        self.orders.requests() == 0
    }

    /// As [`Queue::path_mtu_bytes`].
    pub(crate) fn path_mtu_bytes(&self) -> Option<u32> {
        self.queue.path_mtu_bytes()
    }

    /// Why an order or a read can be given to the adapter no more.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.queue.failure().or_else(|| self.orders.failure()).or_else(|| self.reads.failure())
    }

    /// Whether something has come back undone: the queue pair does nothing more, though nothing may have failed at this end.
    pub(crate) fn is_flushed(&self) -> bool {
        self.is_flushed
    }

    /// Which connections have its domain.
    pub(crate) fn members(&self) -> Members {
        self.domain.members
    }

    pub(crate) fn windows(&self) -> &Windows {
        &self.windows
    }

    pub(crate) fn reads(&self) -> &Reads {
        &self.reads
    }

    pub(crate) fn receives(&self) -> &Receives {
        &self.receives
    }

    /// Takes what the adapter has done, some of it at a time. `false` when there was nothing.
    pub(crate) fn poll(&mut self, mut each: impl FnMut(Told)) -> bool {
        let mut batch = [WorkCompletion::default(); COMPLETIONS_AT_ONCE];
        match self.completions.poll(&mut batch) {
            Ok(count) => {
                batch[..count].iter().for_each(|completion| self.take(completion, &mut each));
                count > 0
            }
            Err(error) => {
                each(Told::Broken(Breakage { ended: None, reason: error.to_string() }));
                false
            }
        }
    }

    fn take(&mut self, completion: &WorkCompletion, each: &mut impl FnMut(Told)) {
        let work = Work::of(completion.id);
        if completion.status != STATUS_SUCCESS {
            match work {
                Work::Order(number) => self.orders.note_done(number, |_| ()),
                Work::Receive(number) => self.receives.note_undone(number),
                Work::Read(_) => {}
            }
            // What was posted behind that which has failed is flushed, and does not say why.
            if completion.status == STATUS_FLUSHED {
                self.is_flushed = true;
            } else {
                each(Told::Broken(breakage(work, completion.status)));
            }
            return;
        }
        let length_bytes = completion.length_bytes as usize;
        match work {
            Work::Receive(slot) => each(self.take_message(slot, length_bytes, completion)),
            Work::Order(number) => self.orders.note_done(number, |id| each(Told::Event(Event::Sent(id)))),
            Work::Read(number) => match self.reads.take(number, length_bytes) {
                Some((id, frame)) => each(Told::Event(Event::ReadDone { id, frame })),
                None => {
                    let reason = format!("a read has brought {length_bytes} bytes, and not what was asked for");
                    each(Told::Broken(Breakage { ended: None, reason }));
                }
            },
        }
    }

    fn take_message(&mut self, slot: u64, length_bytes: usize, completion: &WorkCompletion) -> Told {
        let has_ended_key = completion.flags & FLAGS_INVALIDATED != 0;
        let invalidated = has_ended_key.then_some(Stag(completion.invalidated_key));
        invalidated.into_iter().for_each(|stag| self.windows.note_ended(stag));
        // SAFETY: the adapter has just told of it, and does so once.
        match unsafe { self.receives.take(slot, length_bytes) } {
            // Whether the other end has asked for that is not told; every message is looked at.
            Received::Message(buffer) => {
                Told::Event(Event::Message(Message { buffer, is_solicited: true, invalidated }))
            }
            Received::Beyond(fault) => {
                let ended = Some(Ended::ByUs(fault));
                Told::Broken(Breakage { ended, reason: format!("the other end sends what it may not ({fault})") })
            }
            Received::Failed(error) => Told::Broken(Breakage { ended: None, reason: error.to_string() }),
        }
    }

    /// Whether it shares its receives with others.
    pub(crate) fn shares_receives(&self) -> bool {
        matches!(self.receives, Receives::Shared(_))
    }

    /// The queue pair is one that sends and receives. One that shares receives may have none for a moment.
    pub(crate) fn begin(&self) {
        if self.shares_receives()
            && let Err(error) = self.queue.hurry()
        {
            tracing::debug!("who finds no receive tries again late: {error}");
        }
    }

    /// As [`Completions::take_notice`].
    pub(crate) fn take_notice(&mut self) {
        self.completions.take_notice();
    }

    /// As [`Completions::arm`].
    pub(crate) fn arm(&mut self) -> Result<bool, Error> {
        self.completions.arm()
    }
}

impl Drop for Endpoint {
    /// What it has taken of the receives that others share goes back to them.
    fn drop(&mut self) {
        let Receives::Shared(credit) = &self.receives else { return };
        // SAFETY: the queue pair is dropped behind this, and is of the adapter of its domain, which is that of the receives.
        unsafe { credit.end(self.queue.pointer()) };
        let mut batch = [WorkCompletion::default(); COMPLETIONS_AT_ONCE];
        // No more than there is room for: of an adapter that did not take its end more may come meanwhile.
        for _ in 0..=self.completions.entries() / COMPLETIONS_AT_ONCE {
            let Ok(count @ 1..) = self.completions.poll(&mut batch) else { break };
            for completion in &batch[..count] {
                if let Work::Receive(number) = Work::of(completion.id) {
                    self.receives.note_undone(number);
                }
            }
        }
    }
}

/// What a bad end means: who has broken which rule, as far as an adapter tells.
fn breakage(work: Work, status: c_int) -> Breakage {
    let fault = match (work, status) {
        (Work::Receive(_), STATUS_LOCAL_LENGTH) => Some(Ended::ByUs(Fault::TooLong)),
        (Work::Receive(_), STATUS_REMOTE_INVALID_REQUEST) => Some(Ended::ByUs(Fault::Invalidation)),
        (Work::Read(_), STATUS_LOCAL_PROTECTION) => Some(Ended::ByUs(Fault::Protection)),
        (_, STATUS_REMOTE_ACCESS) => Some(Ended::ByPeer(Some(Fault::Access))),
        (_, STATUS_REMOTE_OPERATION | STATUS_REMOTE_INVALID_REQUEST) => Some(Ended::ByPeer(Some(Fault::Operation))),
        _ => None,
    };
    let what = match work {
        Work::Receive(_) => "a message",
        Work::Order(_) => "what was sent",
        Work::Read(_) => "a read",
    };
    Breakage { ended: fault, reason: format!("{what} has failed at the RDMA adapter: {}", name_of(status)) }
}

fn name_of(status: c_int) -> String {
    let Ok(api) = ffi::load() else { return format!("status {status}") };
    // SAFETY: the function takes any number, and gives a text that stays.
    unsafe { CStr::from_ptr((api.ibv_wc_status_str)(status)) }.to_string_lossy().into_owned()
}
