//! A volume of another server as store, over whichever wire its URL names: what a server has is exported again.

mod kind;
mod operation;

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use sanwire_initiator::{Client, ClientOptions, ConnectError, Failure, Url, UrlError, Volume, VolumeInfo};
use sanwire_store::{
    Completer, CompletionQueue, ErrorKind, Geometry, RemoteCount, RemoteCounter, RemoteRequest, Request, Started,
    Store, StoreError,
};

pub(crate) use kind::unreserved;
pub use kind::{Access, MakeOptions, VolumeKind};
use operation::perform;

/// Why a volume of another server cannot be a store.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// It cannot be reached, or has no such volume.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// The URL names no volume.
    #[error("{0}")]
    Url(#[from] UrlError),
    /// It is to be for this client alone, and this process has it already.
    #[error("this program has it in use already")]
    InUse,
    /// Its blocks are not those of volumes here.
    #[error("its blocks have {0} bytes: only 512 and 4096 are served")]
    Block(u32),
    /// This machine lacks something.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl RemoteError {
    /// Whether it may be over by itself: the other server does not answer, or does not serve the volume now.
    #[must_use]
    pub fn is_of_now(&self) -> bool {
        let RemoteError::Connect(error) = self else { return false };
        match error {
            ConnectError::Handshake { failure, .. } => {
                !matches!(failure, Failure::Refused(_) | Failure::OtherServer { .. } | Failure::Protocol(_))
            }
            ConnectError::Resolve { .. }
            | ConnectError::Open { .. }
            | ConnectError::NoRdma { .. }
            | ConnectError::NoVolume { .. } => true,
            _ => false,
        }
    }
}

/// Whether other clients may write to the volume meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exclusive {
    /// They may.
    No,
    /// They may, but none may have it for itself when it is opened.
    Unheld,
    /// They may not, unless one has it for itself already.
    Yes,
    /// They may not, whoever has it.
    Taken,
}

/// How long a server that is connected may take to tell all about the volume.
const ANSWERS_PATIENCE: Duration = Duration::from_secs(15);

/// Volumes that this process has for itself, or is about to give back.
static OWNED: Owned =
    Owned { state: Mutex::new(OwnedState { urls: BTreeMap::new(), is_over: false }), released: Condvar::new() };

struct Owned {
    state: Mutex<OwnedState>,
    released: Condvar,
}

struct OwnedState {
    urls: BTreeMap<String, Weak<Mailbox>>,
    /// Nothing more is to be had.
    is_over: bool,
}

impl Owned {
    fn lock(&self) -> MutexGuard<'_, OwnedState> {
        // Nothing panics while it is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them, until this is dropped.
struct Ownership(String);

impl Ownership {
    fn new(url: &Url, mailbox: &Arc<Mailbox>) -> Result<Self, RemoteError> {
        let (url, owned) = (url.to_string(), &mut *OWNED.lock());
        if owned.is_over || owned.urls.contains_key(&url) {
            return Err(RemoteError::InUse);
        }
        owned.urls.insert(url.clone(), Arc::downgrade(mailbox));
        Ok(Ownership(url))
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        OWNED.lock().urls.remove(&self.0);
        OWNED.released.notify_all();
    }
}

/// Gives back all that this process has for itself, and waits for that, for so long at the most. Nothing is done there any more: for the
/// end of a program, when all is flushed.
pub fn release_all(patience: Duration) {
    let mailboxes: Vec<_> = {
        let owned = &mut *OWNED.lock();
        owned.is_over = true;
        owned.urls.values().filter_map(Weak::upgrade).collect()
    };
    mailboxes.into_iter().for_each(|mailbox| mailbox.close());
    let _ = OWNED.released.wait_timeout_while(OWNED.lock(), patience, |owned| !owned.urls.is_empty());
}

/// A volume of another server.
///
/// One thread has the connection and all that goes over it. The client behind it survives outages: it gives again what was not
/// answered, and what the other server may have lost.
#[derive(Debug)]
pub struct RemoteStore {
    volume: Volume,
    mailbox: Arc<Mailbox>,
    counter: Arc<RemoteCounter>,
}

#[derive(Debug, Default)]
struct Mailbox(Mutex<Mail>);

#[derive(Debug, Default)]
struct Mail {
    requests: VecDeque<(Request, Completer, RemoteRequest)>,
    is_closed: bool,
    waker: Option<Waker>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Mail> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over a request. When the thread has ended, the request ends with it.
    fn put(&self, request: Request, completer: Completer, counted: RemoteRequest) {
        let mut mail = self.lock();
        if mail.is_closed {
            // Whom the completer tells may ask for something here.
            drop(mail);
            return drop((request, completer, counted));
        }
        mail.requests.push_back((request, completer, counted));
        let waker = mail.waker.take();
        drop(mail);
        waker.into_iter().for_each(Waker::wake);
    }

    /// The store is not used any more, or its thread has ended. What waits is given up.
    fn close(&self) {
        let (requests, waker) = {
            let mut mail = self.lock();
            mail.is_closed = true;
            (std::mem::take(&mut mail.requests), mail.waker.take())
        };
        drop(requests);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// The thread's end of the mailbox: however the thread ends, nobody waits for it any more.
struct Reader(Arc<Mailbox>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl RemoteStore {
    /// Connects, and opens the volume; `exclusive`: for this client alone to write to. It blocks for as long as that takes.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn open(url: &Url, options: ClientOptions, exclusive: Exclusive) -> Result<RemoteStore, RemoteError> {
        let mailbox = Arc::<Mailbox>::default();
        let is_owned = matches!(exclusive, Exclusive::Yes | Exclusive::Taken);
        let ownership = is_owned.then(|| Ownership::new(url, &mailbox)).transpose()?;
        let (tell, told) = mpsc::sync_channel(1);
        let (url, mail) = (url.clone(), Reader(Arc::clone(&mailbox)));
        // The thread that connects drives the connection: its sockets never change hands.
        std::thread::Builder::new().name("remote".to_owned()).spawn(move || {
            match connect(&url, &options, exclusive) {
                Ok((mut client, volume)) => {
                    if tell.send(Ok((volume.clone(), client.outages()))).is_ok() {
                        client.block_on(serve(&volume, &mail.0));
                    }
                }
                Err(error) => drop(tell.send(Err(error))),
            }
            // The client is gone, and with it what it had for itself.
            drop(ownership);
        })?;
        let (volume, outages) = told.recv().map_err(|_| io::Error::other("its thread has ended"))??;
        Ok(RemoteStore { volume, mailbox, counter: Arc::new(RemoteCounter::with(outages)) })
    }
}

/// The NAA name of a volume, by which it is known over all wires.
pub(crate) fn naa_of(url: &Url, options: &ClientOptions) -> Option<u64> {
    connect(url, options, Exclusive::No).ok()?.1.info().naa
}

fn connect(url: &Url, options: &ClientOptions, exclusive: Exclusive) -> Result<(Client, Volume), RemoteError> {
    let mut client = Client::connect(url, options)?;
    let volume = client.within(ANSWERS_PATIENCE, |client| {
        let volume = client.open(url.volume()?)?;
        match volume.info().block_bytes {
            512 | 4096 => {}
            other => return Err(RemoteError::Block(other)),
        }
        match exclusive {
            Exclusive::No => {}
            Exclusive::Unheld => client.check_unheld(&volume)?,
            Exclusive::Yes | Exclusive::Taken => client.make_exclusive(&volume, exclusive == Exclusive::Taken)?,
        }
        Ok(volume)
    })?;
    Ok((client, volume))
}

/// Does requests until the store is not used any more; what is under way then is given up.
async fn serve(volume: &Volume, mailbox: &Mailbox) {
    let mut under_way = FuturesUnordered::new();
    poll_fn(|context| {
        loop {
            let (requests, is_closed) = {
                let mut mail = mailbox.lock();
                mail.waker = Some(context.waker().clone());
                (std::mem::take(&mut mail.requests), mail.is_closed)
            };
            if is_closed {
                return Poll::Ready(());
            }
            let has_new = !requests.is_empty();
            under_way.extend(requests.into_iter().map(|(request, completer, counted)| async {
                let completion = perform(volume, request).await;
                drop(counted);
                completer.complete(completion);
            }));
            let has_ended = matches!(pin!(&mut under_way).poll_next_unpin(context), Poll::Ready(Some(())));
            if !has_new && !has_ended {
                return Poll::Pending;
            }
        }
    })
    .await;
}

fn geometry(info: &VolumeInfo) -> Geometry {
    Geometry {
        length_bytes: info.size_bytes,
        block_bytes: info.block_bytes,
        physical_block_bytes: info.physical_block_bytes.max(info.block_bytes),
        read_only: info.read_only,
        discards: info.discards,
        atomic_write_bytes: 0,
    }
}

impl Store for RemoteStore {
    fn geometry(&self) -> Geometry {
        geometry(&self.volume.info())
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        let geometry = self.geometry();
        if let Err(error) = geometry.check(&request) {
            return Started::Done(Err(error));
        }
        if let (Request::Discard { offset_bytes, .. }, false) = (&request, geometry.discards) {
            return Started::Done(Err(StoreError::new(ErrorKind::Unsupported, *offset_bytes)));
        }
        let (pending, completer) = completions.pend();
        self.mailbox.put(request, completer, self.counter.begin());
        Started::Pending(pending)
    }

    fn remote(&self) -> Option<RemoteCount> {
        Some(self.counter.count())
    }

    fn is_over(&self) -> bool {
        self.mailbox.lock().is_closed || self.volume.is_closed()
    }

    fn abandon(&self) {
        self.mailbox.close();
    }
}

impl Drop for RemoteStore {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_of_a_store_whose_thread_has_ended_ends_at_once() {
        let (mailbox, queue) = (Arc::<Mailbox>::default(), CompletionQueue::new(|| ()));
        let (reader, counter) = (Reader(Arc::clone(&mailbox)), Arc::<RemoteCounter>::default());
        mailbox.put(Request::Flush, queue.pend().1, counter.begin());
        assert!(queue.take().is_empty() && counter.count().requests == 1);
        drop(reader);
        mailbox.put(Request::Flush, queue.pend().1, counter.begin());
        assert_eq!(counter.count().requests, 0);
        let ended = queue.take();
        assert!(ended.len() == 2 && ended.iter().all(|(_, end)| end.is_err()), "{ended:?}");
    }
}
