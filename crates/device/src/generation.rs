//! In what order things happened of which nexuses must be told, so that each nexus can be told when it next uses a unit.

use std::sync::atomic::{AtomicU64, Ordering};

use sanwire_core::NexusId;

/// When something happened, beside other things: only the order means anything. Units, views of them and nexuses draw from one
/// sequence, because a unit is in several views, and compares what happened to it with what happened there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Generation(u64);

/// The last one that was drawn.
static LAST: AtomicU64 = AtomicU64::new(0);

impl Generation {
    /// Later than all that were drawn before.
    pub(crate) fn next() -> Self {
        Generation(LAST.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

/// A generation that several threads read without a lock.
#[derive(Default, Debug)]
pub(crate) struct AtomicGeneration(AtomicU64);

impl AtomicGeneration {
    pub(crate) fn load(&self) -> Generation {
        Generation(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn store(&self, generation: Generation) {
        self.0.store(generation.0, Ordering::Release);
    }
}

/// When a condition was last established for all nexuses, or for all but one.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LastRaised {
    last: Generation,
    except: Option<NexusId>,
    /// The last time before that it was not this one that was left out.
    other: Generation,
}

impl LastRaised {
    /// It is established now.
    pub(crate) fn note(&mut self, except: Option<NexusId>) {
        if self.except != except {
            (self.except, self.other) = (except, self.last);
        }
        self.last = Generation::next();
    }

    /// When it was last established for this nexus, if it was there.
    pub(crate) fn for_nexus(&self, nexus: NexusId) -> Generation {
        if self.except == Some(nexus) { self.other } else { self.last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_left_out_is_told_of_what_was_raised_for_all_before() {
        let (one, other) = (NexusId(1), NexusId(2));
        let mut raised = LastRaised::default();
        assert_eq!(raised.for_nexus(one), Generation::default());
        raised.note(Some(one));
        assert_eq!(raised.for_nexus(one), Generation::default());
        let of_other = raised.for_nexus(other);
        assert!(of_other > Generation::default());
        raised.note(Some(one));
        assert_eq!(raised.for_nexus(one), Generation::default(), "twice");
        raised.note(Some(other));
        let last = raised.for_nexus(one);
        assert!(last > raised.for_nexus(other) && raised.for_nexus(other) > of_other);
        raised.note(Some(one));
        assert_eq!(raised.for_nexus(one), last);
        raised.note(None);
        assert_eq!(raised.for_nexus(one), raised.for_nexus(other));
    }
}
