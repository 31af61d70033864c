//! The claims of a unit, by its own numbers of blocks: where units share blocks, their commands exclude each other.

use std::sync::Arc;

use sanwire_store::ExtentMap;

use crate::bell::Bell;
use crate::exclusion::{Claim, Exclusion, Lane, Permit, Places};
use crate::range::Range;

/// The exclusion of the store on which a unit stands, as seen from the unit.
#[derive(Clone, Default, Debug)]
pub(crate) struct UnitExclusion {
    shared: Arc<Exclusion>,
    /// Where its blocks lie there; `None`: where they are numbered.
    map: Option<Arc<ExtentMap>>,
}

impl UnitExclusion {
    /// That of a unit whose blocks lie there among those of this one, which has all.
    pub(crate) fn of_part(&self, map: Arc<ExtentMap>) -> Self {
        UnitExclusion { shared: Arc::clone(&self.shared), map: Some(map) }
    }

    /// Rung when a command may go on that could not before.
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.shared.bell
    }

    /// See [`Exclusion::enter`].
    pub(crate) fn enter(&self, claim: Claim, lane: Lane) -> Permit {
        match &self.map {
            None => self.shared.enter(claim, lane),
            Some(map) => self.shared.enter_at(places(map, claim.range), claim.access, lane),
        }
    }

    /// See [`Exclusion::is_open`].
    pub(crate) fn is_open(&self) -> bool {
        self.shared.is_open()
    }

    /// See [`Exclusion::may_go`].
    pub(crate) fn may_go(&self, permit: &Permit) -> bool {
        self.shared.may_go(permit)
    }

    /// See [`Exclusion::requeue`].
    pub(crate) fn requeue(&self, permit: &mut Permit) {
        self.shared.requeue(permit);
    }

    /// See [`Exclusion::keep`].
    pub(crate) fn keep(&self, permit: &mut Permit, ahead: Option<Range>) {
        let placed = |range| self.map.as_ref().map_or(Places::One(range), |map| places(map, range));
        self.shared.keep(permit, ahead.map(placed));
    }

    /// See [`Exclusion::leave`].
    pub(crate) fn leave(&self, permit: &Permit) {
        self.shared.leave(permit);
    }
}

/// Where a range lies, as far as there is any such thing.
fn places(map: &ExtentMap, range: Range) -> Places {
    let end_bytes = range.offset_bytes.saturating_add(range.length_bytes).min(map.length_bytes());
    let of = |place: std::ops::Range<u64>| Range { offset_bytes: place.start, length_bytes: place.end - place.start };
    let own = range.offset_bytes.min(end_bytes)..end_bytes;
    match map.piece(own.clone()) {
        Some(place) => Places::One(of(place)),
        None => Places::Several(map.pieces(own).map(of).collect()),
    }
}
