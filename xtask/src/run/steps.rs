//! What is run, in which order, and what beside what.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::command::SKIPPED;
use super::{Length, Step};

/// How many times as many seeds each simulation runs in the long form. Some take seconds for one, so that no number of seeds would do
/// for all.
const LONG_TIMES: &str = "20";
/// The program and the tests of it, of the whole workspace: so crates have the features that all of them together want.
const BUILD_OF_SYSTEM_TESTS: [&str; 5] =
    ["test", "--workspace", "--no-run", "--quiet", "--message-format=json-render-diagnostics"];
/// What they are, and the tests that they run in a guest.
const SYSTEM_TESTS: [&str; 2] = ["system", "adapter"];
/// Those of them that boot a Linux guest, two at a time: each takes a GiB of memory. Without root they say that they do not run. What
/// each job took is shown, for these tests take longest.
const GUEST_TESTS: [&str; 4] = ["--ignored", "--show-output", "--test-threads=2", "guest::"];
/// All others, which mostly compute. Cargo has no way to leave one out: these are the names that do not begin with "sy".
const OTHER_TESTS: [&str; 6] = ["--lib", "--bins", "--test", "[!s]*", "--test", "s[!y]*"];
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

/// What is found without running anything of the product, the cheapest first.
pub fn checks(root: &Path) -> Vec<Step> {
    vec![
        step("format", &["fmt", "--all", "--check"]),
        step("tidy", &["xtask", "tidy"]),
        step("clippy", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
        check_of_fuzz_targets(root),
    ]
}

pub fn unit_tests() -> Step {
    step("unit tests", &["test", "--workspace", "--no-fail-fast", "--lib", "--bins"])
}

pub fn packages(root: &Path) -> Step {
    let mut setup = Command::new(root.join("packaging/setup.sh"));
    setup.arg("test");
    of_command("packages", setup)
}

pub fn build_of_system_tests() -> Step {
    let named = SYSTEM_TESTS.iter().flat_map(|name| ["--test", name]);
    step("build of the system tests", &BUILD_OF_SYSTEM_TESTS.into_iter().chain(named).collect::<Vec<_>>())
}

/// Where the system tests are.
pub struct SystemTests {
    system: PathBuf,
    /// Those that need an RDMA adapter, which only a guest has for certain.
    adapter: PathBuf,
}

/// Where they are as cargo has told.
pub fn system_tests_among(told: &str) -> Option<SystemTests> {
    let messages = || told.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let [system, adapter] = SYSTEM_TESTS.map(|name| {
        let mut found = messages().filter(|message| message["target"]["name"] == name);
        found.find_map(|message| message["executable"].as_str().map(PathBuf::from))
    });
    Some(SystemTests { system: system?, adapter: adapter? })
}

/// All that is run of the product. The system tests, and those with the guest, mostly wait for clocks that they do not own: all others
/// are compiled, and run, beside them.
pub fn tests(root: &Path, programs: &SystemTests, length: Length) -> Vec<Step> {
    let mut tests = of_command("system tests", of_program(root, programs));
    let build =
        step("build of the other tests", &[&["test", "--workspace", "--no-run", "--quiet"], &OTHER_TESTS[..]].concat());
    let others = step("other tests", &[&["test", "--workspace", "--no-fail-fast"], &OTHER_TESTS[..]].concat());
    tests.beside.push(vec![build, others, step("documented examples", &DOCUMENTED_EXAMPLES)]);
    let mut with_guest = of_program(root, programs);
    with_guest.args(GUEST_TESTS);
    let mut guest = vec![of_command("tests with the Linux guest", with_guest)];
    if is_root() {
        guest.insert(0, of_command("Linux guest", guest_build(root)));
    }
    tests.beside.push(guest);
    let mut steps = vec![tests];
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

/// Tests of the program, as cargo would run them.
fn of_program(root: &Path, tests: &SystemTests) -> Command {
    let mut command = Command::new(&tests.system);
    command.current_dir(root.join("crates/cli")).env("SANWIRE_ADAPTER_TESTS", &tests.adapter);
    command
}

pub fn guest_build(root: &Path) -> Command {
    Command::new(root.join("tests/guest/build.sh"))
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

pub fn is_root() -> bool {
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
        let programs = SystemTests { system: "system".into(), adapter: "adapter".into() };
        let mut steps = tests(Path::new("."), &programs, Length::Short);
        lengthen(&mut steps);
        let mut beside = steps.iter().flat_map(|step| &step.beside).flatten();
        let guest = beside.find(|step| step.command.get_args().eq(GUEST_TESTS));
        let mut variables = guest.expect("the step").command.get_envs();
        assert!(variables.any(|(name, value)| name == "SANWIRE_TIMES" && value == Some(LONG_TIMES.as_ref())));
    }

    #[test]
    fn the_system_tests_are_found_among_what_cargo_tells() {
        let told = "{\"target\":{\"name\":\"system\"},\"executable\":null}\nx\n{\"target\":{\"name\":\"other\"},\"executable\":\"/o\"}\n\
                    {\"target\":{\"name\":\"system\"},\"executable\":\"/t/system-1\"}\n";
        assert!(system_tests_among(told).is_none());
        let told = format!("{told}{{\"target\":{{\"name\":\"adapter\"}},\"executable\":\"/t/adapter-2\"}}\n");
        let found = system_tests_among(&told).expect("both");
        assert_eq!((found.system, found.adapter), ("/t/system-1".into(), "/t/adapter-2".into()));
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
