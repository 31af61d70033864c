//! How fast a sender of packets may send: what is under way, how long answers take, at which rate.
//!
//! No protocol, and no I/O: bytes, orders of packets and times come in as arguments.
#![forbid(unsafe_code)]

mod congestion;
mod rtt;
mod shaping;

pub use congestion::{Acknowledged, BURSTS_PER_WINDOW, Congestion};
pub use rtt::RoundTrip;
pub use shaping::Shaper;
