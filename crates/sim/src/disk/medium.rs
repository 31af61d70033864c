//! What a disk holds, and what of it only seems to be there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_store::{
    Allocation, Completion, CompletionQueue, ErrorKind, Geometry, Outcome, Request, Started, Store, StoreError,
};
use sanwire_store_file::blocking;

use crate::content::BLOCK_BYTES;
use crate::random::Random;

/// What the disk holds; it does at once what it is asked.
#[derive(Debug)]
pub(super) struct Medium {
    length_bytes: u64,
    pub(super) state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    /// What reads show.
    bytes: Vec<u8>,
    /// The blocks of which the medium may hold something else.
    unstable: BTreeMap<usize, Unstable>,
    /// Something was lost, and no flush was told.
    is_loss_untold: bool,
    pub(super) is_heard: bool,
    /// A flush was told of a loss since that was asked last.
    pub(super) was_told: bool,
    pub(super) failed_flushes: u64,
}

#[derive(Default, Debug)]
struct Unstable {
    /// What the block held before each write since it was stable, the stable content first.
    earlier: Vec<Box<[u8]>>,
    /// A flush has failed to make it stable; none after it will try.
    is_lost: bool,
}

impl State {
    fn block(&mut self, block: usize) -> &mut [u8] {
        &mut self.bytes[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES]
    }

    fn put(&mut self, offset_bytes: u64, length_bytes: usize, content: impl Fn(usize) -> [u8; BLOCK_BYTES]) {
        let first = offset_bytes as usize / BLOCK_BYTES;
        for index in 0..length_bytes / BLOCK_BYTES {
            let before: Box<[u8]> = (&*self.block(first + index)).into();
            let unstable = self.unstable.entry(first + index).or_default();
            // What was lost does not come to the medium by what is written after it.
            if !std::mem::take(&mut unstable.is_lost) {
                unstable.earlier.push(before);
            }
            self.block(first + index).copy_from_slice(&content(index));
        }
    }

    fn flush(&mut self) -> Completion {
        if self.is_loss_untold {
            self.is_loss_untold = !self.is_heard;
            self.was_told |= self.is_heard;
            self.failed_flushes += 1;
            return Err(StoreError::new(ErrorKind::Unwritable, 0));
        }
        self.unstable.retain(|_, unstable| unstable.is_lost);
        Ok(Outcome::Done)
    }

    /// Some of what was written comes to the medium, and the rest never will.
    pub(super) fn lose(&mut self, random: &mut Random) {
        self.is_loss_untold = true;
        self.unstable.retain(|_, unstable| unstable.is_lost || random.chance(500_000));
        for unstable in self.unstable.values_mut().filter(|unstable| !unstable.is_lost) {
            let left = random.range(0..=unstable.earlier.len() as u64 - 1) as usize;
            unstable.earlier = vec![unstable.earlier.swap_remove(left)];
            unstable.is_lost = true;
        }
    }

    pub(super) fn evict(&mut self) -> bool {
        if self.is_loss_untold {
            return false;
        }
        let lost: Vec<(usize, Unstable)> = self.unstable.extract_if(.., |_, unstable| unstable.is_lost).collect();
        let is_any = !lost.is_empty();
        for (block, Unstable { earlier, .. }) in lost {
            self.block(block).copy_from_slice(&earlier[0]);
        }
        is_any
    }

    pub(super) fn lose_power(&mut self, random: &mut Random) {
        self.is_loss_untold = false;
        for (block, Unstable { earlier, is_lost }) in std::mem::take(&mut self.unstable) {
            let choice = random.range(0..=earlier.len() as u64 - u64::from(is_lost)) as usize;
            if let Some(content) = earlier.get(choice) {
                self.block(block).copy_from_slice(content);
            }
        }
    }
}

impl Medium {
    pub(super) fn new(length_bytes: u64) -> Self {
        let bytes = vec![0; length_bytes as usize];
        let state = State {
            bytes,
            unstable: BTreeMap::new(),
            is_loss_untold: false,
            is_heard: true,
            was_told: false,
            failed_flushes: 0,
        };
        Medium { length_bytes, state: Mutex::new(state) }
    }

    fn execute(&self, request: Request) -> Completion {
        self.geometry().check(&request)?;
        let mut state = lock(&self.state);
        match request {
            Request::Read { offset_bytes, mut buffer } => {
                let start = offset_bytes as usize;
                let end = start + buffer.len();
                buffer.copy_from_slice(&state.bytes[start..end]);
                return Ok(Outcome::Read(buffer));
            }
            Request::Write { offset_bytes, data } => {
                let data = data.contiguous();
                let blocks = data.as_chunks::<BLOCK_BYTES>().0;
                state.put(offset_bytes, data.len(), |index| blocks[index]);
            }
            Request::Discard { offset_bytes, length_bytes } | Request::WriteZeroes { offset_bytes, length_bytes } => {
                state.put(offset_bytes, length_bytes as usize, |_| [0; BLOCK_BYTES]);
            }
            Request::Flush => return state.flush(),
            Request::Allocation { length_bytes, .. } => {
                return Ok(Outcome::Allocated(Allocation { is_mapped: true, length_bytes }));
            }
        }
        Ok(Outcome::Done)
    }
}

impl Store for Medium {
    fn geometry(&self) -> Geometry {
        Geometry {
            length_bytes: self.length_bytes,
            block_bytes: BLOCK_BYTES as u32,
            physical_block_bytes: 4096,
            read_only: false,
            discards: true,
            atomic_write_bytes: 0,
        }
    }

    fn start(&self, request: Request, _: &CompletionQueue) -> Started {
        Started::Done(self.execute(request))
    }
}

/// The same medium when it fails: a write may have done its first half.
#[derive(Debug)]
pub(super) struct Broken {
    medium: Arc<Medium>,
}

impl Broken {
    pub(super) fn new(medium: &Arc<Medium>) -> Self {
        Broken { medium: Arc::clone(medium) }
    }
}

impl Store for Broken {
    fn geometry(&self) -> Geometry {
        self.medium.geometry()
    }

    fn start(&self, request: Request, _: &CompletionQueue) -> Started {
        let (offset_bytes, _) = request.range_bytes();
        if matches!(request, Request::Flush) {
            lock(&self.medium.state).failed_flushes += 1;
        }
        let kind = if request.is_write() { ErrorKind::Unwritable } else { ErrorKind::Unreadable };
        if let Request::Write { offset_bytes, data } = request {
            let half = data.len() / BLOCK_BYTES / 2 * BLOCK_BYTES;
            if half > 0 {
                let written = self.medium.execute(Request::Write { offset_bytes, data: data.slice(0..half) });
                debug_assert!(written.is_ok());
            }
        }
        Started::Done(Err(StoreError::new(kind, offset_bytes)))
    }
}

/// The same medium when a flush loses what it was to make stable, and also what came while it was under way.
#[derive(Debug)]
pub(super) struct Losing {
    medium: Arc<Medium>,
    random: Mutex<Random>,
}

impl Losing {
    pub(super) fn new(medium: &Arc<Medium>, random: Random) -> Self {
        Losing { medium: Arc::clone(medium), random: Mutex::new(random) }
    }
}

impl Store for Losing {
    fn geometry(&self) -> Geometry {
        self.medium.geometry()
    }

    fn start(&self, request: Request, _: &CompletionQueue) -> Started {
        lock(&self.medium.state).lose(&mut lock(&self.random));
        Started::Done(self.medium.execute(request))
    }
}

/// The same medium when it has done a request already: what it says in the end.
#[derive(Debug)]
pub(super) struct Early(Geometry, Mutex<Option<Completion>>);

impl Early {
    pub(super) fn new(store: &dyn Store, request: Request) -> Self {
        Early(store.geometry(), Mutex::new(Some(blocking::run(store, request))))
    }
}

impl Store for Early {
    fn geometry(&self) -> Geometry {
        self.0
    }

    fn start(&self, request: Request, _: &CompletionQueue) -> Started {
        let (offset_bytes, _) = request.range_bytes();
        let completion = lock(&self.1).take();
        Started::Done(completion.unwrap_or_else(|| Err(StoreError::new(ErrorKind::Unwritable, offset_bytes))))
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(state: &mut State, block: usize, byte: u8) {
        state.put((block * BLOCK_BYTES) as u64, BLOCK_BYTES, |_| [byte; BLOCK_BYTES]);
    }

    /// What the first blocks show.
    fn shown(state: &mut State) -> Vec<u8> {
        (0..64).map(|block| state.block(block)[0]).collect()
    }

    /// All blocks were written, and a flush has lost some of them.
    fn after_a_loss() -> Medium {
        let medium = Medium::new(64 * BLOCK_BYTES as u64);
        let mut state = lock(&medium.state);
        (0..64).for_each(|block| write(&mut state, block, 1));
        state.lose(&mut Random::new(1));
        drop(state);
        medium
    }

    #[test]
    fn what_a_flush_has_lost_is_shown_until_it_is_evicted_and_one_flush_is_told() {
        let medium = after_a_loss();
        let state = &mut *lock(&medium.state);
        assert!(!state.evict(), "nobody was told");
        assert!(state.flush().is_err() && state.flush().is_ok());
        assert_eq!(shown(state), [1; 64]);
        assert!(state.evict() && !state.evict());
        let lost = shown(state).into_iter().filter(|byte| *byte == 0).count();
        assert!((1..64).contains(&lost), "{lost}");
        state.lose_power(&mut Random::new(2));
        assert_eq!(shown(state).into_iter().filter(|byte| *byte == 0).count(), lost, "the others are stable");
    }

    #[test]
    fn what_is_written_again_after_a_loss_becomes_stable_with_the_next_flush() {
        let medium = after_a_loss();
        let state = &mut *lock(&medium.state);
        state.is_heard = false;
        assert!(state.flush().is_err());
        state.is_heard = true;
        assert!(state.flush().is_err(), "nobody has heard of it");
        (0..64).for_each(|block| write(state, block, 2));
        assert!(state.flush().is_ok() && !state.evict());
        state.lose_power(&mut Random::new(2));
        assert_eq!(shown(state), [2; 64]);
    }

    #[test]
    fn the_power_takes_what_a_flush_has_lost() {
        let medium = after_a_loss();
        let state = &mut *lock(&medium.state);
        assert!(state.flush().is_err() && state.flush().is_ok());
        write(state, 0, 3);
        state.lose_power(&mut Random::new(2));
        let left = shown(state);
        assert!([0, 1, 3].contains(&left[0]) && left[1..].contains(&0) && left[1..].contains(&1), "{left:?}");
    }
}
