//! What the protocol asks about clients and disks.

use std::sync::Arc;

use sanwire_core::{ClientId, Peer, Protection};
use sanwire_hdsp::wire::DiskType;
use sanwire_hdsp::{Directory, Disk, Wanted};
use sanwire_hyperscsi::Psk;

use super::disks::{Disks, SERVER_ADDRESS};
use crate::front::hyperscsi::clients::Clients;
use crate::protection_table::ProtectionTable;

/// What the protocol asks, of clients and volumes as they are at that moment.
pub(super) struct Doorkeeper {
    pub(super) clients: Arc<Clients>,
    pub(super) levels: Arc<ProtectionTable>,
    pub(super) disks: Arc<Disks>,
    /// Which run of the server this is: what the server as a whole has answered counts in none other.
    pub(super) run: u64,
}

impl Directory for Doorkeeper {
    fn permits(&self, peer: Peer, client: Option<ClientId>) -> bool {
        self.clients.permits(peer, client)
    }

    fn is_listed(&self, client: ClientId) -> bool {
        self.clients.is_listed(client)
    }

    fn psk(&self, client: ClientId) -> Option<Psk> {
        Some(self.clients.psk(client))
    }

    fn disk(&self, client: ClientId, peer: Peer, wanted: Wanted<'_>, disk_type: DiskType) -> Option<Disk> {
        let (address, place) = match wanted {
            Wanted::At(SERVER_ADDRESS) => return Some(self.server(client, peer)),
            Wanted::At(address) => (address, self.disks.at(address)?),
            Wanted::Named(name) => self.disks.named(name)?,
        };
        if !self.clients.may_see_unit(client, peer, place.lun) {
            return None;
        }
        let disk_type = match disk_type {
            DiskType::Ata | DiskType::Sata if place.takes_ata => disk_type,
            _ => DiskType::Scsi,
        };
        Some(Disk { address, volume: place.uuid, disk_type, protection: self.levels.of(Some(place.lun)) })
    }
}

impl Doorkeeper {
    /// The server as a whole is guarded as the volume that demands most of all that the client may see.
    fn server(&self, client: ClientId, peer: Peer) -> Disk {
        let seen = self.clients.units_of(client, peer).into_iter();
        let protection = seen.map(|lun| self.levels.of(Some(lun))).max().unwrap_or(Protection::Checksum);
        let mut volume = [0; 16];
        volume[8..].copy_from_slice(&self.run.to_be_bytes());
        Disk { address: SERVER_ADDRESS, volume, disk_type: DiskType::Scsi, protection }
    }
}
