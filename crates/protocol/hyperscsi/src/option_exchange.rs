//! What both ends of a connection want of each other, what came of it, and how that changes while the connection lives
//! (`docs/protocols/hyperscsi.md` 3.8). Each end has this, and either may begin.
//!
//! Each end numbers its options: the handshake's are 0, and whatever it says of them later names the number. So neither a late
//! question nor a late answer undoes a later change, also when both ends ask at once.

use std::time::Duration;

use sanwire_core::{Instant, Protection};

use crate::options::{Agreed, DeviceOption, OptionConflict, Options};
use crate::wire::live::NewOptions;

/// A change that was not answered is told again after this; and no two changes are told within it.
const AGAIN: Duration = Duration::from_millis(200);

/// A change that was told so often without any answer to it will have none.
const ASKS_MAX: u32 = 15;

/// What was sent by the terms of before is taken for so long.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// Changes of the other end that are taken in [`PERIOD`]; more are a storm. Who means one tells it again.
const CHANGES_MAX: u32 = 8;
const PERIOD: Duration = Duration::from_secs(1);

/// What held before, each until a time.
#[derive(Debug)]
pub(crate) struct Former<T>(Vec<(T, Instant)>);

impl<T: Copy> Former<T> {
    pub(crate) const fn new() -> Self {
        Former(Vec::new())
    }

    /// This held until now.
    pub(crate) fn add(&mut self, value: T, now: Instant) {
        self.0.retain(|(_, until)| *until > now);
        self.0.push((value, now + GRACE));
    }

    /// What is still to be taken.
    pub(crate) fn at(&self, now: Instant) -> impl Iterator<Item = T> {
        self.0.iter().filter(move |(_, until)| *until > now).map(|(value, _)| *value)
    }
}

/// How data packets are guarded at least.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Floors {
    /// Those that we send.
    pub(crate) outward: Protection,
    /// Those that we take.
    pub(crate) inward: Protection,
}

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It holds already, or is overtaken.
    Same,
    /// It holds from now on.
    Changed,
    /// One end enforces what the other does not support: what held before holds.
    Conflict(DeviceOption),
}

/// What time brings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    Nothing,
    /// The other end is to be asked this.
    Ask(NewOptions),
    /// It answers nothing.
    Unheard,
}

/// The other end breaks the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Violation;

/// A change that we want and the other end has not answered.
#[derive(Debug)]
struct Asking {
    wanted: NewOptions,
    /// When to say so (again).
    at: Instant,
}

/// The terms of one connection, at one end.
#[derive(Debug)]
pub(crate) struct OptionExchange {
    ours: NewOptions,
    theirs: NewOptions,
    agreed: Agreed,
    /// The largest transfer by what both ends have offered beside their options.
    offered_transfer_bytes: u32,
    /// The largest that was ever agreed on, on this connection or an earlier one of the same session.
    transfer_limit_bytes: u32,
    /// The largest that we ever asked for.
    asked_transfer_bytes: u32,
    /// The number of the last change of ours, and of the last one that was answered.
    changes: u32,
    answered: u32,
    asking: Option<Asking>,
    /// How often we have asked without an answer: so many may still come.
    unanswered: u32,
    /// How often since something was answered that was not before.
    silence: u32,
    /// Before then no further change is told.
    quiet_until: Instant,
    /// The last change of theirs that was looked at.
    heard: u32,
    /// How many came since when.
    storm: (u32, Instant),
}

impl OptionExchange {
    /// # Errors
    /// When one end enforces what the other does not support.
    pub(crate) fn new(ours: Options, theirs: Options, offered_transfer_bytes: u32) -> Result<Self, OptionConflict> {
        let agreed = Agreed::new(&ours, &theirs)?;
        let mut terms = OptionExchange {
            ours: NewOptions { change: 0, options: ours },
            theirs: NewOptions { change: 0, options: theirs },
            agreed,
            offered_transfer_bytes,
            transfer_limit_bytes: 0,
            asked_transfer_bytes: 0,
            changes: 0,
            answered: 0,
            asking: None,
            unanswered: 0,
            silence: 0,
            quiet_until: Instant::ZERO,
            heard: 0,
            storm: (0, Instant::ZERO),
        };
        terms.transfer_limit_bytes = terms.transfer_max_bytes();
        Ok(terms)
    }

    pub(crate) fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// To what the data transfer of a new command is to be cut.
    pub(crate) fn transfer_max_bytes(&self) -> u32 {
        self.transfer_max_of(&self.agreed)
    }

    fn transfer_max_of(&self, agreed: &Agreed) -> u32 {
        let offered = self.offered_transfer_bytes;
        agreed.transfer_max_bytes.map_or(offered, |max| max.min(offered))
    }

    /// The largest data transfer that may be given: who cut it before a change may give it at any time after.
    pub(crate) fn transfer_limit_bytes(&self) -> u32 {
        self.transfer_limit_bytes
    }

    /// As large ones may be given as before: the session, with the commands that were cut then, goes on.
    pub(crate) fn keep_transfer_limit(&mut self, former_bytes: u32) {
        self.transfer_limit_bytes = self.transfer_limit_bytes.max(former_bytes);
    }

    /// The largest data transfer that may come: the other end may have agreed to what its answer has not told yet.
    pub(crate) fn taken_transfer_bytes(&self) -> u32 {
        self.transfer_limit_bytes.max(self.asked_transfer_bytes)
    }

    /// Whether we said that we can expand data.
    pub(crate) fn takes_compressed(&self) -> bool {
        self.ours.options.get(DeviceOption::Compression.number()).is_some()
    }

    /// How packets are guarded. While nobody knows whether the other end has heard of a change, what we send is good enough for
    /// either case, and so is what it sends.
    pub(crate) fn floors(&self) -> Floors {
        let now = self.agreed.protection_min;
        let asked = self.asking.as_ref().and_then(|asking| self.outcome(asking).ok());
        let soon = asked.map_or(now, |agreed| agreed.protection_min);
        Floors { outward: now.max(soon), inward: now.min(soon) }
    }

    fn outcome(&self, asking: &Asking) -> Result<Agreed, OptionConflict> {
        Agreed::new(&asking.wanted.options, &self.theirs.options)
    }

    /// From now on we want this; true when the other end must be told.
    pub(crate) fn propose(&mut self, options: Options, now: Instant) -> bool {
        let latest = self.asking.as_ref().map_or(&self.ours, |asking| &asking.wanted);
        if latest.options == options {
            return false;
        }
        self.begin_asking(options, now);
        true
    }

    fn begin_asking(&mut self, options: Options, now: Instant) {
        // What it says of itself, with an end that wants the same.
        let agreed = Agreed::new(&options, &options).unwrap_or_default();
        self.asked_transfer_bytes = self.asked_transfer_bytes.max(self.transfer_max_of(&agreed));
        self.changes = self.changes.saturating_add(1);
        let wanted = NewOptions { change: self.changes, options };
        self.asking = Some(Asking { wanted, at: now.max(self.quiet_until) });
    }

    /// Whether the other end has still to answer a change.
    pub(crate) fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    /// When [`OptionExchange::handle_timeout`] has something to say.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.asking.as_ref().map(|asking| asking.at)
    }

    /// Time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Due {
        let Some(asking) = self.asking.as_mut().filter(|asking| asking.at <= now) else { return Due::Nothing };
        if self.silence >= ASKS_MAX {
            return Due::Unheard;
        }
        asking.at = now + AGAIN;
        self.quiet_until = asking.at;
        self.unanswered = self.unanswered.saturating_add(1);
        self.silence += 1;
        Due::Ask(asking.wanted.clone())
    }

    /// The other end has answered the change of that number with its own options.
    ///
    /// # Errors
    /// [`Violation`] for an answer to no question.
    pub(crate) fn take_answer(&mut self, change: u32, theirs: NewOptions, now: Instant) -> Result<Outcome, Violation> {
        self.unanswered = self.unanswered.checked_sub(1).ok_or(Violation)?;
        if change == 0 || change > self.changes {
            return Err(Violation);
        }
        // Who answers only what was answered before does not answer.
        if change > self.answered {
            (self.answered, self.silence) = (change, 0);
        }
        let Some(asking) = self.asking.take_if(|asking| asking.wanted.change == change) else {
            return Ok(Outcome::Same);
        };
        // What it has told since it answered counts.
        let theirs = if theirs.change >= self.theirs.change { theirs } else { self.theirs.clone() };
        match Agreed::new(&asking.wanted.options, &theirs.options) {
            Ok(agreed) => {
                self.heard = self.heard.max(theirs.change);
                (self.ours, self.theirs) = (asking.wanted, theirs);
                Ok(self.adopt(agreed))
            }
            Err(OptionConflict(option)) => {
                // It may go by an earlier change of ours, whose answer was lost: what holds is told again, once.
                if asking.wanted.options != self.ours.options {
                    self.begin_asking(self.ours.options.clone(), now);
                }
                Ok(Outcome::Conflict(option))
            }
        }
    }

    /// The other end has other options; `None` when that was overtaken.
    ///
    /// # Errors
    /// [`Violation`] for one too many: it is not answered.
    pub(crate) fn take_request(
        &mut self,
        theirs: NewOptions,
        now: Instant,
    ) -> Result<Option<(Outcome, NewOptions)>, Violation> {
        if theirs.change < self.heard {
            return Ok(None);
        }
        if self.is_storm(now) {
            return Err(Violation);
        }
        // What did not go together then may do so now, and its answer can be lost.
        if theirs.change == self.heard && theirs.change == self.theirs.change {
            return Ok(Some((Outcome::Same, self.telling().clone())));
        }
        self.heard = theirs.change;
        // What we ask for ourselves, if they may have heard of it; else what they know.
        let wanted = self.asking.as_ref().map(|asking| &asking.wanted);
        let fits = |ours: &NewOptions| Agreed::new(&ours.options, &theirs.options);
        let outcome = match wanted.map(|wanted| (wanted.clone(), fits(wanted))) {
            Some((wanted, Ok(agreed))) => Ok((wanted, agreed)),
            _ => fits(&self.ours).map(|agreed| (self.ours.clone(), agreed)),
        };
        let outcome = match outcome {
            Ok((ours, agreed)) => {
                (self.ours, self.theirs) = (ours, theirs);
                self.adopt(agreed)
            }
            Err(OptionConflict(option)) => Outcome::Conflict(option),
        };
        Ok(Some((outcome, self.telling().clone())))
    }

    /// What the other end is to go by.
    fn telling(&self) -> &NewOptions {
        let asked = self.asking.as_ref().filter(|asking| self.outcome(asking).is_ok());
        asked.map_or(&self.ours, |asking| &asking.wanted)
    }

    fn is_storm(&mut self, now: Instant) -> bool {
        let (count, since) = &mut self.storm;
        if now.saturating_since(*since) >= PERIOD {
            (*count, *since) = (0, now);
        }
        *count += 1;
        *count > CHANGES_MAX
    }

    /// Does without the answer that does not come: what one end can do alone holds. `None` when that is not enough: data is to be
    /// guarded better, or the other end does not support what is enforced.
    pub(crate) fn enforce(&mut self) -> Option<Outcome> {
        let Some(asking) = self.asking.take() else { return Some(Outcome::Same) };
        self.silence = 0;
        let agreed = self.outcome(&asking).ok();
        let agreed = agreed.filter(|agreed| agreed.protection_min <= self.agreed.protection_min)?;
        self.ours = asking.wanted;
        let Agreed { protection_min, compression, transfer_max_bytes, .. } = self.agreed;
        let compression = compression && agreed.compression;
        Some(self.adopt(Agreed { protection_min, compression, transfer_max_bytes, ..agreed }))
    }

    fn adopt(&mut self, agreed: Agreed) -> Outcome {
        if agreed == self.agreed {
            return Outcome::Same;
        }
        self.agreed = agreed;
        self.transfer_limit_bytes = self.transfer_limit_bytes.max(self.transfer_max_bytes());
        Outcome::Changed
    }
}

#[cfg(test)]
mod tests;
