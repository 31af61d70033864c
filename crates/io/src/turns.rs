//! How long a thread runs when others want its core.

use std::io;
use std::mem::size_of;

use libc::sched_attr;

use crate::sys;

/// The shortest turn that the kernel grants, in nanoseconds.
const SHORTEST_NANOS: u64 = 100_000;

/// Asks the kernel for short turns of the calling thread: it then runs sooner after it was woken where its core is busy with others, and
/// no more than they do. Its policy and niceness stay.
///
/// Kernels since Linux 6.12 heed it; others take it and do nothing.
///
/// # Errors
/// The kernel's, where a sandbox does not allow the call; nothing has changed then.
pub fn ask_for_short_turns() -> io::Result<()> {
    // SAFETY: all of it are numbers, for which zero is good.
    let mut attributes: sched_attr = unsafe { std::mem::zeroed() };
    let size_bytes = size_of::<sched_attr>() as u32;
    // SAFETY: the kernel writes no more than `size_bytes` into the attributes. 0 is the calling thread.
    let asked = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size_bytes, 0) };
    sys::check(asked as i32)?;
    attributes.size = size_bytes;
    attributes.sched_runtime = SHORTEST_NANOS;
    // SAFETY: the kernel reads the attributes, which are as long as they say.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    sys::check(set as i32).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_turns_change_neither_policy_nor_niceness() {
        std::thread::spawn(|| {
            let of = || {
                // SAFETY: as above.
                let mut now: sched_attr = unsafe { std::mem::zeroed() };
                let size_bytes = size_of::<sched_attr>() as u32;
                // SAFETY: as above.
                unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size_bytes, 0) };
                (now.sched_policy, now.sched_nice, now.sched_runtime)
            };
            let niceness = rustix::process::nice(3).unwrap();
            let (policy, _, before) = of();
            ask_for_short_turns().unwrap();
            let (policy_then, nice_then, runtime_nanos) = of();
            assert_eq!((policy_then, nice_then), (policy, niceness));
            // Older kernels tell nothing.
            assert!(runtime_nanos == SHORTEST_NANOS || runtime_nanos == before, "{runtime_nanos}");
        })
        .join()
        .unwrap();
    }
}
