//! How long files and functions are, without their tests.

use std::collections::BTreeMap;

use super::source::{Source, is_word, line_of, words};

/// Lines of each file by its path, and of each function by `path::name`.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    pub(super) files: BTreeMap<String, usize>,
    pub(super) functions: BTreeMap<String, usize>,
}

/// Measures all files that are not tests. Of functions with one name in one file the longest counts.
pub(super) fn measure(sources: &[Source]) -> Lengths {
    let mut lengths = Lengths::default();
    for source in sources.iter().filter(|source| !source.is_test()) {
        let code = source.code_before_tests();
        lengths.files.insert(source.path.into(), code.lines().count());
        for (name, lines) in functions(code) {
            let longest = lengths.functions.entry(format!("{}::{name}", source.path)).or_default();
            *longest = lines.max(*longest);
        }
    }
    lengths
}

/// Name and lines of each function with a body, from `fn` to the closing brace.
fn functions(code: &str) -> Vec<(&str, usize)> {
    words(code, "fn").filter_map(|start| function_at(code, start)).collect()
}

fn function_at(code: &str, start: usize) -> Option<(&str, usize)> {
    let after = code[start + 2..].trim_start();
    let name = &after[..after.bytes().take_while(|byte| is_word(*byte)).count()];
    if name.is_empty() {
        return None;
    }
    let (mut brackets, mut braces) = (0usize, 0usize);
    for (offset, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets = brackets.saturating_sub(1),
            b';' if brackets == 0 && braces == 0 => return None,
            b'{' => braces += 1,
            b'}' => {
                braces = braces.checked_sub(1)?;
                if braces == 0 && brackets == 0 {
                    return Some((name, line_of(code, offset) - line_of(code, start) + 1));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured_and_declarations_are_not() {
        let code =
            "trait T {\n fn a(&self, x: [u8; 2]);\n}\nfn b<F: Fn(u8)>(f: F) {\n  f(1);\n}\nconst fn c() -> u8 { 1 }\n";
        assert_eq!(functions(code), [("b", 3), ("c", 1)]);
        assert_eq!(functions("type F = fn(u8) -> u8;"), []);
    }

    #[test]
    fn tests_do_not_count() {
        let text = "fn a() {\n}\n#[cfg(test)]\nmod tests {\n fn b() {\n }\n}\n";
        let sources = [Source::parse("crates/a/src/b.rs", text), Source::parse("crates/a/src/b/tests.rs", text)];
        let lengths = measure(&sources);
        assert_eq!(lengths.files, BTreeMap::from([("crates/a/src/b.rs".into(), 2)]));
        assert_eq!(lengths.functions, BTreeMap::from([("crates/a/src/b.rs::a".into(), 2)]));
    }
}
