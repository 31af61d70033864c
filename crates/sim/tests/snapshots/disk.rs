//! Disks of sectors, each of which is done wholly or not at all and in any order, on a machine whose power goes at a certain operation.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_snapshot::{LayerId, Shelf};
use sanwire_store::{
    Allocation, Capabilities, Completer, Completion, CompletionQueue, ErrorKind, Geometry, Outcome, Request,
    ResizeError, Space, Started, Store, StoreError,
};

use sanwire_sim::random::Random;

/// What a disk does wholly or not at all.
pub const SECTOR_BYTES: usize = 512;

type Sector = Box<[u8; SECTOR_BYTES]>;

/// What goes wrong at disks, beside the power.
#[derive(Clone, Copy, Default, Debug)]
pub struct Faults {
    /// How many of a million flushes fail and lose something.
    pub lost_flushes_per_million: u32,
    /// How many of a million writes find no space.
    pub full_per_million: u32,
    /// Whether little space is available, and how much changes.
    pub is_tight: bool,
    /// How many of a million changes of a catalogue, or of a length, fail; the former may be made all the same.
    pub unkept_per_million: u32,
}

/// The power, and what is under way at all disks.
#[derive(Debug)]
pub struct Machine(Mutex<MachineState>);

#[derive(Debug)]
struct MachineState {
    random: Random,
    /// How many operations are done before the power goes.
    left: u64,
    is_off: bool,
    /// Requests are done as soon as they are asked.
    is_quick: bool,
    faults: Faults,
    under_way: Vec<(Arc<Sectors>, Request, Completer)>,
}

impl Machine {
    /// One on which nothing goes wrong.
    #[must_use]
    pub fn new(random: Random) -> Arc<Self> {
        let (left, is_off, is_quick, faults) = (u64::MAX, false, true, Faults::default());
        let state = MachineState { random, left, is_off, is_quick, faults, under_way: Vec::new() };
        Arc::new(Machine(Mutex::new(state)))
    }

    /// From now on this goes wrong, and the power goes after so many operations.
    pub fn set_life(&self, left: u64, faults: Faults) {
        let state = &mut *self.lock();
        (state.left, state.faults) = (left, faults);
    }

    /// Whether requests are done as soon as they are asked, from now on.
    pub fn set_quick(&self, is_quick: bool) {
        self.lock().is_quick = is_quick;
    }

    /// Whether the power has gone.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.lock().is_off
    }

    /// Does one of the requests that are under way, any of them; `false`: there is none.
    pub fn step(&self) -> bool {
        let (sectors, request, completer) = {
            let state = &mut *self.lock();
            if state.under_way.is_empty() {
                return false;
            }
            let which = state.random.range(0..=state.under_way.len() as u64 - 1) as usize;
            state.under_way.swap_remove(which)
        };
        completer.complete(self.perform(&sectors, request));
        true
    }

    /// Disks show what they have on the medium, here and there, where that is something else.
    pub fn evict(&self, disks: &[Arc<SectorDisk>]) {
        let state = &mut *self.lock();
        disks.iter().for_each(|disk| disk.sectors.lock().evict(&mut state.random));
    }

    /// The power is back, for good.
    pub fn start_again(&self, disks: &[Arc<SectorDisk>]) {
        let under_way = std::mem::take(&mut self.lock().under_way);
        let state = &mut *self.lock();
        for (sectors, request, _) in under_way {
            if state.random.chance(500_000) && !matches!(request, Request::Flush) {
                let _ = sectors.lock().execute(request);
            }
        }
        for disk in disks {
            disk.sectors.lock().lose_power(&mut state.random);
        }
        (state.left, state.is_off, state.is_quick, state.faults) = (u64::MAX, false, true, Faults::default());
    }

    /// Counts an operation; whether there is power for it, and if not, whether it is done all the same.
    fn begin(&self) -> Result<(), bool> {
        let state = &mut *self.lock();
        if state.is_off {
            return Err(false);
        }
        if state.left == 0 {
            state.is_off = true;
            return Err(state.random.chance(500_000));
        }
        state.left -= 1;
        Ok(())
    }

    fn perform(&self, sectors: &Sectors, request: Request) -> Completion {
        match self.begin() {
            Ok(()) => {
                let state = &mut *self.lock();
                if matches!(request, Request::Flush) && state.random.chance(state.faults.lost_flushes_per_million) {
                    sectors.lock().lose(&mut state.random);
                    return Err(StoreError::new(ErrorKind::Unwritable, 0));
                }
                if matches!(request, Request::Write { .. }) && state.random.chance(state.faults.full_per_million) {
                    return Err(StoreError::new(ErrorKind::Full, request.range_bytes().0));
                }
                sectors.lock().execute(request)
            }
            Err(is_done) => {
                if is_done {
                    let _ = sectors.lock().execute(request);
                }
                Err(StoreError::new(ErrorKind::Gone, 0))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, MachineState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One disk, or file.
#[derive(Debug)]
pub struct SectorDisk {
    machine: Arc<Machine>,
    block_bytes: u32,
    sectors: Arc<Sectors>,
}

#[derive(Debug)]
struct Sectors(Mutex<State>);

impl Sectors {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct State {
    length_bytes: u64,
    /// What reads show; what is not there is zero.
    shown: BTreeMap<u64, Sector>,
    /// Sectors of which the medium may hold something else.
    unstable: BTreeMap<u64, Unstable>,
}

#[derive(Default, Debug)]
struct Unstable {
    /// What the sector held before each change since it was stable, the stable content first.
    earlier: Vec<Option<Sector>>,
    /// A flush has failed to make it stable.
    is_lost: bool,
}

impl State {
    fn put(&mut self, sector: u64, content: Option<Sector>) {
        let before = self.shown.remove(&sector);
        let unstable = self.unstable.entry(sector).or_default();
        if !std::mem::take(&mut unstable.is_lost) || unstable.earlier.is_empty() {
            unstable.earlier.push(before);
        }
        self.shown.extend(content.map(|content| (sector, content)));
    }

    fn range(offset_bytes: u64, length_bytes: u64) -> std::ops::Range<u64> {
        offset_bytes / SECTOR_BYTES as u64..(offset_bytes + length_bytes) / SECTOR_BYTES as u64
    }

    fn execute(&mut self, request: Request) -> Completion {
        let (offset_bytes, length_bytes) = request.range_bytes();
        if offset_bytes + length_bytes > self.length_bytes {
            return Err(StoreError::new(ErrorKind::OutOfRange, offset_bytes));
        }
        let range = Self::range(offset_bytes, length_bytes);
        match request {
            Request::Read { mut buffer, .. } => {
                for (sector, part) in range.zip(buffer.chunks_exact_mut(SECTOR_BYTES)) {
                    match self.shown.get(&sector) {
                        Some(content) => part.copy_from_slice(&content[..]),
                        None => part.fill(0),
                    }
                }
                return Ok(Outcome::Read(buffer));
            }
            Request::Write { data, .. } => {
                for (sector, part) in range.zip(data.contiguous().as_chunks::<SECTOR_BYTES>().0) {
                    self.put(sector, Some(Box::new(*part)));
                }
            }
            Request::Flush => self.unstable.retain(|_, unstable| unstable.is_lost),
            Request::Discard { .. } => range.for_each(|sector| self.put(sector, None)),
            Request::WriteZeroes { .. } => range.for_each(|sector| self.put(sector, Some(Box::new([0; SECTOR_BYTES])))),
            Request::Allocation { .. } => {
                let is_mapped = self.shown.contains_key(&range.start);
                let next = match is_mapped {
                    true => range.clone().find(|sector| !self.shown.contains_key(sector)),
                    false => self.shown.range(range.clone()).next().map(|(sector, _)| *sector),
                };
                let sectors = next.unwrap_or(range.end) - range.start;
                let length_bytes = sectors * SECTOR_BYTES as u64;
                return Ok(Outcome::Allocated(Allocation { is_mapped, length_bytes }));
            }
        }
        Ok(Outcome::Done)
    }

    /// A flush fails: some of what was written comes to the medium, and the rest never will.
    fn lose(&mut self, random: &mut Random) {
        self.unstable.retain(|_, unstable| unstable.is_lost || random.chance(500_000));
        for unstable in self.unstable.values_mut().filter(|unstable| !unstable.is_lost) {
            let left = random.range(0..=unstable.earlier.len() as u64 - 1) as usize;
            unstable.earlier = vec![unstable.earlier.swap_remove(left)];
            unstable.is_lost = true;
        }
    }

    /// Memory is short: what a flush could not make stable is seen no longer, here and there.
    fn evict(&mut self, random: &mut Random) {
        let lost: Vec<u64> = self.unstable.iter().filter(|(_, unstable)| unstable.is_lost).map(|(at, _)| *at).collect();
        for sector in lost.into_iter().filter(|_| random.chance(300_000)) {
            let stable =
                self.unstable.remove(&sector).and_then(|unstable| unstable.earlier.into_iter().next()).flatten();
            self.shown.remove(&sector);
            self.shown.extend(stable.map(|content| (sector, content)));
        }
    }

    fn lose_power(&mut self, random: &mut Random) {
        for (sector, Unstable { mut earlier, is_lost }) in std::mem::take(&mut self.unstable) {
            let choice = random.range(0..=earlier.len() as u64 - u64::from(is_lost)) as usize;
            if choice < earlier.len() {
                self.shown.remove(&sector);
                self.shown.extend(earlier.swap_remove(choice).map(|content| (sector, content)));
            }
        }
    }
}

impl SectorDisk {
    /// An empty disk.
    #[must_use]
    pub fn new(machine: &Arc<Machine>, length_bytes: u64, block_bytes: u32) -> Arc<Self> {
        let state = State { length_bytes, shown: BTreeMap::new(), unstable: BTreeMap::new() };
        let sectors = Arc::new(Sectors(Mutex::new(state)));
        Arc::new(SectorDisk { machine: Arc::clone(machine), block_bytes, sectors })
    }
}

impl SectorDisk {
    /// It becomes longer, by sectors that hold this, and have long done so.
    pub fn append(&self, sectors: impl Iterator<Item = [u8; SECTOR_BYTES]>) {
        let state = &mut *self.sectors.lock();
        for content in sectors {
            state.shown.insert(state.length_bytes / SECTOR_BYTES as u64, Box::new(content));
            state.length_bytes += SECTOR_BYTES as u64;
        }
    }
}

impl Store for SectorDisk {
    fn geometry(&self) -> Geometry {
        Geometry {
            length_bytes: self.sectors.lock().length_bytes,
            block_bytes: self.block_bytes,
            physical_block_bytes: 4096,
            read_only: false,
            discards: true,
            atomic_write_bytes: 0,
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { grows: true, ..Capabilities::of(self.geometry()) }
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        {
            let state = &mut *self.machine.lock();
            if !state.is_off && !state.is_quick && !state.random.chance(200_000) {
                let (pending, completer) = completions.pend();
                state.under_way.push((Arc::clone(&self.sectors), request, completer));
                return Started::Pending(pending);
            }
        }
        Started::Done(self.machine.perform(&self.sectors, request))
    }

    fn space(&self) -> Option<Space> {
        let state = &mut *self.machine.lock();
        let available_bytes = state.random.choose(&[0, 20 << 10, 100 << 10, 300 << 10, 1 << 40]);
        let used_bytes = self.sectors.lock().shown.len() as u64 * SECTOR_BYTES as u64;
        Some(Space { used_bytes, available_bytes: state.faults.is_tight.then_some(available_bytes) })
    }

    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        {
            let state = &mut *self.machine.lock();
            if state.random.chance(state.faults.unkept_per_million) {
                return Err(ResizeError::Io(io::ErrorKind::StorageFull.into()));
            }
        }
        match self.machine.begin() {
            Ok(()) => {
                self.sectors.lock().length_bytes = length_bytes;
                Ok(())
            }
            Err(is_done) => {
                if is_done {
                    self.sectors.lock().length_bytes = length_bytes;
                }
                Err(ResizeError::Io(io::ErrorKind::BrokenPipe.into()))
            }
        }
    }
}

/// Files for layers, and for their catalogue.
#[derive(Debug)]
pub struct SimShelf {
    machine: Arc<Machine>,
    block_bytes: u32,
    files: Mutex<Files>,
}

#[derive(Default, Debug)]
struct Files {
    layers: BTreeMap<LayerId, Arc<SectorDisk>>,
    catalogue: Option<Vec<u8>>,
}

impl SimShelf {
    /// An empty one.
    #[must_use]
    pub fn new(machine: &Arc<Machine>, block_bytes: u32) -> Arc<Self> {
        Arc::new(SimShelf { machine: Arc::clone(machine), block_bytes, files: Mutex::default() })
    }

    /// All files of layers.
    #[must_use]
    pub fn disks(&self) -> Vec<Arc<SectorDisk>> {
        self.lock().layers.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something that a crash does wholly or not at all.
    fn change<T>(&self, change: impl FnOnce(&mut Files) -> T) -> io::Result<T> {
        match self.machine.begin() {
            Ok(()) => Ok(change(&mut self.lock())),
            Err(is_done) => {
                if is_done {
                    change(&mut self.lock());
                }
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }
}

impl Shelf for SimShelf {
    fn create(&self, layer: LayerId, length_bytes: u64) -> io::Result<Arc<dyn Store>> {
        let disk = SectorDisk::new(&self.machine, length_bytes, self.block_bytes);
        self.change(|files| _ = files.layers.insert(layer, Arc::clone(&disk)))?;
        Ok(disk)
    }

    fn open(&self, layer: LayerId) -> io::Result<Arc<dyn Store>> {
        let found = self.lock().layers.get(&layer).cloned();
        found.map(|disk| disk as Arc<dyn Store>).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn remove(&self, layer: LayerId) -> io::Result<()> {
        self.change(|files| _ = files.layers.remove(&layer))
    }

    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.lock().catalogue.clone())
    }

    fn keep(&self, catalogue: &[u8]) -> io::Result<()> {
        let (is_failing, is_done) = {
            let state = &mut *self.machine.lock();
            (state.random.chance(state.faults.unkept_per_million), state.random.chance(500_000))
        };
        if is_failing {
            if is_done {
                self.change(|files| files.catalogue = Some(catalogue.to_vec()))?;
            }
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.change(|files| files.catalogue = Some(catalogue.to_vec()))
    }
}
