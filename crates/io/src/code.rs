//! The code of this program, as far as it is in memory.

use std::fs;
use std::io;

/// Gives back the memory of code that has run, as that of a start, which is not needed any more: the kernel maps it again from the
/// program's file, or from its cache of that, when it runs once more.
///
/// # Errors
/// When the kernel does not tell where the code is (`/proc` is not there), or refuses; nothing is worse then.
pub fn give_back() -> io::Result<()> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let own = give_back as fn() -> io::Result<()> as usize;
    let Some((start, end)) = maps.lines().filter_map(executable).find(|(start, end)| (*start..*end).contains(&own))
    else {
        return Ok(());
    };
    let place = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the range is one mapping of the program's file that can be executed and not written, so all of its pages are those of
    // the file: whoever reads or runs one that was given back finds the same again.
    crate::sys::check(unsafe { libc::madvise(place, end - start, libc::MADV_DONTNEED) }).map(drop)
}

/// Where a mapping of a file begins and ends that is there to be executed only.
fn executable(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_code = words.next()? == "r-xp" && words.nth(3)?.starts_with('/');
    let address = |text| usize::from_str_radix(text, 16).ok();
    is_code.then_some((address(start)?, address(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident_bytes() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssFile:")).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    #[test]
    fn code_that_was_given_back_runs_again() {
        let before = resident_bytes();
        give_back().unwrap();
        let after = resident_bytes();
        assert!(after < before, "{before} {after}");
        assert!(executable("00-10 r-xp 00000000 00:00 0 [vdso]").is_none(), "no file");
        assert!(
            executable("00-10 r--p 00000000 fe:00 1 /a").is_none()
                && executable("00-10 rwxp 00000000 fe:00 1 /a").is_none()
        );
        assert_eq!(executable("1000-a000 r-xp 005d0000 fe:00 12 /a b"), Some((0x1000, 0xa000)));
    }
}
