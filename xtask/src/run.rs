//! Runs every check and test, and adds up what they say.

mod command;

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use command::{Counts, Kept, SKIPPED, run};

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
/// The system tests, which mostly wait for clocks that they do not own.
const SYSTEM_TESTS: [&str; 5] = ["test", "--workspace", "--no-fail-fast", "--test", "system"];
/// All others, which mostly compute. Cargo has no way to leave one out: these are the names that do not begin with "sy".
const OTHER_TESTS: [&str; 9] =
    ["test", "--workspace", "--no-fail-fast", "--lib", "--bins", "--test", "[!s]*", "--test", "s[!y]*"];
const DOCUMENTED_EXAMPLES: [&str; 4] = ["test", "--workspace", "--no-fail-fast", "--doc"];
/// The tests that the clock judges, one at a time and with nothing beside them.
const TIMED_TESTS: [&str; 7] =
    ["test", "--workspace", "--no-fail-fast", "--", "--ignored", "--test-threads=1", "timed::"];
/// What ARCHITECTURE.md calls pure is compiled for a machine without an operating system.
const WASM32: &str = "wasm32-unknown-unknown";
const PURE_CRATES: [&str; 20] = [
    "sanwire-core",
    "sanwire-buffer",
    "sanwire-scsi",
    "sanwire-ata",
    "sanwire-security",
    "sanwire-flow",
    "sanwire-exchange",
    "sanwire-store",
    "sanwire-snapshot",
    "sanwire-array",
    "sanwire-device",
    "sanwire-engine",
    "sanwire-hyperscsi",
    "sanwire-hdsp",
    "sanwire-visa",
    "sanwire-iscsi",
    "sanwire-nbd",
    "sanwire-aoe",
    "sanwire-iwarp",
    "sanwire-iser",
];
/// Miri looks for undefined behaviour in the memory that all share. Random inputs would take it hours.
const MIRI: [&str; 7] = ["+nightly", "miri", "test", "--package", "sanwire-buffer", "--lib", "--quiet"];
/// How long each fuzz target runs.
const FUZZ_SECONDS: &str = "60";

struct Step {
    name: String,
    command: Command,
    /// Rows of steps that run beside this one, the steps of each one after the other. What they print follows when this step has ended.
    beside: Vec<Vec<Step>>,
}

/// What a step came to.
type Outcome = Result<(Counts, bool), String>;

/// What all steps that have ended came to.
#[derive(Default)]
struct Total {
    counts: Counts,
    failed_steps: Vec<String>,
}

impl Total {
    fn add(&mut self, name: String, outcome: Outcome) -> Result<(), String> {
        let (counts, is_success) = outcome.map_err(|error| format!("{name}: {error}"))?;
        self.counts.passed += counts.passed;
        self.counts.skipped += counts.skipped;
        // A step that fails without a failed test (a compiler's error, a finding) counts as one.
        self.counts.failed += if is_success { counts.failed } else { counts.failed.max(1) };
        self.counts.failed_tests.extend(counts.failed_tests);
        if !is_success || counts.failed > 0 {
            self.failed_steps.push(name);
        }
        Ok(())
    }
}

/// Runs all steps, also after one failed, and prints `N passed, N failed, N skipped` at the end. A step that cannot run here is
/// one that is skipped.
///
/// # Errors
/// When a step cannot be started.
pub fn all(root: &Path, length: Length) -> Result<bool, String> {
    let mut ahead = build_guest_ahead(root, length);
    let mut total = Total::default();
    for step in steps(root, length) {
        take(step, root, &mut total)?;
    }
    if let Some(ahead) = &mut ahead {
        // Its step has waited for it.
        let _ = ahead.wait();
    }
    let Total { counts, failed_steps } = total;
    if !failed_steps.is_empty() {
        println!("failed: {}", failed_steps.join(", "));
    }
    for name in &counts.failed_tests {
        println!("  {name}");
    }
    println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    Ok(counts.failed == 0 && counts.passed > 0)
}

/// Runs a step, and what is to run beside it.
fn take(mut step: Step, root: &Path, total: &mut Total) -> Result<(), String> {
    println!("== {}", step.name);
    let beside = step.beside;
    thread::scope(|scope| {
        let keep_all = |row: Vec<Step>| row.into_iter().map(|step| keep(step, root)).collect::<Vec<_>>();
        let beside: Vec<_> = beside.into_iter().map(|row| scope.spawn(move || keep_all(row))).collect();
        let outcome = run(step.command.current_dir(root), io::stdout(), io::stderr());
        total.add(step.name, outcome.map_err(|error| error.to_string()))?;
        for row in beside {
            for (name, outcome, printed) in row.join().map_err(|_| "a thread beside a step panicked")? {
                println!("== {name}");
                io::stdout().write_all(&printed).map_err(|error| error.to_string())?;
                total.add(name, outcome)?;
            }
        }
        Ok(())
    })
}

/// Runs a step, and keeps what it prints.
fn keep(mut step: Step, root: &Path) -> (String, Outcome, Vec<u8>) {
    let kept = Kept::default();
    let outcome = run(step.command.current_dir(root), kept.clone(), kept.clone());
    (step.name, outcome.map_err(|error| error.to_string()), kept.take())
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
    // Then what runs side by side need not wait for the compiler.
    steps.push(step("build of the tests", &["test", "--workspace", "--no-run", "--quiet"]));
    let mut system = step("system tests", &SYSTEM_TESTS);
    system.beside.push(vec![step("other tests", &OTHER_TESTS), step("documented examples", &DOCUMENTED_EXAMPLES)]);
    let mut guest = vec![step("tests with the Linux guest", &GUEST_TESTS)];
    if is_root() {
        guest.insert(0, of_command("Linux guest", guest_build(root)));
    }
    system.beside.push(guest);
    steps.push(system);
    if is_installed("deny") {
        steps.push(step("licences", &["deny", "check", "licenses", "bans", "sources"]));
    } else {
        steps.push(skipped("licences", "cargo-deny is not installed (make deny says more)"));
    }
    if length == Length::Long {
        lengthen(&mut steps);
        steps.push(step("tests that the clock judges", &TIMED_TESTS));
        steps.push(build_without_operating_system(root));
        steps.push(miri());
        let mut fuzz = Command::new(root.join("fuzz/run.sh"));
        fuzz.arg(FUZZ_SECONDS);
        steps.push(of_command("fuzz", fuzz));
    }
    steps
}

/// Has these steps, and what runs beside them, try more.
fn lengthen(steps: &mut [Step]) {
    for step in steps {
        step.command.env("SANWIRE_TIMES", LONG_TIMES);
        step.beside.iter_mut().for_each(|row| lengthen(row));
    }
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
    of_command(name, command)
}

fn of_command(name: &str, command: Command) -> Step {
    Step { name: name.into(), command, beside: vec![] }
}

/// A step that cannot run here, and says why.
fn skipped(name: &str, why: &str) -> Step {
    let mut says = Command::new("sh");
    says.args(["-c", &format!("echo '{SKIPPED}{name}: {why}' >&2")]);
    of_command(name, says)
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
    of_command(NAME, command)
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
    fn the_long_form_is_also_for_the_tests_with_the_guest() {
        let mut steps = steps(Path::new("."), Length::Short);
        lengthen(&mut steps);
        let mut beside = steps.iter().flat_map(|step| &step.beside).flatten();
        let guest = beside.find(|step| step.command.get_args().eq(GUEST_TESTS));
        let mut variables = guest.expect("the step").command.get_envs();
        assert!(variables.any(|(name, value)| name == "SANWIRE_TIMES" && value == Some(LONG_TIMES.as_ref())));
    }
    #[test]
    fn of_all_tests_only_the_system_tests_are_left_out_of_the_others() {
        let mut said = cargo();
        said.args(["metadata", "--no-deps", "--format-version", "1", "--offline"]);
        let said = said.current_dir(crate::root()).output().expect("cargo runs");
        let said: serde_json::Value = serde_json::from_slice(&said.stdout).expect("JSON");
        let packages = said["packages"].as_array().expect("packages");
        let targets = packages.iter().flat_map(|package| package["targets"].as_array().expect("targets"));
        let tests = targets.filter(|target| target["kind"][0] == "test");
        let names: Vec<&str> = tests.map(|target| target["name"].as_str().expect("a name")).collect();
        let left_out: Vec<&str> = names.iter().copied().filter(|name| name.starts_with("sy")).collect();
        assert!(names.len() > 50 && left_out == ["system"], "{left_out:?} of {names:?}");
    }
}
