//! What follows a reload that is none of the server, like the certificate of the HTTP API.

use std::sync::{Arc, OnceLock};

/// What is done when the configuration was read again and holds: a line for each thing that has changed, or has not.
type Follow = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// That which follows, once there is something that does.
#[derive(Clone, Default)]
pub(super) struct Follower(Arc<OnceLock<Follow>>);

impl Follower {
    pub(super) fn set(&self, follow: Follow) {
        // One server has one.
        let _ = self.0.set(follow);
    }

    pub(super) fn follow(&self) -> Vec<String> {
        self.0.get().map_or_else(Vec::new, |follow| follow())
    }
}
