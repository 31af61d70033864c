//! Two hosts, the programs on them, and what is written and checked.

mod attached;
mod client;
mod clock;
mod content;
mod cpu;
mod filesystem;
mod guest;
mod http;
mod initiator;
mod loop_device;
mod ports;
mod process;
mod scratch;
mod server;
mod stamps;
mod tgt;
mod third;
mod tmpfs;
mod world;
mod xfs;

use std::time::{Duration, Instant};

pub use sanwire_testing::{is_installed, skip};

pub use attached::Attached;
pub use client::Client;
pub use clock::WallClock;
pub use content::{Random, expect_pattern, pattern};
pub use cpu::cpu_time;
pub use filesystem::{Filesystem, Filler};
pub use guest::{GUEST_LINKS, Guest, guest_files};
pub use http::{Http, Reply, exchange};
pub use initiator::Initiator;
pub use loop_device::LoopDevice;
pub use ports::port;
pub use process::{Process, Ran, run, run_ok};
pub use scratch::Scratch;
pub use server::Server;
pub use stamps::{Ends, stamp, write_stamps};
pub use tgt::Tgt;
pub use third::{FAR_FROM_CLIENT, Third};
pub use tmpfs::Tmpfs;
pub use world::{AUTHORITY, CLIENT_ADDRESS, SERVER_ADDRESS, SERVER_NAME, Wire, World};
pub use xfs::Xfs;

/// What every test here needs.
const TOOLS: [&str; 4] = ["ip", "losetup", "blockdev", "nsenter"];

/// Whether this machine can run a test that takes root and these tools; if not, says so where everybody sees it.
pub fn can_run(test: &str, tools: &[&str]) -> bool {
    let reason = if !rustix::process::geteuid().is_root() {
        "it takes root".to_owned()
    } else if let Some(missing) = TOOLS.iter().chain(tools).find(|tool| !is_installed(tool)) {
        format!("the program {missing} is not installed")
    } else {
        return true;
    };
    skip(test, &reason);
    false
}

/// Puts this thread, and whatever it starts from now on, before the other programs of this machine: where time is measured, what
/// they do should not count.
pub fn hurry() {
    // Where that is not allowed, the measurement may take more tries.
    let _ = rustix::process::setpriority_process(None, -20);
}

/// Waits until something holds; panics when it does not in time.
#[track_caller]
pub fn wait_until(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !holds() {
        assert!(Instant::now() < deadline, "after {} s still not: {what}", within.as_secs_f32());
        std::thread::sleep(Duration::from_millis(20));
    }
}
