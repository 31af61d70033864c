//! Every fuzz target has something to begin with: inputs that it takes lead it further than chance does.

use std::fs;
use std::path::Path;

use super::Finding;

const TARGETS: &str = "fuzz/fuzz_targets/";

/// A finding when the file is a fuzz target without a corpus.
pub(super) fn check(root: &Path, path: &str) -> Option<Finding> {
    let target = path.strip_prefix(TARGETS)?.strip_suffix(".rs")?;
    let corpus = format!("fuzz/corpus/{target}");
    let has_seeds = fs::read_dir(root.join(&corpus)).is_ok_and(|mut seeds| seeds.next().is_some());
    (!has_seeds).then(|| Finding::new(path, 0, format!("put some inputs that it takes into {corpus}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fuzz_target_without_seeds_is_found() {
        let root = std::env::temp_dir().join(format!("xtask-seeds-{}", std::process::id()));
        let is_found = |name: &str| check(&root, &format!("{TARGETS}{name}.rs")).is_some();
        fs::create_dir_all(root.join("fuzz/corpus/empty")).unwrap();
        fs::create_dir_all(root.join("fuzz/corpus/seeded")).unwrap();
        fs::write(root.join("fuzz/corpus/seeded/one"), [1]).unwrap();
        assert_eq!(["missing", "empty", "seeded"].map(is_found), [true, true, false]);
        assert_eq!(check(&root, "fuzz/src/missing.rs"), None);
        fs::remove_dir_all(root).unwrap();
    }
}
