//! What a change of clients would take away, seen before it is made.

use std::sync::Arc;

use sanwire_core::{ClientId, Peer};
use sanwire_io::interface::Watch;

use super::{ClientConfig, Table};

/// What clients see now, and would see.
pub(crate) struct Prospect<'a> {
    before: Arc<Table>,
    after: Table,
    local: &'a Watch,
}

impl<'a> Prospect<'a> {
    pub(super) fn new(before: Arc<Table>, after: Table, local: &'a Watch) -> Self {
        Prospect { before, after, local }
    }

    /// What becomes of a client at this place; `None` when it sees and may do what it did.
    pub(crate) fn of(&self, client: ClientId, peer: Peer) -> Option<Outlook> {
        let [before, after] = [&self.before, &self.after].map(|table| table.terms(client, peer, self.local));
        (before != after).then_some(Outlook { before, after })
    }
}

/// What one client may do now, and would.
pub(crate) struct Outlook {
    before: ClientConfig,
    after: ClientConfig,
}

impl Outlook {
    /// Whether it sees a volume, and would not any more.
    pub(crate) fn hides(&self, volume: &str) -> bool {
        self.before.sees(volume) && !self.after.sees(volume)
    }

    /// Whether it may write to a volume, and would only see it.
    pub(crate) fn silences(&self, volume: &str) -> bool {
        self.before.sees(volume) && !self.before.read_only && self.after.read_only
    }
}
