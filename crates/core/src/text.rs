//! Texts of others, made safe to show: names, reasons and requests that came over a network.

use std::borrow::Cow;
use std::fmt::Write;

/// The text without what a terminal or a reader of logs could take for something else: control characters, which move cursors and
/// begin lines, and those that turn the direction of what follows (Unicode TR36). Each stands there as `\uXXXX`, which is also how
/// JSON writes it: text that is JSON stays what it is, as long as it has no line breaks between its values.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_deceptive) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if is_deceptive(character) {
            // A string takes everything.
            let _ = write!(shown, "\\u{:04x}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// The text, cut where what [`printable`] makes of it would be longer than so many bytes, and then with its whole length.
#[must_use]
pub fn shortened(text: &str, max_bytes: usize) -> Cow<'_, str> {
    let mut shown_bytes = 0;
    let end = text.char_indices().find(|(_, character)| {
        shown_bytes += if is_deceptive(*character) { "\\u0000".len() } else { character.len_utf8() };
        shown_bytes > max_bytes
    });
    end.map_or(Cow::Borrowed(text), |(end, _)| format!("{}... ({} bytes)", &text[..end], text.len()).into())
}

/// [`printable`] text of several lines, whose line breaks and tabs are its writer's own.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    if !text.contains(|character| is_deceptive(character) && !is_layout(character)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split_inclusive(is_layout).map(printable_but_last).collect())
}

fn printable_but_last(line: &str) -> String {
    let end = line.strip_suffix(is_layout).map_or(line.len(), str::len);
    format!("{}{}", printable(&line[..end]), &line[end..])
}

fn is_layout(character: char) -> bool {
    matches!(character, '\n' | '\t')
}

fn is_deceptive(character: char) -> bool {
    // Marks, embeddings, overrides and isolates of direction; line and paragraph separator; the byte order mark.
    let is_format = matches!(character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    character.is_control() || is_format
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_between_characters_and_says_how_long_it_is() {
        assert_eq!((shortened("abc", 3), shortened("", 0)), ("abc".into(), "".into()));
        assert_eq!(shortened("abcd", 3), "abc... (4 bytes)");
        assert_eq!(shortened("aä日", 3), "aä... (6 bytes)");
        assert_eq!(shortened("aä日", 2), "a... (6 bytes)");
        assert_eq!(shortened("a\n\n", 12), "a\n... (3 bytes)");
    }

    #[test]
    fn what_moves_cursors_begins_lines_or_turns_text_is_shown_as_its_number() {
        for (text, shown) in [
            ("disk-1 ä 日本 עברית", "disk-1 ä 日本 עברית"),
            ("a\u{1b}[2Jb", "a\\u001b[2Jb"),
            ("a\nb\r", "a\\u000ab\\u000d"),
            ("\u{7f}\u{9b}", "\\u007f\\u009b"),
            ("gpj.\u{202e}exe", "gpj.\\u202eexe"),
            ("\u{2028}\u{2066}\u{200f}\u{61c}\u{feff}", "\\u2028\\u2066\\u200f\\u061c\\ufeff"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn lines_and_tabs_of_a_page_stay() {
        assert_eq!(printable_lines("a\tb\nc\n"), "a\tb\nc\n");
        assert_eq!(printable_lines("a\u{202e}\tb\n\u{9b}c"), "a\\u202e\tb\n\\u009bc");
    }
}
