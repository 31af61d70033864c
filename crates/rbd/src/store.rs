//! An image as store.

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use sanwire_store::{
    Allocation, Capabilities, CompletionQueue, Geometry, Outcome, RemoteCount, Request, ResizeError, Started, Store,
};

use crate::error::RbdError;
use crate::image::{Image, ImageName, Options};
use crate::requests::{self, UnderWay};

/// How long the cluster may take to open an image: longer than it takes to notice that another client has died.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the end of a store waits until its image is closed, and free for others.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest range that is discarded or zeroed at once: librbd makes a request for each object of it, at once.
const RANGE_MAX_BYTES: u64 = 256 << 20;

/// While requests are under way it is looked so often whether they end.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What the store's thread does.
enum Task {
    /// A request that blocks, with its number.
    Do(Request, u64),
    /// To look whether requests end.
    Watch,
}

/// A Ceph RBD image.
///
/// Requests go to librbd at once; those that would block the caller go to a thread of the store.
pub struct RbdStore {
    geometry: Geometry,
    /// Ended by the store's thread, where it may block.
    image: ManuallyDrop<Arc<Image>>,
    under_way: Arc<UnderWay>,
    helper: Option<mpsc::Sender<Task>>,
    /// Ends when the image is closed.
    closed: Mutex<mpsc::Receiver<()>>,
}

impl RbdStore {
    /// Opens an image and takes its lock. It blocks: for some milliseconds, or up to half a minute when a server that had it has
    /// died, unless it is taken over.
    ///
    /// # Errors
    /// [`RbdError`].
    pub fn open(name: &ImageName, options: &Options) -> Result<RbdStore, RbdError> {
        let (name, asked) = (name.clone(), options.clone());
        // Where the cluster hangs, it is opened and closed again when that is over.
        let opened = within(OPEN_TIMEOUT, move || Image::open(&name, &asked)).map_err(no_thread)?;
        let image = Arc::new(opened.ok_or(RbdError::Stuck(OPEN_TIMEOUT))??);
        let block_bytes = options.block_bytes.unwrap_or(512);
        let geometry = Geometry {
            length_bytes: whole_blocks(image.read_size()?, block_bytes),
            block_bytes,
            physical_block_bytes: 4096,
            read_only: options.read_only,
            discards: true,
            atomic_write_bytes: 0,
        };
        if geometry.length_bytes == 0 {
            return Err(RbdError::Empty);
        }
        let under_way = Arc::<UnderWay>::default();
        let (helper, requests) = mpsc::channel();
        let (close, closed) = mpsc::channel();
        let (helped, counted) = (Arc::clone(&image), Arc::clone(&under_way));
        let work = move || {
            let _close: mpsc::Sender<()> = close;
            help(helped, &requests, &counted);
        };
        thread::Builder::new().name("rbd".to_owned()).spawn(work).map_err(no_thread)?;
        let (image, closed) = (ManuallyDrop::new(image), Mutex::new(closed));
        Ok(RbdStore { geometry, image, under_way, helper: Some(helper), closed })
    }
}

fn no_thread(source: io::Error) -> RbdError {
    RbdError::Ceph { action: "start a thread", source }
}

/// What this work comes to, done by a thread of its own; `None` when that takes longer. Then it goes on, and nobody hears of it.
fn within<T: Send + 'static>(patience: Duration, work: impl FnOnce() -> T + Send + 'static) -> io::Result<Option<T>> {
    let (sender, done) = mpsc::channel();
    thread::Builder::new().name("rbd-open".to_owned()).spawn(move || drop(sender.send(work())))?;
    Ok(done.recv_timeout(patience).ok())
}

fn whole_blocks(bytes: u64, block_bytes: u32) -> u64 {
    bytes / u64::from(block_bytes) * u64::from(block_bytes)
}

/// What blocks, one after the other. Ends when the store has, and with it the image.
fn help(image: Arc<Image>, tasks: &mpsc::Receiver<Task>, under_way: &Arc<UnderWay>) {
    // The oldest request when it was last looked; `None`: there is none to look at.
    let mut watched: Option<Option<u64>> = None;
    loop {
        let task = match watched {
            None => tasks.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
            Some(_) => tasks.recv_timeout(LOOK_INTERVAL),
        };
        match (task, watched) {
            (Ok(Task::Do(request, number)), _) => perform(&image, request, number, under_way),
            (Ok(Task::Watch), _) => watched = Some(under_way.oldest()),
            (Err(mpsc::RecvTimeoutError::Timeout), Some(before)) => watched = look(&image, under_way, before),
            (Err(_), _) => break,
        }
    }
    // librbd calls back from its own threads, which must not be the ones to end the image.
    under_way.wait();
    drop(image);
}

/// Looks whether requests end; gives which one is the oldest now, if there is any to look at again.
fn look(image: &Image, under_way: &UnderWay, before: Option<u64>) -> Option<Option<u64>> {
    let oldest = under_way.oldest();
    if oldest.is_none() && under_way.is_watched_no_longer() {
        return None;
    }
    if oldest.is_some() && oldest == before && image.is_shut_out() {
        under_way.shut_out();
    }
    Some(under_way.oldest())
}

fn perform(image: &Image, request: Request, number: u64, under_way: &Arc<UnderWay>) {
    if under_way.is_over() {
        // It has ended while it waited for its turn, and nobody expects its effect any more.
        return;
    }
    let Request::Allocation { offset_bytes, length_bytes } = request else {
        return requests::begin(image, request, number, under_way);
    };
    let completion = match image.first_extent(offset_bytes, length_bytes) {
        Ok((is_mapped, length_bytes)) => Ok(Outcome::Allocated(Allocation { is_mapped, length_bytes })),
        Err(error) => requests::failed(offset_bytes, error),
    };
    under_way.complete(number, completion);
}

impl Store for RbdStore {
    fn geometry(&self) -> Geometry {
        let news = &self.image.news;
        // Somebody has resized the image. Asking librbd for the new size costs no round trip.
        if news.has_changed.swap(false, Ordering::AcqRel)
            && let Err(error) = self.image.read_size()
        {
            tracing::warn!("RBD image: {error}");
        }
        let length_bytes = whole_blocks(news.size_bytes.load(Ordering::Acquire), self.geometry.block_bytes);
        Geometry { length_bytes, ..self.geometry }
    }

    fn capabilities(&self) -> Capabilities {
        let range_max_bytes = Some(RANGE_MAX_BYTES);
        Capabilities { grows: true, range_max_bytes, ..Capabilities::of(self.geometry()) }
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        if let Err(error) = self.geometry().check(&request) {
            return Started::Done(Err(error));
        }
        let (pending, completer) = completions.pend();
        let Some(number) = self.under_way.register(request.range_bytes().0, completer) else {
            return Started::Pending(pending);
        };
        if let (true, Some(helper)) = (self.under_way.must_be_watched(), &self.helper) {
            let _ = helper.send(Task::Watch);
        }
        let blocks = matches!(request, Request::Allocation { .. }) || !self.under_way.has_room();
        match &self.helper {
            Some(helper) if blocks => {
                let offset_bytes = request.range_bytes().0;
                if helper.send(Task::Do(request, number)).is_err() {
                    let ended = io::Error::other("its thread has ended");
                    self.under_way.complete(number, requests::failed(offset_bytes, ended));
                }
            }
            _ => requests::begin(&self.image, request, number, &self.under_way),
        }
        Started::Pending(pending)
    }

    fn remote(&self) -> Option<RemoteCount> {
        Some(self.under_way.count())
    }

    fn abandon(&self) {
        self.under_way.abandon();
    }

    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        if length_bytes < self.geometry().length_bytes {
            return Err(ResizeError::Fixed("an RBD image is made shorter with Ceph's own tools only"));
        }
        self.image.resize(length_bytes).map_err(|error| {
            tracing::warn!("RBD image: {error}");
            ResizeError::Fixed("the cluster has refused it")
        })
    }
}

impl fmt::Debug for RbdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RbdStore").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

impl Drop for RbdStore {
    fn drop(&mut self) {
        // SAFETY: it is not used any more.
        unsafe { ManuallyDrop::drop(&mut self.image) };
        // The thread has the last one now, and ends.
        self.helper = None;
        // Who opens the image next finds its lock free, unless the cluster hangs: then nobody waits here for it for long.
        if self.under_way.is_empty() {
            let closed = self.closed.get_mut().unwrap_or_else(PoisonError::into_inner);
            let _ = closed.recv_timeout(CLOSE_TIMEOUT);
        }
    }
}

#[cfg(test)]
mod tests;
