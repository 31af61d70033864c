//! Requests to manage the server that come in band, and what is to be written down: from those who serve to the one thread that works
//! on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use sanwire_core::ClientId;
use sanwire_hyperscsi::{CommandHandle, Offence};

use crate::mail::Mailbox;

/// Requests that wait at once. Who asks for more is told to ask again.
const REQUESTS_MAX: usize = 64;

/// Refused attempts that wait to be written down. Of more, only the number is known.
const ATTEMPTS_MAX: usize = 16;

/// The same of what anybody can do who reaches the server.
const OFFENCES_MAX: usize = 64;

/// Something for the thread that manages.
pub(crate) struct Letter {
    /// As far as it is known.
    pub(crate) client: Option<ClientId>,
    /// From where.
    pub(crate) address: String,
    pub(crate) content: Content,
}

/// What a client wants.
pub(crate) enum Content {
    /// A request, and where its answer is awaited.
    Request { json: Vec<u8>, room_bytes: u32, handle: CommandHandle, home: Mailbox },
    /// It may not manage the server; it was told so.
    Attempt,
    /// This was refused, so many times.
    Offence(Offence, u64),
    /// Logins were refused for this reason, so many times.
    Logins(String, u64),
}

/// How many letters of each sort wait.
#[derive(Default, Debug)]
struct Waiting {
    requests: AtomicUsize,
    attempts: AtomicUsize,
    offences: AtomicUsize,
}

/// The shards' end.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    sender: Sender<Letter>,
    waiting: Arc<Waiting>,
}

/// The end of the thread that manages.
#[derive(Debug)]
pub(crate) struct Letters {
    receiver: Receiver<Letter>,
    waiting: Arc<Waiting>,
}

impl Inbox {
    pub(crate) fn new() -> (Inbox, Letters) {
        let (sender, receiver) = mpsc::channel();
        let waiting = Arc::<Waiting>::default();
        (Inbox { sender, waiting: Arc::clone(&waiting) }, Letters { receiver, waiting })
    }

    /// `false`, and nothing done, when too many wait already, or nobody manages.
    pub(crate) fn put(&self, letter: Letter) -> bool {
        let (waiting, most) = self.waiting.of(&letter);
        if waiting.fetch_add(1, Ordering::AcqRel) >= most {
            waiting.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        self.sender.send(letter).is_ok()
    }
}

impl Letters {
    /// The next one; `None` when all shards have ended.
    pub(crate) fn next(&self) -> Option<Letter> {
        let letter = self.receiver.recv().ok()?;
        self.waiting.of(&letter).0.fetch_sub(1, Ordering::AcqRel);
        Some(letter)
    }
}

impl Waiting {
    fn of(&self, letter: &Letter) -> (&AtomicUsize, usize) {
        match letter.content {
            Content::Request { .. } => (&self.requests, REQUESTS_MAX),
            Content::Attempt => (&self.attempts, ATTEMPTS_MAX),
            Content::Offence(..) | Content::Logins(..) => (&self.offences, OFFENCES_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt() -> Letter {
        Letter { client: Some(ClientId([1; 16])), address: "127.0.0.1:1".into(), content: Content::Attempt }
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let (inbox, letters) = Inbox::new();
        let taken = (0..1000).filter(|_| inbox.put(attempt())).count();
        assert_eq!(taken, ATTEMPTS_MAX);
        assert!(letters.next().is_some() && inbox.put(attempt()) && !inbox.put(attempt()));
        drop(inbox);
        assert_eq!(std::iter::from_fn(|| letters.next()).count(), ATTEMPTS_MAX, "what waits is not lost");
    }

    #[test]
    fn where_nobody_manages_nothing_is_taken() {
        let (inbox, letters) = Inbox::new();
        drop(letters);
        assert!(!inbox.put(attempt()));
    }
}
