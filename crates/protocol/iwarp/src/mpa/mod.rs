//! MPA: how a stream begins, and how it is cut into FPDUs (RFC 5044, RFC 6581).

mod framer;
mod startup;

pub(crate) use framer::{Broken, Framer, Step};
pub(crate) use startup::{Answer, Begin, agree, begin, reply, request};
