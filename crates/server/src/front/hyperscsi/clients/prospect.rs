//! What a change of clients would take away, seen before it is made.

use std::sync::Arc;

use sanwire_core::{ClientId, Peer};
use sanwire_io::interface::Watch;

use super::Table;

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

    /// Whether a client at this place sees a volume, and would not any more.
    pub(crate) fn hides(&self, volume: &str, client: ClientId, peer: Peer) -> bool {
        let sees = |table: &Table| table.terms(client, peer, self.local).sees(volume);
        sees(&self.before) && !sees(&self.after)
    }

    /// Whether a client at this place may write to a volume, and would only see it.
    pub(crate) fn silences(&self, volume: &str, client: ClientId, peer: Peer) -> bool {
        let [before, after] = [&self.before, &self.after].map(|table| table.terms(client, peer, self.local));
        before.sees(volume) && !before.read_only && after.read_only
    }
}
