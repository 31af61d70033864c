//! Who keeps the members of an array the same: a thread for each array in use.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_array::{Array, MemberStatus, Standing};
use sanwire_store::{Capabilities, CompletionQueue, Copies, Geometry, Request, Started, Store};

use super::members::{Obstacle, drive, parts, put_back, step};
use super::purpose::{Opening, Purpose, is_unfenced};

/// How often is looked for what is to be done.
const PERIOD: Duration = Duration::from_secs(1);
/// How often members that are away are looked for.
const SEARCH_PERIOD: Duration = Duration::from_secs(5);
/// How long the end of an array in use is waited for.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// How members are written, where that differs from what the labels say.
pub(super) type Texts = Arc<Mutex<Vec<(usize, String)>>>;

/// An array in use, with the thread that keeps its members the same until this is dropped.
#[derive(Debug)]
pub(super) struct KeptArray {
    pub(super) array: Array,
    pub(super) opening: Opening,
    pub(super) texts: Texts,
    is_abandoned: Arc<AtomicBool>,
    stop: Option<Sender<()>>,
    ended: Mutex<Receiver<()>>,
}

impl KeptArray {
    /// `opening`: how members are opened that come back, or take the place of others.
    pub(super) fn new(array: Array, texts: Vec<(usize, String)>, opening: Opening) -> std::io::Result<KeptArray> {
        let (stop, stopped) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let (is_abandoned, texts): (Arc<AtomicBool>, Texts) = (Arc::default(), Arc::new(Mutex::new(texts)));
        let mut keeper = Keeper {
            array: array.clone(),
            opening,
            is_abandoned: Arc::clone(&is_abandoned),
            texts: Arc::clone(&texts),
            known: array.members(),
            over: BTreeMap::new(),
            kept_out: Reasons::default(),
            taken: BTreeMap::new(),
            searched: Instant::now(),
        };
        thread::Builder::new().name("array".to_owned()).spawn(move || {
            keeper.tell_state();
            keeper.run(&stopped);
            drop((keeper, end));
        })?;
        Ok(KeptArray { array, opening, texts, is_abandoned, stop: Some(stop), ended: Mutex::new(ended) })
    }
}

impl Drop for KeptArray {
    fn drop(&mut self) {
        drop(self.stop.take());
        // What its members hold open is closed then, as a rule.
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(END_PATIENCE);
    }
}

impl Store for KeptArray {
    fn geometry(&self) -> Geometry {
        self.array.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.array.capabilities()
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        self.array.start(request, completions)
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(self)
    }

    fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
        self.array.abandon();
    }
}

/// How a member is written whose label has this place.
pub(super) fn text_of(texts: &Texts, number: usize, place: &str) -> String {
    let texts = texts.lock().unwrap_or_else(PoisonError::into_inner);
    let own = texts.iter().find(|(of, _)| *of == number).map(|(_, text)| text.clone());
    // Nothing but the store: a label is written by who can write one member.
    own.unwrap_or_else(|| parts(place).next().unwrap_or_default().to_owned())
}

struct Keeper {
    array: Array,
    opening: Opening,
    /// Nothing more is to be done on the members.
    is_abandoned: Arc<AtomicBool>,
    texts: Texts,
    /// What was told of the members last.
    known: Vec<MemberStatus>,
    /// Members that are kept and over, and what was told last of why they are not there.
    over: BTreeMap<usize, String>,
    /// Why others do not come back.
    kept_out: Reasons,
    /// Members that another host has had since, and which ones these are. To look for them would keep them from that host.
    taken: BTreeMap<usize, [u8; 16]>,
    searched: Instant,
}

/// Why members do not come back, with whether that was told.
#[derive(Default)]
struct Reasons(BTreeMap<usize, (String, bool)>);

impl Reasons {
    /// Whether this is to be told of a member now: it was the same at the search before, so that it does not pass by itself, and was not told.
    fn is_news(&mut self, number: usize, reason: &str) -> bool {
        let (known, is_told) = self.0.entry(number).or_default();
        if known != reason {
            (*known, *is_told) = (reason.to_owned(), false);
            return false;
        }
        !std::mem::replace(is_told, true)
    }
}

/// Whether something was done.
#[derive(PartialEq, Eq)]
enum Step {
    Done,
    Failed,
    Nothing,
}

impl Keeper {
    fn run(&mut self, stopped: &Receiver<()>) {
        let mut wait = Duration::ZERO;
        while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            let step = self.step(Array::resync);
            self.tell_changes();
            wait = if step == Step::Done { Duration::ZERO } else { PERIOD };
            if step == Step::Nothing {
                let _ = self.step(Array::tidy);
            }
            // Before their places are opened again: nobody has them twice.
            self.let_go();
            if self.searched.elapsed() >= SEARCH_PERIOD {
                self.look_at_owner();
                self.search();
                self.searched = Instant::now();
            }
        }
        let _ = self.step(Array::tidy);
    }

    fn step(&self, begin: impl FnOnce(&Array, &CompletionQueue) -> Option<Started>) -> Step {
        if self.is_abandoned.load(Ordering::Relaxed) {
            return Step::Nothing;
        }
        match step(|completions| begin(&self.array, completions)) {
            None => Step::Nothing,
            Some(Ok(_)) => Step::Done,
            Some(Err(_)) => Step::Failed,
        }
    }

    /// What nothing keeps from other hosts shows by its label when one has come. Then nothing more is done to the array here.
    fn look_at_owner(&mut self) {
        if self.opening.purpose != Purpose::UseUnfenced || self.is_abandoned.load(Ordering::Relaxed) {
            return;
        }
        for (number, member) in self.array.members().into_iter().enumerate() {
            if !is_unfenced(&self.text(number, &member.place)) {
                continue;
            }
            if let Err(error) = self.array.check_owned(number, &mut drive) {
                tracing::error!("array {}: all its I/O fails from now on: {error}", self.name());
                self.is_abandoned.store(true, Ordering::Relaxed);
                return self.array.abandon();
            }
        }
    }

    /// Looks for members that are away, or kept and over, and puts back those that are there again.
    fn search(&mut self) {
        let away = self.array.members().into_iter().enumerate();
        // After them: members come behind the others.
        let table = self.array.table();
        let is_taken = |number: usize| self.taken.get(&number).is_some_and(|id| table.members[number].id == *id);
        let is_missed =
            |number: usize, member: &MemberStatus| (!member.is_present || member.is_over) && !is_taken(number);
        let away = away.filter(|(number, member)| is_missed(*number, member));
        let away: Vec<_> = away.map(|(number, member)| (number, self.text(number, &member.place))).collect();
        if self.is_abandoned.load(Ordering::Relaxed) {
            return;
        }
        for (number, obstacle) in put_back(&self.array, &away, self.opening) {
            let (name, member) = (self.name(), number + 1);
            let error = match obstacle {
                Obstacle::TakenOver(error) => {
                    tracing::error!(
                        "array {name}: member {member} is lost to this host, and is not looked for any more: {error}"
                    );
                    self.taken.insert(number, table.members[number].id);
                    continue;
                }
                Obstacle::Other(error) => error,
            };
            match self.over.get_mut(&number) {
                // It is told once.
                Some(told) if *told != error => {
                    tracing::warn!("array {name}: member {member} is not there yet: {error}");
                    *told = error;
                }
                None if self.kept_out.is_news(number, &error) => {
                    tracing::warn!("array {name}: member {member} stays out: {error}");
                }
                _ => tracing::debug!("array {name}: member {member} stays out: {error}"),
            }
        }
        let members = self.array.members();
        self.kept_out.0.retain(|number, _| !members[*number].is_present);
        for number in self.over.extract_if(.., |number, _| !members[*number].is_over).map(|(number, _)| number) {
            tracing::info!("array {}: member {} is there again", self.array.table().name, number + 1);
        }
        self.tell_changes();
    }

    /// Ends what members had that are kept and over.
    fn let_go(&mut self) {
        for number in 0..self.known.len() {
            let is_abandoned = || self.is_abandoned.load(Ordering::Relaxed);
            // Whatever is abandoned is over.
            if is_abandoned() || !self.array.let_go(number) || is_abandoned() {
                continue;
            }
            if let Entry::Vacant(entry) = self.over.entry(number) {
                entry.insert(String::new());
                let member = &self.array.members()[number];
                let (place, why) = (&member.place, member.error.clone().unwrap_or_default());
                tracing::error!(
                    "array {}: member {} ({place}) does not answer any more, and the array does not go on without it: it is looked for: {why}",
                    self.name(),
                    number + 1
                );
            }
        }
    }

    fn text(&self, number: usize, place: &str) -> String {
        text_of(&self.texts, number, place)
    }

    fn name(&self) -> String {
        self.array.table().name
    }

    fn tell_state(&self) {
        for (number, member) in self.known.iter().enumerate() {
            let (name, place) = (self.name(), &member.place);
            match (member.standing, member.is_present) {
                (Standing::In, true) if member.behind_bytes == 0 => {}
                (_, true) => tracing::info!(
                    "array {name}: member {} ({place}) is brought up to date: up to {} to copy",
                    number + 1,
                    sanwire_core::Size(member.behind_bytes)
                ),
                (_, false) => tracing::warn!(
                    "array {name}: member {} ({place}) is away: the array goes on without its copy",
                    number + 1
                ),
            }
        }
    }

    fn tell_changes(&mut self) {
        let now = self.array.members();
        let name = self.name();
        for (number, (was, is)) in self.known.iter().zip(&now).enumerate() {
            let (number, place) = (number + 1, &is.place);
            let why = is.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            let is_whole = |member: &MemberStatus| {
                member.standing == Standing::In && member.is_present && member.behind_bytes == 0
            };
            if was.is_present && !is.is_present {
                tracing::warn!(
                    "array {name}: member {number} ({place}) is out{why}; the array goes on without its copy"
                );
            } else if !was.is_present && is.is_present {
                let behind = sanwire_core::Size(is.behind_bytes);
                tracing::info!("array {name}: member {number} ({place}) is back: up to {behind} to copy");
            }
            if !is_whole(was) && is_whole(is) {
                tracing::info!("array {name}: member {number} ({place}) has all again");
            }
        }
        self.known = now;
    }
}

impl KeptArray {
    /// What tells it from all other arrays, also of its name.
    pub(super) fn id(&self) -> [u8; 16] {
        self.array.table().array
    }

    /// The same as a store of a volume.
    pub(super) fn into_store(self) -> Arc<dyn Store> {
        Arc::new(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_member_stays_out_is_told_once_and_only_if_it_does_not_pass() {
        let mut reasons = Reasons::default();
        let told = ["busy", "older", "older", "older", "split", "split", "older", "older"];
        let told = told.map(|reason| reasons.is_news(1, reason));
        assert_eq!(told, [false, false, true, false, false, true, false, true]);
        assert!(!reasons.is_news(2, "older") && reasons.is_news(2, "older"), "of each member");
    }
}
