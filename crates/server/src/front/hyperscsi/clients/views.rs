//! What clients see: each has units of its own, which show those volumes that it may use.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_core::{ClientId, Lun, Peer};
use sanwire_device::LogicalUnits;

use super::config::ClientConfig;

/// The units of the clients that have sessions.
#[derive(Debug)]
pub(super) struct Views {
    volumes: Arc<LogicalUnits>,
    by_client: Mutex<BTreeMap<Viewer, View>>,
}

/// A client, and whether its sessions are read only because it wants so.
pub(super) type Viewer = (ClientId, bool);

#[derive(Debug)]
struct View {
    units: Arc<LogicalUnits>,
    /// Where the client was seen last.
    peer: Peer,
    sessions: usize,
    /// What it shows follows from this.
    terms: Option<ClientConfig>,
}

impl Views {
    pub(super) fn new(volumes: Arc<LogicalUnits>) -> Self {
        Views { volumes, by_client: Mutex::default() }
    }

    /// One more session of a client; `terms` are asked while no change can come between.
    pub(super) fn enter(&self, viewer: Viewer, peer: Peer, terms: impl FnOnce() -> ClientConfig) -> Arc<LogicalUnits> {
        let mut views = self.lock();
        let part = || Arc::new(LogicalUnits::part_of(Arc::clone(&self.volumes)));
        let view = views.entry(viewer).or_insert_with(|| View { units: part(), peer, sessions: 0, terms: None });
        view.peer = peer;
        view.sessions += 1;
        view.turn_to(viewer, terms());
        Arc::clone(&view.units)
    }

    pub(super) fn seen_by(&self, viewer: Viewer) -> Option<Arc<LogicalUnits>> {
        self.lock().get(&viewer).map(|view| Arc::clone(&view.units))
    }

    pub(super) fn leave(&self, viewer: Viewer) {
        let mut views = self.lock();
        if let Some(view) = views.get_mut(&viewer) {
            view.sessions -= 1;
            if view.sessions == 0 {
                views.remove(&viewer);
            }
        }
    }

    /// What holds for clients may have changed: for one of them, or for any.
    pub(super) fn refresh(&self, only: Option<ClientId>, terms: impl Fn(ClientId, Peer) -> ClientConfig) {
        let (first, last) = only.map_or((ClientId([0; 16]), ClientId([u8::MAX; 16])), |client| (client, client));
        for (viewer, view) in self.lock().range_mut((first, false)..=(last, true)) {
            #[cfg(test)]
            crate::visits::count(1);
            view.turn_to(*viewer, terms(viewer.0, view.peer));
        }
    }

    /// Volumes with these numbers came or went.
    pub(super) fn follow(&self, changed: &[Lun]) {
        self.lock().values().for_each(|view| view.show(Some(changed)));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Viewer, View>> {
        // Views are brought to what they should be whenever something changes.
        self.by_client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View {
    /// Brings what is shown to what it should be by these terms.
    fn turn_to(&mut self, (_, is_read_only): Viewer, terms: ClientConfig) {
        if self.terms.as_ref() != Some(&terms) {
            self.units.set_read_only(terms.read_only || is_read_only);
            self.terms = Some(terms);
            self.show(None);
        }
    }

    fn show(&self, changed: Option<&[Lun]>) {
        match &self.terms {
            Some(terms) if terms.sees_all() => self.units.show_all(),
            Some(terms) => self.units.show(changed, |disk| terms.sees(disk.identity().name())),
            None => {}
        }
    }
}
