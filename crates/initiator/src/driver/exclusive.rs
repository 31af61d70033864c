//! Volumes to which nobody else may write: reserved when that is asked for, again in each new session, and released at the end.

use std::time::Duration;

use sanwire_core::Lun;

use super::{ConnectionState, Driver, VolumeId};
use crate::endpoint::ConnectError;
use crate::inventory::{self, Owner, Rival, VolumeFingerprint};
use crate::session::Failure;
use crate::volume::{VolumeError, VolumeInfo};

/// How long the server may take to release a volume: who leaves does not wait for one that is away.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// A volume that is reserved.
pub(super) struct Exclusive {
    mark: VolumeFingerprint,
    /// Where it was last.
    lun: Lun,
    /// That of this claim alone.
    key: u64,
}

impl Driver {
    /// Has the volume for this client alone to write to, from now on to the end of the connection, by a key that nobody has had.
    pub(crate) fn make_exclusive(&mut self, info: &VolumeInfo, key: u64, rival: Rival) -> Result<(), ConnectError> {
        let (server, volume) = (info.server.to_string(), info.name.to_string());
        let lun = info.lun;
        let served = self.volumes.iter().flatten().find(|served| served.lun == lun && !served.mark.is_empty());
        // Without a name of its own nobody could say later whether it is the same.
        let Some(mark) = served.map(|served| served.mark.clone()) else {
            return Err(ConnectError::NoReservations { server, volume });
        };
        let holder = match inventory::reserve(self, lun, key, rival)? {
            Owner::Us => {
                self.exclusive.push(Exclusive { mark, lun, key });
                return Ok(());
            }
            Owner::Another(holder) => holder,
            Owner::Forgotten => String::from("another client, which has left it since,"),
            Owner::Nobody => return Err(ConnectError::NoReservations { server, volume }),
        };
        Err(ConnectError::Held { server, volume, holder })
    }

    /// Whether the volume is reserved for this client.
    pub(super) fn is_exclusive(&self, id: VolumeId) -> bool {
        let mark = self.served(id).map(|served| &served.mark);
        !self.exclusive.is_empty() && self.exclusive.iter().any(|exclusive| Some(&exclusive.mark) == mark)
    }

    /// Makes sure that the volume, which is there now, is still reserved for this client if it was; false when another one has it, and
    /// it was taken away from its handles.
    pub(super) fn stays_exclusive(&mut self, id: VolumeId, lun: Lun) -> Result<bool, Failure> {
        let Some(mark) = self.served(id).filter(|_| self.is_exclusive(id)).map(|served| served.mark.clone()) else {
            return Ok(true);
        };
        let Some(at) = self.exclusive.iter().position(|exclusive| exclusive.mark == mark) else { return Ok(true) };
        self.exclusive[at].lun = lun;
        let why = match inventory::stays_reserved(self, lun, self.exclusive[at].key) {
            Ok(Owner::Us) => return Ok(true),
            Ok(Owner::Another(holder)) => format!("{holder} has taken it over"),
            Ok(Owner::Forgotten) => String::from(
                "nobody has reserved it any more: another client has had it and left it again, or the server has forgotten at a restart who had it",
            ),
            Ok(Owner::Nobody) => String::from("the server does not reserve it any more"),
            Err(ConnectError::Handshake { failure, .. }) => return Err(failure),
            Err(error) => error.to_string(),
        };
        let name = self.served(id).map(|served| served.info.get().name).unwrap_or_default();
        tracing::error!(
            "volume {name} of server {} is not this client's alone any more: {why}. All its I/O fails until it is detached and attached again",
            self.server_name
        );
        self.drop_volume(id, VolumeError::Reserved);
        Ok(false)
    }

    /// Others may write to what was reserved.
    pub(crate) fn release_exclusive(&mut self) {
        for Exclusive { lun, key, .. } in std::mem::take(&mut self.exclusive) {
            let is_up = matches!(self.link, ConnectionState::Up(_));
            let released = is_up.then(|| self.within(RELEASE_TIMEOUT, |driver| inventory::release(driver, lun, key)));
            let why = match released {
                Some(Ok(_)) => continue,
                Some(Err(error)) => error.to_string(),
                None => String::from("the server is away"),
            };
            tracing::warn!(
                "logical unit {lun} of server {} stays reserved for this client ({why}): attach it --exclusive here again, or elsewhere with \
                 --preempt",
                self.server_name
            );
        }
    }
}
