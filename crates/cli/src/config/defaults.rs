//! What holds when the user says nothing.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sanwire_store::VolumeSpec;

use super::ServerName;
use crate::failure::misuse;

/// Where the default volume lives: `$XDG_DATA_HOME/sanwire` or `~/.local/share/sanwire`;
/// for root `/var/lib/sanwire/volumes` unless the former is there.
///
/// # Errors
/// When there is no home directory.
pub(crate) fn data_directory() -> anyhow::Result<PathBuf> {
    Surroundings::of_process().directory(&DATA)
}

/// Where keys, reservations and the places of interrupted copies are kept: `$STATE_DIRECTORY` of a service, else
/// `$XDG_STATE_HOME/sanwire` or `~/.local/state/sanwire`, which for root is `/var/lib/sanwire` unless the former is there.
///
/// # Errors
/// When there is no home directory.
pub(crate) fn state_directory() -> anyhow::Result<PathBuf> {
    Surroundings::of_process().directory(&STATE)
}

/// Where the pinned keys of servers are kept: `$CONFIGURATION_DIRECTORY` of a service, else `$XDG_CONFIG_HOME/sanwire` or
/// `~/.config/sanwire`, which for root is `/etc/sanwire` unless the former is there.
///
/// # Errors
/// When there is no home directory.
pub(crate) fn config_directory() -> anyhow::Result<PathBuf> {
    Surroundings::of_process().directory(&CONFIGURATION)
}

/// Where sockets and mount points go: `$RUNTIME_DIRECTORY` of a service, `/run/sanwire` for root, else
/// `$XDG_RUNTIME_DIR/sanwire`. `instead` is what the user can give who has none of these.
///
/// # Errors
/// When there is none.
pub(crate) fn runtime_directory(instead: &str) -> anyhow::Result<PathBuf> {
    let runtime = Surroundings::of_process().runtime_directory();
    runtime.ok_or_else(|| misuse(format!("XDG_RUNTIME_DIR is not set: set it, or give {instead}")))
}

/// Where the service manager puts what it hands to services, in a directory for each (systemd.exec(5), `LoadCredential=`).
const CREDENTIALS: &str = "/run/credentials";

/// Whether this is a file that the service manager has handed over, to this service or to another one whose configuration is looked
/// at. Who may read it is the manager's care: it may give access by a list that the mode shows as that of a group.
pub(crate) fn is_credential(path: &Path) -> bool {
    let directory = Surroundings::of_process().path("CREDENTIALS_DIRECTORY");
    let is_own = directory.is_some_and(|directory| path.parent() == Some(&directory));
    is_own || path.parent().and_then(Path::parent) == Some(Path::new(CREDENTIALS))
}

/// A directory of the user's for one kind of files.
struct Place {
    /// What a service manager sets.
    of_service: &'static str,
    /// What the XDG Base Directory Specification names, and its default below the home directory.
    of_user: &'static str,
    in_home: &'static str,
    of_root: &'static str,
}

const DATA: Place = Place {
    of_service: "",
    of_user: "XDG_DATA_HOME",
    in_home: ".local/share/sanwire",
    of_root: "/var/lib/sanwire/volumes",
};
const STATE: Place = Place {
    of_service: "STATE_DIRECTORY",
    of_user: "XDG_STATE_HOME",
    in_home: ".local/state/sanwire",
    of_root: "/var/lib/sanwire",
};
const CONFIGURATION: Place = Place {
    of_service: "CONFIGURATION_DIRECTORY",
    of_user: "XDG_CONFIG_HOME",
    in_home: ".config/sanwire",
    of_root: "/etc/sanwire",
};

/// What places depend on.
struct Surroundings<V, E> {
    is_root: bool,
    variable: V,
    exists: E,
}

impl Surroundings<fn(&str) -> Option<OsString>, fn(&Path) -> bool> {
    fn of_process() -> Self {
        Surroundings {
            is_root: rustix::process::geteuid().is_root(),
            variable: |name| env::var_os(name),
            exists: Path::exists,
        }
    }
}

impl<V: Fn(&str) -> Option<OsString>, E: Fn(&Path) -> bool> Surroundings<V, E> {
    fn directory(&self, place: &Place) -> anyhow::Result<PathBuf> {
        let of_user = || self.path(place.of_user).map(|base| base.join("sanwire"));
        if let Some(said) = self.of_service(place.of_service).or_else(of_user) {
            return Ok(said);
        }
        let in_home = self.path("HOME").map(|home| home.join(place.in_home));
        match in_home {
            // Services have no home, and root's terminal should find what they use.
            None if self.is_root => Ok(place.of_root.into()),
            Some(in_home) if self.is_root && !(self.exists)(&in_home) => Ok(place.of_root.into()),
            Some(in_home) => Ok(in_home),
            None => {
                let variable = place.of_user;
                Err(misuse(format!("neither {variable} nor HOME is set to an absolute path: set one")))
            }
        }
    }

    fn runtime_directory(&self) -> Option<PathBuf> {
        let of_root = || self.is_root.then(|| "/run/sanwire".into());
        let of_user = || self.path("XDG_RUNTIME_DIR").map(|runtime| runtime.join("sanwire"));
        self.of_service("RUNTIME_DIRECTORY").or_else(of_root).or_else(of_user)
    }

    /// The first one of several that may stand there with colons between.
    fn of_service(&self, variable: &str) -> Option<PathBuf> {
        let list = (self.variable)(variable)?;
        env::split_paths(&list).next().filter(|path| path.is_absolute())
    }

    /// The variable's value, when it is an absolute path (others are to be ignored, XDG Base Directory Specification).
    fn path(&self, variable: &str) -> Option<PathBuf> {
        (self.variable)(variable).map(PathBuf::from).filter(|path| path.is_absolute())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings<'a>(
        is_root: bool,
        variables: &'a [(&'a str, &'a str)],
        there: &'a str,
    ) -> Surroundings<impl Fn(&str) -> Option<OsString> + 'a, impl Fn(&Path) -> bool + 'a> {
        let variable = move |name: &str| variables.iter().find(|(set, _)| *set == name).map(|(_, value)| value.into());
        Surroundings { is_root, variable, exists: move |path: &Path| path == Path::new(there) }
    }

    #[test]
    fn a_service_keeps_its_state_where_its_manager_says() {
        let state = |is_root, variables: &[(&str, &str)], there: &str| {
            surroundings(is_root, variables, there).directory(&STATE).map_err(|error| error.to_string())
        };
        let (service, home) = (("STATE_DIRECTORY", "/var/lib/a:/var/lib/b"), ("HOME", "/home/u"));
        assert_eq!(state(false, &[service, home, ("XDG_STATE_HOME", "/x")], ""), Ok("/var/lib/a".into()));
        assert_eq!(state(true, &[home, ("XDG_STATE_HOME", "/x")], ""), Ok("/x/sanwire".into()));
        assert_eq!(state(false, &[home], ""), Ok("/home/u/.local/state/sanwire".into()));
        let former = "/home/u/.local/state/sanwire";
        assert_eq!(state(true, &[home], former), Ok(former.into()), "root goes on with what it has");
        assert_eq!(state(true, &[home], ""), Ok("/var/lib/sanwire".into()));
        assert_eq!(state(true, &[], ""), Ok("/var/lib/sanwire".into()));
        assert!(state(false, &[("STATE_DIRECTORY", "relative")], "").unwrap_err().contains("nor HOME"));
    }

    #[test]
    fn sockets_are_where_the_manager_says_or_at_the_usual_places() {
        let (service, user) = (("RUNTIME_DIRECTORY", "/run/a"), ("XDG_RUNTIME_DIR", "/run/user/7"));
        let runtime = |is_root, variables: &[_]| surroundings(is_root, variables, "").runtime_directory();
        assert_eq!(runtime(true, &[service, user]), Some("/run/a".into()));
        assert_eq!(runtime(true, &[user]), Some("/run/sanwire".into()));
        assert_eq!(runtime(false, &[user]), Some("/run/user/7/sanwire".into()));
        assert_eq!(runtime(false, &[]), None);
    }
}
