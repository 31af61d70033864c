//! Where requests come together: several may ask, one after the other is served.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::thread;

use sanwire_core::text::shortened;

use super::seeking::seek;
use super::slow::{Finished, Step};
use super::{Asker, Manager, NOT_PERMITTED, Refusal, Request, Response, response_of};
use crate::front::Offence;
use crate::management_queue::{Content, Letters, QueuedRequest};
use crate::messages::ShardMessage;
use crate::server::Server;

/// Of a request, so much stands in the log.
const LOGGED_MAX_BYTES: usize = 1024;

/// A server that several may manage, until it ends.
#[derive(Clone)]
pub struct ManagementHandle(Arc<Desk>);

pub(super) struct Desk {
    manager: Mutex<Option<Manager>>,
    /// Held for reading while a request does what takes long, without the manager: the server does not end before it.
    slow: RwLock<()>,
}

impl ManagementHandle {
    /// The desk of this manager.
    #[must_use]
    pub fn new(manager: Manager) -> Self {
        let (letters, is_complete) = (manager.target().take_letters(), manager.sought().is_empty());
        let desk = ManagementHandle(Arc::new(Desk { manager: Mutex::new(Some(manager)), slow: RwLock::default() }));
        if let Some(letters) = letters {
            // It does not keep the server: it ends with the shards.
            let weak = Arc::downgrade(&desk.0);
            let work = move || work(&letters, &weak);
            if let Err(error) = thread::Builder::new().name("management".into()).spawn(work) {
                tracing::error!("the server cannot be managed by its clients: {error}");
            }
        }
        if !is_complete {
            let weak = Arc::downgrade(&desk.0);
            if let Err(error) = thread::Builder::new().name("seeker".into()).spawn(move || seek(&weak)) {
                tracing::error!("volumes that are away are not sought: {error}");
            }
        }
        desk
    }

    /// Does what is asked in JSON. Requests that take long keep no others waiting.
    pub fn handle_json(&self, by: &Asker, json: &[u8]) -> Response {
        match request_of(json) {
            Ok(request) => self.handle(by, request),
            Err(refusal) => self.refuse(by, refusal),
        }
    }

    /// Does what is asked. What takes long is done without the manager, while others are served.
    pub fn handle(&self, by: &Asker, request: Request) -> Response {
        tracing::info!("management by {by:?}: {}", shortened(&format!("{request:?}"), LOGGED_MAX_BYTES));
        let mut guard = self.lock();
        let Some(manager) = guard.as_mut() else { return stopping() };
        let slow = match manager.begin(request.clone()) {
            Ok(Step::Slow(slow)) => slow,
            Ok(Step::Done(answer)) => return manager.respond(by, &request, Ok(answer)),
            Err(error) => return manager.respond(by, &request, Err(error)),
        };
        let _under_way = self.0.slow.read().unwrap_or_else(PoisonError::into_inner);
        drop(guard);
        let finished = slow.run();
        match (self.lock().as_mut(), finished) {
            (Some(manager), finished) => {
                let result = manager.finish(finished);
                manager.respond(by, &request, result)
            }
            // The server is stopping, and waits for this.
            (None, Finished::Flushed(result)) => response_of(result),
            (None, Finished::Counted(..)) => stopping(),
        }
    }

    /// Refuses what is no request, or what somebody may not ask.
    fn refuse(&self, by: &Asker, refusal: Refusal) -> Response {
        self.with(|manager| manager.refuse(by, refusal))
    }

    fn note_offence(&self, by: &Asker, offence: &dyn Display, is_proven: bool, count: u64) {
        if let Some(manager) = self.lock().as_mut() {
            manager.note_offence(by, offence, is_proven, count);
        }
    }

    /// Whether all of the server still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.lock().as_ref().is_some_and(|manager| manager.target().is_alive())
    }

    /// The server, which is not managed any more.
    #[must_use]
    pub fn end(&self) -> Option<Server> {
        let manager = self.lock().take();
        // What was written to volumes that are just being removed becomes stable first.
        drop(self.0.slow.write().unwrap_or_else(PoisonError::into_inner));
        manager.map(Manager::into_target)
    }

    fn with(&self, serve: impl FnOnce(&mut Manager) -> Response) -> Response {
        self.lock().as_mut().map_or_else(stopping, serve)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Manager>> {
        self.0.lock()
    }
}

impl Desk {
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Manager>> {
        // A request that has panicked has told so; the next one sees what is there.
        self.manager.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn request_of(json: &[u8]) -> Result<Request, Refusal> {
    serde_json::from_slice(json)
        .map_err(|error| Refusal::new("request-invalid", format!("this is no request: {error}")))
}

fn stopping() -> Response {
    Response::Refused(Refusal::new("stopping", "the server is stopping"))
}

/// Does what clients ask in band, one after the other, but for what waits for a store.
fn work(letters: &Letters, desk: &Weak<Desk>) {
    while let Some(letter) = letters.next() {
        let Some(desk) = desk.upgrade().map(ManagementHandle) else { return };
        let QueuedRequest { client, address, content } = letter;
        let by = match client {
            Some(client) => Asker::Client { client, address },
            None => Asker::Stranger { address },
        };
        match content {
            Content::Attempt => drop(desk.refuse(&by, Refusal::new("not-permitted", NOT_PERMITTED))),
            Content::Refused(Offence { what, is_proven }, count) => desk.note_offence(&by, &what, is_proven, count),
            Content::Request { json, room_bytes, request, home } => {
                let answer = move |response: Response| {
                    home.send(ShardMessage::Administered(request, response.to_json(room_bytes)));
                };
                match request_of(&json) {
                    // There are no more of these than commands that clients may have under way.
                    Ok(removal @ Request::RemoveVolume { .. }) => {
                        let work = move || answer(desk.handle(&by, removal));
                        if let Err(error) = thread::Builder::new().name("management".into()).spawn(work) {
                            tracing::error!("a volume cannot be removed: the system has no thread for that: {error}");
                        }
                    }
                    Ok(request) => answer(desk.handle(&by, request)),
                    Err(refusal) => answer(desk.refuse(&by, refusal)),
                }
            }
        }
    }
}
