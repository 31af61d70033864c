//! RDMAP over DDP: what messages are, where they go, and what they do (RFC 5040, RFC 5041).

mod inbound;
mod outbound;
mod reads;

pub(crate) use inbound::{Inbound, Outcome, Place};
pub(crate) use outbound::{Outbound, Outgoing};
pub(crate) use reads::Read;
