//! Members on hosts of their own: sectors that are done in any order, a link that goes, power that goes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_sim::random::Random;
use sanwire_store::{
    Completer, Completion, CompletionQueue, ErrorKind, Geometry, Outcome, Request, Started, Store, StoreError,
};

use super::lagging::Laggard;

/// What a disk does wholly or not at all.
pub const SECTOR_BYTES: usize = 512;

type Sector = Option<Box<[u8; SECTOR_BYTES]>>;

/// All members, and what is under way at them.
#[derive(Debug)]
pub struct Network(Mutex<State>);

#[derive(Debug)]
struct State {
    random: Random,
    disks: Vec<Disk>,
    under_way: Vec<(Arc<Connection>, Request, Completer)>,
    /// What nobody waits for any more, and may be done still, until somebody has the disk for himself again.
    late: Vec<(usize, Request)>,
    laggard: Laggard,
    /// How many of a million requests fail at a medium.
    hurt_per_million: u32,
    /// The disks of which a flush may fail and lose something.
    weak: Vec<usize>,
    /// Requests are done as soon as they are asked.
    is_quick: bool,
    /// A host that has had the members before hears nothing, and nobody hears it.
    is_frozen: bool,
    /// What that host has asked meanwhile, or had asked when it became so.
    held: Vec<(Request, usize, Completer)>,
}

#[derive(Debug)]
struct Disk {
    length_bytes: u64,
    is_up: bool,
    /// Its host has lost its power; who had it before gives again what was not flushed, if he is there still.
    forgets: bool,
    /// How often somebody has had it for himself; who had it before is refused.
    owner: u32,
    /// A flush has failed there, and its host was the last to know what was to be stable.
    has_lost: bool,
    /// What reads show; what is not there is zero.
    shown: BTreeMap<u64, Sector>,
    /// What each sector held before each change since it was stable, the stable content first.
    unstable: BTreeMap<u64, Vec<Sector>>,
}

/// What is on a disk at a moment.
#[derive(Debug)]
pub struct Image {
    shown: BTreeMap<u64, Sector>,
    unstable: BTreeMap<u64, Vec<Sector>>,
}

/// The way of a host to a member.
#[derive(Debug)]
pub struct Connection {
    network: Arc<Network>,
    disk: usize,
    owner: u32,
    is_closed: AtomicBool,
}

fn failed(kind: ErrorKind) -> Completion {
    Err(StoreError::new(kind, 0))
}

impl Disk {
    fn put(&mut self, sector: u64, content: Sector) {
        let before = self.shown.get(&sector).cloned().unwrap_or_default();
        if before == content {
            return;
        }
        self.unstable.entry(sector).or_default().push(before);
        self.shown.insert(sector, content);
    }

    fn execute(&mut self, request: Request) -> Completion {
        let (offset_bytes, length_bytes) = request.range_bytes();
        if offset_bytes + length_bytes > self.length_bytes {
            return failed(ErrorKind::OutOfRange);
        }
        let sectors = offset_bytes / SECTOR_BYTES as u64..(offset_bytes + length_bytes) / SECTOR_BYTES as u64;
        match request {
            Request::Read { mut buffer, .. } => {
                buffer.fill(0);
                for (sector, content) in self.shown.range(sectors.clone()) {
                    if let Some(content) = content {
                        let at = (sector - sectors.start) as usize * SECTOR_BYTES;
                        buffer[at..at + SECTOR_BYTES].copy_from_slice(&content[..]);
                    }
                }
                return Ok(Outcome::Read(buffer));
            }
            Request::Write { data, .. } => {
                for (sector, part) in sectors.zip(data.contiguous().as_chunks::<SECTOR_BYTES>().0) {
                    self.put(sector, part.iter().any(|byte| *byte != 0).then(|| Box::new(*part)));
                }
            }
            Request::Flush => self.unstable.clear(),
            _ => {
                let written: Vec<u64> = self.shown.range(sectors).map(|(sector, _)| *sector).collect();
                written.into_iter().for_each(|sector| self.put(sector, None));
            }
        }
        Ok(Outcome::Done)
    }

    fn lose_power(&mut self, random: &mut Random) {
        for (sector, mut earlier) in std::mem::take(&mut self.unstable) {
            let choice = random.range(0..=earlier.len() as u64) as usize;
            if choice < earlier.len() {
                self.shown.insert(sector, earlier.swap_remove(choice));
            }
        }
    }
}

impl Network {
    /// So many disks of this length.
    #[must_use]
    pub fn new(random: Random, disks: usize, length_bytes: u64) -> Arc<Self> {
        let disk = || Disk {
            length_bytes,
            is_up: true,
            forgets: false,
            owner: 0,
            has_lost: false,
            shown: BTreeMap::new(),
            unstable: BTreeMap::new(),
        };
        let disks = (0..disks).map(|_| disk()).collect();
        let state = State {
            random,
            disks,
            under_way: Vec::new(),
            late: Vec::new(),
            laggard: Laggard::new(0),
            hurt_per_million: 0,
            weak: Vec::new(),
            is_quick: true,
            is_frozen: false,
            held: Vec::new(),
        };
        Arc::new(Network(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A host finds the member.
    #[must_use]
    pub fn connect(self: &Arc<Self>, disk: usize) -> Arc<Connection> {
        let state = &mut *self.lock();
        state.settle_late(disk);
        state.disks[disk].has_lost = false;
        if std::mem::take(&mut state.disks[disk].forgets) {
            state.disks[disk].lose_power(&mut state.random);
        }
        let owner = state.disks[disk].owner;
        Arc::new(Connection { network: Arc::clone(self), disk, owner, is_closed: AtomicBool::new(false) })
    }

    pub fn set(&self, is_quick: bool, hurt_per_million: u32) {
        let state = &mut *self.lock();
        (state.is_quick, state.hurt_per_million) = (is_quick, hurt_per_million);
    }

    /// So many of a million times another member lags from then on.
    pub fn set_lagging(&self, changes_per_million: u32) {
        self.lock().laggard = Laggard::new(changes_per_million);
    }

    /// Of these disks a flush may fail and lose something.
    pub fn set_weak(&self, weak: Vec<usize>) {
        self.lock().weak = weak;
    }

    pub fn is_up(&self, disk: usize) -> bool {
        self.lock().disks[disk].is_up
    }

    /// The link of a member goes: of what is under way some is done. Its host may lose its power besides.
    pub fn cut(&self, disk: usize, loses_power: bool) {
        self.end_some(|connection| connection.disk == disk);
        let state = &mut *self.lock();
        state.disks[disk].is_up = false;
        state.disks[disk].forgets |= loses_power;
    }

    /// Whether what was not flushed there is lost to the next host.
    pub fn forgets(&self, disk: usize) -> bool {
        let disk = &self.lock().disks[disk];
        disk.forgets || disk.has_lost
    }

    /// It is back.
    pub fn mend(&self, disk: usize) {
        let state = &mut *self.lock();
        if !state.disks[disk].is_up {
            // The host gives what it has not heard of again, or not: its server has ended what came before.
            state.settle_late(disk);
        }
        state.disks[disk].is_up = true;
    }

    /// How long a disk is.
    pub fn length_bytes(&self, disk: usize) -> u64 {
        self.lock().disks[disk].length_bytes
    }

    /// It is so much longer, and nothing stands there.
    pub fn lengthen(&self, disk: usize, bytes: u64) {
        self.lock().disks[disk].length_bytes += bytes;
    }

    /// Nothing is on a disk any more.
    pub fn clear(&self, disk: usize) {
        let state = &mut *self.lock();
        state.settle_late(disk);
        state.disks[disk].shown.clear();
        state.disks[disk].unstable.clear();
    }

    /// What is on a disk now.
    pub fn image(&self, disk: usize) -> Image {
        let disk = &self.lock().disks[disk];
        Image { shown: disk.shown.clone(), unstable: disk.unstable.clone() }
    }

    /// This is on a disk from now on; gives what was there.
    pub fn restore(&self, disk: usize, image: Image) -> Image {
        let state = &mut *self.lock();
        // What was asked before was asked of what goes.
        state.settle_late(disk);
        let disk = &mut state.disks[disk];
        Image {
            shown: std::mem::replace(&mut disk.shown, image.shown),
            unstable: std::mem::replace(&mut disk.unstable, image.unstable),
        }
    }

    /// A bit of a sector changes by itself, and no error tells it.
    pub fn rot(&self, disk: usize, sector: u64) {
        let State { disks, random, .. } = &mut *self.lock();
        let shown = disks[disk].shown.entry(sector).or_default().get_or_insert_with(|| Box::new([0; SECTOR_BYTES]));
        let byte = random.range(0..=SECTOR_BYTES as u64 - 1) as usize;
        shown[byte] ^= 1 << random.range(0..=7);
    }

    /// All power goes.
    pub fn lose_power(&self) {
        let state = &mut *self.lock();
        let State { disks, random, late, .. } = state;
        late.clear();
        disks.iter_mut().for_each(|disk| disk.lose_power(random));
    }

    /// What is under way of some connections ends with an error; it is done, or not, or later.
    pub fn end_some(&self, is_of: impl Fn(&Connection) -> bool) {
        let mut ended = Vec::new();
        {
            let state = &mut *self.lock();
            let mut rest = Vec::new();
            for (connection, request, completer) in std::mem::take(&mut state.under_way) {
                if !is_of(&connection) {
                    rest.push((connection, request, completer));
                    continue;
                }
                if !matches!(request, Request::Flush) {
                    match state.random.range(0..=2) {
                        0 => _ = state.disks[connection.disk].execute(request),
                        1 => state.late.push((connection.disk, request)),
                        _ => {}
                    }
                }
                ended.push(completer);
            }
            state.under_way = rest;
        }
        ended.into_iter().for_each(|completer| completer.complete(failed(ErrorKind::Gone)));
    }

    /// Somebody takes all members from the host that has them, which hears nothing any more. What it has asked is done, or not: its word
    /// comes when the host is heard again.
    pub fn take_over(&self) {
        let state = &mut *self.lock();
        state.is_frozen = true;
        for (connection, request, completer) in std::mem::take(&mut state.under_way) {
            let is_done = state.random.chance(300_000) && !matches!(request, Request::Flush);
            if is_done {
                let _ = state.disks[connection.disk].execute(request);
                state.held.push((Request::Flush, connection.disk, completer));
            } else {
                state.held.push((request, connection.disk, completer));
            }
        }
        state.disks.iter_mut().for_each(|disk| disk.owner += 1);
    }

    /// The host that had them is heard again. It finds that they are not its own any more, and gives nothing again.
    pub fn thaw(&self) {
        let held = {
            let state = &mut *self.lock();
            state.is_frozen = false;
            std::mem::take(&mut state.held)
        };
        held.into_iter().for_each(|(_, _, completer)| completer.complete(failed(ErrorKind::Other)));
    }

    /// The connection with a member is lost for good; its host may lose its power besides. It is there to be found again at once.
    pub fn end_session(&self, disk: usize, loses_power: bool) {
        self.end_some(|connection| connection.disk == disk);
        let state = &mut *self.lock();
        state.disks[disk].owner += 1;
        state.disks[disk].forgets |= loses_power;
    }

    /// A host has the member for itself, as nobody else has.
    pub fn claim(self: &Arc<Self>, disk: usize) -> Arc<Connection> {
        self.lock().disks[disk].owner += 1;
        self.connect(disk)
    }

    /// Whether something is under way.
    pub fn is_busy(&self) -> bool {
        !self.lock().under_way.is_empty()
    }

    /// Does one of the requests that are under way, any of them; `false`: there is none.
    pub fn step(&self) -> bool {
        let (completer, completion) = {
            let state = &mut *self.lock();
            if !state.late.is_empty() && (state.under_way.is_empty() || state.random.chance(50_000)) {
                let which = state.random.range(0..=state.late.len() as u64 - 1) as usize;
                let (disk, request) = state.late.swap_remove(which);
                let _ = state.disks[disk].execute(request);
                return true;
            }
            if state.under_way.is_empty() {
                return false;
            }
            let State { laggard, random, disks, under_way, .. } = state;
            let which = laggard.next(random, disks.len(), under_way.len(), |at| under_way[at].0.disk);
            let (connection, request, completer) = state.under_way.swap_remove(which);
            (completer, state.perform(connection.disk, request))
        };
        completer.complete(completion);
        true
    }
}

impl State {
    /// Of what may be done late at a disk, some is done now, and the rest never.
    fn settle_late(&mut self, disk: usize) {
        let (of_disk, others): (Vec<_>, _) =
            std::mem::take(&mut self.late).into_iter().partition(|(of, _)| *of == disk);
        self.late = others;
        for (disk, request) in of_disk {
            if self.random.chance(500_000) {
                let _ = self.disks[disk].execute(request);
            }
        }
    }

    fn perform(&mut self, disk: usize, request: Request) -> Completion {
        if self.disks[disk].has_lost && matches!(request, Request::Read { .. }) {
            // Nobody reads what it has not any more.
            return failed(ErrorKind::Gone);
        }
        if self.random.chance(self.hurt_per_million) {
            match request {
                Request::Read { .. } => return failed(ErrorKind::Unreadable),
                Request::Write { .. } => return failed(self.random.choose(&[ErrorKind::Unwritable, ErrorKind::Full])),
                // What a failed flush has lost, nobody gets back.
                Request::Flush if self.weak.contains(&disk) => {
                    self.disks[disk].lose_power(&mut self.random);
                    self.disks[disk].has_lost = true;
                    return failed(ErrorKind::Unwritable);
                }
                _ => {}
            }
        }
        self.disks[disk].execute(request)
    }
}

impl Store for Connection {
    fn geometry(&self) -> Geometry {
        Geometry {
            length_bytes: self.network.lock().disks[self.disk].length_bytes,
            block_bytes: SECTOR_BYTES as u32,
            physical_block_bytes: 4096,
            read_only: false,
            discards: true,
            atomic_write_bytes: 0,
        }
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        let state = &mut *self.network.lock();
        let is_taken = state.disks[self.disk].owner != self.owner;
        if self.is_closed.load(Ordering::Relaxed) || is_taken && !state.is_frozen {
            return Started::Done(failed(ErrorKind::Other));
        }
        if is_taken {
            let (pending, completer) = completions.pend();
            state.held.push((request, self.disk, completer));
            return Started::Pending(pending);
        }
        if !state.disks[self.disk].is_up {
            return Started::Done(failed(ErrorKind::Gone));
        }
        state.disks[self.disk].forgets = false;
        if state.is_quick {
            return Started::Done(state.perform(self.disk, request));
        }
        let (pending, completer) = completions.pend();
        let (network, disk, owner) = (Arc::clone(&self.network), self.disk, self.owner);
        let connection = Connection { network, disk, owner, is_closed: AtomicBool::new(false) };
        state.under_way.push((Arc::new(connection), request, completer));
        Started::Pending(pending)
    }

    fn is_over(&self) -> bool {
        let state = self.network.lock();
        let is_taken = state.disks[self.disk].owner != self.owner && !state.is_frozen;
        is_taken || self.is_closed.load(Ordering::Relaxed)
    }

    fn abandon(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.network.end_some(|connection| connection.disk == self.disk && connection.owner == self.owner);
    }
}
