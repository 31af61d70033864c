//! Runs every check and test one after the other, and adds up what they say.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

/// How much is run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Format, lints, rules and unit tests: what is quick enough to run before each commit.
    Check,
    /// What every change must pass.
    Short,
    /// That, more simulation, fuzzing, and proofs that need compilers of their own.
    Long,
}

/// How many times as many seeds each simulation runs in the long form. Some take seconds for one, so that no number of seeds would do
/// for all.
const LONG_TIMES: &str = "20";
/// The tests that boot a Linux guest, two at a time: each takes a GiB of memory. Without root they say that they do not run. Of the
/// whole workspace, whose crates are built already with the features that all of them together want.
const GUEST_TESTS: [&str; 8] =
    ["test", "--workspace", "--test", "system", "--", "--ignored", "--test-threads=2", "guest::"];
/// The tests that the clock judges, one at a time and with nothing beside them.
const TIMED_TESTS: [&str; 7] =
    ["test", "--workspace", "--no-fail-fast", "--", "--ignored", "--test-threads=1", "timed::"];
/// How the line begins by which a test says that it does not run here (`sanwire_testing::skip`).
const SKIPPED: &str = "SKIPPED: ";
/// What a step ends with when something from elsewhere cannot be had (EX_TEMPFAIL): it says what, and nothing is wrong here.
const UNAVAILABLE: i32 = 75;
/// What ARCHITECTURE.md calls pure is compiled for a machine without an operating system.
const WASM32: &str = "wasm32-unknown-unknown";
const PURE_CRATES: [&str; 10] = [
    "sanwire-core",
    "sanwire-buffer",
    "sanwire-scsi",
    "sanwire-store",
    "sanwire-snapshot",
    "sanwire-device",
    "sanwire-engine",
    "sanwire-hyperscsi",
    "sanwire-iscsi",
    "sanwire-nbd",
];
/// Miri looks for undefined behaviour in the memory that all share. Random inputs would take it hours.
const MIRI: [&str; 7] = ["+nightly", "miri", "test", "--package", "sanwire-buffer", "--lib", "--quiet"];
/// How long each fuzz target runs.
const FUZZ_SECONDS: &str = "60";

/// What one step said.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Counts {
    passed: u64,
    failed: u64,
    /// Tests that cannot run here, and said so. Their runner counts them as passed.
    skipped: u64,
}

impl Counts {
    /// What a runner has counted, without the tests that only said that they do not run.
    fn without_skipped(self) -> Counts {
        Counts { passed: self.passed.saturating_sub(self.skipped), ..self }
    }
}

struct Step {
    name: String,
    command: Command,
}

/// Runs all steps, also after one failed, and prints `N passed, N failed, N skipped` at the end. A step that cannot run here is
/// one that is skipped.
///
/// # Errors
/// When a step cannot be started.
pub fn all(root: &Path, length: Length) -> Result<bool, String> {
    let mut ahead = build_guest_ahead(root, length);
    let mut total = Counts::default();
    let mut failed_steps = vec![];
    for mut step in steps(root, length) {
        println!("== {}", step.name);
        let (counts, is_success) = run(step.command.current_dir(root), io::stdout(), io::stderr())
            .map_err(|error| format!("{}: {error}", step.name))?;
        total.passed += counts.passed;
        total.skipped += counts.skipped;
        // A step that fails without a failed test (a compiler's error, a finding) counts as one.
        total.failed += if is_success { counts.failed } else { counts.failed.max(1) };
        if !is_success || counts.failed > 0 {
            failed_steps.push(step.name);
        }
    }
    if let Some(ahead) = &mut ahead {
        // Its step has waited for it.
        let _ = ahead.wait();
    }
    if !failed_steps.is_empty() {
        println!("failed: {}", failed_steps.join(", "));
    }
    println!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    Ok(total.failed == 0 && total.passed > 0)
}

fn steps(root: &Path, length: Length) -> Vec<Step> {
    let mut steps = vec![
        step("format", &["fmt", "--all", "--check"]),
        step("clippy", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
        check_of_fuzz_targets(root),
        step("tidy", &["xtask", "tidy"]),
    ];
    if length == Length::Check {
        steps.push(step("unit tests", &["test", "--workspace", "--no-fail-fast", "--lib", "--bins"]));
        return steps;
    }
    steps.push(step("tests", &["test", "--workspace", "--no-fail-fast"]));
    if is_root() {
        steps.push(Step { name: "Linux guest".into(), command: guest_build(root) });
    }
    steps.push(step("tests with the Linux guest", &GUEST_TESTS));
    if is_installed("deny") {
        steps.push(step("licences", &["deny", "check", "licenses", "bans", "sources"]));
    } else {
        steps.push(skipped("licences", "cargo-deny is not installed (make deny says more)"));
    }
    if length == Length::Long {
        for step in &mut steps {
            step.command.env("SANWIRE_TIMES", LONG_TIMES);
        }
        steps.push(step("tests that the clock judges", &TIMED_TESTS));
        steps.push(build_without_operating_system(root));
        steps.push(miri());
        let mut fuzz = Command::new(root.join("fuzz/run.sh"));
        fuzz.arg(FUZZ_SECONDS);
        steps.push(Step { name: "fuzz".into(), command: fuzz });
    }
    steps
}

fn guest_build(root: &Path) -> Command {
    Command::new(root.join("tests/guest/build.sh"))
}

/// Begins with the guest while the compiler works: it mostly waits for packages. Its own step waits for this build, or builds what it
/// could not, and says why that fails; so nothing is said here.
fn build_guest_ahead(root: &Path, length: Length) -> Option<Child> {
    let mut build = guest_build(root);
    build.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    (length != Length::Check && is_root()).then(|| build.spawn().ok()).flatten()
}

fn step(name: &str, arguments: &[&str]) -> Step {
    let mut command = cargo();
    command.args(arguments);
    Step { name: name.into(), command }
}

/// A step that cannot run here, and says why.
fn skipped(name: &str, why: &str) -> Step {
    let mut says = Command::new("sh");
    says.args(["-c", &format!("echo '{SKIPPED}{name}: {why}' >&2")]);
    Step { name: name.into(), command: says }
}

fn build_without_operating_system(root: &Path) -> Step {
    const NAME: &str = "pure crates without an operating system";
    if !runs("rustup", &["target", "add", WASM32]) {
        return skipped(NAME, "rustup cannot install the target wasm32-unknown-unknown");
    }
    let mut step = step(NAME, &["check", "--quiet", "--target", WASM32]);
    step.command.args(PURE_CRATES.iter().flat_map(|name| ["--package", name]));
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).unwrap_or_default();
    if let Some(version) = locked_version(&lock, "aws-lc-sys") {
        // Nothing is linked, so the cryptography in C need not be compiled for that machine: its build script is passed over.
        let library = format!("target.{WASM32}.aws_lc_{}", version.replace('.', "_"));
        let settings = [r#"rustc-cfg=["universal"]"#, r#"include="/""#];
        step.command.args(settings.iter().flat_map(|setting| ["--config".into(), format!("{library}.{setting}")]));
    }
    step
}

/// The version of a package in the text of a Cargo.lock.
fn locked_version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let (_, after) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    after.split_once('"').map(|(version, _)| version)
}

fn miri() -> Step {
    const NAME: &str = "Miri";
    if !runs("rustup", &["component", "add", "--toolchain", "nightly", "miri", "rust-src"]) {
        return skipped(NAME, "rustup cannot install it: it takes a nightly toolchain");
    }
    // Cargo as rustup's proxy, which finds the other toolchain; not the cargo that runs us.
    let mut command = Command::new("cargo");
    command.args(MIRI).env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN").env("PROPTEST_CASES", "4");
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    Step { name: NAME.into(), command }
}

/// They are a workspace of their own, which nothing else here would compile.
fn check_of_fuzz_targets(root: &Path) -> Step {
    let arguments = ["clippy", "--manifest-path", "fuzz/Cargo.toml", "--quiet", "--", "-D", "warnings"];
    let mut step = step("fuzz targets compile", &arguments);
    // Where their dependencies are checked already; of the same versions, in the same profile.
    let shared = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    step.command.env("CARGO_TARGET_DIR", shared);
    // Nothing is linked, so libFuzzer need not be compiled: its build script believes that there is one.
    step.command.env("CUSTOM_LIBFUZZER_PATH", root.join("fuzz/libFuzzer.a"));
    step
}

/// The cargo that runs us.
fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn is_installed(subcommand: &str) -> bool {
    is_success(cargo().args([subcommand, "--version"]))
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    is_success(Command::new(program).args(arguments))
}

fn is_success(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Runs a command, passing on what it prints and counting what its test runners say.
fn run(
    command: &mut Command,
    output_to: impl Write,
    errors_to: impl Write + Send + 'static,
) -> io::Result<(Counts, bool)> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let errors = child.stderr.take();
    let errors = thread::spawn(move || {
        let mut skipped = 0;
        let hear = |line: &str| skipped += u64::from(line.starts_with(SKIPPED));
        errors.map_or(Ok(()), |errors| pass_on(errors, errors_to, hear)).map(|()| skipped)
    });
    let mut counts = Counts::default();
    if let Some(output) = child.stdout.take() {
        pass_on(output, output_to, |line| {
            if let Some(found) = counts_of(line) {
                counts.passed += found.passed;
                counts.failed += found.failed;
                counts.skipped += found.skipped;
            }
        })?;
    }
    counts.skipped += errors.join().map_err(|_| io::Error::other("the thread for stderr panicked"))??;
    let status = child.wait()?;
    let is_unavailable = status.code() == Some(UNAVAILABLE);
    if is_unavailable {
        println!("SKIPPED: what this step needs cannot be had here");
        counts.skipped += 1;
    }
    Ok((counts.without_skipped(), status.success() || is_unavailable))
}

fn pass_on(from: impl io::Read, mut to: impl Write, mut hear: impl FnMut(&str)) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        hear(&String::from_utf8_lossy(&line));
        line.clear();
    }
    to.flush()
}

/// The numbers of `test result: ok. 5 passed; 0 failed; ...` (libtest) or `5 passed, 0 failed` (scripts).
fn counts_of(line: &str) -> Option<Counts> {
    let line = line.trim();
    let rest = match line.strip_prefix("test result: ") {
        Some(result) => result.split_once(". ")?.1,
        None => line,
    };
    let mut parts = rest.split([';', ',']).map(str::trim);
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some(Counts { passed, failed, skipped: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locked_version_of_a_package_is_found() {
        let lock =
            "[[package]]\nname = \"ab\"\nversion = \"1.2.3\"\n\n[[package]]\nname = \"b\"\nversion = \"0.4.0\"\n";
        assert_eq!((locked_version(lock, "b"), locked_version(lock, "c")), (Some("0.4.0"), None));
    }

    #[test]
    fn the_words_of_both_kinds_of_runners_are_understood() {
        let counts = |passed, failed| Some(Counts { passed, failed, skipped: 0 });
        let libtest =
            "test result: FAILED. 25 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.23s";
        assert_eq!(counts_of(libtest), counts(25, 2));
        assert_eq!(counts_of("12 passed, 0 failed\n"), counts(12, 0));
        for line in ["", "test a::b ... ok", "7 passed", "x passed, 1 failed", "running 5 tests"] {
            assert_eq!(counts_of(line), None, "{line}");
        }
    }

    #[test]
    fn exit_code_and_counts_come_from_the_command() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo 3 passed, 1 failed; echo 2 passed, 0 failed; echo 9 passed, 9 failed >&2; exit 1"]);
        // Not to stdout: whoever counts the words of this very run would count these too.
        let mut output = vec![];
        let counts = Counts { passed: 5, failed: 1, skipped: 0 };
        assert_eq!(run(&mut shell, &mut output, io::sink()).unwrap(), (counts, false));
        assert_eq!(output, b"3 passed, 1 failed\n2 passed, 0 failed\n");
    }

    #[test]
    fn what_is_skipped_is_not_passed() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo 'SKIPPED: a: it takes root' >&2; echo 3 passed, 0 failed"]);
        let counts = Counts { passed: 2, failed: 0, skipped: 1 };
        assert_eq!(run(&mut shell, io::sink(), io::sink()).unwrap(), (counts, true));
        let mut unavailable = Command::new("sh");
        unavailable.args(["-c", &format!("exit {UNAVAILABLE}")]);
        let counts = Counts { skipped: 1, ..Counts::default() };
        assert_eq!(run(&mut unavailable, io::sink(), io::sink()).unwrap(), (counts, true));
    }
}
