//! Who names a protocol: its front end in the server and its session in the initiator, and what drives them does not.

use super::Finding;
use super::source::Source;

/// The crates of protocols, as files name them.
const PROTOCOLS: [&str; 7] = [
    "sanwire_hyperscsi",
    "sanwire_hdsp",
    "sanwire_visa",
    "sanwire_iscsi",
    "sanwire_iser",
    "sanwire_iwarp",
    "sanwire_aoe",
];

/// Folders where no file names one, but for those below.
const FREE: [&str; 10] = [
    "crates/server/src/",
    "crates/initiator/src/",
    "crates/engine/src/",
    "crates/device/src/",
    "crates/store/src/",
    "crates/store-file/src/",
    "crates/snapshot/src/",
    "crates/array/src/",
    "crates/io/src/",
    "crates/attach/src/",
];

/// What is of a protocol; each folder has one table (`table.rs`) where they are registered.
const OF_PROTOCOLS: [&str; 2] = ["crates/server/src/front/", "crates/initiator/src/session/"];

/// A finding when the file names a protocol and is not of one.
pub(super) fn check(source: &Source) -> Option<Finding> {
    let is_in = |folders: &[&str]| folders.iter().any(|folder| source.path.starts_with(folder));
    // Tests play the other end.
    if !is_in(&FREE) || is_in(&OF_PROTOCOLS) || source.is_test() {
        return None;
    }
    let names_one = |line: &str| PROTOCOLS.iter().any(|protocol| line.contains(protocol));
    let line = source.code.lines().position(names_one)?;
    let message = "it names a protocol: what is of one belongs to its front end or its session, see ARCHITECTURE.md";
    Some(Finding::new(source.path, line + 1, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_found(path: &str, text: &str) -> bool {
        check(&Source::parse(path, text)).is_some()
    }

    #[test]
    fn only_what_is_of_a_protocol_names_it() {
        let naming = "//! X.\nuse sanwire_iscsi::Server;\n";
        assert!(is_found("crates/server/src/shard.rs", naming));
        assert!(is_found("crates/engine/src/engine.rs", naming));
        assert!(!is_found("crates/server/src/front/iscsi/mod.rs", naming));
        assert!(is_found("crates/initiator/src/url.rs", naming));
        assert!(!is_found("crates/initiator/src/session/table.rs", naming));
        assert!(!is_found("crates/server/tests/tasks/main.rs", naming));
        assert!(!is_found("crates/initiator/src/driver/tests/hostile.rs", naming));
        assert!(!is_found("crates/server/src/shard.rs", "//! An iSCSI session, see RFC 7143.\n"));
    }
}
