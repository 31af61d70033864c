//! What handlers of commands give back.

use sanwire_store::Request;

use crate::execution::State;
use crate::reservation::{AbortScope, Reserving};

/// The next thing in the life of a command that is well so far.
#[derive(Debug)]
pub(crate) enum Step {
    /// GOOD, without data.
    Good,
    /// GOOD, with an answer; it is cut to what the initiator has room for.
    Answer(Vec<u8>),
    /// GOOD, with data.
    Data(sanwire_buffer::Slices),
    /// The store's turn.
    Store(State, Request),
    /// GOOD at once; the store's turn nevertheless, and nobody hears what becomes of it.
    Detached(State, Request),
    /// The same, but not before others had their turn.
    Later(State, Request),
    /// CONDITION MET.
    ConditionMet,
    /// GOOD, after the commands of others have been ended.
    Abort(AbortScope),
    /// Nothing, until a record of reservations is kept.
    Reserve(Box<Reserving>),
}
