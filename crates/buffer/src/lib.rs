//! Memory that moves instead of being copied.
//!
//! A [`Region`] is one mapping that kernel rings can register. It hands out [`Frame`]s: unique, contiguous runs of it
//! that go home when dropped. Submitting an operation moves the frame into it; the completion gives the frame back.
//! [`Frame::freeze`] turns a frame into a shared read-only [`Slice`], for what must be kept until a peer has
//! acknowledged it; what lies in several places goes as [`Slices`].
//!
//! What arrives is an [`Arrival`], of which parts can be kept as slices where it came into a frame.
//!
//! What a store keeps in memory is an [`Arena`]'s, whose frames are of one length and come and go one by one.
//!
//! What is made for sending only, as ciphertext is, has memory of a [`Recycler`].
//!
//! A region never grows: when nothing fits, [`Region::frame`] answers `None` and the caller waits (back-pressure). Several
//! holders of one region each have a share, by which none of them can take it all ([`Region::share`]).

mod arena;
mod arrival;
mod bitmap;
mod frame;
mod packet;
mod pages;
mod recycler;
mod region;
mod share;
mod shortage;
mod slices;

pub use arena::Arena;
pub use arrival::Arrival;
pub use frame::{Frame, Slice};
pub use packet::{HEAD_INLINE_BYTES, Head, Packet, TAIL_BYTES_MAX, Tail};
pub use recycler::Recycler;
pub use region::{Region, UNIT_BYTES};
pub use shortage::Shortage;
pub use slices::Slices;
