//! The disk of another server, on which each copy has a volume of its own, as those that are derived for it: it outlives those that use it, and has
//! its moods.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sanwire_sim::content::BLOCK_BYTES;
use sanwire_sim::model::Range;
use sanwire_sim::random::Random;
use sanwire_store::{
    Completer, CompletionQueue, ErrorKind, Geometry, Outcome, RamStore, Request, Started, Store, StoreError,
};
use sanwire_store_file::blocking;

/// How long it takes until it is seen again whether the other server does something.
const HANGING: Duration = Duration::from_millis(20);

/// How the other server is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mood {
    /// Each request takes so long, at the most.
    Well(Duration),
    /// Nothing is done of what it is asked, until it is well again.
    Hangs,
    /// It is away, and all requests fail.
    Away,
}

#[derive(Debug)]
pub(super) struct FarDisk {
    blocks: u64,
    state: Mutex<State>,
}

/// The volume of one copy.
#[derive(Debug)]
pub(super) struct FarVolume {
    disk: Arc<FarDisk>,
    content: Arc<RamStore>,
}

/// A request to a volume.
#[derive(Debug)]
struct UnderWay {
    content: Arc<RamStore>,
    request: Request,
    completer: Completer,
}

#[derive(Debug)]
struct State {
    mood: Mood,
    errors_per_million: u32,
    random: Random,
    under_way: BTreeMap<u64, UnderWay>,
    next: u64,
    /// When what was begun since the last look is done.
    scheduled: Vec<(Duration, u64)>,
}

impl FarDisk {
    pub(super) fn new(blocks: u64, errors_per_million: u32, random: Random) -> Arc<FarDisk> {
        let (under_way, scheduled) = Default::default();
        let mood = Mood::Well(Duration::from_micros(100));
        let state = State { mood, errors_per_million, random, under_way, next: 0, scheduled };
        Arc::new(FarDisk { blocks, state: Mutex::new(state) })
    }

    /// Another volume, in which nothing is.
    pub(super) fn volume(self: &Arc<Self>) -> Arc<FarVolume> {
        let content = RamStore::new(self.blocks * BLOCK_BYTES as u64, BLOCK_BYTES as u32);
        Arc::new(FarVolume { disk: Arc::clone(self), content: Arc::new(content) })
    }

    pub(super) fn set_mood(&self, mood: Mood) {
        self.lock().mood = mood;
    }

    pub(super) fn heal(&self) {
        let mut state = self.lock();
        (state.mood, state.errors_per_million) = (Mood::Well(Duration::from_millis(1)), 0);
    }

    pub(super) fn take_scheduled(&self) -> Vec<(Duration, u64)> {
        std::mem::take(&mut self.lock().scheduled)
    }

    /// A request has taken its time: it is done now, if the other server does anything.
    pub(super) fn land(&self, number: u64) {
        let mut state = self.lock();
        if state.mood == Mood::Hangs {
            state.scheduled.push((HANGING, number));
            return;
        }
        let is_away = state.mood == Mood::Away;
        let rate = state.errors_per_million;
        let has_failed = state.random.chance(rate);
        let Some(UnderWay { content, request, completer }) = state.under_way.remove(&number) else { return };
        drop(state);
        let failed = |kind| Err(StoreError { kind, offset_bytes: 0, source: Some(io::Error::other("its mood")) });
        completer.complete(match (is_away, has_failed) {
            (true, _) => failed(ErrorKind::Gone),
            (false, true) => failed(ErrorKind::Unwritable),
            (false, false) => blocking::run(&*content, request),
        });
    }

    /// Who has asked is gone: what is under way may be done, at once, or not.
    pub(super) fn forsake(&self, random: &mut Random) {
        for UnderWay { content, request, .. } in std::mem::take(&mut self.lock().under_way).into_values() {
            if random.chance(500_000) {
                drop(blocking::run(&*content, request));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FarVolume {
    pub(super) fn content(&self, range: Range) -> Vec<u8> {
        let buffer = vec![0; range.blocks as usize * BLOCK_BYTES].into();
        match blocking::run(&*self.content, Request::Read { offset_bytes: range.lba * BLOCK_BYTES as u64, buffer }) {
            Ok(Outcome::Read(bytes)) => bytes.to_vec(),
            other => unreachable!("memory gives what is in it, and not {other:?}"),
        }
    }
}

impl Store for FarVolume {
    fn geometry(&self) -> Geometry {
        self.content.geometry()
    }

    fn start(&self, request: Request, queue: &CompletionQueue) -> Started {
        let (pending, completer) = queue.pend();
        let State { mood, random, under_way, next, scheduled, .. } = &mut *self.disk.lock();
        let longest = if let Mood::Well(longest) = mood { *longest } else { HANGING };
        scheduled.push((random.micros(0..=longest.as_micros() as u64), *next));
        under_way.insert(*next, UnderWay { content: Arc::clone(&self.content), request, completer });
        *next += 1;
        Started::Pending(pending)
    }
}
