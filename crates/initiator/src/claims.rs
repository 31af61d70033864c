//! What each program of a client has for itself at servers, so that two programs of one host do not take it from each other.
//!
//! To a server all programs of a client are one, and what one of them has left reserved is the next one's. So a program takes a lock
//! of the host before it reserves a volume, and has it until it has released that: who has the lock knows that whoever reserved the
//! volume on this host before is gone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::claim::{Claim, Unclaimed};

/// Where the programs of this host that are one client keep apart what each of them has for itself, and what this one had.
#[derive(Debug)]
pub struct Claims {
    directory: PathBuf,
    /// The keys by which this process has reserved volumes that it has not released: another program may have had them since.
    unreleased: Mutex<BTreeMap<String, u64>>,
}

impl Claims {
    /// With locks in this directory, the same for all programs of the client; it is made when a volume is claimed. A process has one of
    /// these for all its clients.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Claims { directory, unreleased: Mutex::default() }
    }

    /// Has the volume of this identity for this process, unless another program has.
    pub(crate) fn take(self: &Arc<Self>, identity: String) -> Result<ClaimedVolume, Unclaimed> {
        let claim = Claim::take(&self.directory, &identity, false)?;
        Ok(ClaimedVolume { claims: Arc::clone(self), identity, claim: Some(claim) })
    }

    fn unreleased(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        // Each change is one step: a poisoned map is still whole.
        self.unreleased.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A volume that no other program of this client on this host has, until this is dropped.
#[derive(Debug)]
pub(crate) struct ClaimedVolume {
    claims: Arc<Claims>,
    identity: String,
    claim: Option<Claim>,
}

impl ClaimedVolume {
    /// The key by which this process has reserved the volume before, and did not release it.
    pub(crate) fn unreleased(&self) -> Option<u64> {
        self.claims.unreleased().get(&self.identity).copied()
    }

    /// It is reserved by this key.
    pub(crate) fn reserved(&self, key: u64) {
        self.claims.unreleased().insert(self.identity.clone(), key);
    }

    /// It is not reserved any more.
    pub(crate) fn released(&self) {
        self.claims.unreleased().remove(&self.identity);
    }
}

impl Drop for ClaimedVolume {
    fn drop(&mut self) {
        self.claim.take().into_iter().for_each(Claim::end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_one_programs_and_what_it_has_not_released_is_known() {
        let directory = std::env::temp_dir().join(format!("sanwire-client-claims-{}", std::process::id()));
        let programs = [(); 2].map(|()| Arc::new(Claims::new(directory.clone())));
        let take = |program: usize| programs[program].take("client/disk".to_owned());
        let first = take(0).unwrap();
        assert!(matches!(take(1), Err(Unclaimed::Held(Some(pid))) if pid == std::process::id()));
        assert_eq!(first.unreleased(), None);
        first.reserved(7);
        drop(first);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "no file stays");
        assert_eq!(take(1).unwrap().unreleased(), None, "another process does not know");
        let again = take(0).unwrap();
        assert_eq!(again.unreleased(), Some(7));
        again.released();
        drop(again);
        assert_eq!(take(0).unwrap().unreleased(), None);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
