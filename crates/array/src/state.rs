//! What all requests of an array share: its table, its members, and what is known of their regions.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use fixedbitset::FixedBitSet;
use sanwire_store::{ErrorKind, Store, StoreError};

use crate::intent::{self, Intents};
use crate::label::{MEMBERS_MAX, Standing, Table};
use crate::layout::Layout;
use crate::locks::Locks;
use crate::unflushed::{Failures, Unflushed};

/// An array while it is in use.
#[derive(Debug)]
pub(crate) struct Shared {
    layout: RwLock<Arc<Layout>>,
    pub(crate) block_bytes: u32,
    pub(crate) physical_block_bytes: u32,
    pub(crate) region_bytes: u64,
    /// Of each group that there is, or that may come behind them.
    pub(crate) groups: Vec<GroupLocks>,
    /// Who changes the table.
    pub(crate) table_turn: Arc<Locks>,
    /// Who brings members up to date.
    pub(crate) resync_turn: Arc<Locks>,
    /// Who makes it longer: what a second one would make the same may be written by then.
    pub(crate) growing: Mutex<()>,
    discards: AtomicBool,
    state: Mutex<State>,
}

/// Who does what in a group.
#[derive(Debug, Default)]
pub(crate) struct GroupLocks {
    /// Ranges that are being written.
    pub(crate) data: Arc<Locks>,
    /// Who notes what is about to be written.
    pub(crate) intents: Arc<Locks>,
}

#[derive(Debug)]
pub(crate) struct State {
    /// What the labels of all members say that are in, or are about to.
    pub(crate) table: Table,
    /// What they said before, until all say the new one: some may say this still.
    pub(crate) former: Option<Table>,
    /// The newest generation that may stand on some member.
    pub(crate) newest_generation: u64,
    pub(crate) members: Vec<Member>,
    pub(crate) intents: Vec<Intents>,
    /// For each group, what no flush has made stable.
    pub(crate) unflushed: Vec<Unflushed>,
    /// For each group, from which region on it is copied next, and which group first.
    pub(crate) copied_from: Vec<usize>,
    pub(crate) copied_group: usize,
    next_reader: usize,
}

/// A member while its array is in use.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Where it is written: of one that is in, as of one that is being brought up to date. `None`: it is away.
    pub(crate) store: Option<Arc<dyn Store>>,
    /// The regions in which it may differ from the others.
    pub(crate) behind: FixedBitSet,
    /// How often that was added to.
    pub(crate) marks: u64,
    /// How often its store was another one.
    pub(crate) incarnation: u64,
    /// From which of those on its store may have changed while it was in.
    kept_from: u64,
    /// It is in by the labels, and may lack what another one has: they are to say that it is out, unless it has all by then.
    pub(crate) is_fallen: bool,
    pub(crate) failures: Failures,
    /// Its label is not that which the others have, but of one that came to nothing.
    pub(crate) is_stray: bool,
    reads: u32,
    /// What went wrong with it last.
    pub(crate) error: Option<String>,
}

impl Member {
    pub(crate) fn new(store: Option<Arc<dyn Store>>, behind: FixedBitSet) -> Self {
        Member {
            store,
            behind,
            marks: 0,
            incarnation: 0,
            kept_from: 0,
            is_fallen: false,
            failures: Failures::default(),
            is_stray: false,
            reads: 0,
            error: None,
        }
    }

    /// Whether it could be the only one of its group.
    fn has_all(&self) -> bool {
        self.store.is_some() && self.behind.is_clear()
    }

    pub(crate) fn mark(&mut self, regions: Range<usize>) {
        self.behind.insert_range(regions);
        self.marks += 1;
    }
}

/// A member whose store a request has gone to.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) member: usize,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) incarnation: u64,
    /// Whether it was in when the request began.
    pub(crate) is_in: bool,
}

impl Shared {
    pub(crate) fn new(table: Table, members: Vec<Member>, intents: Vec<Intents>) -> Arc<Self> {
        let physical = |member: &Member| member.store.as_ref().map(|store| store.geometry().physical_block_bytes);
        let shared = Shared {
            block_bytes: table.block_bytes,
            physical_block_bytes: members.iter().filter_map(physical).fold(table.block_bytes, u32::max),
            region_bytes: table.region_bytes,
            groups: (0..MEMBERS_MAX).map(|_| GroupLocks::default()).collect(),
            layout: RwLock::new(Arc::new(table.layout())),
            table_turn: Arc::default(),
            resync_turn: Arc::default(),
            growing: Mutex::default(),
            discards: AtomicBool::new(false),
            state: Mutex::new(State {
                newest_generation: table.generation,
                former: Some(table.clone()),
                unflushed: vec![Unflushed::default(); intents.len()],
                copied_from: vec![0; intents.len()],
                copied_group: 0,
                table,
                members,
                intents,
                next_reader: 0,
            }),
        };
        shared.look_at_discards(&shared.lock());
        Arc::new(shared)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn discards(&self) -> bool {
        self.discards.load(Ordering::Relaxed)
    }

    /// Every member that is written must take them.
    pub(crate) fn look_at_discards(&self, state: &State) {
        let takes = |member: &Member| member.store.as_ref().is_none_or(|store| store.geometry().discards);
        self.discards.store(state.members.iter().all(takes), Ordering::Relaxed);
    }

    /// The regions of a group that a range of it touches.
    pub(crate) fn regions(&self, range: &Range<u64>) -> Range<usize> {
        intent::regions(range, self.region_bytes)
    }

    /// How many regions a group has.
    pub(crate) fn region_count(&self, group: usize) -> usize {
        self.regions(&(0..self.group_bytes(group))).end
    }

    /// Where the bytes of the volume lie. They stay there: it only becomes longer.
    pub(crate) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on they lie so, too.
    pub(crate) fn show(&self, layout: Layout) {
        let mut shown = self.layout.write().unwrap_or_else(PoisonError::into_inner);
        if **shown != layout {
            *shown = Arc::new(layout);
        }
    }

    pub(crate) fn group_count(&self) -> usize {
        self.layout().group_bytes.len()
    }

    pub(crate) fn group_bytes(&self, group: usize) -> u64 {
        self.layout().group_bytes[group]
    }

    /// A request to a member has failed. It is given up, unless the array does not go on without it: then its store may still come back by
    /// itself. `false`: it is kept.
    pub(crate) fn fail(&self, part: &Part, error: &StoreError) -> bool {
        let store = {
            let state = &mut *self.lock();
            let lost: Vec<_> = state.lost().into_iter().chain([part.member]).collect();
            let is_last = !state.others_in(part.member).any(|other| state.members[other].has_all())
                || !state.goes_on_without(&lost);
            let (is_in, group) = (state.table.is_in(part.member), state.table.group_of(part.member));
            let has_successor =
                state.table.in_group(group).any(|other| other != part.member && state.members[other].has_all());
            let member = &mut state.members[part.member];
            member.error = Some(error.to_string());
            if member.incarnation != part.incarnation {
                return true;
            }
            if is_in && is_last {
                if has_successor {
                    // Too many would be out with it, so this one stays; but it may have lost what the other one has.
                    member.behind.union_with(state.intents[group].dirty());
                    (member.marks, member.is_fallen) = (member.marks + 1, true);
                }
                return false;
            }
            let store = member.store.take();
            self.look_at_discards(state);
            store
        };
        // Nothing that was handed to it is to come to the medium later.
        store.into_iter().for_each(|store| store.abandon());
        true
    }
}

impl State {
    /// The other members of its group that are in, whichever table their labels have.
    fn others_in(&self, member: usize) -> impl Iterator<Item = usize> {
        // One that is new by the table is in none before.
        let is_in_both = |other: &usize| {
            self.former.as_ref().is_none_or(|former| former.is_in(*other) || *other >= former.members.len())
        };
        let others = self.table.in_group(self.table.group_of(member));
        others.filter(move |other| *other != member).filter(is_in_both)
    }

    /// Whether nothing is to be told to the members before a write is acknowledged.
    pub(crate) fn is_settled(&self) -> bool {
        self.former.is_none() && self.lost().is_empty() && self.fallen().next().is_none()
    }

    /// Whether the array goes on without these members: at least half of those that were in are left of each group, and one of them has
    /// all. Those that are out then cannot be taken for the array, however many of them are found without the others.
    pub(crate) fn goes_on_without(&self, lost: &[usize]) -> bool {
        let goes_on = |table: &Table, group: usize| {
            let all = table.in_group(group).count();
            let left = table.in_group(group).filter(|member| !lost.contains(member)).count();
            let has_all = table.in_group(group).any(|member| self.members[member].has_all());
            has_all && left * 2 >= all
        };
        let tables = [Some(&self.table), self.former.as_ref()];
        let all_go_on = |table: &Table| (0..table.members.len() / table.copies).all(|group| goes_on(table, group));
        tables.into_iter().flatten().all(all_go_on)
    }

    /// Whether the store of one of these that were in is another one by now, though it was in all the time: what was answered there may be
    /// lost.
    pub(crate) fn has_reopened(&self, parts: &[Part]) -> bool {
        parts.iter().any(|part| part.is_in && part.incarnation < self.members[part.member].kept_from)
    }

    /// How often each member of a group was put back, or fell behind.
    pub(crate) fn marks(&self, group: usize) -> Vec<u64> {
        self.table.group(group).map(|member| self.members[member].marks).collect()
    }

    fn part(&self, member: usize) -> Option<Part> {
        let Member { store, incarnation, .. } = &self.members[member];
        let store = Arc::clone(store.as_ref()?);
        Some(Part { member, store, incarnation: *incarnation, is_in: self.table.is_in(member) })
    }

    /// The members of a group that are written.
    pub(crate) fn written(&self, group: usize) -> Vec<Part> {
        self.table.group(group).filter_map(|member| self.part(member)).collect()
    }

    /// All members that are in and there.
    pub(crate) fn present(&self) -> Vec<Part> {
        let all = (0..self.members.len()).filter_map(|member| self.part(member));
        all.filter(|part| part.is_in).collect()
    }

    /// The members that are in by the table, and away.
    pub(crate) fn lost(&self) -> Vec<usize> {
        let is_lost = |member: &usize| self.table.is_in(*member) && self.members[*member].store.is_none();
        (0..self.members.len()).filter(is_lost).collect()
    }

    /// The members that are in by the table, and of which the labels are to say that they are out.
    pub(crate) fn fallen(&self) -> impl Iterator<Item = usize> {
        (0..self.members.len()).filter(|member| self.table.is_in(*member) && self.members[*member].is_fallen)
    }

    /// Of those, the ones of which another one of the group has all, whichever table the labels have. `None`: one of the others lacks
    /// something still.
    pub(crate) fn to_be_out(&self) -> Option<Vec<usize>> {
        let is_better = |other: usize| self.members[other].has_all() && !self.members[other].is_fallen;
        let (out, rest): (Vec<_>, Vec<_>) = self.fallen().partition(|member| self.others_in(*member).any(is_better));
        rest.into_iter().all(|member| self.members[member].has_all()).then_some(out)
    }

    /// All members that are in and there have this table on their labels. What was copied to them before is stable since.
    pub(crate) fn published(&mut self, table: Table) {
        (self.table, self.former) = (table, None);
        for (record, member) in self.table.members.iter().zip(&mut self.members) {
            member.is_fallen &= record.standing == Standing::In && !member.has_all();
            member.is_stray = false;
        }
    }

    /// Whether all members of a group have all that was written.
    pub(crate) fn is_whole(&self, group: usize) -> bool {
        self.table.group(group).all(|number| {
            let member = &self.members[number];
            self.table.is_in(number) && member.store.is_some() && member.behind.is_clear()
        })
    }

    /// Who reads these regions of a group: one that has them as they are. With `first` always the same one, as long as it can.
    pub(crate) fn reader(&mut self, group: usize, regions: Range<usize>, first: bool, tried: &[usize]) -> Option<Part> {
        let there: Vec<_> = (self.table.in_group(group))
            .filter(|member| self.members[*member].store.is_some() && !tried.contains(member))
            .collect();
        let has = |member: &usize| !self.members[*member].behind.contains_any_in_range(regions.clone());
        let mut able = there.iter().copied().filter(has);
        let chosen = if first {
            able.next()
        } else {
            self.next_reader = self.next_reader.wrapping_add(1);
            let (turn, members) = (self.next_reader, self.members.len());
            able.min_by_key(|member| (self.members[*member].reads, (member + turn) % members))
        };
        if chosen.is_none() && tried.is_empty() {
            // None is known to be ahead of the others: what one of them has is the truth from now on.
            let source = there.first().copied()?;
            self.members[source].behind.remove_range(regions);
            return self.part(source);
        }
        self.part(chosen?)
    }

    pub(crate) fn begin_read(&mut self, part: &Part) {
        self.members[part.member].reads += 1;
    }

    pub(crate) fn end_read(&mut self, part: &Part) {
        let member = &mut self.members[part.member];
        member.reads = member.reads.saturating_sub(1);
    }

    /// A member is back, or a new one has taken its place: it is written from now on.
    pub(crate) fn put_back(&mut self, number: usize, store: Arc<dyn Store>, behind: FixedBitSet) {
        let member = &mut self.members[number];
        (member.store, member.behind, member.error) = (Some(store), behind, None);
        (member.incarnation, member.marks, member.reads) = (member.incarnation + 1, member.marks + 1, 0);
        (member.kept_from, member.is_fallen, member.failures) = (0, false, Failures::default());
    }

    /// A member that is kept has another store in place of one that is over. What was not flushed may have been lost with that.
    pub(crate) fn reopened(&mut self, number: usize, store: Arc<dyn Store>) {
        let group = self.table.group_of(number);
        let has_other = self.table.in_group(group).any(|other| other != number && self.members[other].has_all());
        let mut behind = self.members[number].behind.clone();
        if has_other {
            behind.union_with(self.intents[group].dirty());
        } else {
            self.unflushed[group].lose();
        }
        let is_fallen = has_other && !behind.is_clear();
        self.put_back(number, store, behind);
        let member = &mut self.members[number];
        (member.kept_from, member.is_fallen) = (member.incarnation, is_fallen);
    }

    /// The table of the next generation, in which these are out.
    pub(crate) fn next_table(&mut self, lost: &[usize]) -> Table {
        self.newest_generation += 1;
        let mut table = Table { generation: self.newest_generation, ..self.table.clone() };
        for member in lost {
            table.members[*member].standing = Standing::Out { since: table.generation, is_whole: false };
        }
        table
    }
}

pub(crate) fn gone() -> StoreError {
    StoreError {
        source: Some(std::io::Error::other("too few members of the array are there")),
        ..StoreError::new(ErrorKind::Gone, 0)
    }
}
