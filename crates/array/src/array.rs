//! An array in use: a store like any other.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sanwire_buffer::Frame;
use sanwire_store::{
    Allocation, CompletionQueue, ErrorKind, Geometry, Outcome, Request, Started, Store, StoreError, parts,
};

use crate::drive::Drive;
use crate::error::ArrayError;
use crate::group::Change;
use crate::label::{Standing, Table};
use crate::layout::Piece;
use crate::resync;
use crate::state::Shared;

/// An array. Clones are the same one.
///
/// Somebody must call [`Array::resync`] as long as that does something, and [`Array::tidy`] now and then.
#[derive(Clone)]
pub struct Array(Arc<Shared>);

/// How a member is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// Where it was when it came in.
    pub place: String,
    /// Whether it has what was written.
    pub standing: Standing,
    /// Whether it is there.
    pub is_present: bool,
    /// It is kept, because the array does not go on without it, and will never answer again unless it is opened anew.
    pub is_over: bool,
    /// Bytes that are to be copied to it still, at the most.
    pub behind_bytes: u64,
    /// What went wrong with it last.
    pub error: Option<String>,
}

impl fmt::Debug for Array {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Array").field("table", &self.0.lock().table).finish_non_exhaustive()
    }
}

impl Array {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Array(shared)
    }

    /// What its labels say.
    #[must_use]
    pub fn table(&self) -> Table {
        self.0.lock().table.clone()
    }

    /// How its members are.
    #[must_use]
    pub fn members(&self) -> Vec<MemberStatus> {
        let state = self.0.lock();
        let status = |(record, member): (&crate::label::MemberRecord, &crate::state::Member)| MemberStatus {
            place: record.place.clone(),
            standing: record.standing,
            is_present: member.store.is_some(),
            is_over: member.store.as_ref().is_some_and(|store| store.is_over()),
            behind_bytes: member.behind.count_ones(..) as u64 * self.0.region_bytes,
            error: member.error.clone(),
        };
        state.table.members.iter().zip(&state.members).map(status).collect()
    }

    pub(crate) fn tell_error(&self, member: usize, error: &ArrayError) {
        self.0.lock().members[member].error = Some(error.to_string());
    }

    pub(crate) fn is_in(&self, member: usize) -> bool {
        self.0.lock().table.is_in(member)
    }

    /// Has all members that are there know what the others are, and which regions may differ.
    pub(crate) fn open(&self, drive: &mut Drive<'_>) -> Result<(), ArrayError> {
        for group in 0..self.0.group_count() {
            let shared = Arc::clone(&self.0);
            self.drive(drive, move |completions| shared.note_all(group, completions))?;
        }
        let shared = Arc::clone(&self.0);
        self.drive(drive, move |completions| shared.settle(completions))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    pub(crate) fn drive(
        &self,
        drive: &mut Drive<'_>,
        begin: impl FnOnce(&CompletionQueue) -> Started + Send + 'static,
    ) -> Result<(), ArrayError> {
        let failed = |source| ArrayError::Store { place: self.0.lock().table.name.clone(), source };
        drive(Box::new(begin)).map(drop).map_err(failed)
    }

    /// Begins the next step of bringing members up to date; `None`: there is none now. What fails is tried again by the next call.
    #[must_use]
    pub fn resync(&self, completions: &CompletionQueue) -> Option<Started> {
        self.0.resync(completions)
    }

    /// Begins to note on the members that regions are not written any more; `None`: they know.
    #[must_use]
    pub fn tidy(&self, completions: &CompletionQueue) -> Option<Started> {
        (0..self.0.group_count()).find_map(|group| self.0.tidy(group, completions))
    }

    /// Compares all copies, and has those copied again that differ.
    ///
    /// # Errors
    /// A member's, which could not be read. How many pieces of up to 256 KiB differed is told else.
    pub fn scrub(&self, drive: &mut Drive<'_>) -> Result<u64, ArrayError> {
        let different = Arc::<AtomicU64>::default();
        for group in 0..self.0.group_count() {
            let mut from = 0;
            while from < self.0.group_bytes(group) {
                let (shared, counted) = (Arc::clone(&self.0), Arc::clone(&different));
                self.drive(drive, move |completions| shared.compare(group, from, &counted, completions))?;
                from = resync::next_piece(from);
            }
        }
        Ok(different.load(Ordering::Relaxed))
    }

    fn read(&self, offset_bytes: u64, buffer: Frame, completions: &CompletionQueue) -> Started {
        let pieces = self.parts(offset_bytes..offset_bytes + buffer.len() as u64);
        parts::read((offset_bytes, buffer), pieces, completions, |piece, part| self.0.read(piece, part, completions))
    }

    fn write(&self, offset_bytes: u64, data: &sanwire_buffer::Slices, completions: &CompletionQueue) -> Started {
        let pieces = self.parts(offset_bytes..offset_bytes + data.len() as u64);
        parts::write(data, pieces, completions, |piece, part| self.0.change(piece, Change::Data(part), completions))
    }

    /// The pieces of a range, each with its length.
    fn parts(&self, range: std::ops::Range<u64>) -> Vec<(Piece, usize)> {
        let pieces = self.0.layout().pieces(range).into_iter();
        pieces.map(|piece| (piece.clone(), piece.length_bytes as usize)).collect()
    }

    fn change(&self, range: std::ops::Range<u64>, change: &Change, completions: &CompletionQueue) -> Started {
        let shares = self.0.layout().shares(range);
        let changes = shares.into_iter().map(|piece| self.0.change(piece, change.clone(), completions));
        parts::all(changes.collect(), completions)
    }
}

impl Store for Array {
    fn geometry(&self) -> Geometry {
        Geometry {
            length_bytes: self.0.layout().length_bytes(),
            block_bytes: self.0.block_bytes,
            physical_block_bytes: self.0.physical_block_bytes,
            read_only: false,
            discards: self.0.discards(),
            atomic_write_bytes: 0,
        }
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        let geometry = self.geometry();
        if let Err(error) = geometry.check(&request) {
            return Started::Done(Err(error));
        }
        let (offset_bytes, length_bytes) = request.range_bytes();
        let range = offset_bytes..offset_bytes + length_bytes;
        match request {
            Request::Read { offset_bytes, buffer } => self.read(offset_bytes, buffer, completions),
            Request::Write { offset_bytes, data } => self.write(offset_bytes, &data, completions),
            Request::WriteZeroes { .. } => self.change(range, &Change::Zeroes, completions),
            Request::Discard { .. } if geometry.discards => self.change(range, &Change::Discard, completions),
            Request::Discard { .. } => Started::Done(Err(StoreError::new(ErrorKind::Unsupported, offset_bytes))),
            Request::Flush => {
                let flushes = (0..self.0.group_count()).map(|group| self.0.flush(group, completions));
                parts::all(flushes.collect(), completions)
            }
            // Its members may know different things about it.
            Request::Allocation { .. } => {
                Started::Done(Ok(Outcome::Allocated(Allocation { is_mapped: true, length_bytes })))
            }
        }
    }

    fn abandon(&self) {
        let stores: Vec<_> = self.0.lock().members.iter().filter_map(|member| member.store.clone()).collect();
        stores.into_iter().for_each(|store| store.abandon());
    }
}
