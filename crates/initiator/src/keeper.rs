//! Writes that a device has acknowledged and not made stable: kept, to be given again when the device has lost them. Without
//! I/O and without a clock; what a write is its user knows.
//!
//! They are given again only when the device says that nobody else has written since (its *tenure* is the same): an old write
//! must not come over a newer one of somebody else. What cannot be given again is told: the next flush of each handle fails.

use std::collections::VecDeque;

/// What a device says of writes that it has acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    /// Those that it acknowledges now are stable, or stay for as long as the volume is the same one: its cache is switched off,
    /// say. What came before may have been lost if the verifier, where it tells one, is another one than before.
    Stable { verifier: Option<[u8; 16]> },
    /// They may have been lost if the verifier is another one than before; only who asks has written while the tenure is the same.
    Verified { verifier: [u8; 16], tenure: Option<[u8; 16]> },
    /// Nothing but, perhaps, that it had no power.
    Silent,
}

impl Word {
    pub(crate) fn is_stable(self) -> bool {
        matches!(self, Word::Stable { .. })
    }

    fn verifier(self) -> Option<[u8; 16]> {
        match self {
            Word::Stable { verifier } => verifier,
            Word::Verified { verifier, .. } => Some(verifier),
            Word::Silent => None,
        }
    }

    fn tenure(self) -> Option<[u8; 16]> {
        if let Word::Verified { tenure, .. } = self { tenure } else { None }
    }
}

/// What has become of what was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It is as it was.
    Kept,
    /// It must be given again, oldest first, before anything else; then [`Keeper::written_again`] or [`Keeper::lose`].
    WriteAgain,
    /// Some of it may be lost for good.
    Lost,
}

struct Item<T> {
    number: u64,
    cost_bytes: u64,
    write: T,
}

/// What is known of one volume's acknowledged writes.
pub(crate) struct Keeper<T> {
    bound_bytes: u64,
    word: Word,
    kept: VecDeque<Item<T>>,
    kept_bytes: u64,
    /// Acknowledged writes so far.
    next: u64,
    /// Writes below this number may not be stable, and some of them are not kept.
    forgotten_below: Option<u64>,
    losses: u64,
}

impl<T> Keeper<T> {
    /// Keeps so much at the most; the device has said this when the volume was opened.
    pub(crate) fn new(bound_bytes: u64, word: Word) -> Self {
        Keeper { bound_bytes, word, kept: VecDeque::new(), kept_bytes: 0, next: 0, forgotten_below: None, losses: 0 }
    }

    pub(crate) fn word(&self) -> Word {
        self.word
    }

    /// How often something was lost: who has been told fewer losses must be told.
    pub(crate) fn losses(&self) -> u64 {
        self.losses
    }

    /// Whether acknowledged writes concern us at all.
    pub(crate) fn is_needed(&self) -> bool {
        !self.word.is_stable()
    }

    /// A write was acknowledged that is not stable.
    pub(crate) fn acknowledged(&mut self, cost_bytes: u64, write: impl FnOnce() -> T) {
        if self.word.is_stable() {
            return;
        }
        let number = self.next;
        self.next += 1;
        if self.word.tenure().is_none() || self.kept_bytes + cost_bytes > self.bound_bytes {
            return self.forget();
        }
        self.kept_bytes += cost_bytes;
        self.kept.push_back(Item { number, cost_bytes, write: write() });
    }

    /// A write was acknowledged of which nobody knows whether it came before or after one that is kept.
    pub(crate) fn not_kept(&mut self) {
        if !self.word.is_stable() {
            self.next += 1;
            self.forget();
        }
    }

    /// A write was acknowledged that is stable: what it has overwritten is not given again, for nobody may come to the end of that.
    /// `rest_of` gives what is left of a write that was kept, `None` if that is all of it; each part but the first takes
    /// `part_bytes` more, for the data stays where it is.
    pub(crate) fn overwritten(&mut self, part_bytes: u64, rest_of: impl Fn(&T) -> Option<Vec<T>>) {
        let Some(first) = self.kept.iter().position(|item| rest_of(&item.write).is_some()) else { return };
        for item in self.kept.split_off(first) {
            let Some(parts) = rest_of(&item.write) else {
                self.kept.push_back(item);
                continue;
            };
            self.kept_bytes -= item.cost_bytes;
            let costs = std::iter::once(item.cost_bytes).chain(std::iter::repeat(part_bytes));
            for (write, cost_bytes) in parts.into_iter().zip(costs) {
                self.kept_bytes += cost_bytes;
                self.kept.push_back(Item { number: item.number, cost_bytes, write });
            }
        }
        if self.kept_bytes > self.bound_bytes {
            self.forget();
        }
    }

    /// Nothing that was acknowledged can be given again any more: a part of it alone could come over what is not there.
    pub(crate) fn forget(&mut self) {
        self.kept.clear();
        self.kept_bytes = 0;
        self.forgotten_below = Some(self.next);
    }

    /// A flush that is given now makes stable what was acknowledged before this number.
    pub(crate) fn flush_given(&self) -> u64 {
        self.next
    }

    /// The flush that was given at this number has succeeded.
    pub(crate) fn flushed(&mut self, below: u64) {
        while let Some(item) = self.kept.pop_front_if(|item| item.number < below) {
            self.kept_bytes -= item.cost_bytes;
        }
        self.forgotten_below.take_if(|forgotten| *forgotten <= below);
    }

    /// Whether it is time for a flush: so that there is room before the bound is reached; or because nobody will know whether what is
    /// not stable is lost, when the session is.
    pub(crate) fn wants_flush(&self) -> bool {
        match self.word {
            Word::Verified { tenure: Some(_), .. } if self.bound_bytes > 0 => {
                self.kept_bytes * 2 > self.bound_bytes || self.forgotten_below.is_some()
            }
            Word::Silent => self.forgotten_below.is_some(),
            _ => false,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The device says this now, in a new session or after a change; perhaps it also said that it had no power meanwhile.
    pub(crate) fn heard(&mut self, word: Word, has_lost_power: bool) -> Fate {
        if self.word.tenure() != word.tenure() && !self.kept.is_empty() {
            self.forget();
        }
        let is_dirty = !self.kept.is_empty() || self.forgotten_below.is_some();
        let is_lost = match (self.word.verifier(), word.verifier()) {
            (Some(before), Some(now)) => before != now,
            (None, None) => has_lost_power,
            _ => true,
        };
        if is_lost && is_dirty && self.forgotten_below.is_none() {
            // The word stays what it was until all is done: who is interrupted begins anew.
            return Fate::WriteAgain;
        }
        let was_stable = std::mem::replace(&mut self.word, word).is_stable();
        let fate = if is_lost && is_dirty { Fate::Lost } else { Fate::Kept };
        if fate == Fate::Lost {
            self.lose();
        }
        if was_stable && !word.is_stable() {
            // Since when it is so nobody knows.
            self.next += 1;
            self.forget();
        }
        fate
    }

    /// What is to be given again, oldest first.
    pub(crate) fn writes(&self) -> impl Iterator<Item = &T> {
        self.kept.iter().map(|item| &item.write)
    }

    /// All of it was given again and acknowledged; the device had said this before.
    pub(crate) fn written_again(&mut self, word: Word) {
        self.word = word;
    }

    /// What was acknowledged and not flushed is lost, or may be; the device has said this.
    pub(crate) fn lost(&mut self, word: Word) {
        self.word = word;
        self.lose();
    }

    /// What was acknowledged and not flushed is lost, or may be.
    pub(crate) fn lose(&mut self) {
        self.losses += 1;
        self.kept.clear();
        self.kept_bytes = 0;
        self.forgotten_below = None;
    }
}

#[cfg(test)]
mod tests;
