//! The package on a host with systemd: installed, kept over a restart of the host, upgraded under load, removed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::{Guest, World, run_ok};
use crate::package;

const LIMIT: Duration = Duration::from_secs(600);

/// The same package as another version, as whose upgrade it counts.
fn newer(package: &Path, directory: &Path) {
    let tree = directory.join("tree");
    let dpkg = |arguments: &[&str], paths: &[&Path]| {
        let mut command = Command::new("dpkg-deb");
        command.args(arguments).args(paths);
        run_ok(command, LIMIT);
    };
    dpkg(&["--raw-extract"], &[package, &tree]);
    let control = tree.join("DEBIAN/control");
    let text = fs::read_to_string(&control).expect("what the package says of itself");
    let version = text.lines().find(|line| line.starts_with("Version: ")).expect("its version");
    fs::write(&control, text.replace(version, &format!("{version}+newer"))).expect("another version");
    dpkg(&["--build", "-Zgzip", "-z1"], &[&tree, &directory.join("newer.deb")]);
}

#[test]
#[ignore = "boots a Linux guest"]
fn the_package_serves_and_attaches_over_a_restart_and_is_upgraded_under_load() {
    let test = "the_package_serves_and_attaches_over_a_restart_and_is_upgraded_under_load";
    let Some(world) = World::new(test, 1500, &["dpkg-deb"]) else { return };
    let Some(package) = package::build(&world.scratch, test) else { return };
    let shared = world.scratch.path("shared");
    fs::create_dir(&shared).expect("a directory");
    fs::copy(&package, shared.join("first.deb")).expect("the package is copied");
    newer(&package, &shared);
    let Some(mut guest) = Guest::boot_with_systemd(&world, test, &shared) else { return };
    guest.run("package", &["install", "/host/first.deb"], LIMIT);
    guest.run("package", &["wires"], LIMIT);
    guest.run("package", &["serve"], LIMIT);
    guest.run("package", &["attach"], LIMIT);
    guest.restart();
    guest.run("package", &["again"], LIMIT);
    guest.run("package", &["upgrade", "/host/newer.deb"], LIMIT);
    guest.run("package", &["spoiled", "/host/newer.deb"], LIMIT);
    guest.run("package", &["remove"], LIMIT);
}
