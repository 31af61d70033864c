//! Which room may know which: `cli -> target, initiator, attach -> engine, protocol, io -> device -> scsi, store -> buffer -> core`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::Finding;

/// Each package of the workspace, and the packages of the workspace that it may name. Tests may also
/// name [`FOR_TESTS`] and what [`TEST_ARROWS`] lists.
const ALLOWED: [(&str, &[&str]); 37] = [
    ("sanwire-core", &[]),
    ("sanwire-buffer", &["core"]),
    ("sanwire-scsi", &["core", "buffer"]),
    ("sanwire-ata", &["core", "buffer", "scsi"]),
    ("sanwire-security", &["core"]),
    ("sanwire-flow", &["core"]),
    ("sanwire-exchange", &["core", "buffer", "scsi"]),
    ("sanwire-store", &["core", "buffer"]),
    ("sanwire-store-file", &["core", "buffer", "store", "snapshot"]),
    ("sanwire-snapshot", &["buffer", "store"]),
    ("sanwire-array", &["core", "buffer", "store"]),
    ("sanwire-device", &["core", "buffer", "scsi", "store"]),
    ("sanwire-program", &["core", "scsi", "device"]),
    ("sanwire-engine", &["core", "buffer", "scsi", "store", "device"]),
    ("sanwire-hyperscsi", &["core", "buffer", "scsi", "security", "flow", "exchange"]),
    ("sanwire-hdsp", &["core", "buffer", "ata", "security", "flow"]),
    ("sanwire-visa", &["core", "buffer", "scsi", "security", "flow", "exchange"]),
    ("sanwire-iscsi", &["core", "buffer", "scsi"]),
    ("sanwire-nbd", &["core", "buffer"]),
    ("sanwire-aoe", &["core", "buffer", "scsi", "ata"]),
    ("sanwire-iwarp", &["buffer"]),
    ("sanwire-iser", &["buffer", "iscsi", "iwarp"]),
    ("sanwire-io", &["core", "buffer", "store", "store-file"]),
    ("sanwire-rdma", &["iser"]),
    ("sanwire-rbd", &["buffer", "store"]),
    ("sanwire-verbs", &["buffer", "iser", "iwarp"]),
    ("sanwire-remote", &["core", "buffer", "store", "store-file", "array", "io", "nbd", "initiator"]),
    (
        "sanwire-server",
        &[
            "core",
            "buffer",
            "scsi",
            "ata",
            "store",
            "store-file",
            "snapshot",
            "device",
            "program",
            "engine",
            "program",
            "hyperscsi",
            "hdsp",
            "visa",
            "iscsi",
            "iser",
            "aoe",
            "io",
            "rdma",
        ],
    ),
    ("sanwire-web", &["core", "io", "server"]),
    (
        "sanwire-initiator",
        &["core", "buffer", "scsi", "ata", "hyperscsi", "hdsp", "visa", "iscsi", "iser", "aoe", "io", "rdma"],
    ),
    ("sanwire-attach", &["core", "buffer", "nbd", "initiator", "io"]),
    ("sanwire-top", &["core", "server"]),
    ("sanwire-testing", &[]),
    (
        "sanwire-sim",
        &[
            "core",
            "buffer",
            "scsi",
            "ata",
            "security",
            "store",
            "store-file",
            "device",
            "engine",
            "hyperscsi",
            "hdsp",
            "visa",
            "iscsi",
            "iser",
            "iwarp",
            "aoe",
        ],
    ),
    (
        "sanwire",
        &[
            "core",
            "buffer",
            "scsi",
            "store",
            "store-file",
            "array",
            "device",
            "program",
            "hyperscsi",
            "iscsi",
            "io",
            "server",
            "web",
            "initiator",
            "attach",
            "top",
            "remote",
            "rbd",
            "rdma",
            "verbs",
        ],
    ),
    ("sanwire-bench", &["core", "buffer", "scsi", "store", "device", "program", "io", "hyperscsi", "initiator"]),
    ("xtask", &[]),
];
/// What only tests may name: a client is tested against a real server, and what is pure with stores that are files.
const TEST_ARROWS: [(&str, &str); 12] = [
    ("sanwire-sim", "sanwire-array"),
    ("sanwire-sim", "sanwire-snapshot"),
    ("sanwire-initiator", "sanwire-iwarp"),
    ("sanwire-initiator", "sanwire-store"),
    ("sanwire-initiator", "sanwire-server"),
    ("sanwire-initiator", "sanwire-store-file"),
    ("sanwire-device", "sanwire-store-file"),
    ("sanwire-program", "sanwire-buffer"),
    ("sanwire-program", "sanwire-store"),
    ("sanwire-rbd", "sanwire-store-file"),
    ("sanwire-iser", "sanwire-core"),
    ("sanwire-iser", "sanwire-scsi"),
];
/// What all tests may name.
const FOR_TESTS: [&str; 2] = ["sanwire-sim", "sanwire-testing"];

/// One package depends on another of the workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Arrow {
    from: String,
    /// Nothing for a package that depends on none.
    to: Option<String>,
    is_for_tests: bool,
}

/// The arrows of the workspace, as cargo knows them.
///
/// # Errors
/// When cargo fails.
pub(super) fn read(root: &Path) -> Result<Vec<Arrow>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let output =
        Command::new(cargo).args(arguments).current_dir(root).output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let metadata = serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    Ok(arrows(&metadata))
}

fn arrows(metadata: &Value) -> Vec<Arrow> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let mut arrows = vec![];
    for package in list(&metadata["packages"]) {
        arrows.push(Arrow { from: name(&package), to: None, is_for_tests: false });
        for dependency in list(&package["dependencies"]).iter().filter(|dependency| dependency["path"].is_string()) {
            let is_for_tests = dependency["kind"] == "dev";
            arrows.push(Arrow { from: name(&package), to: Some(name(dependency)), is_for_tests });
        }
    }
    arrows
}

/// Arrows that the table does not have, and packages that it does not know.
pub(super) fn check(arrows: &[Arrow]) -> Vec<Finding> {
    arrows.iter().filter_map(check_arrow).collect()
}

fn check_arrow(arrow: &Arrow) -> Option<Finding> {
    let Arrow { from, to, is_for_tests } = arrow;
    let found = |message| Some(Finding::new("Cargo.toml", 0, message));
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| name == from) else {
        let message = format!("{from} has no place in the house: give it one in xtask/src/tidy/dependencies.rs");
        return if to.is_none() { found(message) } else { None };
    };
    let to = to.as_deref()?;
    let is_allowed = to.strip_prefix("sanwire-").is_some_and(|room| allowed.contains(&room));
    let is_test_arrow = FOR_TESTS.contains(&to) || to == from || TEST_ARROWS.contains(&(from.as_str(), to));
    if is_allowed || (*is_for_tests && is_test_arrow) {
        None
    } else {
        found(format!("{from} may not depend on {to}: see ARCHITECTURE.md"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(from: &str, to: &str, kind: Value) -> Vec<String> {
        let dependencies = serde_json::json!([
            { "name": to, "path": "/x", "kind": kind }, { "name": "libc", "path": null, "kind": null }
        ]);
        let metadata = serde_json::json!({ "packages": [{ "name": from, "dependencies": dependencies }] });
        check(&arrows(&metadata)).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn arrows_against_the_house_are_found() {
        for (from, to) in [
            ("sanwire-hyperscsi", "sanwire-device"),
            ("sanwire-hyperscsi", "sanwire-io"),
            ("sanwire-device", "sanwire-io"),
            ("sanwire-device", "sanwire-engine"),
            ("sanwire-engine", "sanwire-io"),
            ("sanwire-engine", "sanwire-hyperscsi"),
            ("sanwire-sim", "sanwire-server"),
            ("sanwire-sim", "sanwire-io"),
            ("sanwire-io", "sanwire-hyperscsi"),
            ("sanwire-core", "sanwire-buffer"),
            ("sanwire-initiator", "sanwire-server"),
            ("sanwire", "sanwire-sim"),
        ] {
            let expected = format!("{from} may not depend on {to}: see ARCHITECTURE.md");
            assert_eq!(messages(from, to, Value::Null), [expected]);
        }
        assert_eq!(messages("sanwire-new", "sanwire-core", Value::Null).len(), 1, "no place in the table");
    }

    #[test]
    fn arrows_of_the_house_pass() {
        assert!(messages("sanwire-server", "sanwire-device", Value::Null).is_empty());
        assert!(messages("sanwire-attach", "sanwire-initiator", Value::Null).is_empty());
        assert!(messages("sanwire-hyperscsi", "sanwire-sim", "dev".into()).is_empty());
        assert!(!messages("sanwire-hyperscsi", "sanwire-device", "dev".into()).is_empty());
    }
}
