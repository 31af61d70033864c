//! What people see: pages and tables.

use std::borrow::Cow;
use std::io::{self, Write};

use sanwire_core::text::{printable, printable_lines};

/// Prints to stdout what servers and others may have had a word in; a reader that has gone away (`| head`) is no error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    print_while_read(text).map(drop)
}

/// The same; `false` when the reader has gone away.
pub(crate) fn print_while_read(text: &str) -> io::Result<bool> {
    match io::stdout().lock().write_all(printable_lines(text).as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true),
    }
}

/// Columns side by side, each as wide as its widest cell, two spaces between.
pub(crate) fn table<const COLUMNS: usize>(head: [&str; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    table_of(head, rows, [true; COLUMNS])
}

/// The same without columns in which no row has anything: many tell of what few use.
pub(crate) fn narrow_table<const COLUMNS: usize>(head: [&str; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    let says_something = |column: usize| rows.iter().any(|row| !matches!(&*row[column], "" | "-"));
    table_of(head, rows, std::array::from_fn(|column| rows.is_empty() || says_something(column)))
}

/// The text, or its two ends where it is longer than so many characters.
pub(crate) fn shortened(text: &str, characters_max: usize) -> String {
    let count = text.chars().count();
    if count <= characters_max {
        return text.to_owned();
    }
    let (start, end) = (characters_max / 2, characters_max.saturating_sub(characters_max / 2 + 1));
    text.chars().take(start).chain(std::iter::once('…')).chain(text.chars().skip(count - end)).collect()
}

fn table_of<const COLUMNS: usize>(
    head: [&str; COLUMNS],
    rows: &[[String; COLUMNS]],
    is_shown: [bool; COLUMNS],
) -> String {
    let rows: Vec<[Cow<'_, str>; COLUMNS]> =
        rows.iter().map(|row| row.each_ref().map(|cell| printable(cell))).collect();
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(head[column].chars().count())
    });
    let line = |cells: [&str; COLUMNS]| {
        let shown = cells.iter().zip(widths).zip(is_shown).filter(|(_, is_shown)| *is_shown);
        let padded: Vec<String> = shown.map(|((cell, width), _)| format!("{cell:<width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let body = rows.iter().map(|row| line(row.each_ref().map(|cell| &**cell)));
    std::iter::once(line(head)).chain(body).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_lines_end_without_spaces() {
        let rows = [["disk0".into(), "1 GiB".into()], ["a".into(), "512 B".into()]];
        assert_eq!(table(["NAME", "SIZE"], &rows), "NAME   SIZE\ndisk0  1 GiB\na      512 B\n");
        assert_eq!(table(["NAME"], &[]), "NAME\n");
    }

    #[test]
    fn a_narrow_table_has_no_empty_columns() {
        let rows = [["a".into(), "-".into(), "1".into()], ["b".into(), String::new(), "-".into()]];
        assert_eq!(narrow_table(["NAME", "CAP", "X"], &rows), "NAME  X\na     1\nb     -\n");
        assert_eq!(narrow_table(["NAME", "CAP"], &[]), "NAME  CAP\n");
    }

    #[test]
    fn of_a_long_text_both_ends_are_shown() {
        assert_eq!(shortened("abcdefg", 7), "abcdefg");
        assert_eq!(shortened("äbcdefgh", 7), "äbc…fgh");
        assert_eq!(shortened("abcdefgh", 6), "abc…gh");
    }

    #[test]
    fn no_cell_reaches_beyond_itself() {
        let rows = [["a\nb".into(), "\u{1b}[2J".into()], ["c".into(), "\u{202e}d".into()]];
        assert_eq!(table(["NAME", "X"], &rows), "NAME      X\na\\u000ab  \\u001b[2J\nc         \\u202ed\n");
    }
}
