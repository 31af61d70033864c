//! Where requests come together: several may ask, one after the other is served.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Asker, Manager, Request, Response};
use crate::target::Target;

/// A server that several may manage, until it ends.
#[derive(Clone)]
pub struct Desk(Arc<Mutex<Option<Manager>>>);

impl Desk {
    /// The desk of this manager.
    #[must_use]
    pub fn new(manager: Manager) -> Self {
        Desk(Arc::new(Mutex::new(Some(manager))))
    }

    /// Does what is asked, when it is its turn.
    pub fn handle(&self, by: &Asker, request: Request) -> Response {
        tracing::info!("management by {by:?}: {request:?}");
        self.with(|manager| manager.handle(by, request))
    }

    /// Refuses what is no request, or what somebody may not ask.
    pub fn refuse(&self, by: &Asker, reason: String) -> Response {
        self.with(|manager| manager.refuse(by, reason))
    }

    /// Whether all of the server still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.lock().as_ref().is_some_and(|manager| manager.target().is_alive())
    }

    /// The server, which is not managed any more.
    #[must_use]
    pub fn end(&self) -> Option<Target> {
        self.lock().take().map(Manager::into_target)
    }

    fn with(&self, serve: impl FnOnce(&mut Manager) -> Response) -> Response {
        self.lock().as_mut().map_or_else(|| Response::Refused("the server is stopping".into()), serve)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Manager>> {
        // A request that has panicked has told so; the next one sees what is there.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
