//! What holds when the user says nothing.

use std::env;
use std::path::{Path, PathBuf};

use sanwire_store::VolumeSpec;

use super::ServerName;
use crate::failure::misuse;

/// Where the default volume lives: `$XDG_DATA_HOME/sanwire` or `~/.local/share/sanwire`.
///
/// # Errors
/// When there is no home directory.
pub(crate) fn data_directory() -> anyhow::Result<PathBuf> {
    user_directory("XDG_DATA_HOME", ".local/share")
}

/// Where keys, reservations and the places of interrupted copies are kept: `$XDG_STATE_HOME/sanwire` or `~/.local/state/sanwire`.
///
/// # Errors
/// When there is no home directory.
pub(crate) fn state_directory() -> anyhow::Result<PathBuf> {
    user_directory("XDG_STATE_HOME", ".local/state")
}

/// Where the pinned keys of servers are kept: `$XDG_CONFIG_HOME/sanwire` or `~/.config/sanwire`.
///
/// # Errors
/// When there is no home directory.
pub(crate) fn config_directory() -> anyhow::Result<PathBuf> {
    user_directory("XDG_CONFIG_HOME", ".config")
}

/// Where sockets and mount points go: `$XDG_RUNTIME_DIR/sanwire`, or `/run/sanwire` for root. `instead` is what the user can give
/// who has neither.
///
/// # Errors
/// When neither is there.
pub(crate) fn runtime_directory(instead: &str) -> anyhow::Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok("/run/sanwire".into());
    }
    let runtime = absolute("XDG_RUNTIME_DIR").map(|runtime| runtime.join("sanwire"));
    runtime.ok_or_else(|| misuse(format!("XDG_RUNTIME_DIR is not set: set it, or give {instead}")))
}

fn user_directory(variable: &str, in_home: &str) -> anyhow::Result<PathBuf> {
    let base = absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(in_home)));
    let base =
        base.ok_or_else(|| misuse(format!("neither {variable} nor HOME is set to an absolute path: set one")))?;
    Ok(base.join("sanwire"))
}

/// The variable's value, when it is an absolute path (others are to be ignored, XDG Base Directory Specification).
fn absolute(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The volume that is served when none is named: 1 GiB, sparse.
pub(super) fn volume(directory: &Path) -> anyhow::Result<VolumeSpec> {
    let path = directory.join("disk0.img");
    let path = path.to_str().ok_or_else(|| {
        misuse(format!("the data directory {} is not UTF-8: name a volume with --volume", directory.display()))
    })?;
    let path = path.replace('\\', r"\\").replace(',', r"\,");
    Ok(format!("disk0=file:{path},size=1G").parse()?)
}

/// The host's name.
pub(super) fn server_name() -> anyhow::Result<ServerName> {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    host.parse().map_err(|error| misuse(format!("{error}; the host's name will not do: give --name NAME")))
}
