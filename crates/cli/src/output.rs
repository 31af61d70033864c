//! What people see: tables, numbers, the log.

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::filter::LevelFilter;

use crate::args::LogLevel;

/// Sends the log to stderr. A second call changes nothing.
pub(crate) fn start_log(level: LogLevel) {
    let filter = match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let log = tracing_subscriber::fmt().compact().with_max_level(filter).with_target(false).with_writer(io::stderr);
    let log = log.with_ansi(io::stderr().is_terminal());
    // It fails when a log runs already, which then goes on.
    let _ = log.try_init();
}

/// Prints to stdout; a reader that has gone away (`| head`) is no error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Columns side by side, each as wide as its widest cell, two spaces between.
pub(crate) fn table<const COLUMNS: usize>(head: [&str; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(head[column].chars().count())
    });
    let line = |cells: [&str; COLUMNS]| {
        let padded: Vec<String> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let body = rows.iter().map(|row| line(row.each_ref().map(String::as_str)));
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
}
