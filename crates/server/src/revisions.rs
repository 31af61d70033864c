//! Revisions: numbers that rise when a resource changes, so that a client that has looked at it can tell whether it is still the same.
//!
//! All of them come from one counter, so that what was removed and added again under its name has another one. Only what has
//! changed since the start has a number of its own; the rest has the first one of the run.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Bits below the second in which a run begins: more than a run gives numbers in a second, and all are ones that JSON has exactly.
const RUN_BITS: u32 = 21;

/// Resources of one type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Collection {
    /// By their names.
    Volumes,
    /// The iSCSI targets, by their names.
    Targets,
    /// The HyperSCSI clients that are known, by their ids.
    Clients,
}

/// The revisions of one run of a server, shared by those who change something and those who look.
#[derive(Clone, Debug)]
pub(crate) struct Revisions(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    last: AtomicU64,
    /// Of the sessions and the jobs as a whole: threads that serve tell of theirs without waiting.
    sessions: AtomicU64,
    jobs: AtomicU64,
    /// Of the sessions of each principal that has some, or is paused.
    principals: Mutex<BTreeMap<Box<str>, Principal>>,
    tables: Mutex<Tables>,
}

#[derive(Default, Debug)]
struct Principal {
    sessions: usize,
    is_paused: bool,
    revision: u64,
}

#[derive(Debug)]
struct Tables {
    first: u64,
    /// That of all that an administrator can change.
    server: u64,
    of: [Table; 3],
}

#[derive(Debug)]
struct Table {
    whole: u64,
    changed: BTreeMap<Box<str>, u64>,
}

/// The revisions at one moment. Others wait as long as this lives.
pub(crate) struct Look<'a>(MutexGuard<'a, Tables>);

impl Revisions {
    /// Those of a run that begins now. Runs begin above all numbers of those before, by the clock; where that goes wrong, by chance: so
    /// no number that somebody knows from another run fits.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub(crate) fn begin() -> io::Result<Self> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Revisions::new(first_of_run(since.as_secs(), u32::from_be_bytes(crate::random::bytes()?))))
    }

    pub(crate) fn new(first: u64) -> Self {
        let table = || Table { whole: first, changed: BTreeMap::new() };
        let tables = Tables { first, server: first, of: [table(), table(), table()] };
        let at_first = || AtomicU64::new(first);
        let (principals, tables) = (Mutex::default(), Mutex::new(tables));
        let shared = Shared { last: at_first(), sessions: at_first(), jobs: at_first(), principals, tables };
        Revisions(Arc::new(shared))
    }

    /// A resource is there, or is not what it was. To be told when all can see that: who reads a revision, and then the resource, may
    /// see it newer than that, never older.
    pub(crate) fn changed(&self, collection: Collection, name: &str) {
        self.change(collection, |table, number| match table.changed.get_mut(name) {
            Some(revision) => *revision = number,
            None => _ = table.changed.insert(name.into(), number),
        });
    }

    /// A resource is not there any more.
    pub(crate) fn removed(&self, collection: Collection, name: &str) {
        self.change(collection, |table, _| _ = table.changed.remove(name));
    }

    fn change(&self, collection: Collection, change: impl FnOnce(&mut Table, u64)) {
        let mut tables = self.lock();
        let number = self.next();
        let table = &mut tables.of[collection as usize];
        change(table, number);
        table.whole = number;
        tables.server = number;
    }

    /// Something has changed that belongs to no resource.
    pub(crate) fn server_changed(&self) {
        self.lock().server = self.next();
    }

    /// A session of this principal has begun, or is over.
    pub(crate) fn session_changed(&self, principal: &str, has_begun: bool) {
        self.change_principal(principal, |own| {
            own.sessions = if has_begun { own.sessions + 1 } else { own.sessions.saturating_sub(1) };
        });
    }

    /// This principal is paused, or not any more.
    pub(crate) fn principal_paused(&self, principal: &str, is_paused: bool) {
        self.change_principal(principal, |own| own.is_paused = is_paused);
    }

    fn change_principal(&self, principal: &str, change: impl FnOnce(&mut Principal)) {
        let mut principals = self.principals();
        let number = self.next();
        let own = principals.entry(principal.into()).or_default();
        change(own);
        own.revision = number;
        if own.sessions == 0 && !own.is_paused {
            principals.remove(principal);
        }
        self.0.sessions.fetch_max(number, Ordering::Release);
    }

    /// That of the sessions of a principal; `None` when it has none.
    pub(crate) fn sessions_of(&self, principal: &str) -> Option<u64> {
        self.principals().get(principal).filter(|own| own.sessions > 0).map(|own| own.revision)
    }

    /// The same of all.
    pub(crate) fn sessions_of_all(&self) -> BTreeMap<Box<str>, u64> {
        self.principals().iter().map(|(principal, own)| (principal.clone(), own.revision)).collect()
    }

    fn principals(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Principal>> {
        // It is whole between any two changes.
        self.0.principals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job has begun, or is over.
    pub(crate) fn jobs_changed(&self) {
        self.0.jobs.fetch_max(self.next(), Ordering::Release);
    }

    pub(crate) fn sessions(&self) -> u64 {
        self.0.sessions.load(Ordering::Acquire)
    }

    pub(crate) fn jobs(&self) -> u64 {
        self.0.jobs.load(Ordering::Acquire)
    }

    /// For many at a time.
    pub(crate) fn look(&self) -> Look<'_> {
        Look(self.lock())
    }

    fn next(&self) -> u64 {
        self.0.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // It is whole between any two changes.
        self.0.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Look<'_> {
    /// That with which the run has begun.
    pub(crate) fn first(&self) -> u64 {
        self.0.first
    }

    /// That of a resource that is there.
    pub(crate) fn of(&self, collection: Collection, name: &str) -> u64 {
        self.0.of[collection as usize].changed.get(name).copied().unwrap_or(self.0.first)
    }

    /// That of all of a type: it rises with each that comes, changes or goes.
    pub(crate) fn all(&self, collection: Collection) -> u64 {
        self.0.of[collection as usize].whole
    }

    /// That of all that an administrator can change.
    pub(crate) fn server(&self) -> u64 {
        self.0.server
    }
}

/// The revision of what is told as it is kept, and has no counter: another one whenever something of that is another. JSON has it exactly.
pub(crate) fn of_content<'a>(parts: impl IntoIterator<Item = &'a str>) -> u64 {
    /// FNV-1a. What it tells apart is no secret, and nobody who could make two alike would gain by that.
    const FIRST: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    // No part has this byte, so that none ends where another one begins.
    let bytes = parts.into_iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(FIRST, step) >> 11
}

/// The number of a run that begins in this second since 1970.
fn first_of_run(second: u64, random: u32) -> u64 {
    (second << RUN_BITS) | u64::from(random >> (u32::BITS - RUN_BITS))
}

#[cfg(test)]
mod tests {
    use super::Collection::{Clients, Targets, Volumes};
    use super::*;

    #[test]
    fn each_change_gives_what_has_changed_and_what_contains_it_a_number_that_nothing_had_before() {
        let revisions = Revisions::new(7);
        let now = || {
            let look = revisions.look();
            [look.of(Volumes, "a"), look.of(Volumes, "b"), look.all(Volumes), look.all(Targets), look.server()]
        };
        assert_eq!(now(), [7; 5]);
        revisions.changed(Volumes, "a");
        assert_eq!(now(), [8, 7, 8, 7, 8]);
        revisions.changed(Targets, "a");
        assert_eq!(now(), [8, 7, 8, 9, 9]);
        revisions.removed(Volumes, "a");
        revisions.changed(Volumes, "a");
        assert_eq!(now(), [11, 7, 11, 9, 11], "it is not what was there before");
        revisions.server_changed();
        revisions.session_changed("host", true);
        assert_eq!((now(), revisions.sessions(), revisions.jobs()), ([11, 7, 11, 9, 12], 13, 7));
        assert_eq!(revisions.look().all(Clients), 7);
    }

    #[test]
    fn what_becomes_of_the_sessions_of_one_leaves_those_of_others_and_takes_no_memory_when_they_are_over() {
        let revisions = Revisions::new(7);
        let of = |principals: [&str; 2]| principals.map(|principal| revisions.sessions_of(principal));
        revisions.session_changed("a", true);
        revisions.session_changed("b", true);
        assert_eq!(of(["a", "b"]), [Some(8), Some(9)]);
        revisions.session_changed("a", true);
        revisions.principal_paused("a", true);
        revisions.session_changed("a", false);
        assert_eq!(of(["a", "b"]), [Some(12), Some(9)]);
        revisions.session_changed("a", false);
        assert_eq!((of(["a", "b"]), revisions.sessions()), ([None, Some(9)], 13));
        revisions.session_changed("a", true);
        assert_eq!(of(["a", "b"]), [Some(14), Some(9)], "it is not the one that was there before");
        revisions.session_changed("a", false);
        revisions.principal_paused("a", false);
        revisions.session_changed("b", false);
        assert!(revisions.sessions_of_all().is_empty());
    }

    #[test]
    fn the_revision_of_a_content_is_another_one_when_any_part_is() {
        let revision = of_content(["a", "b"]);
        assert_eq!(of_content(["a", "b"]), revision);
        for other in [&["ab", ""][..], &["a"], &["b", "a"], &["a", "b", ""], &[]] {
            assert_ne!(of_content(other.iter().copied()), revision, "{other:?}");
        }
        assert!(revision < 1 << 53, "JSON has it exactly");
    }

    #[test]
    fn what_comes_and_goes_takes_no_memory() {
        let revisions = Revisions::new(0);
        for number in 0..100 {
            revisions.changed(Volumes, &format!("v{number}"));
            revisions.removed(Volumes, &format!("v{number}"));
        }
        let look = revisions.look();
        assert_eq!((look.0.of[0].changed.len(), look.all(Volumes)), (0, 200));
    }

    #[test]
    fn a_run_begins_above_the_numbers_of_the_one_before_it_and_below_what_json_has_no_more_exactly() {
        assert!(first_of_run(1_800_000_001, 0) > first_of_run(1_800_000_000, u32::MAX));
        assert_ne!(first_of_run(9, 1 << 31), first_of_run(9, 0), "also where the clock begins anew with the machine");
        assert!(first_of_run(u64::from(u32::MAX), u32::MAX) < 1 << 53);
    }
}
