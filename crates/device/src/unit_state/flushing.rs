//! What a unit tells initiators of its flushes.

use sanwire_core::NexusId;
use sanwire_scsi::Receipt;
use sanwire_scsi::reservation::TransportId;
use sanwire_scsi::vpd::WriteVerifier;
use sanwire_store::Completion;

use super::UnitState;
use crate::flushes::Told;
use crate::unit_attention::UnitAttention;

impl UnitState {
    /// Whether writes that are complete may be lost before they are flushed.
    #[must_use]
    pub fn is_volatile(&self) -> bool {
        self.flushes.is_volatile()
    }

    /// What tells initiators that what they have not flushed may be lost: another one then. `None` when nothing ever is.
    #[must_use]
    pub fn verifier(&self) -> Option<[u8; 16]> {
        self.flushes.verifier()
    }

    /// Whether a flush has failed since the unit was made.
    #[must_use]
    pub fn has_failed_flushes(&self) -> bool {
        self.flushes.have_failed()
    }

    /// What the write verifier page tells; `heeding`: the nexus that goes by that, which is the writer of this name.
    /// With the receipt of the answer, if it tells of failures.
    pub(crate) fn write_verifier(&self, heeding: Option<NexusId>, writer: Option<[u8; 16]>) -> Told<WriteVerifier> {
        let told = match heeding {
            Some(nexus) => self.flushes.tell_verifier(nexus),
            None => self.flushes.verifier().map(|verifier| (verifier, None)),
        };
        let Some((verifier, receipt)) = told else {
            return (WriteVerifier { is_stable: true, ..WriteVerifier::default() }, None);
        };
        // Who has a part only never writes alone: the others of its blocks are not asked.
        let offer = |(nexus, writer)| self.tenures.offer(nexus, writer, &self.exclusion, &self.nexuses);
        let tenure = heeding.zip(writer).filter(|_| self.derived().is_none()).and_then(offer);
        (WriteVerifier { verifier, tenure: tenure.map(|tenure| tenure.id), ..WriteVerifier::default() }, receipt)
    }

    /// The initiator port that has written last, if it is not that of this nexus and is still there.
    pub(crate) fn other_writer(&self, nexus: NexusId) -> Option<TransportId> {
        let writer = self.last_writer.other_than(nexus)?;
        let mut found = None;
        self.for_each_derived(&mut |unit| found = found.take().or_else(|| unit.reservations.initiator_of(writer)));
        found
    }

    /// This nexus changes it.
    pub(crate) fn note_writer(&self, nexus: NexusId) {
        self.last_writer.note(nexus);
        self.ancestors().for_each(|unit| unit.last_writer.note(nexus));
    }

    /// The store could not make stable what was written, by any initiator, and may have dropped it: each hears of that with its next
    /// flush.
    pub fn flush_failed(&self) {
        self.tell_failure(None);
    }

    /// Has its owner make stable what was written, by `work`. That may be told there, in their place, what others have written and is
    /// lost: their flushes do not succeed before that is known.
    ///
    /// # Errors
    /// Those of `work`; initiators are told as of any flush that has failed.
    pub fn flush_by<E>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let place = self.flushes.begin(None, None);
        let done = work();
        if done.is_err() {
            self.flush_failed();
        }
        self.flushes.end(place);
        self.exclusion.bell().ring();
        done
    }

    fn tell_failure(&self, told: Option<NexusId>) -> Option<Receipt> {
        // Those that are there have not heard of it, also if they have not used the unit: they may write on for one that has.
        self.root().for_each_derived(&mut UnitState::become_watchful);
        let receipt = self.flushes.failed(told);
        self.root().for_each_derived(&mut |unit| {
            unit.nexuses.raise_for(UnitAttention::InquiryChanged, unit.flushes.readers().into_iter());
        });
        receipt
    }

    /// What a flush comes to that has ended so at the store; `by`: the nexus that hears of it for all that it has written, if any does;
    /// `place`: its own, if it must be a success for one. With the receipt of the answer, if that tells of failures.
    pub(crate) fn flushed(&self, by: Option<NexusId>, place: Option<u32>, completion: Completion) -> Told<Completion> {
        match (place, completion) {
            (_, failed @ Err(_)) => (failed, self.tell_failure(by)),
            (Some(place), done) => self.flushes.succeeded(by, place, done),
            (None, done) => (done, None),
        }
    }
}
