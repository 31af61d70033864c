//! How an array is made and assembled by who waits for each step.

use sanwire_buffer::Frame;
use sanwire_store::{Completion, CompletionQueue, Outcome, Request, Started, Store, StoreError};
use std::sync::Arc;

use crate::error::ArrayError;
use crate::label::encoding::Illegible;
use crate::label::{self, LABEL_BYTES, Label, SECOND_AT};
use crate::state::gone;

/// Begins something, at the driver that has this queue.
pub type Begin = Box<dyn FnOnce(&CompletionQueue) -> Started + Send>;

/// Drives what was begun to its end, and waits for that: like [`sanwire_store::drive`].
pub type Drive<'a> = dyn FnMut(Begin) -> Completion + 'a;

/// A volume that is a member of an array, or may become one.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// How its store is written; by that it is found again.
    pub place: String,
    /// Where its blocks are.
    pub store: Arc<dyn Store>,
}

pub(crate) fn read(
    store: &Arc<dyn Store>,
    offset_bytes: u64,
    length: usize,
    drive: &mut Drive<'_>,
) -> Result<Frame, StoreError> {
    let buffer = Frame::zeroed(length).ok_or_else(gone)?;
    let store = Arc::clone(store);
    let reading = move |completions: &CompletionQueue| store.start(Request::Read { offset_bytes, buffer }, completions);
    match drive(Box::new(reading))? {
        Outcome::Read(frame) => Ok(frame),
        _ => Err(gone()),
    }
}

impl Candidate {
    pub(crate) fn failed(&self, source: StoreError) -> ArrayError {
        ArrayError::Store { place: self.place.clone(), source }
    }

    /// The label on it; `None`: it has none.
    ///
    /// # Errors
    /// [`ArrayError::Store`]: no copy of it can be read. [`ArrayError::Illegible`]: it is one, and is not understood.
    pub fn label(&self, drive: &mut Drive<'_>) -> Result<Option<Label>, ArrayError> {
        let length_bytes = self.store.geometry().length_bytes;
        let Some(last_at) = label::last_at(length_bytes) else { return Ok(None) };
        let copy = |at| read(&self.store, at, LABEL_BYTES, drive).map(|frame| Label::decode(&frame));
        match [0, SECOND_AT, last_at].map(copy) {
            [Err(error), Err(_), Err(_)] => Err(self.failed(error)),
            copies => {
                let label = Label::newest(copies.map(|copy| copy.unwrap_or(Ok(None))));
                label.map_err(|Illegible| ArrayError::Illegible { place: self.place.clone() })
            }
        }
    }
}
