//! Requests that librbd has, and how they end.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use libc::{c_int, c_void};
use sanwire_buffer::{Frame, Slice};
use sanwire_store::{Access, Completer, Completion, ErrorKind, Outcome, Request, StoreError};

use crate::api::{Handle, api};
use crate::image::{Image, Operation};

/// Requests and bytes that librbd has, at the most, before handing over another may block (`objecter_inflight_ops` and `_bytes` are
/// 1024 and 100 MiB by default).
const REQUESTS_MAX: usize = 768;
const BYTES_MAX: usize = 64 << 20;

/// What is under way on one image.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    requests: AtomicUsize,
    bytes: AtomicUsize,
    /// The cluster has shut this connection out.
    is_shut_out: AtomicBool,
    /// Somebody looks whether that is so.
    is_watched: AtomicBool,
    waiting: Mutex<Waiting>,
    ended: Mutex<()>,
    none_left: Condvar,
}

/// Who waits for requests.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    completers: BTreeMap<u64, (u64, Completer)>,
}

impl UnderWay {
    /// Takes in a request for this place, which has a number from now on; `None` when the cluster has shut this connection out: then
    /// it has ended.
    pub(crate) fn register(&self, offset_bytes: u64, completer: Completer) -> Option<u64> {
        let mut waiting = self.lock();
        if self.is_shut_out() {
            drop(waiting);
            completer.complete(Err(shut_out(offset_bytes)));
            return None;
        }
        let number = waiting.next;
        waiting.next += 1;
        waiting.completers.insert(number, (offset_bytes, completer));
        Some(number)
    }

    /// A request has ended, if nobody has ended it before.
    pub(crate) fn complete(&self, number: u64, completion: Completion) {
        let completer = self.lock().completers.remove(&number);
        if let Some((_, completer)) = completer {
            completer.complete(completion);
        }
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
        self.lock().completers.first_key_value().map(|(number, _)| *number)
    }

    /// The cluster takes nothing more of this connection. librbd 16.2 never ends some of what it has then, and none of that is done any
    /// more: all of it ends here. Its memory stays librbd's.
    pub(crate) fn shut_out(&self) {
        let stuck = {
            let mut waiting = self.lock();
            self.is_shut_out.store(true, Ordering::Release);
            std::mem::take(&mut waiting.completers)
        };
        stuck.into_values().for_each(|(offset_bytes, completer)| completer.complete(Err(shut_out(offset_bytes))));
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it is changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more may be handed over without blocking, as a rule.
    pub(crate) fn has_room(&self) -> bool {
        self.requests.load(Ordering::Relaxed) < REQUESTS_MAX && self.bytes.load(Ordering::Relaxed) < BYTES_MAX
    }

    /// Whether the cluster has shut this connection out.
    pub(crate) fn is_shut_out(&self) -> bool {
        self.is_shut_out.load(Ordering::Acquire)
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
    Written(#[expect(dead_code, reason = "its bytes are what is written")] Slice),
    Nothing,
}

/// The error of what is asked after the cluster has shut this connection out.
pub(crate) fn shut_out(offset_bytes: u64) -> StoreError {
    error(Access::Write, offset_bytes, -libc::ESHUTDOWN)
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
            let (memory, length) = (data.as_ptr().cast(), data.len());
            (Operation::Write(offset_bytes, memory, length), Data::Written(data), length)
        }
        Request::Discard { offset_bytes: at, length_bytes } => (zero(at, length_bytes, false), Data::Nothing, 0),
        Request::WriteZeroes { offset_bytes: at, length_bytes } => (zero(at, length_bytes, true), Data::Nothing, 0),
        Request::Flush | Request::Allocation { .. } => (Operation::Flush, Data::Nothing, 0),
    };
    let under_way = Arc::clone(under_way);
    under_way.begin(bytes);
    let flight = Box::into_raw(Box::new(Flight { data, number, offset_bytes, access, under_way, bytes }));
    // SAFETY: the flight has the memory and keeps it until `ended` takes it; a frame is unique, a slice never changes, and neither
    // moves its bytes with itself.
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
            Data::Written(_) | Data::Nothing => Ok(Outcome::Done),
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
