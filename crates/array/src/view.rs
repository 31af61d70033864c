//! An array that is only looked at: nobody has it for that, and nothing is written.
//!
//! What all members have that are in was acknowledged, so each of them can be read; where copies may differ, the first of them is read, as
//! who assembles the array takes it for the truth. That holds as long as nobody uses the array. Who does so meanwhile writes labels at his
//! beginning, so whoever has read looks at them again ([`View::check`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sanwire_buffer::Frame;
use sanwire_store::{
    Allocation, CompletionQueue, ErrorKind, Geometry, Outcome, Request, Started, Store, StoreError, parts,
};

use crate::assembly::{Found, find, labelled, whole};
use crate::drive::{Candidate, Drive};
use crate::error::ArrayError;
use crate::label::{DATA_AT, Table};
use crate::layout::{Layout, Piece};
use crate::state::gone;

/// An array as it is read by who does not have it. Clones are the same one.
#[derive(Clone)]
pub struct View(Arc<Looked>);

struct Looked {
    table: Table,
    layout: Layout,
    candidates: Vec<Candidate>,
    /// For each member, whether it was found.
    found: Vec<bool>,
    /// For each group, the members that have what was written, in their order.
    groups: Vec<Vec<Source>>,
}

struct Source {
    store: Arc<dyn Store>,
    /// It has failed, and another one is read since. It is not read again: where they differ, nothing is to change back and forth.
    is_over: AtomicBool,
}

impl fmt::Debug for View {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("View").field("table", &self.0.table).finish_non_exhaustive()
    }
}

impl View {
    /// Looks at an array of these candidates.
    ///
    /// # Errors
    /// As for [`crate::assemble`]: what cannot be assembled cannot be looked at.
    pub fn new(name: &str, candidates: &[Candidate], drive: &mut Drive<'_>) -> Result<View, ArrayError> {
        let (labels, there) = labelled(candidates, drive);
        let found = find(name, &labels)?;
        found.check()?;
        let Found { table, members } = found;
        let source = |member: usize| {
            let store = whole(&there[members[member]?].store);
            Some(Source { store, is_over: AtomicBool::new(false) })
        };
        let groups = 0..table.members.len() / table.copies;
        let groups = groups.map(|group| table.in_group(group).filter_map(source).collect()).collect();
        let found = members.iter().map(Option::is_some).collect();
        let layout = table.layout();
        Ok(View(Arc::new(Looked { table, layout, candidates: candidates.to_vec(), found, groups })))
    }

    /// What its labels say.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.0.table
    }

    /// For each member, whether it was found.
    #[must_use]
    pub fn found(&self) -> &[bool] {
        &self.0.found
    }

    /// Looks whether the labels are what they were: then nobody has used the array since, and what was read is what it holds.
    ///
    /// # Errors
    /// [`ArrayError::Used`]; or too few members are there to know it.
    pub fn check(&self, drive: &mut Drive<'_>) -> Result<(), ArrayError> {
        let name = &self.0.table.name;
        let found = find(name, &labelled(&self.0.candidates, drive).0)?;
        found.check()?;
        if found.table == self.0.table { Ok(()) } else { Err(ArrayError::Used { name: name.clone() }) }
    }

    /// Reads a piece from the first member of its group that can, from this one on.
    fn read(&self, piece: Piece, buffer: Frame, from: usize, completions: &CompletionQueue) -> Started {
        let sources = &self.0.groups[piece.group];
        let next = |from: usize| (from..sources.len()).find(|at| !sources[*at].is_over.load(Ordering::Relaxed));
        let Some(at) = next(from) else { return Started::Done(Err(gone())) };
        let request = Request::Read { offset_bytes: DATA_AT + piece.offset_bytes, buffer };
        let view = self.clone();
        sources[at].store.start(request, completions).then(completions, move |end, completions| {
            let Err(error) = end else { return Started::Done(end) };
            let sources = &view.0.groups[piece.group];
            let others = || sources.iter().skip(at + 1).any(|source| !source.is_over.load(Ordering::Relaxed));
            // The last one may come back, and is asked again.
            let Some(buffer) = Frame::zeroed(piece.length_bytes as usize).filter(|_| others()) else {
                return Started::Done(Err(error));
            };
            if error.kind != ErrorKind::Unreadable {
                sources[at].is_over.store(true, Ordering::Relaxed);
            }
            view.read(piece, buffer, at + 1, completions)
        })
    }
}

impl Store for View {
    fn geometry(&self) -> Geometry {
        let stores = self.0.groups.iter().flatten().map(|source| source.store.geometry().physical_block_bytes);
        Geometry {
            length_bytes: self.0.layout.length_bytes(),
            block_bytes: self.0.table.block_bytes,
            physical_block_bytes: stores.fold(self.0.table.block_bytes, u32::max),
            read_only: true,
            discards: false,
            atomic_write_bytes: 0,
        }
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        if let Err(error) = self.geometry().check(&request) {
            return Started::Done(Err(error));
        }
        match request {
            Request::Read { offset_bytes, buffer } => {
                let pieces = self.0.layout.pieces(offset_bytes..offset_bytes + buffer.len() as u64).into_iter();
                let pieces = pieces.map(|piece| (piece.clone(), piece.length_bytes as usize)).collect();
                let begin = |piece: Piece, part| self.read(piece, part, 0, completions);
                parts::read((offset_bytes, buffer), pieces, completions, begin)
            }
            Request::Allocation { length_bytes, .. } => {
                Started::Done(Ok(Outcome::Allocated(Allocation { is_mapped: true, length_bytes })))
            }
            Request::Flush => Started::Done(Ok(Outcome::Done)),
            Request::Write { offset_bytes, .. }
            | Request::WriteZeroes { offset_bytes, .. }
            | Request::Discard { offset_bytes, .. } => {
                Started::Done(Err(StoreError::new(ErrorKind::ReadOnly, offset_bytes)))
            }
        }
    }

    fn abandon(&self) {
        self.0.candidates.iter().for_each(|candidate| candidate.store.abandon());
    }
}
