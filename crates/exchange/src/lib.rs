//! Commands and their answers in a session that outlives its connections, for protocols that number their commands: what a server
//! remembers ([`Memory`]), what a client waits for ([`Orders`]), and the heads of their messages.
//!
//! Nothing here knows how messages travel: a protocol cuts them into packets of its own, and guards them.
#![forbid(unsafe_code)]

mod heads;
mod memory;
mod orders;
pub mod places;
mod receipts;
pub mod succession;

pub use heads::{Answer, Ask, Function, ReplyHead, RequestHead, SENSE_MAX_BYTES, UnitTerms};
pub use memory::{Answered, Asked, Keepsake, Memory, SPAN_MAX};
pub use orders::{Asking, CommandId, Order, Orders, Pending};
