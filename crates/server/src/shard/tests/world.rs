//! The shards of a server as they are, with their front ends, their mail, their timers and the login listener, in the test world of
//! `sanwire-sim`: one thread drives them on a clock that jumps, with a kernel, networks and clients that all follow from one seed.
//!
//! ```text
//! SANWIRE_SEED=123 cargo test -p sanwire-server --lib shards_with_tiny_memory     one seed again
//! SANWIRE_SEEDS=10000 cargo test -p sanwire-server --lib shards_                  more of each theme
//! ```
//!
//! Besides what every such world must keep (nothing that was acknowledged is lost, no old write comes over a newer one, each command has
//! its own answer, all frames are home and all tables empty in the end): a shard that sleeps has nothing to do, one that is awake has,
//! and where nothing goes wrong nobody waits for longer than the network, the disk and the mail take.

mod administrator;
mod air;
mod cables;
mod copier;
mod far;
mod host;
mod kernel;
mod machine;
mod part;
mod port;
mod post;
mod themes;
mod wire;

pub(super) use sanwire_sim::world::Outcome;

/// An error of the system, as worlds tell it.
fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}
