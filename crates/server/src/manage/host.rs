//! What the host gives the server: who helps from afar begins with it.

use std::fs;
use std::sync::OnceLock;
use std::thread;

use serde::{Deserialize, Serialize};

/// What the host gives the server. What the system does not tell is `None`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct HostStatus {
    /// The version of its kernel.
    pub kernel: Option<String>,
    /// Processors on which the server may run.
    pub processors: Option<usize>,
    /// Its memory.
    pub memory_bytes: Option<u64>,
    /// Descriptors that the server may have; `None`: any number.
    pub open_files_max: Option<u64>,
    /// Memory that the server may lock; `None`: all.
    pub locked_memory_max_bytes: Option<u64>,
}

impl HostStatus {
    /// That of this process, as it was when it was asked for first: limits are raised before.
    pub(super) fn of_this() -> HostStatus {
        static THIS: OnceLock<HostStatus> = OnceLock::new();
        THIS.get_or_init(|| {
            let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
            let (kernel, memory, limits) =
                (read("/proc/sys/kernel/osrelease"), read("/proc/meminfo"), read("/proc/self/limits"));
            HostStatus {
                kernel: Some(kernel.trim().to_owned()).filter(|kernel| !kernel.is_empty()),
                processors: thread::available_parallelism().ok().map(usize::from),
                memory_bytes: number_after(&memory, "MemTotal:").map(|kib| kib << 10),
                open_files_max: number_after(&limits, "Max open files"),
                locked_memory_max_bytes: number_after(&limits, "Max locked memory"),
            }
        })
        .clone()
    }
}

/// The number behind these words at the begin of a line.
fn number_after(text: &str, words: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(words))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_tells_what_it_gives_and_no_limit_is_none() {
        let this = HostStatus::of_this();
        assert!(this.kernel.is_some_and(|kernel| kernel.contains('.')));
        assert!(
            this.processors.is_some_and(|count| count > 0) && this.memory_bytes.is_some_and(|bytes| bytes > 1 << 20)
        );
        let limits = "Max open files            1024                 524288               files\n\
                      Max locked memory         unlimited            unlimited            bytes\n";
        assert_eq!(
            (number_after(limits, "Max open files"), number_after(limits, "Max locked memory")),
            (Some(1024), None)
        );
    }
}
