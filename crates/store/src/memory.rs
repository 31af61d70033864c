//! What memory the machine has, asked of the kernel, and whether volumes in memory have room there.

use std::fs;

use sanwire_core::Size;

use crate::VolumeSpec;

/// The memory and swap space of this machine, in bytes: more can never be had. `None` when the kernel does not tell.
#[must_use]
pub(crate) fn total_bytes() -> Option<u64> {
    total(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// What is to be said when this machine cannot hold all of these volumes' memory: each takes it as it is written.
#[must_use]
pub fn overcommitted<'a>(volumes: impl IntoIterator<Item = &'a VolumeSpec>) -> Option<String> {
    let wanted = volumes.into_iter().map(|volume| volume.store.backing.memory_bytes());
    let (wanted_bytes, total_bytes) = (wanted.fold(0, u64::saturating_add), total_bytes()?);
    (wanted_bytes > total_bytes).then(|| {
        let (wanted, total) = (Size(wanted_bytes), Size(total_bytes));
        format!(
            "the ram: volumes may take {wanted}, and this machine has {total} with its swap space: writes will fail before they are full"
        )
    })
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
    fn volumes_count_together_and_zeroes_take_no_memory() {
        let half = total_bytes().unwrap() / 2 + (1 << 20);
        let volume = |text: String| text.parse::<VolumeSpec>().unwrap();
        let [a, b, zeroes] = [format!("a=ram:{half}"), format!("b=ram:{half}"), "c=null:100T".into()].map(volume);
        assert_eq!(overcommitted([&a, &zeroes]), None);
        assert!(overcommitted([&a, &b]).unwrap().starts_with("the ram: volumes may take "));
    }

    #[test]
    fn memory_and_swap_count_together() {
        let text = "MemTotal:       24576 kB\nMemFree:         1024 kB\nSwapTotal:       2048 kB\n";
        assert_eq!(total(text), Some(26624 << 10));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert!(total_bytes().is_none_or(|bytes| bytes > 1 << 20));
    }
}
