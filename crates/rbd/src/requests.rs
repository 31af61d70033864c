//! Requests that librbd has, and how they end.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use libc::{c_int, c_void, iovec};
use sanwire_buffer::{Frame, Slice, Slices};
use sanwire_store::{
    Access, Completer, Completion, ErrorKind, Outcome, RemoteCount, RemoteCounter, RemoteRequest, Request, StoreError,
};

use crate::api::{Handle, api};
use crate::image::{Image, Operation};

/// Requests and bytes that librbd has, at the most, before handing over another may block (`objecter_inflight_ops` and `_bytes` are
/// 1024 and 100 MiB by default).
const REQUESTS_MAX: usize = 768;
const BYTES_MAX: usize = 64 << 20;

/// A cluster that ends nothing for so long, while there is something to end, counts as gone: librbd tells nobody that it waits.
const SILENCE: Duration = Duration::from_secs(5);

/// What is under way on one image.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    requests: AtomicUsize,
    bytes: AtomicUsize,
    /// Nothing more ends well.
    over: OnceLock<Over>,
    /// Somebody looks whether that is so.
    is_watched: AtomicBool,
    waiting: Mutex<Waiting>,
    counter: Arc<RemoteCounter>,
    ended: Mutex<()>,
    none_left: Condvar,
}

/// Why nothing more ends well, on whichever image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    /// The cluster has shut this connection out.
    ShutOut,
    /// The volume is served no longer.
    Abandoned,
}

impl Over {
    fn error(self, offset_bytes: u64) -> StoreError {
        match self {
            Over::ShutOut => error(Access::Write, offset_bytes, -libc::ESHUTDOWN),
            Over::Abandoned => {
                let source = io::Error::other("the volume is not served any more; the cluster may not have ended this");
                StoreError { kind: ErrorKind::Gone, offset_bytes, source: Some(source) }
            }
        }
    }
}

/// Who waits for requests.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    requests: BTreeMap<u64, Registered>,
    /// When the last one has ended.
    heard_at: Option<Instant>,
}

#[derive(Debug)]
struct Registered {
    offset_bytes: u64,
    completer: Completer,
    since: Instant,
    counted: RemoteRequest,
}

impl Registered {
    fn complete(self, completion: Completion) {
        drop(self.counted);
        self.completer.complete(completion);
    }
}

impl Waiting {
    fn is_silent(&self, now: Instant) -> bool {
        let Some((_, oldest)) = self.requests.first_key_value() else { return false };
        let since = self.heard_at.map_or(oldest.since, |at| at.max(oldest.since));
        now.saturating_duration_since(since) >= SILENCE
    }
}

impl UnderWay {
    /// Takes in a request for this place, which has a number from now on; `None` when nothing more ends well: then it has ended.
    pub(crate) fn register(&self, offset_bytes: u64, completer: Completer) -> Option<u64> {
        let mut waiting = self.lock();
        if let Some(over) = self.over.get() {
            drop(waiting);
            completer.complete(Err(over.error(offset_bytes)));
            return None;
        }
        let number = waiting.next;
        waiting.next += 1;
        let (since, counted) = (Instant::now(), self.counter.begin());
        waiting.requests.insert(number, Registered { offset_bytes, completer, since, counted });
        Some(number)
    }

    /// A request has ended, if nobody has ended it before.
    pub(crate) fn complete(&self, number: u64, completion: Completion) {
        let request = {
            let (mut waiting, now) = (self.lock(), Instant::now());
            self.note_silence(&waiting, now);
            let request = waiting.requests.remove(&number);
            if request.is_some() {
                waiting.heard_at = Some(now);
                self.counter.outages.end();
            }
            request
        };
        if let Some(request) = request {
            request.complete(completion);
        }
    }

    fn note_silence(&self, waiting: &Waiting, now: Instant) {
        if waiting.is_silent(now) {
            self.counter.outages.begin();
        }
    }

    /// How the cluster is reached.
    pub(crate) fn count(&self) -> RemoteCount {
        self.note_silence(&self.lock(), Instant::now());
        self.counter.count()
    }

    /// Whether somebody is to begin to look whether the requests end: once, until [`UnderWay::is_watched_no_longer`].
    pub(crate) fn must_be_watched(&self) -> bool {
        !self.is_watched.swap(true, Ordering::AcqRel)
    }

    /// There is nothing to look at; `false` when something has begun meanwhile, and it is looked at on.
    pub(crate) fn is_watched_no_longer(&self) -> bool {
        self.is_watched.store(false, Ordering::SeqCst);
        self.oldest().is_none() || !self.must_be_watched()
    }

    /// The number of the oldest request that has not ended.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.lock().requests.first_key_value().map(|(number, _)| *number)
    }

    /// The cluster takes nothing more of this connection. librbd 16.2 never ends some of what it has then, and none of that is done any
    /// more: all of it ends here. Its memory stays librbd's.
    pub(crate) fn shut_out(&self) {
        self.end_all(Over::ShutOut);
    }

    /// Nobody waits any more for what the cluster does, if it does it: librbd has no way to call anything back. What it has stays its own
    /// until it has ended.
    pub(crate) fn abandon(&self) {
        self.end_all(Over::Abandoned);
    }

    fn end_all(&self, over: Over) {
        let stuck = {
            let mut waiting = self.lock();
            // The first reason stays.
            let _ = self.over.set(over);
            self.counter.outages.begin();
            std::mem::take(&mut waiting.requests)
        };
        for request in stuck.into_values() {
            let error = over.error(request.offset_bytes);
            request.complete(Err(error));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it is changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more may be handed over without blocking, as a rule.
    pub(crate) fn has_room(&self) -> bool {
        self.requests.load(Ordering::Relaxed) < REQUESTS_MAX && self.bytes.load(Ordering::Relaxed) < BYTES_MAX
    }

    /// Whether nothing more ends well.
    pub(crate) fn is_over(&self) -> bool {
        self.over.get().is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.load(Ordering::Acquire) == 0
    }

    /// Waits until nothing is under way.
    pub(crate) fn wait(&self) {
        let mut guard = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_empty() {
            guard = self.none_left.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn begin(&self, bytes: usize) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn end(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if self.requests.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Who waits has seen that there was one under this lock, or will see that there is none.
            drop(self.ended.lock().unwrap_or_else(PoisonError::into_inner));
            self.none_left.notify_all();
        }
    }
}

/// What a request must keep until librbd has ended it.
struct Flight {
    data: Data,
    number: u64,
    offset_bytes: u64,
    access: Access,
    under_way: Arc<UnderWay>,
    bytes: usize,
}

enum Data {
    Read(Frame),
    /// Held for librbd alone, which reads it.
    #[expect(dead_code, reason = "its bytes, and where they lie, are what is written")]
    Written(Slices, Vec<iovec>),
    Nothing,
}

/// Hands over a request that was registered with this number. It ends also when it cannot begin. No [`Request::Allocation`]: that blocks.
pub(crate) fn begin(image: &Image, request: Request, number: u64, under_way: &Arc<UnderWay>) {
    let (offset_bytes, _) = request.range_bytes();
    let access = if let Request::Read { .. } = request { Access::Read } else { Access::Write };
    let (operation, data, bytes) = match request {
        Request::Read { offset_bytes, mut buffer } => {
            let (memory, length) = (buffer.as_mut_ptr().cast(), buffer.len());
            (Operation::Read(offset_bytes, memory, length), Data::Read(buffer), length)
        }
        Request::Write { offset_bytes, data } => {
            let length = data.len();
            let run = |piece: &Slice| iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() };
            let runs: Vec<iovec> = data.pieces().iter().map(run).collect();
            let operation = Operation::Write(offset_bytes, runs.as_ptr(), runs.len() as c_int);
            (operation, Data::Written(data, runs), length)
        }
        Request::Discard { offset_bytes: at, length_bytes } => (zero(at, length_bytes, false), Data::Nothing, 0),
        Request::WriteZeroes { offset_bytes: at, length_bytes } => (zero(at, length_bytes, true), Data::Nothing, 0),
        Request::Flush | Request::Allocation { .. } => (Operation::Flush, Data::Nothing, 0),
    };
    let under_way = Arc::clone(under_way);
    under_way.begin(bytes);
    let flight = Box::into_raw(Box::new(Flight { data, number, offset_bytes, access, under_way, bytes }));
    // SAFETY: the flight has the memory and keeps it until `ended` takes it; a frame is unique, slices and the list of where they lie
    // never change, and none of them moves its bytes with itself.
    if let Err(code) = unsafe { image.begin(operation, ended, flight.cast()) } {
        // SAFETY: it was made above, and librbd does not have it.
        let flight = *unsafe { Box::from_raw(flight) };
        flight.end(code as isize);
    }
}

fn zero(at: u64, length_bytes: u64, keeps_space: bool) -> Operation {
    Operation::Zero { at, length: usize::try_from(length_bytes).unwrap_or(usize::MAX), keeps_space }
}

/// librbd has ended a request. It must not unwind into C, and nothing here panics.
///
/// # Safety
/// `argument` is a flight that `begin` gave, once; the completion is its own, and has arrived.
unsafe extern "C" fn ended(completion: Handle, argument: *mut c_void) {
    // SAFETY: what `begin` gave, which comes back once.
    let flight = *unsafe { Box::from_raw(argument.cast::<Flight>()) };
    let Ok(api) = api() else { return };
    // SAFETY: the completion has arrived, and is not used any more.
    let value = unsafe {
        let value = (api.rbd_aio_get_return_value)(completion);
        (api.rbd_aio_release)(completion);
        value
    };
    flight.end(value);
}

impl Flight {
    /// It has ended with this value: negative is an error; of a read, bytes.
    fn end(self, value: isize) {
        let Flight { data, number, offset_bytes, access, under_way, bytes } = self;
        if value == -(libc::ESHUTDOWN as isize) {
            under_way.shut_out();
        }
        let completion = match data {
            _ if value < 0 => Err(error(access, offset_bytes, value as c_int)),
            Data::Read(frame) if value.unsigned_abs() < frame.len() => {
                Err(StoreError::cut_short(offset_bytes + value.unsigned_abs() as u64))
            }
            Data::Read(frame) => Ok(Outcome::Read(frame)),
            Data::Written(..) | Data::Nothing => Ok(Outcome::Done),
        };
        under_way.complete(number, completion);
        under_way.end(bytes);
    }
}

/// What an error of Ceph means.
fn error(access: Access, offset_bytes: u64, code: c_int) -> StoreError {
    let source = io::Error::from_raw_os_error(-code);
    let lost = |text: &str| StoreError {
        kind: ErrorKind::Gone,
        offset_bytes,
        source: Some(io::Error::other(format!("{text} ({source})"))),
    };
    match -code {
        libc::ESHUTDOWN => lost("another server has taken the image over, and the cluster has shut this one out"),
        libc::EROFS => lost("another server has the image's lock"),
        libc::ETIMEDOUT | libc::ENOTCONN => lost("the cluster cannot be reached"),
        libc::ENOENT => lost("the image, or its pool, is not there any more"),
        _ => StoreError::from_io(access, offset_bytes, source),
    }
}

/// Fails a request without asking the cluster.
pub(crate) fn failed(offset_bytes: u64, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Completion {
    Err(StoreError { kind: ErrorKind::Other, offset_bytes, source: Some(io::Error::other(source)) })
}

#[cfg(test)]
mod tests {
    use sanwire_store::CompletionQueue;

    use super::*;

    #[test]
    fn who_waits_for_an_abandoned_image_is_told_at_once() {
        let (under_way, queue) = (UnderWay::default(), CompletionQueue::new(|| ()));
        let number = under_way.register(4096, queue.pend().1).unwrap();
        under_way.abandon();
        assert!(under_way.register(8192, queue.pend().1).is_none() && under_way.is_over());
        let ended = queue.take();
        let is_gone = |end: &Completion| matches!(end, Err(error) if error.kind == ErrorKind::Gone);
        assert!(ended.len() == 2 && ended.iter().all(|(_, end)| is_gone(end)), "{ended:?}");
        under_way.complete(number, Ok(Outcome::Done));
        assert!(queue.take().is_empty(), "its end comes late, and is nobody's");
    }

    #[test]
    fn a_cluster_that_ends_nothing_for_a_while_is_gone_until_it_ends_something() {
        let (under_way, queue) = (UnderWay::default(), CompletionQueue::new(|| ()));
        let numbers = [0, 4096].map(|offset_bytes| under_way.register(offset_bytes, queue.pend().1).unwrap());
        let there = RemoteCount { is_reachable: true, times_gone: 0, reconnects: 0, requests: 2 };
        assert_eq!(under_way.count(), there);
        let Some(long_ago) = Instant::now().checked_sub(SILENCE) else { return };
        under_way.lock().requests.values_mut().for_each(|request| request.since = long_ago);
        assert_eq!(under_way.count(), RemoteCount { is_reachable: false, times_gone: 1, ..there });
        under_way.complete(numbers[0], Ok(Outcome::Done));
        let back = RemoteCount { times_gone: 1, reconnects: 1, requests: 1, ..there };
        assert_eq!(under_way.count(), back, "it has ended one just now");
        under_way.complete(numbers[1], Ok(Outcome::Done));
        under_way.complete(numbers[1], Ok(Outcome::Done));
        assert_eq!(under_way.count(), RemoteCount { requests: 0, ..back });
        let again = under_way.register(0, queue.pend().1).unwrap();
        under_way.lock().heard_at = Some(long_ago);
        under_way.lock().requests.values_mut().for_each(|request| request.since = long_ago);
        under_way.complete(again, Ok(Outcome::Done));
        assert_eq!(under_way.count(), RemoteCount { times_gone: 2, reconnects: 2, requests: 0, ..there }, "unseen");
    }
}
