//! What another server has left in the state directory: most likely this one, under the name that it had before.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::ServeConfig;

/// What of a server stands in a file with its name: volumes and other changes by `ctl`, and what it knew of clients.
const KINDS: [&str; 3] = ["changes-", "clients-", "audit-"];

pub(super) fn warnings(config: &ServeConfig) -> Vec<String> {
    config.state_directory.as_deref().and_then(|state| renamed(state, config.name.as_str())).into_iter().collect()
}

/// A server that was here before has files of its name; one that is new here, beside others, was perhaps one of them.
fn renamed(state: &Path, name: &str) -> Option<String> {
    let files = fs::read_dir(state).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let named = files.filter_map(|file| {
        let (stem, _) = file.rsplit_once('.')?;
        KINDS.iter().find_map(|kind| stem.strip_prefix(kind)).map(str::to_owned)
    });
    let names: BTreeSet<String> = named.collect();
    if names.is_empty() || names.contains(name) {
        return None;
    }
    let others: Vec<&str> = names.iter().map(String::as_str).collect();
    let (others, state) = (others.join(", "), state.display());
    Some(format!(
        "{state} has what was kept for another server name ({others}), and nothing of {name}: volumes and clients that `sanwire ctl` changed there are \
         not served, and names in /dev/sanwire change. If this server was renamed, give it its name back (`name`, --name), or rename the files"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_was_renamed_is_told_once() {
        let state = std::env::temp_dir().join(format!("sanwire-renamed-{}", std::process::id()));
        fs::create_dir_all(&state).unwrap();
        assert_eq!(renamed(&state, "box2"), None, "all is new");
        fs::write(state.join("server.key"), "").unwrap();
        fs::write(state.join("changes-box.json"), "").unwrap();
        fs::write(state.join("audit-box.jsonl"), "").unwrap();
        let told = renamed(&state, "box2").unwrap();
        assert!(told.contains("another server name (box), and nothing of box2"), "{told}");
        assert_eq!(renamed(&state, "box"), None);
        fs::write(state.join("audit-box2.jsonl"), "").unwrap();
        assert_eq!(renamed(&state, "box2"), None, "it is known by now");
        fs::remove_dir_all(&state).unwrap();
    }
}
