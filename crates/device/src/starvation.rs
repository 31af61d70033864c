//! Commands that find no memory, or are deferred: they wait without keeping others waiting, and without anything of them having happened.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId};
use sanwire_scsi::{Reply, Status, Task};

use crate::abort_scope::UnitId;
use crate::deferrals::Deferrals;
use crate::progress::Progress;
use crate::queues::{Queues, Tried};
use crate::submission::Submission;
use crate::units::LogicalUnits;

/// So long a command waits that keeps memory itself, for its data: several such commands may wait for each other.
const KEEPING_MAX: Duration = Duration::from_secs(1);

/// Where the commands of a session are executed.
#[derive(Clone, Copy, Debug)]
pub struct Seat<'a> {
    /// What it sees.
    pub units: &'a Arc<LogicalUnits>,
    /// Its share of the memory.
    pub memory: &'a Region,
    /// How much of what comes free it has beside others.
    pub weight: u32,
}

/// A command that waits for memory, or for its time; `H` says which it is.
#[derive(Debug)]
pub struct Starved<H> {
    /// Which command.
    pub handle: H,
    /// For one of these.
    pub units: Arc<LogicalUnits>,
    submission: Submission,
    nexus: NexusId,
    weight: u32,
    memory: Region,
    since: Instant,
    /// Where it has begun, when a piece of it is done.
    unit: Option<UnitId>,
}

impl<H> Starved<H> {
    /// What to do.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.submission.task
    }

    /// Whether a command can go on where it has begun: another volume may have taken the number of its own.
    fn is_still_there(&self) -> bool {
        let Some(unit) = self.unit else { return true };
        self.task().lun.and_then(|lun| self.units.get(lun)).is_some_and(|found| found.id() == unit)
    }
}

/// The commands of all sessions that wait for memory. A session's commands that need some wait behind each other; those that need
/// none do not wait.
#[derive(Debug)]
pub struct Starvation<H> {
    queues: Queues<Starved<H>>,
    /// Those that wait for their time, not for memory.
    deferred: Deferrals<Starved<H>>,
    /// Sessions that are to wait, whatever there is.
    withheld: BTreeSet<NexusId>,
    memory: Region,
    /// Where only that can begin which needs no memory.
    nothing: Region,
    /// How many releases of memory there had been when all were last tried; `None`: they are to be tried again in any case.
    tried_at: Option<u64>,
    /// When it is seen whether something has kept memory for too long: no command has earlier.
    tend_at: Option<Instant>,
}

impl<H> Starvation<H> {
    /// Nothing waits. All shares are of this memory.
    #[must_use]
    pub fn new(memory: &Region) -> Self {
        Starvation {
            queues: Queues::default(),
            deferred: Deferrals::default(),
            withheld: BTreeSet::new(),
            nothing: memory.nothing(),
            memory: memory.clone(),
            tried_at: None,
            tend_at: None,
        }
    }

    /// Whether nothing waits for memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// How many commands wait for memory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// How many commands are deferred.
    #[must_use]
    pub fn deferred(&self) -> usize {
        self.deferred.len()
    }

    /// All commands that wait, for whatever.
    pub fn handles(&self) -> impl Iterator<Item = &H> {
        self.queues.all().chain(self.deferred.all()).map(|starved| &starved.handle)
    }

    /// The sessions of which something waits for memory, each with its share. What is withheld waits for its session instead.
    pub fn sessions(&self) -> impl Iterator<Item = (NexusId, &Region)> {
        let firsts = self.queues.firsts().filter(|(nexus, _)| !self.withheld.contains(nexus));
        firsts.map(|(nexus, starved)| (nexus, &starved.memory))
    }

    /// Begins a command; gives what has become of it, and which it is. `None`: it waits, and [`Starvation::serve`] is to be called: from
    /// then on the memory tells of its next release; or until [`Starvation::poll_timeout`].
    pub fn begin(
        &mut self,
        nexus: NexusId,
        handle: H,
        seat: Seat<'_>,
        submission: impl Into<Submission>,
        now: Instant,
    ) -> Option<(H, Progress)> {
        let Seat { units, memory, weight } = seat;
        let must_wait = self.queues.has(nexus) || self.withheld.contains(&nexus);
        let starved = |handle, submission: Box<Submission>| {
            let (units, memory, task) = (Arc::clone(units), memory.clone(), &submission.task);
            let unit =
                task.lun.filter(|_| task.is_further_piece()).and_then(|lun| units.get(lun)).map(|unit| unit.id());
            Starved { handle, units, submission: *submission, nexus, weight, memory, since: now, unit }
        };
        match units.begin(nexus, submission, if must_wait { &self.nothing } else { memory }, now) {
            Progress::NoMemory(submission) => {
                self.wait_for_memory(starved(handle, submission));
                if !must_wait {
                    // Memory may have been released since it asked, without a notice.
                    self.tried_at = None;
                }
                None
            }
            Progress::Deferred(submission, delay) => {
                self.deferred.push(now + delay, starved(handle, submission));
                None
            }
            progress => Some((handle, progress)),
        }
    }

    fn wait_for_memory(&mut self, starved: Starved<H>) {
        if keeps_memory(&starved) {
            self.tend_at.get_or_insert(starved.since + KEEPING_MAX);
        }
        self.queues.push(starved.nexus, starved.weight, starved);
    }

    /// Begins those again whose time has come: `go_on` is told what has become of those that have begun.
    pub fn resume_deferred(&mut self, now: Instant, mut go_on: impl FnMut(H, &Arc<LogicalUnits>, Progress)) {
        // One that is deferred again is due later than now.
        while let Some(starved) = self.deferred.take_due(now) {
            let Starved { handle, units, submission, nexus, weight, memory, .. } = starved;
            let seat = Seat { units: &units, memory: &memory, weight };
            if let Some((handle, progress)) = self.begin(nexus, handle, seat, submission, now) {
                go_on(handle, &units, progress);
            }
        }
    }

    /// Tries those that wait, if memory was released since the last time: `go_on` is told what has become of those that have begun. For the
    /// others, the memory tells of its next release ([`Region::on_release`]).
    pub fn serve(&mut self, now: Instant, mut go_on: impl FnMut(H, &Arc<LogicalUnits>, Progress)) {
        if self.queues.is_empty() || self.tried_at == Some(self.memory.releases()) {
            return;
        }
        self.tried_at = Some(self.memory.await_release());
        let (withheld, deferred) = (&self.withheld, &mut self.deferred);
        self.queues.serve(|nexus, starved| {
            if withheld.contains(&nexus) {
                return Tried::Waits(starved);
            }
            if !starved.is_still_there() {
                go_on(starved.handle, &starved.units, Progress::Done(Reply::bare(Status::TaskAborted)));
                return Tried::Begun(0);
            }
            let Starved { handle, units, submission, nexus: _, weight, memory, since, unit } = starved;
            let before_bytes = memory.held_bytes();
            let again = |handle, units, memory, submission: Box<Submission>| Starved {
                handle,
                units,
                submission: *submission,
                nexus,
                weight,
                memory,
                since,
                unit,
            };
            match units.begin(nexus, submission, &memory, now) {
                Progress::NoMemory(submission) => Tried::Waits(again(handle, units, memory, submission)),
                Progress::Deferred(submission, delay) => {
                    deferred.push(now + delay, again(handle, units, memory, submission));
                    Tried::Begun(0)
                }
                progress => {
                    let taken_bytes = memory.held_bytes().saturating_sub(before_bytes);
                    go_on(handle, &units, progress);
                    Tried::Begun(taken_bytes)
                }
            }
        });
    }

    /// When [`Starvation::tend`] or [`Starvation::resume_deferred`] is due: a command that keeps memory has an end of its waiting. It may
    /// come early, never late.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.tend_at().into_iter().chain(self.deferred.due_at()).min()
    }

    fn tend_at(&self) -> Option<Instant> {
        self.tend_at.filter(|_| !self.is_empty())
    }

    /// Gives those that have kept memory for too long while they waited for more: they are to be answered TASK SET FULL.
    pub fn tend(&mut self, now: Instant) -> Vec<Starved<H>> {
        if self.tend_at().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let mut next = None;
        let late = self.extract_starved(|starved| {
            let until = starved.since + KEEPING_MAX;
            let keeps_on = keeps_memory(starved) && until > now;
            if keeps_on {
                next = Some(next.map_or(until, |next: Instant| next.min(until)));
            }
            keeps_memory(starved) && !keeps_on
        });
        self.tend_at = next;
        late
    }

    /// Lets a session's commands wait that need memory, or go on.
    pub fn withhold(&mut self, nexus: NexusId, is_withheld: bool) {
        if is_withheld {
            self.withheld.insert(nexus);
        } else if self.withheld.remove(&nexus) {
            self.tried_at = None;
        }
    }

    /// Takes out the commands that are meant. They want no memory any more.
    pub fn extract(&mut self, mut is_meant: impl FnMut(&Starved<H>) -> bool) -> Vec<Starved<H>> {
        let mut extracted = self.extract_starved(&mut is_meant);
        extracted.extend(self.deferred.extract(is_meant));
        extracted
    }

    fn extract_starved(&mut self, is_meant: impl FnMut(&Starved<H>) -> bool) -> Vec<Starved<H>> {
        let extracted = self.queues.extract(is_meant);
        if !extracted.is_empty() {
            // Others of their sessions are first now, and may need less.
            self.tried_at = None;
        }
        forgone(extracted)
    }

    /// Has [`Starvation::serve`] try all that wait, even if no memory is released until then: their units may have been removed.
    pub fn try_again(&mut self) {
        self.tried_at = None;
    }

    /// What waits of a nexus is for these units from now on.
    pub fn turn_to(&mut self, nexus: NexusId, units: &Arc<LogicalUnits>) {
        let deferred = self.deferred.all_mut().filter(|starved| starved.nexus == nexus);
        self.queues.of(nexus).chain(deferred).for_each(|starved| starved.units = Arc::clone(units));
        self.tried_at = None;
    }

    /// Takes out the commands of a session, which is not withheld any more.
    pub fn withdraw(&mut self, nexus: NexusId) -> Vec<Starved<H>> {
        self.withhold(nexus, false);
        let mut withdrawn = forgone(self.queues.take(nexus));
        withdrawn.extend(self.deferred.extract(|starved| starved.nexus == nexus));
        withdrawn
    }
}

/// Whether it keeps others from memory while it waits.
fn keeps_memory<H>(starved: &Starved<H>) -> bool {
    starved.task().data_out.is_some()
}

/// What others of the same share still want they ask for again.
fn forgone<H>(starved: Vec<Starved<H>>) -> Vec<Starved<H>> {
    starved.iter().for_each(|starved| starved.memory.forgo());
    starved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, task};

    const UNIT_BYTES: usize = sanwire_buffer::UNIT_BYTES;

    /// Two sessions with shares of so many pages.
    struct Sessions {
        units: Arc<LogicalUnits>,
        shares: [Region; 2],
        starvation: Starvation<u32>,
        now: Instant,
    }

    impl Sessions {
        fn new(pages: usize) -> Self {
            Sessions::guaranteed(pages, 0)
        }

        fn guaranteed(pages: usize, guaranteed_bytes: usize) -> Self {
            let units = Arc::new(World::small().units);
            let region = Region::new(pages * UNIT_BYTES).unwrap();
            let shares = [(); 2].map(|()| region.share(guaranteed_bytes));
            for nexus in 0..2 {
                units.nexus_established(NexusId(nexus), crate::testing::ports(nexus, 1));
            }
            let mut sessions = Sessions { units, shares, starvation: Starvation::new(&region), now: Instant::ZERO };
            // The unit attentions.
            (0..2).for_each(|session| assert!(sessions.begin(session, 0, test_unit_ready()).is_some()));
            sessions
        }

        fn begin(&mut self, session: usize, handle: u32, task: Task) -> Option<Progress> {
            let seat = Seat { units: &self.units, memory: &self.shares[session], weight: 1 };
            let begun = self.starvation.begin(NexusId(session as u64), handle, seat, task, self.now);
            begun.map(|(_, progress)| progress)
        }

        /// A session reads until it waits; gives what is under way.
        fn fill(&mut self, session: usize) -> Vec<Progress> {
            std::iter::from_fn(|| self.begin(session, 1, read_page())).collect()
        }

        fn served(&mut self) -> Vec<(u32, Progress)> {
            let mut served = Vec::new();
            self.starvation.serve(self.now, |handle, _, progress| served.push((handle, progress)));
            served
        }
    }

    fn read_page() -> Task {
        task([0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0], &[])
    }

    fn test_unit_ready() -> Task {
        task([0; 6], &[])
    }

    #[test]
    fn who_asks_for_much_keeps_only_itself_waiting_and_only_with_what_needs_memory() {
        let mut sessions = Sessions::new(16);
        let mut reading = sessions.fill(0);
        assert_eq!(reading.len(), 12);
        assert!(sessions.begin(0, 2, test_unit_ready()).is_some());
        let others: Vec<_> = (0..3).map(|_| sessions.begin(1, 3, read_page())).collect();
        assert!(others.iter().all(Option::is_some));
        reading.truncate(8);
        assert!(sessions.begin(0, 4, read_page()).is_none(), "behind its first");
        let served = sessions.served();
        assert_eq!(served.iter().map(|(handle, _)| *handle).collect::<Vec<_>>(), [1]);
        assert_eq!((sessions.starvation.len(), sessions.served().len()), (1, 0));
        reading.clear();
        assert_eq!(sessions.served().len(), 1);
    }

    #[test]
    fn a_session_that_is_withheld_begins_nothing_that_needs_memory() {
        let mut sessions = Sessions::new(16);
        sessions.starvation.withhold(NexusId(0), true);
        assert!(sessions.begin(0, 1, read_page()).is_none() && sessions.begin(0, 2, test_unit_ready()).is_some());
        assert!(sessions.begin(1, 3, read_page()).is_some() && sessions.served().is_empty());
        sessions.starvation.withhold(NexusId(0), false);
        assert_eq!(sessions.served().len(), 1);
        sessions.starvation.withhold(NexusId(0), true);
        assert!(sessions.begin(0, 4, read_page()).is_none());
        assert_eq!(sessions.starvation.withdraw(NexusId(0)).len(), 1);
        assert!(sessions.begin(0, 5, read_page()).is_some(), "it begins anew");
    }

    #[test]
    fn what_is_not_given_any_more_keeps_no_other_from_memory() {
        let mut sessions = Sessions::guaranteed(16, 16 * UNIT_BYTES);
        let held = sessions.shares[1].frame(1);
        let all = |share: &Region| (0..15).map(|_| share.frame(1)).collect::<Vec<_>>();
        let taken = all(&sessions.shares[0]);
        assert!(sessions.begin(0, 1, read_page()).is_none() && sessions.shares[0].is_denied());
        drop(taken);
        assert_eq!(sessions.starvation.extract(|_| true).len(), 1);
        assert!(!sessions.shares[0].is_denied());
        assert!(all(&sessions.shares[1]).iter().all(Option::is_some) && held.is_some());
    }

    #[test]
    fn who_stood_behind_an_aborted_command_begins_without_more_memory() {
        let mut sessions = Sessions::new(16);
        let _held = sessions.shares[1].frame(UNIT_BYTES);
        let much = task([0x28, 0, 0, 0, 0, 0, 0, 0, 128, 0], &[]);
        assert!(sessions.begin(0, 1, much).is_none() && sessions.begin(0, 2, read_page()).is_none());
        assert!(sessions.served().is_empty(), "behind its first");
        assert_eq!(sessions.starvation.extract(|starved| starved.handle == 1).len(), 1);
        assert!(matches!(sessions.served()[..], [(2, _)]));
    }

    #[test]
    fn a_command_whose_unit_is_gone_is_answered_without_more_memory() {
        let mut sessions = Sessions::new(16);
        let _reading = sessions.fill(0);
        assert!(sessions.served().is_empty());
        sessions.units.remove(sanwire_core::Lun::default()).expect("the disk");
        sessions.starvation.try_again();
        let served = sessions.served();
        assert!(
            matches!(&served[..], [(1, Progress::Done(reply))] if reply.status == Status::CheckCondition),
            "{served:?}"
        );
    }

    #[test]
    fn only_who_waits_for_memory_takes_it_from_others() {
        let mut sessions = Sessions::new(16);
        let _reading = sessions.fill(0);
        let waiting = |sessions: &Sessions| sessions.starvation.sessions().map(|(nexus, _)| nexus).collect::<Vec<_>>();
        assert_eq!(waiting(&sessions), [NexusId(0)]);
        sessions.starvation.withhold(NexusId(0), true);
        assert_eq!(waiting(&sessions), [], "it waits for its client");
        sessions.starvation.withhold(NexusId(0), false);
        assert_eq!(waiting(&sessions), [NexusId(0)]);
    }

    #[test]
    fn what_keeps_memory_does_not_wait_for_more_for_long() {
        let mut sessions = Sessions::new(16);
        let _reading = sessions.fill(0);
        let keeping = Task { data_out: Some(vec![1].into()), ..read_page() };
        assert_eq!(sessions.starvation.poll_timeout(), None, "who keeps nothing waits as long as it takes");
        assert!(sessions.begin(0, 9, keeping).is_none());
        assert!(sessions.starvation.tend(sessions.now).is_empty());
        sessions.now = sessions.starvation.poll_timeout().unwrap();
        assert_eq!(sessions.now, Instant::ZERO + KEEPING_MAX);
        let late = sessions.starvation.tend(sessions.now);
        assert_eq!(late.iter().map(|starved| starved.handle).collect::<Vec<_>>(), [9]);
        assert_eq!((sessions.starvation.poll_timeout(), sessions.starvation.len()), (None, 1), "another one waits");
    }
}
