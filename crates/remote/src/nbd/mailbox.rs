//! What passes from a store to its thread.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_io::Waker;
use sanwire_store::{Completer, RemoteCounter, RemoteRequest, Request};

use super::endings::Claim;

/// Requests on their way to the thread.
#[derive(Debug)]
pub(super) struct Mailbox {
    mail: Mutex<Mail>,
    pub(super) waker: Waker,
    pub(super) counter: Arc<RemoteCounter>,
}

#[derive(Debug, Default)]
struct Mail {
    requests: VecDeque<Mailed>,
    is_closed: bool,
    /// Until the store's thread has ended.
    claim: Option<Claim>,
}

/// It is counted no more before its end is told.
type Mailed = (RemoteRequest, Request, Completer);

impl Mailbox {
    pub(super) fn new(claim: Claim) -> io::Result<Self> {
        let mail = Mail { claim: Some(claim), ..Mail::default() };
        Ok(Mailbox { mail: Mutex::new(mail), waker: Waker::new()?, counter: Arc::default() })
    }

    /// Hands over a request. Those who start requests bound their number: each is a command under way. When the thread has ended, the
    /// request ends with it.
    pub(super) fn put(&self, request: Request, completer: Completer) {
        let mut mail = self.lock();
        if mail.is_closed {
            // Whom the completer tells may ask for something here.
            drop(mail);
            return drop((request, completer));
        }
        mail.requests.push_back((self.counter.begin(), request, completer));
        drop(mail);
        self.waker.wake();
    }

    /// The store is not used any more, or its thread has ended.
    pub(super) fn close(&self) {
        let mut mail = self.lock();
        if !mail.is_closed {
            mail.is_closed = true;
            mail.claim.iter_mut().for_each(Claim::end);
        }
        drop(mail);
        self.waker.wake();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// The store is not used any more but for what it has begun and a flush. One that only reads harms nobody.
    pub(super) fn retire(&self) {
        self.lock().claim.iter_mut().for_each(Claim::retire);
    }

    /// The store is found to be one that nobody writes to.
    pub(super) fn only_read(&self) {
        self.lock().claim.iter_mut().for_each(Claim::only_read);
    }

    pub(super) fn take(&self) -> (VecDeque<Mailed>, bool) {
        let mut mail = self.lock();
        (std::mem::take(&mut mail.requests), mail.is_closed)
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        // Nothing panics while it is locked.
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's end of the mailbox: however the thread ends, nobody waits for it any more.
pub(super) struct Reader(pub(super) Arc<Mailbox>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.close();
        drop(self.0.take());
        let claim = self.0.lock().claim.take();
        drop(claim);
    }
}
