//! What memory the machine has, asked of the kernel.

use std::fs;

/// The memory and swap space of this machine, in bytes: more can never be had. `None` when the kernel does not tell.
#[must_use]
pub(crate) fn total_bytes() -> Option<u64> {
    total(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn total(meminfo: &str) -> Option<u64> {
    let kibibytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    let memory = kibibytes("MemTotal:")?;
    Some(memory.saturating_add(kibibytes("SwapTotal:").unwrap_or(0)).saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_swap_count_together() {
        let text = "MemTotal:       24576 kB\nMemFree:         1024 kB\nSwapTotal:       2048 kB\n";
        assert_eq!(total(text), Some(26624 << 10));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert!(total_bytes().is_none_or(|bytes| bytes > 1 << 20));
    }
}
