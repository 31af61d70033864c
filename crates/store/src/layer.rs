//! Stores over stores: each changes one thing, and all the rest is passed on here.

mod delay;
mod error;
mod read_only;
mod split;
mod thick;

use std::sync::Arc;

use sanwire_buffer::Slices;

pub(crate) use delay::parse_time;
pub use delay::{DelayLayer, DelayRule};
pub use error::{ErrorLayer, ErrorRule, Place};
pub use read_only::ReadOnlyLayer;
pub use split::SplitLayer;
pub use thick::ThickLayer;

use crate::completion::CompletionQueue;
use crate::copies::Copies;
use crate::counts::RemoteCount;
use crate::request::{Capabilities, Geometry, Request, Space, Started, Store};
use crate::resize::ResizeError;

/// What a layer changes of the store below it. It sees a request on its way down, and by [`Started::then`] or [`Started::join`] how
/// that has ended, on its way up.
pub trait Layer: Send + Sync + std::fmt::Debug {
    /// What is left of what the store below can do. What it can do beside its requests goes past the layer.
    fn narrow(&self, below: Capabilities) -> Capabilities {
        below
    }

    /// Begins a request: by handing it, or others, to `below`, or without that.
    fn start(&self, request: Request, below: &Arc<dyn Store>, completions: &CompletionQueue) -> Started;

    /// The store below has become longer.
    ///
    /// # Errors
    /// [`ResizeError::Unstable`], when that is not to last.
    fn resized(&self, _below: &dyn Store) -> Result<(), ResizeError> {
        Ok(())
    }
}

/// A store with a layer over it.
#[derive(Debug)]
pub struct Over<L> {
    layer: L,
    below: Arc<dyn Store>,
}

impl<L: Layer> Over<L> {
    /// `below`, changed by `layer`.
    #[must_use]
    pub fn new(layer: L, below: Arc<dyn Store>) -> Self {
        Over { layer, below }
    }
}

impl<L: Layer> Store for Over<L> {
    fn geometry(&self) -> Geometry {
        self.capabilities().geometry
    }

    fn capabilities(&self) -> Capabilities {
        self.layer.narrow(self.below.capabilities())
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        self.layer.start(request, &self.below, completions)
    }

    fn share(&self, offset_bytes: u64, length_bytes: usize) -> Option<Slices> {
        self.capabilities().shares.then(|| self.below.share(offset_bytes, length_bytes)).flatten()
    }

    fn space(&self) -> Option<Space> {
        self.capabilities().tells_space.then(|| self.below.space()).flatten()
    }

    fn remote(&self) -> Option<RemoteCount> {
        self.below.remote()
    }

    fn copies(&self) -> Option<&dyn Copies> {
        self.below.copies()
    }

    fn is_over(&self) -> bool {
        self.below.is_over()
    }

    fn retire(&self) {
        self.below.retire();
    }

    fn abandon(&self) {
        self.below.abandon();
    }

    fn resize(&self, length_bytes: u64) -> Result<(), ResizeError> {
        if !self.capabilities().grows {
            return Err(ResizeError::Fixed("its store has a fixed size"));
        }
        self.below.resize(length_bytes)?;
        self.layer.resized(&*self.below)
    }
}

/// Which requests a rule is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Every request.
    All,
    /// Reads.
    Read,
    /// Writes, and writes of zeroes.
    Write,
    /// Flushes.
    Flush,
    /// Discards.
    Discard,
}

impl Which {
    /// Every word with its meaning.
    const WORDS: [(&'static str, Which); 5] = [
        ("all", Which::All),
        ("read", Which::Read),
        ("write", Which::Write),
        ("flush", Which::Flush),
        ("discard", Which::Discard),
    ];

    /// The word's meaning: `all`, `read`, `write`, `flush` or `discard`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(name, _)| *name == word).map(|(_, which)| *which)
    }

    /// Whether the rule is for this request.
    #[must_use]
    pub fn covers(self, request: &Request) -> bool {
        match self {
            Which::All => true,
            Which::Read => matches!(request, Request::Read { .. }),
            Which::Write => matches!(request, Request::Write { .. } | Request::WriteZeroes { .. }),
            Which::Flush => matches!(request, Request::Flush),
            Which::Discard => matches!(request, Request::Discard { .. }),
        }
    }
}

#[cfg(test)]
mod tests;
