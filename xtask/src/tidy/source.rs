//! A Rust file, and the same with comments and texts blanked, so that rules see code alone.

use super::tree::TextFile;

/// One Rust file.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) path: &'a str,
    pub(super) text: &'a str,
    /// As long as `text`, line by line; what is in comments, strings and characters is spaces.
    pub(super) code: String,
}

impl<'a> Source<'a> {
    /// The source in a text file, if it is one.
    pub(super) fn of(file: &'a TextFile) -> Option<Self> {
        file.path.ends_with(".rs").then(|| Self::parse(&file.path, &file.text))
    }

    pub(super) fn parse(path: &'a str, text: &'a str) -> Self {
        Source { path, text, code: blank(text) }
    }

    /// Whether the whole file is tests: `tests.rs`, or below a directory `tests`.
    pub(super) fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.split('/').any(|part| part == "tests")
    }

    /// Whether it is tests inside a crate (and not a crate of its own).
    pub(super) fn is_unit_test(&self) -> bool {
        self.is_test() && self.path.contains("/src/")
    }

    /// The crate's directory: what stands before `/src/`, `/tests/` and the like.
    pub(super) fn crate_directory(&self) -> &'a str {
        let ends = ["/src/", "/tests/", "/examples/", "/benches/", "/fuzz_targets/"];
        let end = ends.iter().filter_map(|part| self.path.find(part)).min();
        &self.path[..end.unwrap_or(0)]
    }

    /// The code without the tests at its end.
    pub(super) fn code_before_tests(&self) -> &str {
        let tests = self.code.match_indices("#[cfg(test)]").find(|(start, attribute)| {
            let rest = self.code[start + attribute.len()..].trim_start();
            let rest = rest.strip_prefix("pub(crate)").unwrap_or(rest).trim_start();
            rest.starts_with("mod ")
                && rest.find('{') < Some(rest.find(';').unwrap_or(rest.len()))
                && rest.contains('{')
        });
        tests.map_or(&self.code, |(start, _)| &self.code[..start])
    }
}

/// What the reader is in.
enum State {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text { hashes: Option<usize> },
}

fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut state = State::Code;
    let mut at = 0;
    while at < bytes.len() {
        let (next, length) = step(&state, bytes, at);
        let keeps = matches!((&state, &next), (State::Code, State::Code)) && length == 1;
        for byte in &bytes[at..(at + length).min(bytes.len())] {
            code.push(if keeps || *byte == b'\n' { *byte } else { b' ' });
        }
        at += length;
        state = next;
    }
    // Bytes above ASCII in code (there are none in practice) must not break the text.
    String::from_utf8(code).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The state after the bytes at `at`, and how many they are. More than one byte of code means: blank them.
fn step(state: &State, bytes: &[u8], at: usize) -> (State, usize) {
    let rest = &bytes[at..];
    match *state {
        State::Code => step_code(bytes, at),
        State::LineComment if rest[0] == b'\n' => (State::Code, 1),
        State::LineComment => (State::LineComment, 1),
        State::BlockComment { depth } if rest.starts_with(b"/*") => (State::BlockComment { depth: depth + 1 }, 2),
        State::BlockComment { depth: 1 } if rest.starts_with(b"*/") => (State::Code, 2),
        State::BlockComment { depth } if rest.starts_with(b"*/") => (State::BlockComment { depth: depth - 1 }, 2),
        State::BlockComment { depth } => (State::BlockComment { depth }, 1),
        State::Text { hashes: None } if rest[0] == b'\\' => (State::Text { hashes: None }, 2),
        State::Text { hashes: None } if rest[0] == b'"' => (State::Code, 1),
        State::Text { hashes: Some(count) } if rest[0] == b'"' && hashes_at(&rest[1..]) >= count => {
            (State::Code, 1 + count)
        }
        State::Text { hashes } => (State::Text { hashes }, 1),
    }
}

fn step_code(bytes: &[u8], at: usize) -> (State, usize) {
    let rest = &bytes[at..];
    let is_word_start = at == 0 || !is_word(bytes[at - 1]);
    let prefix = rest.iter().take_while(|byte| b"bcr".contains(byte)).count();
    match rest[0] {
        b'/' if rest.starts_with(b"//") => (State::LineComment, 2),
        b'/' if rest.starts_with(b"/*") => (State::BlockComment { depth: 1 }, 2),
        b'"' => (State::Text { hashes: None }, 1),
        b'\'' => (State::Code, character_length(rest)),
        // Raw strings: r"", r#""#, br"", cr"".
        b'b' | b'c' | b'r' if is_word_start && prefix <= 2 && rest[prefix - 1] == b'r' => {
            let hashes = hashes_at(&rest[prefix..]);
            match rest.get(prefix + hashes) {
                Some(b'"') => (State::Text { hashes: Some(hashes) }, prefix + hashes + 1),
                _ => (State::Code, 1),
            }
        }
        _ => (State::Code, 1),
    }
}

fn hashes_at(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| **byte == b'#').count()
}

/// Bytes of a character literal, or 1 for the tick of a lifetime.
fn character_length(rest: &[u8]) -> usize {
    match rest {
        [_, b'\\', _, after @ ..] => 4 + after.iter().position(|byte| *byte == b'\'').unwrap_or(0),
        _ => {
            let close = rest.iter().skip(2).take(4).position(|byte| *byte == b'\'');
            let inside = close.map_or(0, |close| close + 1);
            let is_one = std::str::from_utf8(&rest[1..=inside]).is_ok_and(|text| text.chars().count() == 1);
            if is_one { inside + 2 } else { 1 }
        }
    }
}

/// Whether the byte can stand in a name.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Where a word stands in code, as byte offsets.
pub(super) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(start, _)| start).filter(move |start| {
        let before = start.checked_sub(1).map(|before| bytes[before]);
        let after = bytes.get(start + word.len()).copied();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The line of a byte offset, counted from 1.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_texts_and_characters_are_blank() {
        for (text, code) in [
            ("a // unsafe\nb", "a          \nb"),
            ("a /* x /* y */ z */ b", "a                   b"),
            (r#"f("un\"safe", 1)"#, r#"f(            , 1)"#),
            ("f(r#\"a\"b\"#)", "f(          )"),
            ("f('{', '\\'', 'a', b'\\n')", "f(   ,     ,    , b    )"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("f('\\u{1f600}', '\u{e9}')", "f(           ,     )"),
        ] {
            let found = blank(text);
            assert_eq!(found.len(), text.len(), "{text}");
            let squeeze = |text: &str| text.replace(' ', "");
            assert_eq!(squeeze(&found), squeeze(code), "{text}");
        }
    }

    #[test]
    fn tests_at_the_end_are_cut_off() {
        let inline = Source::parse("a/src/b.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\n");
        assert_eq!(inline.code_before_tests(), "fn a() {}\n");
        let text = "#[cfg(test)]\nmod tests;\nfn a() {}\n";
        assert_eq!(Source::parse("a/src/b.rs", text).code_before_tests(), text);
    }

    #[test]
    fn paths_tell_crates_and_tests() {
        let source = |path| Source::parse(path, "");
        assert_eq!(source("crates/protocol/hyperscsi/src/wire/mod.rs").crate_directory(), "crates/protocol/hyperscsi");
        assert!(source("crates/a/src/b/tests/c.rs").is_unit_test());
        assert!(source("crates/a/tests/c.rs").is_test() && !source("crates/a/tests/c.rs").is_unit_test());
        assert!(!source("crates/a/src/contests.rs").is_test());
    }
}
