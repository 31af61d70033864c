//! What a command holds of its disk.

use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_scsi::Sense;

use crate::disk::Disk;
use crate::exclusion::{Claim, Lane, Permit};

/// A disk, and what a command holds of it.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(super) disk: Arc<Disk>,
    lane: Lane,
    permit: Permit,
    /// A sanitize is not over; whether its failure may be given up.
    pub(super) sanitizes: Option<bool>,
}

impl Hold {
    pub(crate) fn new(disk: Arc<Disk>, claim: Option<Claim>, nexus: NexusId) -> Hold {
        let lane = Lane::of(nexus);
        let permit = claim.map_or(Permit::Nothing, |claim| disk.exclusion.enter(claim, lane));
        Hold { disk, lane, permit, sanitizes: None }
    }

    /// Gives up what it held for the last piece, and claims the next one behind those who waited for that.
    pub(super) fn go_to(&mut self, piece: Option<Claim>) {
        self.disk.exclusion.leave(&self.permit);
        self.permit = piece.map_or(Permit::Nothing, |claim| self.disk.exclusion.enter(claim, self.lane));
    }

    /// Refuses a piece that is written after a sanitize has begun. Asked while the piece is claimed: either this sees the
    /// sanitize, or the sanitize waits for the piece.
    pub(crate) fn check_not_sanitizing(&self) -> Result<(), Sense> {
        self.disk.sanitize.check_not_running()
    }

    pub(crate) fn may_go(&self) -> bool {
        self.disk.exclusion.may_go(&self.permit)
    }

    pub(crate) fn keep(&mut self) {
        self.disk.exclusion.keep(&mut self.permit);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(may_be_given_up) = self.sanitizes {
            self.disk.sanitize.fail(may_be_given_up);
        }
        self.disk.exclusion.leave(&self.permit);
    }
}
