//! Room for what says which blocks of a group a layer has: it is taken with the first write there, so that no flush lacks it.

use std::sync::Arc;

use sanwire_store::{Completer, CompletionQueue, Outcome, Pending, Started};

use crate::format::Bits;
use crate::layer::Top;

/// Whether there is room for the map of a group.
pub(crate) enum Place {
    There,
    /// Somebody is taking it.
    Coming(Pending),
    /// Whoever asks is to take it.
    Missing,
}

/// Room that is being taken. Others who need it wait until this is dropped.
struct Taking {
    top: Arc<Top>,
    group: u32,
    is_taken: bool,
}

impl Drop for Taking {
    fn drop(&mut self) {
        let Some(map) = &self.top.map else { return };
        map.end_taking(self.group, self.is_taken).into_iter().for_each(|waiting: Completer| {
            // They look for themselves.
            waiting.complete(Ok(Outcome::Done));
        });
    }
}

impl Top {
    /// Takes room for the maps of groups that have none. It writes one that says nothing: before that has ended nobody has anything to
    /// say of that group.
    pub(crate) fn reserve(self: &Arc<Self>, (mut group, end): (u32, u32), completions: &CompletionQueue) -> Started {
        let Some(map) = &self.map else { return Started::Done(Ok(Outcome::Done)) };
        while group < end {
            match map.place(group, completions) {
                Place::There => group += 1,
                Place::Coming(pending) => {
                    let top = Arc::clone(self);
                    return Started::Pending(pending).then(completions, move |end_of, completions| match end_of {
                        Ok(_) => top.reserve((group, end), completions),
                        failed => Started::Done(failed),
                    });
                }
                Place::Missing => {
                    let mut taking = Taking { top: Arc::clone(self), group, is_taken: false };
                    let started = self.write_map(group, &Bits::default(), completions);
                    return started.then(completions, move |end_of, completions| {
                        taking.is_taken = end_of.is_ok();
                        let top = Arc::clone(&taking.top);
                        drop(taking);
                        match end_of {
                            Ok(_) => top.reserve((group + 1, end), completions),
                            failed => Started::Done(failed),
                        }
                    });
                }
            }
        }
        Started::Done(Ok(Outcome::Done))
    }
}
