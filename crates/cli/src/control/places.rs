//! Where servers have their sockets, and which server is meant.

use std::fs;
use std::path::{Path, PathBuf};

use crate::config::{ServerName, runtime_directory};
use crate::failure::misuse;

/// What the name of a socket has before and after that of its server.
const BEFORE: &str = "serve-";
const AFTER: &str = ".sock";

/// Where the server of that name has its socket.
pub(crate) fn socket_of(name: &ServerName) -> anyhow::Result<PathBuf> {
    Ok(runtime_directory("--control PATH")?.join(format!("{BEFORE}{}{AFTER}", name.as_str())))
}

/// The socket of a server of this user on this host: of that name, or of the only one.
///
/// # Errors
/// A [`crate::failure::Misuse`] when there is none, or more than one and nothing says which.
pub(crate) fn find_socket(name: Option<&ServerName>) -> anyhow::Result<PathBuf> {
    let directory = runtime_directory("--socket PATH")?;
    // That of the packaged service is its user's own.
    choose(sockets_in(&[directory.join("server"), directory.clone()]), name, &directory)
}

/// Whether any server of this user runs on this host, as far as sockets tell.
pub(crate) fn is_any_here() -> bool {
    runtime_directory("--socket PATH")
        .is_ok_and(|directory| !sockets_in(&[directory.join("server"), directory]).is_empty())
}

/// Servers by their names, with their sockets.
fn sockets_in(places: &[PathBuf]) -> Vec<(String, PathBuf)> {
    let entries = places.iter().flat_map(fs::read_dir).flatten().flatten().map(|entry| entry.path());
    let named = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_prefix(BEFORE)?.strip_suffix(AFTER)?.to_owned();
        Some((name, path))
    };
    let mut sockets: Vec<_> = entries.filter_map(named).collect();
    sockets.sort();
    sockets
}

fn choose(mut sockets: Vec<(String, PathBuf)>, name: Option<&ServerName>, directory: &Path) -> anyhow::Result<PathBuf> {
    let directory = directory.display();
    let names: Vec<&str> = sockets.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(", ");
    if let Some(name) = name {
        sockets.retain(|(found, _)| found == name.as_str());
    }
    match (sockets.pop(), &sockets[..], name) {
        (Some((_, socket)), [], _) => Ok(socket),
        (Some((_, one)), [.., (_, other)], Some(name)) => Err(misuse(format!(
            "two servers called {} run here: choose one with --socket {} or --socket {}",
            name.as_str(),
            other.display(),
            one.display()
        ))),
        (Some(_), ..) => Err(misuse(format!("several servers run here: choose one with --server NAME: {names}"))),
        (None, _, Some(name)) if !names.is_empty() => Err(misuse(format!(
            "no server called {} runs here; there are: {names}; one that was started with --control PATH is reached with --socket PATH",
            name.as_str()
        ))),
        (None, ..) => {
            Err(misuse(format!("no server runs here: there is no socket in {directory}; give --socket PATH")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_chosen_by_its_name_and_the_error_lists_those_there_are() {
        let directory = std::env::temp_dir().join(format!("sanwire-places-{}", std::process::id()));
        let service = directory.join("server");
        fs::create_dir_all(&service).unwrap();
        let choose = |name: Option<&str>| {
            let name = name.map(|name| name.parse().unwrap());
            let sockets = sockets_in(&[service.clone(), directory.clone()]);
            super::choose(sockets, name.as_ref(), &directory).map_err(|error| error.to_string())
        };
        assert!(choose(None).unwrap_err().starts_with("no server runs here"));
        let make = |path: PathBuf| fs::write(&path, "").map(|()| path).unwrap();
        let storage = make(directory.join("serve-storage.sock"));
        make(directory.join("attach-1.sock"));
        assert_eq!(choose(None), Ok(storage.clone()));
        let backup = make(service.join("serve-backup.sock"));
        assert_eq!(
            choose(None).unwrap_err(),
            "several servers run here: choose one with --server NAME: backup, storage"
        );
        assert_eq!((choose(Some("storage")), choose(Some("backup"))), (Ok(storage), Ok(backup)));
        let unknown = choose(Some("box")).unwrap_err();
        assert!(unknown.starts_with("no server called box runs here; there are: backup, storage;"), "{unknown}");
        make(service.join("serve-storage.sock"));
        let twice = choose(Some("storage")).unwrap_err();
        assert!(twice.starts_with("two servers called storage run here: choose one with --socket /"), "{twice}");
        fs::remove_dir_all(&directory).unwrap();
    }
}
