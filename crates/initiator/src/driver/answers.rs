//! What becomes of commands that have ended.

use sanwire_buffer::Frame;
use sanwire_core::Instant;
use sanwire_scsi::{AdditionalSense, Sense, SenseKey};

use super::keeping::tells_of_power;
use super::{Driver, OwnAnswer, Stalled, Trust, VolumeId, Waiting};
use crate::queue::{Completer, OpOutput};
use crate::session::{Answer, Failure, OrderId};
use crate::translate::{Again, Task, Verdict, verdict};
use crate::volume::VolumeError;

impl Driver {
    pub(super) fn failed(&mut self, id: OrderId, failure: Failure, data_in: Option<Frame>, now: Instant) {
        match self.waiting.remove(&id) {
            Some(Waiting::Operation { again, completer }) if self.is_moving || self.may_be_cut(&again, &failure) => {
                self.stalled.push_back(Stalled { not_before: now, again, data_in, completer });
            }
            Some(Waiting::Operation { again, completer }) => {
                if failure != Failure::TooLarge {
                    self.note_in_doubt(&again);
                }
                let error = match failure {
                    Failure::InDoubt | Failure::TooLarge | Failure::Protocol(_) | Failure::VolumeGone => {
                        VolumeError::Protocol { what: failure.to_string().into() }
                    }
                    Failure::TimedOut { after } => VolumeError::TimedOut { after },
                    Failure::Closed => VolumeError::Closed,
                    _ => self.disconnected(),
                };
                completer.complete(Err(error));
            }
            Some(Waiting::Own) => {
                self.answers.insert(id, Err(failure));
            }
            Some(Waiting::Background { keeper, below }) => self.flushed_in_background(keeper, below, None, now),
            Some(Waiting::Again { keeper }) => self.wrote_again(keeper, id, Err(failure), now),
            None => drop(self.given_up.remove(&id)),
        }
    }

    pub(super) fn completed(
        &mut self,
        id: OrderId,
        answer: Answer,
        data_in: Option<Frame>,
        data_in_bytes: usize,
        now: Instant,
    ) {
        match self.waiting.remove(&id) {
            Some(Waiting::Operation { again, completer }) => match verdict(&again, &answer, data_in, data_in_bytes) {
                // A unit that may have lost what it makes stable is asked that first.
                Verdict::Tell(Ok(_)) if self.is_doubtful_flush(&again) => {
                    self.stalled.push_back(Stalled { not_before: now, again, data_in: None, completer });
                }
                Verdict::Tell(Ok(output)) => self.done(again, output, completer, now),
                Verdict::Tell(Err(error)) => {
                    if error == VolumeError::Reserved && self.is_exclusive(again.volume) {
                        self.doubt(again.volume);
                    }
                    self.note_failed(&again, &answer);
                    completer.complete(Err(error));
                }
                Verdict::Again(data_in) => {
                    if tells_of_reservations(&answer) && self.is_exclusive(again.volume) {
                        self.doubt(again.volume);
                    }
                    self.give_again(again, &answer, data_in, completer, now);
                }
                Verdict::Unsure(data_in) => {
                    self.doubt(again.volume);
                    self.note_power(again.volume, &answer);
                    self.give_again(again, &answer, data_in, completer, now);
                }
            },
            Some(Waiting::Background { keeper, below }) => {
                self.flushed_in_background(keeper, below, Some((answer.status, &answer.sense)), now);
            }
            Some(Waiting::Again { keeper }) => self.wrote_again(keeper, id, Ok(answer), now),
            Some(Waiting::Own) => {
                let data = data_in.map(|frame| frame[..data_in_bytes.min(frame.len())].to_vec()).unwrap_or_default();
                self.answers.insert(id, Ok(OwnAnswer { answer, data }));
            }
            None => {
                // It is told once.
                let told = Sense::parse(&answer.sense).filter(|sense| sense.key == SenseKey::UnitAttention);
                if let Some((lun, told)) = self.given_up.remove(&id).zip(told) {
                    self.overheard(lun, told.additional);
                }
            }
        }
    }

    /// The only volume of the session is there no more.
    pub(super) fn gone(&self) -> VolumeError {
        let what = Failure::VolumeGone.to_string();
        tracing::error!("server {}: {what}", self.server_name);
        VolumeError::Protocol { what: what.into() }
    }

    /// Tells the caller when all of the operation is done; else gives the next part of it.
    fn done(&mut self, mut again: Again, output: OpOutput, completer: Completer, now: Instant) {
        if let Err(error) = self.note_done(&again) {
            return completer.complete(Err(error));
        }
        match again.done(output) {
            Some(output) => completer.complete(Ok(output)),
            None => self.stalled.push_back(Stalled { not_before: now, again, data_in: None, completer }),
        }
    }

    /// Whether what has failed goes in smaller parts: it was given in a session that took more.
    fn may_be_cut(&self, again: &Again, failure: &Failure) -> bool {
        let is_too_large = |served| again.exceeds(self.limits(served));
        *failure == Failure::TooLarge && self.served(again.volume).is_some_and(is_too_large)
    }

    fn is_doubtful_flush(&self, again: &Again) -> bool {
        again.request.task == Task::Flush
            && self.served(again.volume).is_some_and(|served| served.trust != Trust::Known)
    }

    fn note_power(&mut self, id: VolumeId, answer: &Answer) {
        let told = Sense::parse(&answer.sense).map(|sense| sense.additional);
        if let Some(served) = self.served_mut(id).filter(|_| told.is_some_and(tells_of_power)) {
            served.has_lost_power = true;
        }
    }
}

/// Whether others have changed what is reserved.
fn tells_of_reservations(answer: &Answer) -> bool {
    Sense::parse(&answer.sense).is_some_and(|sense| {
        let told = [
            AdditionalSense::RESERVATIONS_PREEMPTED,
            AdditionalSense::RESERVATIONS_RELEASED,
            AdditionalSense::REGISTRATIONS_PREEMPTED,
        ];
        sense.key == SenseKey::UnitAttention && told.contains(&sense.additional)
    })
}
