//! What a command holds of a unit while it works there, and whose turn it is.

use std::sync::Arc;

use sanwire_core::NexusId;
use sanwire_scsi::{Receipt, Sense};
use sanwire_store::{Completion, CompletionQueue, Request};

use crate::command_program::Keeping;
use crate::derived::Guest;
use crate::exclusion::{Claim, Lane, Permit};
use crate::fault::{NOT_ACCESSIBLE, NOT_SUPPORTED, REPLACED};
use crate::judged::Judged;
use crate::range::Range;
use crate::tenure::Admission;
use crate::unit_state::UnitState;

/// A unit, and what a command holds of it.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) unit: Arc<UnitState>,
    nexus: NexusId,
    /// Which content of the unit it is about.
    content: u32,
    /// It may change what it claims, whichever other nexuses write.
    is_admitted: bool,
    /// It is a piece of a copy, which no initiator gives again.
    is_copy: bool,
    permit: Permit,
    /// Nothing but its own end ends the command.
    pub(crate) outlives_its_task: bool,
    flushing: Flushing,
    /// The flush's place among those of the unit, while there is one.
    place: u32,
    /// Up to which receipt its initiator had the answers when it gave the command.
    pub(crate) receipts: u64,
    /// See [`sanwire_scsi::Reply::is_bulk_read`].
    pub(crate) is_bulk_read: bool,
    /// What it holds goes to the end of what it changes.
    keeps_ahead: bool,
    /// What programs have said of the command.
    pub(crate) judged: Option<Box<Judged>>,
}

/// Whether a command's store makes stable what was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flushing {
    No,
    /// It will, when it has written what that is for.
    Ahead,
    /// Its nexus hears how that ends.
    Heard,
    /// No nexus does.
    Unheard,
    /// That is done; what others have under way may have failed instead.
    Settling,
}

impl Hold {
    pub(crate) fn new(unit: Arc<UnitState>, claim: Option<Claim>, nexus: NexusId) -> Hold {
        let (permit, flushing) = (Permit::Nothing, Flushing::No);
        // Before the claim: a replacement waits for those that are claimed.
        let content = unit.content();
        let mut hold = Hold {
            unit,
            nexus,
            content,
            is_admitted: true,
            is_copy: false,
            permit,
            outlives_its_task: false,
            flushing,
            place: 0,
            receipts: 0,
            is_bulk_read: false,
            keeps_ahead: false,
            judged: None,
        };
        hold.enter(claim);
        hold
    }

    /// Of a piece of a copy, which began on this content.
    pub(crate) fn of_copy(unit: Arc<UnitState>, content: u32, claim: Option<Claim>, nexus: NexusId) -> Hold {
        let mut hold = Hold::new(unit, claim, nexus);
        (hold.is_copy, hold.content) = (true, content);
        hold
    }

    fn enter(&mut self, claim: Option<Claim>) {
        let exclusion = &self.unit.exclusion;
        let is_change = claim.is_some_and(|claim| claim.access.is_change());
        self.is_admitted = !is_change;
        if is_change {
            self.unit.note_writer(self.nexus);
        }
        self.permit = claim.map_or(Permit::Nothing, |claim| exclusion.enter(claim, Lane::of(self.nexus)));
    }

    /// The nexus that is told how a flush ended, for all that it has written. None for a copy: other nexuses write to the unit that it
    /// flushes than the one that asks for it, also behind the same port.
    fn flusher(&self) -> Option<NexusId> {
        (!self.is_copy).then_some(self.nexus)
    }

    /// It begins to write what it makes stable then.
    pub(crate) fn expect_flush(&mut self) {
        if self.flushing == Flushing::No {
            self.flushing = Flushing::Ahead;
            self.place = self.unit.flushes.expect();
        }
    }

    /// A flush begins.
    pub(crate) fn begin_flush(&mut self, is_heard: bool) {
        let place = (self.flushing == Flushing::Ahead).then_some(self.place);
        self.flushing = if is_heard { Flushing::Heard } else { Flushing::Unheard };
        self.place = self.unit.flushes.begin(self.flusher().map(|nexus| (nexus, self.receipts)), place);
    }

    /// What the flush comes to, if this was one, which has ended so at the store; with the receipt of the answer, if that tells of
    /// flushes that failed.
    pub(crate) fn flushed(&mut self, completion: Completion) -> (Completion, Option<Receipt>) {
        if !self.is_flushing() {
            return (completion, None);
        }
        let is_heard = self.flushing != Flushing::Unheard;
        let by = self.flusher().filter(|_| is_heard);
        let told = self.unit.flushed(by, is_heard.then_some(self.place), completion);
        self.end_flush();
        told
    }

    /// Whether its flush has begun.
    pub(crate) fn is_flushing(&self) -> bool {
        !matches!(self.flushing, Flushing::No | Flushing::Ahead)
    }

    /// Whether the flush, which the store has done, is not known yet to be a success.
    pub(crate) fn must_settle(&mut self) -> bool {
        let must_settle =
            matches!(self.flushing, Flushing::Heard | Flushing::Settling) && !self.unit.flushes.may_succeed(self.place);
        if must_settle && self.flushing != Flushing::Settling {
            self.flushing = Flushing::Settling;
            // Those that its store's work kept waiting look again.
            self.unit.exclusion.bell().ring();
        }
        must_settle
    }

    /// What a flush means has been noted.
    pub(crate) fn end_flush(&mut self) {
        if std::mem::replace(&mut self.flushing, Flushing::No) != Flushing::No {
            self.unit.flushes.end(self.place);
            self.unit.exclusion.bell().ring();
        }
    }

    /// Notes that a request of the command is about to begin; `guest`: who gave it, where that is known.
    pub(crate) fn note_moved(&self, request: &Request, guest: Option<&Guest>) {
        if request.is_write() {
            let (offset_bytes, length_bytes) = request.range_bytes();
            self.unit.note_change(Range { offset_bytes, length_bytes });
        }
        let Some(derived) = self.unit.derived().filter(|_| !self.is_copy) else { return };
        let (_, length_bytes) = request.range_bytes();
        let note = match request {
            Request::Read { .. } => Guest::note_read,
            Request::Write { .. } | Request::WriteZeroes { .. } => Guest::note_written,
            Request::Flush | Request::Discard { .. } | Request::Allocation { .. } => return,
        };
        match guest {
            Some(guest) => note(guest, length_bytes),
            None => derived.users.guest(self.nexus).iter().for_each(|guest| note(guest, length_bytes)),
        }
    }

    /// Gives up what it held for the last piece, and claims the next one behind those that waited for that.
    pub(crate) fn go_to(&mut self, piece: Option<Claim>) {
        if self.keeps_ahead {
            return;
        }
        self.unit.exclusion.leave(&self.permit);
        self.enter(piece);
    }

    /// Refuses a piece that is written after a sanitize has begun. Asked while the piece is claimed: either this sees the
    /// sanitize, or the sanitize waits for the piece.
    pub(crate) fn check_not_busy(&self) -> Result<(), Sense> {
        self.unit.check_not_busy()
    }

    /// Whether it may begin, or go on with its piece.
    pub(crate) fn may_go(&mut self) -> Turn {
        let unit = &*self.unit;
        let root = unit.root();
        // Asked while the blocks are claimed: either this sees that the unit is revoked, or who revokes it can wait for the claim.
        if unit.is_revoked() {
            return Turn::Never(NOT_SUPPORTED);
        }
        if matches!(self.permit, Permit::Queued(_)) {
            root.tenures.settle(&root.exclusion, &root.nexuses);
        }
        match self.judged.as_mut().map_or(Keeping::Kept, |judged| judged.keeping()) {
            Keeping::Kept => {}
            Keeping::Pending => return Turn::Later,
            Keeping::Failed => return Turn::Never(NOT_ACCESSIBLE),
        }
        if !unit.exclusion.may_go(&self.permit) {
            return Turn::Later;
        }
        if self.content != unit.content() && !self.outlives_its_task {
            return Turn::Never(REPLACED);
        }
        let writer = unit.derived().is_none().then_some(self.nexus);
        self.is_admitted |= writer.is_some_and(|nexus| root.tenures.is_holder(nexus));
        if self.is_admitted {
            return Turn::Now;
        }
        // A nexus that is not the only writer any more, and has not heard of it yet, has given this write before that: it must not
        // come after those of others.
        if !self.outlives_its_task
            && !self.is_copy
            && let Some(sense) = unit.nexuses.take_inquiry_changed(self.nexus)
        {
            return Turn::Never(sense);
        }
        let admission = root.tenures.admits(writer, &root.exclusion, &root.nexuses);
        self.is_admitted = admission == Admission::Granted;
        match admission {
            Admission::Granted => Turn::Now,
            Admission::Later => {
                unit.exclusion.requeue(&mut self.permit);
                Turn::Later
            }
            Admission::Refused => Turn::Never(NOT_ACCESSIBLE),
        }
    }

    /// Has this driver woken when what it waits for may have ended.
    pub(crate) fn wake(&self, driver: &CompletionQueue) {
        self.unit.exclusion.bell().wait(driver);
    }

    /// `ahead`: with all blocks that it is going to change.
    pub(crate) fn keep(&mut self, ahead: Option<Range>) {
        self.keeps_ahead |= ahead.is_some();
        self.unit.exclusion.keep(&mut self.permit, ahead);
    }
}

/// Whether a command may touch its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    Now,
    Later,
    Never(Sense),
}

impl Drop for Hold {
    fn drop(&mut self) {
        // How it ended was not seen: a server that stops waits for its stores for some seconds only. It may have had the one
        // error that the store tells, so that the flush of the server's own end succeeds.
        if matches!(self.flushing, Flushing::Heard | Flushing::Unheard) {
            self.unit.flush_failed();
        }
        self.end_flush();
        self.unit.exclusion.leave(&self.permit);
    }
}
