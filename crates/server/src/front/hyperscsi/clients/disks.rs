//! What is asked about clients whose sessions have one volume each, as HDSP's.

use std::sync::Arc;

use sanwire_core::{ClientId, Lun, Peer, Principal};
use sanwire_device::{LogicalUnit, LogicalUnits};
use sanwire_hyperscsi::Psk;

use super::Clients;
use super::views::Viewer;

impl Clients {
    /// As [`Clients::enter`], for a session with one volume, or with all that the client may see; until [`Clients::leave_disk`].
    pub(crate) fn enter_disk(&self, client: ClientId, peer: Peer, volume: Option<Arc<str>>) -> Arc<LogicalUnits> {
        let viewer = Viewer { client, is_read_only: false, only: volume };
        self.views.enter(viewer, peer, || self.table.load().terms(client, peer, self.local))
    }

    /// What a session sees that has [`Clients::enter_disk`]ed.
    pub(crate) fn disk_seen_by(&self, client: ClientId, volume: Option<Arc<str>>) -> Option<Arc<LogicalUnits>> {
        self.views.seen_by(&Viewer { client, is_read_only: false, only: volume })
    }

    /// A session is over that had [`Clients::enter_disk`]ed.
    pub(crate) fn leave_disk(&self, client: ClientId, volume: Option<Arc<str>>) {
        self.views.leave(&Viewer { client, is_read_only: false, only: volume });
    }

    /// Whether a client that is served may use the volume of this name.
    pub(crate) fn may_see(&self, client: ClientId, volume: &str) -> bool {
        self.table.load().get(client).is_none_or(|known| known.sees(volume))
    }

    /// The same for the volume with this number, which may be derived for some principals only; of none: no.
    pub(crate) fn may_see_unit(&self, client: ClientId, peer: Peer, lun: Lun) -> bool {
        self.views.volumes().get(lun).is_some_and(|unit| self.is_open_to(client, peer, &unit))
    }

    /// The numbers of all volumes that a client may use who is served.
    pub(crate) fn units_of(&self, client: ClientId, peer: Peer) -> Vec<Lun> {
        let units = self.views.volumes().iter().into_iter();
        units.filter(|(_, unit)| self.is_open_to(client, peer, unit)).map(|(lun, _)| lun).collect()
    }

    fn is_open_to(&self, client: ClientId, peer: Peer, unit: &LogicalUnit) -> bool {
        let asks = Principal { address: Some(peer.into()), client: Some(client), ..Principal::default() };
        self.may_see(client, unit.identity().name()) && unit.admits(&asks)
    }

    /// What a client must know.
    pub(crate) fn psk(&self, client: ClientId) -> Psk {
        let table = self.table.load();
        let own = table.get(client).and_then(|client| client.psk);
        own.unwrap_or(table.psk).0
    }
}
