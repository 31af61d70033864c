//! Two ends in one process, over an adapter of this host: whatever it is, hardware or software (siw, rxe).
//!
//! `SANWIRE_RDMA_ADDRESS` is an address that the adapter has. Without it all tests are skipped, and each says so: the guest of
//! `tests/guest` has adapters in software.

mod data;
mod ends;
mod failures;
mod messages;
mod sharing;
mod windows;
