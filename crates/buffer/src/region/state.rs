//! Which units of a region are taken, by whom, and who may have how many.

use super::UNIT_BYTES;
use crate::bitmap::Bitmap;
use crate::share::Share;

/// What a handle gives.
pub(super) enum Terms {
    /// All that is free.
    Whole,
    /// What the holder with this number may have.
    Share(usize),
    /// No frame at all.
    Nothing,
}

/// Which units are taken, and by whom.
pub(super) struct State {
    taken: Bitmap,
    pub(super) shares: Vec<Share>,
    /// What all of them hold together, and how many of them hold anything.
    held_bytes: usize,
    holding: usize,
    /// Numbers of holders that are gone.
    unused: Vec<usize>,
    /// How many frames have gone home.
    returned: u64,
    /// How many releases there were: memory that was given back, or that other holders than before may take.
    pub(super) releases: u64,
    /// Somebody waits: the hook is to be called at the next release.
    pub(super) is_awaited: bool,
    /// That is due.
    pub(super) is_call_due: bool,
    /// Who has precedence, because it lacks something of what is guaranteed to it, and what `returned` was when it last asked.
    first: Option<(usize, u64)>,
    /// The most that a holder has had, and how often one was refused more.
    pub(super) most_bytes: usize,
    pub(super) refused: u64,
}

/// Precedence lasts until so many frames have gone home, unless its holder asks again.
pub(super) const PRECEDENCE_RELEASES: u64 = 32;

impl State {
    /// So many units, all of them free, and nobody who has any.
    pub(super) fn new(units: usize) -> Self {
        State {
            taken: Bitmap::new(units),
            shares: Vec::new(),
            held_bytes: 0,
            holding: 0,
            unused: Vec::new(),
            returned: 0,
            releases: 0,
            is_awaited: false,
            is_call_due: false,
            first: None,
            most_bytes: 0,
            refused: 0,
        }
    }

    /// A new holder; gives its number.
    pub(super) fn add(&mut self, guaranteed_bytes: usize) -> usize {
        let share = Share::new(guaranteed_bytes);
        match self.unused.pop() {
            Some(holder) => {
                self.shares[holder] = share;
                holder
            }
            None => {
                self.shares.push(share);
                self.shares.len() - 1
            }
        }
    }

    fn free_bytes(&self) -> usize {
        self.taken.free_units() * UNIT_BYTES
    }

    /// Whether a holder has as much as those that have anything have on the average.
    pub(super) fn holds_its_part(&self, holder: usize) -> bool {
        self.shares[holder].held_bytes() * self.holding >= self.held_bytes
    }

    pub(super) fn allowed_bytes(&self, terms: &Terms) -> usize {
        match *terms {
            Terms::Whole => self.free_bytes(),
            Terms::Share(holder) => {
                let left_bytes = self.free_bytes().saturating_sub(self.reserved_bytes(holder));
                self.shares[holder].allowed_bytes(self.free_bytes()).min(left_bytes)
            }
            Terms::Nothing => 0,
        }
    }

    /// What a holder that has something must leave to one that lacks what is guaranteed to it.
    fn reserved_bytes(&self, holder: usize) -> usize {
        let is_first = self.first.is_some_and(|(first, _)| first == holder);
        if is_first || self.shares[holder].held_bytes() == 0 { 0 } else { self.precedence_bytes() }
    }

    /// What the holder that has precedence lacks, and can be left by others.
    fn precedence_bytes(&self) -> usize {
        let Some((first, at)) = self.first else { return 0 };
        let is_over = self.returned - at >= PRECEDENCE_RELEASES;
        let (held_bytes, lacking_bytes) = (self.shares[first].held_bytes(), self.shares[first].lacking_bytes());
        // Where it has itself what it lacks, nobody else can leave it that.
        let can_be_left = held_bytes + lacking_bytes <= self.taken.units() * UNIT_BYTES;
        if is_over || !can_be_left { 0 } else { lacking_bytes }
    }

    /// What was not to be had may be had now.
    fn note_release(&mut self) {
        self.releases += 1;
        self.is_call_due |= std::mem::take(&mut self.is_awaited);
    }

    /// Whether a run of what must be left is left by one of so many units.
    fn leaves_enough(&mut self, holder: usize, units: usize) -> bool {
        let reserved_units = self.reserved_bytes(holder).div_ceil(UNIT_BYTES);
        reserved_units == 0 || units == 0 || self.taken.has_runs(units, reserved_units)
    }

    /// A holder did not get so many bytes.
    fn refuse(&mut self, holder: usize, bytes: usize) {
        self.refused += 1;
        let before_bytes = self.precedence_bytes();
        self.shares[holder].refused(bytes);
        // Nobody takes precedence from another one that has it: where each did so by asking, others would never be left alone.
        let is_free = self.precedence_bytes() == 0 || self.first.is_some_and(|(first, _)| first == holder);
        if self.shares[holder].lacking_bytes() > 0 && is_free {
            self.first = Some((holder, self.returned));
        }
        if self.precedence_bytes() < before_bytes {
            self.note_release();
        }
    }

    /// What a holder lacked it has got, or it does not want it any more: others need not leave it that.
    pub(super) fn settle(&mut self, holder: usize, lacked_bytes: usize) {
        if self.shares[holder].lacking_bytes() < lacked_bytes {
            self.note_release();
        }
        if self.shares[holder].lacking_bytes() == 0 {
            self.first.take_if(|(first, _)| *first == holder);
        }
    }

    /// Takes so many units for a holder.
    pub(super) fn take(&mut self, units: usize, terms: &Terms) -> Option<usize> {
        let bytes = units * UNIT_BYTES;
        match *terms {
            Terms::Whole => self.taken.take(units),
            Terms::Share(holder) => {
                let is_allowed = self.shares[holder].allows(bytes, self.free_bytes());
                let may_take = is_allowed && self.leaves_enough(holder, units);
                let start = if may_take { self.taken.take(units) } else { None };
                if start.is_some() {
                    let lacked_bytes = self.shares[holder].lacking_bytes();
                    self.holding += usize::from(self.shares[holder].held_bytes() == 0);
                    self.held_bytes += bytes;
                    self.shares[holder].took(bytes);
                    self.most_bytes = self.most_bytes.max(self.shares[holder].held_bytes());
                    self.settle(holder, lacked_bytes);
                } else {
                    self.refuse(holder, bytes);
                }
                start
            }
            Terms::Nothing => None,
        }
    }

    /// Whether a holder could take both of these runs now.
    pub(super) fn has_runs(&mut self, first: usize, second: usize, terms: &Terms) -> bool {
        let bytes = (first + second) * UNIT_BYTES;
        let has_both = bytes <= self.allowed_bytes(terms) && self.taken.has_runs(first, second);
        let Terms::Share(holder) = *terms else { return has_both };
        let may_take = has_both && self.leaves_enough(holder, first + second);
        if !may_take {
            self.refuse(holder, bytes);
        }
        may_take
    }

    pub(super) fn give_back(&mut self, start: usize, units: usize, terms: &Terms) {
        self.taken.give_back(start, units);
        self.returned += 1;
        self.note_release();
        if let Terms::Share(holder) = *terms {
            self.shares[holder].gave_back(units * UNIT_BYTES);
            self.held_bytes -= units * UNIT_BYTES;
            self.holding -= usize::from(self.shares[holder].held_bytes() == 0);
        }
    }

    /// A holder is gone.
    pub(super) fn forget(&mut self, holder: usize) {
        let lacked_bytes = self.shares[holder].lacking_bytes();
        self.shares[holder].forgo();
        self.settle(holder, lacked_bytes);
        self.unused.push(holder);
    }
}
