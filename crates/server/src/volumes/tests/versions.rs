//! What other versions of the program remember of a volume.

use std::fs;
use std::path::{Path, PathBuf};

use super::Host;
use crate::volumes::Acceptance;

/// The only file of a directory.
fn only_file(directory: &Path) -> PathBuf {
    let mut files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let only = files.next().unwrap();
    assert!(files.next().is_none(), "{}", directory.display());
    only
}

#[test]
fn what_an_older_program_remembers_is_taken_and_what_a_newer_one_does_is_refused_and_left() {
    let host = Host::new("versions");
    let first = host.start(Acceptance::Known).unwrap();
    for directory in ["volumes", "writes"] {
        let file = only_file(&host.state().join(directory));
        let today = fs::read_to_string(&file).unwrap();
        let older = today.replacen("{\"sanwire\":1,", "{", 1);
        assert_ne!(older, today, "it says which version it is");
        fs::write(&file, &older).unwrap();
        assert_eq!(host.start(Acceptance::Known), Ok(first), "{directory}: the first version said nothing of itself");
        let newer = older.replacen('{', "{\"sanwire\":99,", 1);
        fs::write(&file, &newer).unwrap();
        let refused = host.start(Acceptance::Known).unwrap_err();
        assert!(refused.contains("newer version of Sanwire") && refused.contains("format 99"), "{refused}");
        assert_eq!(fs::read_to_string(&file).unwrap(), newer, "nothing is overwritten");
        fs::write(&file, today).unwrap();
    }
    assert_eq!(host.start(Acceptance::Known), Ok(first));
}
