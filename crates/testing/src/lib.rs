//! What tests of several crates share: whether this machine has what they need, and words that are seen also of tests that pass.
#![forbid(unsafe_code)]

pub mod ceph;

use std::io::Write;

/// Says that the test called `test` does not run here, for instance since it takes root. The caller then returns.
///
/// The line begins with `SKIPPED: ` and goes to stderr by a way that the test harness does not capture. `cargo xtask test` counts
/// these lines: a skipped test is no passed one. Call it once for each test.
pub fn skip(test: &str, reason: &str) {
    tell(&format!("SKIPPED: {test}: {reason}"));
}

/// Says something by that way, which the test harness does not capture: what was measured is to be seen though the test passes.
pub fn tell(line: &str) {
    // One write, so that lines of several tests do not mix. Nothing can be done about a broken stderr.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Whether a program is in the search path or where administrators' programs are.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path);
    directories.chain(["/usr/sbin".into(), "/sbin".into()]).any(|directory| directory.join(program).exists())
}

/// The name of the test that runs in this thread, as far as the test harness tells.
pub fn this_test() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}
