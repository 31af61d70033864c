//! What a table knows of the times before: who has had the array, and which members had the places that others have now.

use crate::former::{FORMER_MAX, Former};
use crate::label::{RUNS_MAX, Run, Standing, Table};

impl Table {
    /// Whether this is what became of the other one, or the same.
    pub(crate) fn descends_from(&self, other: &Table) -> bool {
        let is_before = |run: &Run| run.number == other.run && other.generation <= run.last_generation;
        self.run == other.run && other.generation <= self.generation || self.runs.iter().any(is_before)
    }

    /// Whether it is known by this one that the other never was on all of its members: a member that had to have it did not, when a later
    /// run began. Of a run that the other knows to be over, this one does not know what began later.
    ///
    /// The runs know members by their places. The other one may have given a place to another member since, of which that run knows nothing.
    pub(crate) fn rules_out(&self, other: &Table) -> bool {
        let is_known = |number: u64| number == other.run || other.runs.iter().any(|known| known.number == number);
        let common = self.runs.iter().rev().find(|run| is_known(run.number));
        let was_found = |run: &Run, at: usize| {
            run.taken_over >> at & 1 == 1 && self.id_at(at, run.last_generation) == Some(other.members[at].id)
        };
        let is_in_both = |run: &Run| (0..other.members.len()).any(|at| other.is_in(at) && was_found(run, at));
        let are_apart = !self.descends_from(other) && !other.descends_from(self);
        are_apart && !is_known(self.run) && common.is_some_and(is_in_both)
    }

    /// Whether what bears a label of this table, of a member that is out, is older than that member was when it went out. It has a label that is
    /// not older than the last run which had reached it when the next one found it: labels of what came then may not have, as when a host died
    /// while it wrote them. What was written before that is noted nowhere.
    ///
    /// Of a run that came to nothing counts what it began with. If that run is forgotten, it is not known.
    pub(crate) fn is_before_out(&self, number: usize, label: &Table) -> bool {
        let Standing::Out { since, .. } = self.members[number].standing else { return false };
        let ended = self.runs.iter().take_while(|run| run.last_generation < since).count();
        let has_reached = |run: &Run| run.taken_over >> number & 1 == 1;
        let Some(before) = self.runs[..ended].iter().rposition(has_reached) else { return false };
        let may_be_of = |run: u64| run == self.run || self.runs[before..].iter().any(|known| known.number == run);
        let is_known = |run: u64| run == self.run || self.runs.iter().any(|known| known.number == run);
        let of =
            [label.run].into_iter().chain(label.runs.iter().rev().map(|run| run.number)).find(|run| is_known(*run));
        !of.is_some_and(may_be_of)
    }

    /// Who had a place in this generation of the table, or of one that it has become of. Of changes that are forgotten it is a later one.
    fn id_at(&self, place: usize, generation: u64) -> Option<[u8; 16]> {
        let former = self.former.iter().find(|former| former.place == place && generation < former.until);
        former.map(|former| former.id).or_else(|| Some(self.members.get(place)?.id))
    }

    /// The next run begins with it, and with these members.
    pub(crate) fn begin_run(&mut self, number: u64, members: impl Iterator<Item = usize>) {
        let taken_over = members.fold(0, |mask, member| mask | 1 << member);
        self.runs.push(Run { number: self.run, last_generation: self.generation, taken_over });
        let most = self.runs.len().saturating_sub(RUNS_MAX);
        self.runs.drain(..most);
        self.run = number;
    }

    /// From this generation on another member has a place; it lacks all. `at`: how its store is written.
    pub(crate) fn put_new(&mut self, place: usize, id: [u8; 16], at: String) {
        let (record, until) = (&mut self.members[place], self.generation);
        self.former.push(Former { place, id: record.id, until });
        let most = self.former.len().saturating_sub(FORMER_MAX);
        self.former.drain(..most);
        record.standing = Standing::Out { since: until, is_whole: true };
        (record.id, record.place) = (id, at);
    }
}
