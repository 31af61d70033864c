//! Volumes to which nobody else may write: reserved when that is asked for, again in each new session, and released at the end.

use std::sync::Arc;
use std::time::Duration;

use sanwire_core::{ClientId, Lun};

use super::{ConnectionState, Driver, VolumeId};
use crate::claim::Unclaimed;
use crate::claims::{ClaimedVolume, Claims};
use crate::endpoint::ConnectError;
use crate::inventory::{self, NewClaim, Owner, Rival, VolumeFingerprint};
use crate::options::no_randomness;
use crate::random;
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
    /// What keeps other programs of this client away until it is released.
    claimed: Option<ClaimedVolume>,
}

/// As whom a client has volumes for itself.
pub(crate) struct Claimant {
    pub(super) client: ClientId,
    pub(super) claims: Option<Arc<Claims>>,
}

impl Claimant {
    pub(crate) fn new(client: ClientId, claims: Option<Arc<Claims>>) -> Self {
        Claimant { client, claims }
    }

    /// Keeps other programs of this client away from a volume.
    fn claim(&self, mark: &VolumeFingerprint) -> Result<Option<ClaimedVolume>, Unclaimed> {
        let claims = self.claims.as_ref();
        claims.map(|claims| claims.take(format!("{}/{mark}", self.client))).transpose()
    }

    /// A key that nobody has had: the beginning of the client's id, by which people know whose it is, and what is drawn for it.
    fn new_key(&self) -> Result<u64, ConnectError> {
        let drawn = u32::from_be_bytes(random::bytes().map_err(no_randomness)?);
        // Zero stands for none.
        Ok(u64::from(self.key_head()) << 32 | u64::from(drawn.max(1)))
    }

    /// What all keys of this client begin with.
    fn key_head(&self) -> u32 {
        let [a, b, c, d, ..] = self.client.0;
        u32::from_be_bytes([a, b, c, d])
    }
}

impl Driver {
    /// Has the volume for this client alone to write to, from now on to the end of the connection, by a key that nobody
    /// has had.
    pub(crate) fn make_exclusive(
        &mut self,
        info: &VolumeInfo,
        claimant: &Claimant,
        rival: Rival,
    ) -> Result<(), ConnectError> {
        let (server, volume) = (info.server.to_string(), info.name.to_string());
        let lun = info.lun;
        let served = self.volumes.iter().flatten().find(|served| served.lun == lun && !served.mark.is_empty());
        // Without a name of its own nobody could say later whether it is the same.
        let Some(mark) = served.map(|served| served.mark.clone()) else {
            return Err(ConnectError::NoReservations { server, volume });
        };
        let claimed = match claimant.claim(&mark) {
            Ok(claimed) => claimed,
            Err(Unclaimed::Held(process)) => return Err(ConnectError::InUse { server, volume, process }),
            Err(Unclaimed::Io(path, source)) => return Err(ConnectError::Claim { path, source }),
        };
        let (key, unreleased) = (claimant.new_key()?, claimed.as_ref().and_then(ClaimedVolume::unreleased));
        let holder = match inventory::reserve(self, lun, NewClaim { key, rival, unreleased })? {
            Owner::Us => {
                claimed.iter().for_each(|claimed| claimed.reserved(key));
                self.exclusive.push(Exclusive { mark, lun, key, claimed });
                return Ok(());
            }
            Owner::Another(holder) => holder,
            Owner::Forgotten => String::from("another client, which has left it since,"),
            Owner::Nobody => return Err(ConnectError::NoReservations { server, volume }),
        };
        Err(ConnectError::Held { server, volume, holder })
    }

    /// Makes sure that nobody has the volume for itself now: no other client, and no other program of this one on this host.
    pub(crate) fn check_unheld(&mut self, info: &VolumeInfo, claimant: &Claimant) -> Result<(), ConnectError> {
        let (server, volume) = (info.server.to_string(), info.name.to_string());
        let Some((key, holder)) = inventory::holder(self, info.lun)? else { return Ok(()) };
        if key >> 32 != u64::from(claimant.key_head()) {
            return Err(ConnectError::Held { server, volume, holder });
        }
        let served = self.volumes.iter().flatten().find(|served| served.lun == info.lun);
        // What was left by a program that has ended is nobody's.
        match served.map(|served| claimant.claim(&served.mark)).transpose() {
            Ok(_) => Ok(()),
            Err(Unclaimed::Held(process)) => Err(ConnectError::InUse { server, volume, process }),
            Err(Unclaimed::Io(path, source)) => Err(ConnectError::Claim { path, source }),
        }
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
        for Exclusive { lun, key, claimed, .. } in std::mem::take(&mut self.exclusive) {
            let is_up = matches!(self.link, ConnectionState::Up(_));
            let released = is_up.then(|| self.within(RELEASE_TIMEOUT, |driver| inventory::release(driver, lun, key)));
            let why = match released {
                Some(Ok(was_there)) => {
                    claimed.iter().filter(|_| was_there).for_each(ClaimedVolume::released);
                    continue;
                }
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
