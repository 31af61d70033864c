//! Layers are open files, and not all that the process may have open are taken by them.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::layered::DIRECTORY;

/// The descriptors of the process.
const OPEN: &str = "/proc/self/fd";

/// So many of those that the process may have.
const LAYERS_SHARE: u64 = 2;

/// How many the process may have.
pub(super) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Whether one more layer may be opened, where the process may have so many files; `known`: how many layers are open at least.
///
/// # Errors
/// How many there may be.
pub(super) fn check_layers(known: usize, limit: u64) -> Result<(), usize> {
    let most = usize::try_from(limit / LAYERS_SHARE).unwrap_or(usize::MAX);
    let is_in_use = |layers: usize| known.max(layers) >= most;
    // There are no more layers than descriptors, and each that is looked at takes time.
    if is_in_use(opened()) && is_in_use(of_layers()) { Err(most) } else { Ok(()) }
}

/// How many descriptors the process has; where the kernel does not tell (before Linux 6.2), more than there can be.
fn opened() -> usize {
    let told = fs::metadata(OPEN).map_or(0, |of| of.len());
    usize::try_from(told).ok().filter(|told| *told > 0).unwrap_or(usize::MAX)
}

/// How many are those of layers, whichever pool these are in.
fn of_layers() -> usize {
    // Where the kernel does not tell, others count.
    let Ok(open) = fs::read_dir(OPEN) else { return 0 };
    open.flatten().filter(|descriptor| fs::read_link(descriptor.path()).is_ok_and(|file| is_of_layers(&file))).count()
}

/// Whether it is a file in the directory of a family, or that directory.
fn is_of_layers(file: &Path) -> bool {
    file.ancestors().skip(1).take(2).any(|above| above.file_name().is_some_and(|name| name == DIRECTORY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::layered::tests::Place;

    #[test]
    fn the_layers_of_all_pools_are_counted_together() {
        let pools = ["one", "other"].map(|label| {
            let place = Place::new(&format!("descriptors-{label}"));
            place.fill();
            let (pool, _) = place.open(usize::MAX);
            (crate::pools::layered::tests::serve(&pool, "a"), place)
        });
        // Others that are open at the same time only add to that.
        assert!(of_layers() >= 2 * pools.len());
        assert_eq!(check_layers(1, LAYERS_SHARE * 2 * pools.len() as u64), Err(2 * pools.len()));
        assert!(check_layers(1, u64::MAX).is_ok() && check_layers(usize::MAX, u64::MAX).is_err());
    }
}
