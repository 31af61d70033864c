//! Two ends in one process, over an adapter of this host: whatever it is, hardware or software (siw, rxe).
//!
//! `SANWIRE_RDMA_ADDRESS` is an address that the adapter has. Most hosts have none, so these tests are ignored unless they are asked
//! for. `cargo xtask test` runs them in the guest of `tests/guest`, which has adapters in software
//! (`crates/cli/tests/system/guest/adapters.rs`).

mod data;
mod ends;
mod failures;
mod messages;
mod sharing;
mod windows;
