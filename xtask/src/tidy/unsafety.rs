//! `unsafe` only in its rooms, and there never without its reason.

use super::Finding;
use super::source::{Source, line_of, words};

/// The crates that may have unsafe code; every other crate's root forbids it.
const ROOMS: [&str; 4] = ["crates/buffer", "crates/io", "crates/rbd", "crates/verbs"];
const FORBID: &str = "#![forbid(unsafe_code)]";

/// Findings of one file.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let is_allowed = ROOMS.contains(&source.crate_directory());
    let mut findings = vec![];
    if !is_allowed && is_crate_root(source.path) && !source.code.contains(FORBID) {
        findings.push(Finding::new(source.path, 1, format!("add {FORBID} to the root of this crate")));
    }
    for start in words(&source.code, "unsafe") {
        let line = line_of(&source.code, start);
        if !is_allowed {
            let message =
                format!("unsafe is only for {}: find a safe way, or a crate that has one", ROOMS.join(" and "));
            findings.push(Finding::new(source.path, line, message));
        } else if let Some(wanted) = wanted_reason(&source.code[start + "unsafe".len()..])
            && !has_reason(source, line, wanted)
        {
            findings.push(Finding::new(source.path, line, format!("say above it why it is sound: `{wanted}`")));
        }
    }
    findings
}

fn is_crate_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs")
}

/// What must stand above, by what follows the word; nothing above the type of a function.
fn wanted_reason(after: &str) -> Option<&'static str> {
    let after = after.trim_start();
    let function = after.strip_prefix("extern").map_or(after, str::trim_start).strip_prefix("fn");
    match function {
        Some(rest) if rest.trim_start().starts_with('(') => None,
        Some(_) => Some("# Safety"),
        None if after.starts_with("trait") => Some("# Safety"),
        None => Some("SAFETY:"),
    }
}

/// Whether the reason stands in the line's own comment or right above the statement that the line belongs to.
fn has_reason(source: &Source, line: usize, wanted: &str) -> bool {
    let texts: Vec<&str> = source.text.lines().take(line).collect();
    let codes: Vec<&str> = source.code.lines().take(line).collect();
    let mut lines = texts.iter().zip(&codes).rev();
    if lines.next().is_some_and(|(text, _)| text.contains(wanted)) {
        return true;
    }
    for (text, code) in lines {
        let (text, code) = (text.trim(), code.trim());
        if text.contains(wanted) {
            return true;
        }
        let is_comment = code.is_empty() && !text.is_empty();
        let is_attribute = code.starts_with('#');
        let is_statement_start = code.ends_with(['=', '(', '|', '.']) || code.ends_with("=>");
        if !is_comment && !is_attribute && !is_statement_start {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Source::parse(path, text)).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn unsafe_outside_its_rooms_is_found() {
        let text = "//! A.\n#![forbid(unsafe_code)]\n// unsafe\nfn f() { unsafe { g() } }\n";
        assert_eq!(lines("crates/core/src/lib.rs", text), [4]);
        assert_eq!(lines("crates/core/src/a.rs", "const A: &str = \"unsafe\";\n"), Vec::<usize>::new());
        assert_eq!(lines("crates/core/src/lib.rs", "//! A.\n// #![forbid(unsafe_code)]\n"), [1]);
        assert_eq!(lines("crates/buffer/src/lib.rs", "//! A.\n"), Vec::<usize>::new());
    }

    #[test]
    fn unsafe_without_a_reason_is_found() {
        let io = |text| lines("crates/io/src/a.rs", text);
        assert_eq!(io("fn f() {\n    unsafe { g() }\n}\n"), [2]);
        assert_eq!(io("fn f() {\n    // SAFETY: g is sound.\n    unsafe { g() }\n}\n"), Vec::<usize>::new());
        assert_eq!(
            io("fn f() {\n    // SAFETY: g is\n    // sound.\n    let a =\n        unsafe { g() };\n}\n"),
            Vec::<usize>::new()
        );
        assert_eq!(io("// SAFETY: of another line.\nlet a = 1;\nunsafe impl Send for A {}\n"), [3]);
        assert_eq!(io("/// Does it.\npub unsafe fn f() {}\n"), [2]);
        assert_eq!(
            io("/// Does it.\n///\n/// # Safety\n/// Never.\n#[inline]\npub unsafe fn f() {}\n"),
            Vec::<usize>::new()
        );
        assert_eq!(io("type F = unsafe fn(u8);\ntype G = unsafe extern \"C\" fn(u8);\n"), Vec::<usize>::new());
    }
}
