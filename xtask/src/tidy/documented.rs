//! Every Rust file begins by saying what it is.

use super::Finding;
use super::source::Source;

/// A finding when the file has no `//!` before its first code. Files of tests alone need none.
pub(super) fn check(source: &Source) -> Option<Finding> {
    let first = source.text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("#!["));
    let is_documented = first.is_some_and(|line| line.starts_with("//!"));
    (!is_documented && !source.is_unit_test())
        .then(|| Finding::new(source.path, 1, "begin the file with a //! line that says what it holds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_its_line_is_found() {
        let check = |path, text| check(&Source::parse(path, text)).is_some();
        assert!(check("crates/a/src/b.rs", "use std::fs;\n"));
        assert!(check("crates/a/src/b.rs", "// not a doc\n//! late\n"));
        assert!(!check("crates/a/src/b.rs", "//! What it is.\nuse std::fs;\n"));
        assert!(!check("crates/a/src/b.rs", "#![no_main]\n//! What it is.\n"));
        assert!(!check("crates/a/src/b/tests.rs", "use super::*;\n"));
    }
}
