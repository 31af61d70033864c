//! The Debian package: what is in it, and what lintian and systemd say of it. `guest/package.rs` installs it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::harness::{Scratch, is_installed, run_ok, skip};

const TIMEOUT: Duration = Duration::from_secs(300);

/// The package, made of the program under test; none where that cannot be, which is said.
pub fn build(scratch: &Scratch, test: &str) -> Option<PathBuf> {
    if let Some(missing) = ["dh", "dpkg-buildpackage"].into_iter().find(|tool| !is_installed(tool)) {
        skip(test, &format!("the program {missing} is not installed"));
        return None;
    }
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/package.sh"));
    command.arg(scratch.path("package")).env("DEB_BUILD_OPTIONS", "noopt");
    command.env("SANWIRE_PROGRAM", env!("CARGO_BIN_EXE_sanwire"));
    let built = run_ok(command, TIMEOUT);
    let mut packages = built.lines().filter(|path| path.contains("/sanwire_"));
    Some(packages.next().expect("the package").into())
}

#[test]
fn the_package_is_whole_and_lintian_finds_no_errors() {
    let test = "the_package_is_whole_and_lintian_finds_no_errors";
    let scratch = Scratch::new();
    let Some(package) = build(&scratch, test) else { return };
    let tool = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).arg(&package);
        run_ok(command, TIMEOUT)
    };
    let version = tool("dpkg-deb", &["--show", "--showformat=${Version}"]);
    assert!(version.starts_with(concat!(env!("CARGO_PKG_VERSION"), "-")), "{version}");
    let files = tool("dpkg-deb", &["--contents"]);
    for file in [
        "/usr/bin/sanwire\n",
        "/etc/sanwire/sanwire.toml\n",
        "/lib/systemd/system/sanwire.service\n",
        "/lib/systemd/system/sanwire-attach@.service\n",
        "/lib/udev/rules.d/60-sanwire.rules\n",
        "/usr/lib/sysusers.d/sanwire.conf\n",
        "/man1/sanwire-attach.1.gz\n",
        "/man5/sanwire.toml.5.gz\n",
        "/man5/sanwire-attach.toml.5.gz\n",
        "/bash-completion/completions/sanwire\n",
    ] {
        assert!(files.contains(file), "{file}\n{files}");
    }
    let mut symbols = std::fs::read_dir(scratch.path("package")).expect("the packages").flatten();
    assert!(symbols.any(|entry| entry.file_name().to_string_lossy().contains("-dbgsym_")), "symbols apart");
    if is_installed("lintian") {
        // As root it is run in tests only.
        tool("lintian", &["--allow-root", "--fail-on", "error"]);
    } else {
        skip(test, "lintian is not installed");
    }
}

#[test]
fn the_service_is_exposed_little() {
    let test = "the_service_is_exposed_little";
    if !is_installed("systemd-analyze") {
        return skip(test, "systemd-analyze is not installed");
    }
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--offline=true", "--threshold=25", "--no-pager"]);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd/sanwire.service"));
    run_ok(command, TIMEOUT);
}
