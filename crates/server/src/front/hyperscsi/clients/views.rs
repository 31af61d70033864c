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

/// Who sees something: a client.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Viewer {
    pub(super) client: ClientId,
    /// Its sessions are read only because it wants so.
    pub(super) is_read_only: bool,
    /// Of all that it may see, its sessions show this volume only.
    pub(super) only: Option<Arc<str>>,
}

#[derive(Debug)]
struct View {
    units: Arc<LogicalUnits>,
    /// Where the client was seen last.
    peer: Peer,
    sessions: usize,
    /// Nothing but this volume is shown.
    only: Option<Arc<str>>,
    /// What it shows follows from this.
    terms: Option<ClientConfig>,
}

impl Views {
    pub(super) fn new(volumes: Arc<LogicalUnits>) -> Self {
        Views { volumes, by_client: Mutex::default() }
    }

    /// All that there is, whoever may see it.
    pub(super) fn volumes(&self) -> &LogicalUnits {
        &self.volumes
    }

    /// One more session of a client; `terms` are asked while no change can come between.
    pub(super) fn enter(&self, viewer: Viewer, peer: Peer, terms: impl FnOnce() -> ClientConfig) -> Arc<LogicalUnits> {
        let mut views = self.lock();
        let part = || Arc::new(LogicalUnits::part_of(Arc::clone(&self.volumes)));
        let new = || View { units: part(), peer, sessions: 0, only: viewer.only.clone(), terms: None };
        let view = views.entry(viewer.clone()).or_insert_with(new);
        view.peer = peer;
        view.sessions += 1;
        view.turn_to(viewer.is_read_only, terms());
        Arc::clone(&view.units)
    }

    pub(super) fn seen_by(&self, viewer: &Viewer) -> Option<Arc<LogicalUnits>> {
        self.lock().get(viewer).map(|view| Arc::clone(&view.units))
    }

    pub(super) fn leave(&self, viewer: &Viewer) {
        let mut views = self.lock();
        if let Some(view) = views.get_mut(viewer) {
            view.sessions -= 1;
            if view.sessions == 0 {
                views.remove(viewer);
            }
        }
    }

    /// What holds for clients may have changed: for one of them, or for any.
    pub(super) fn refresh(&self, only: Option<ClientId>, terms: impl Fn(ClientId, Peer) -> ClientConfig) {
        let (client, last) = only.map_or((ClientId([0; 16]), ClientId([u8::MAX; 16])), |client| (client, client));
        let first = Viewer { client, is_read_only: false, only: None };
        let mut views = self.lock();
        for (viewer, view) in views.range_mut(first..).take_while(|(viewer, _)| viewer.client <= last) {
            #[cfg(test)]
            crate::visits::count(1);
            view.turn_to(viewer.is_read_only, terms(viewer.client, view.peer));
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
    fn turn_to(&mut self, is_read_only: bool, terms: ClientConfig) {
        if self.terms.as_ref() != Some(&terms) {
            self.units.set_read_only(terms.read_only || is_read_only);
            self.terms = Some(terms);
            self.show(None);
        }
    }

    fn show(&self, changed: Option<&[Lun]>) {
        match &self.terms {
            Some(terms) if terms.sees_all() && self.only.is_none() => self.units.show_all(),
            Some(terms) => self.units.show(changed, |disk| {
                let name = disk.identity().name();
                self.only.as_ref().is_none_or(|only| **only == *name) && terms.sees(name)
            }),
            None => {}
        }
    }
}
