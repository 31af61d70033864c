//! An image as store.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use sanwire_store::{
    Allocation, Capabilities, Completer, CompletionQueue, Geometry, Outcome, Request, ResizeError, Started, Store,
};

use crate::image::{Image, ImageName, Options, RbdError};
use crate::requests::{self, UnderWay};

/// A Ceph RBD image.
///
/// Requests go to librbd at once; those that would block the caller go to a thread of the store.
pub struct RbdStore {
    geometry: Geometry,
    image: Arc<Image>,
    under_way: Arc<UnderWay>,
    helper: Option<mpsc::Sender<(Request, Completer)>>,
    thread: Option<JoinHandle<()>>,
}

impl RbdStore {
    /// Opens an image and takes its lock. It blocks: for some milliseconds, or up to half a minute when a server that had it has
    /// died, unless it is taken over.
    ///
    /// # Errors
    /// [`RbdError`].
    pub fn open(name: &ImageName, options: &Options) -> Result<RbdStore, RbdError> {
        let image = Arc::new(Image::open(name, options)?);
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
        let (helped, counted) = (Arc::clone(&image), Arc::clone(&under_way));
        let thread =
            std::thread::Builder::new().name("rbd".to_owned()).spawn(move || help(helped, &requests, &counted));
        let thread = thread.map_err(|source| RbdError::Ceph { action: "start a thread", source })?;
        Ok(RbdStore { geometry, image, under_way, helper: Some(helper), thread: Some(thread) })
    }
}

fn whole_blocks(bytes: u64, block_bytes: u32) -> u64 {
    bytes / u64::from(block_bytes) * u64::from(block_bytes)
}

/// What blocks, one after the other. Ends when the store has, and with it the image.
fn help(image: Arc<Image>, requests: &mpsc::Receiver<(Request, Completer)>, under_way: &Arc<UnderWay>) {
    while let Ok((request, completer)) = requests.recv() {
        let Request::Allocation { offset_bytes, length_bytes } = request else {
            requests::begin(&image, request, completer, under_way);
            continue;
        };
        let answer = image.first_extent(offset_bytes, length_bytes);
        completer.complete(match answer {
            Ok((is_mapped, length_bytes)) => Ok(Outcome::Allocated(Allocation { is_mapped, length_bytes })),
            Err(error) => requests::failed(offset_bytes, error),
        });
    }
    // librbd calls back from its own threads, which must not be the ones to end the image.
    under_way.wait();
    drop(image);
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
        Capabilities { grows: true, ..Capabilities::of(self.geometry()) }
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        if let Err(error) = self.geometry().check(&request) {
            return Started::Done(Err(error));
        }
        if self.under_way.is_shut_out() {
            return Started::Done(Err(requests::shut_out(request.range_bytes().0)));
        }
        let (pending, completer) = completions.pend();
        let blocks = matches!(request, Request::Allocation { .. }) || !self.under_way.has_room();
        match &self.helper {
            // When the thread has ended, the completer that comes back says so.
            Some(helper) if blocks => drop(helper.send((request, completer))),
            _ => requests::begin(&self.image, request, completer, &self.under_way),
        }
        Started::Pending(pending)
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
        self.helper = None;
        // Who opens the image next finds its lock free, unless the cluster hangs: then nobody waits here for it.
        if self.under_way.is_empty()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
