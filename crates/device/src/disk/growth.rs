//! A unit whose store is made longer.

use sanwire_store::ResizeError;

use crate::unit_state::UnitState;

impl UnitState {
    /// Makes its store so long, in bytes; its initiators are to be told by [`UnitState::capacity_changed`].
    ///
    /// # Errors
    /// [`ResizeError`]: the length stays what it was. [`ResizeError::Unstable`] is told to initiators as any flush that has failed.
    pub fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        // The store makes the length stable, and may be told there, in their place, that what others have written is lost: their
        // flushes do not succeed before that is known.
        let place = self.flushes.begin(None, None);
        let resized = self.store().resize(length_bytes);
        if matches!(resized, Err(ResizeError::Unstable(_))) {
            self.flush_failed();
        }
        self.flushes.end(place);
        self.exclusion.bell().ring();
        resized
    }
}
