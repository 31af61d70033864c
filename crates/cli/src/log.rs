//! The log, on stderr. Whoever writes a line goes on at once: a terminal that is stopped, or a pipe that nobody reads, holds up
//! one thread that does nothing else, and what does not fit into its queue is counted.

use std::env;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::fstat;
use sanwire_core::text::printable;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::{LogFormat, LogLevel};

/// Lines that wait to be written.
const LINES_MAX: usize = 1024;

/// How long the end of the program waits for the last lines.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// How often it looks whether the last line finds room.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

static WRITER: OnceLock<LogWriter> = OnceLock::new();

static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Sends the log to stderr, as is said or as fits there. A second call changes nothing.
pub(crate) fn start(level: LogLevel, format: Option<LogFormat>) {
    let format = *FORMAT.get_or_init(|| format.unwrap_or_else(usual_format));
    let filter = match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let is_terminal = io::stderr().is_terminal() && format == LogFormat::Text;
    let writer = WRITER.get_or_init(|| LogWriter::start(io::stderr(), is_terminal)).clone();
    let lines = tracing_subscriber::fmt::layer().compact().with_target(false).with_writer(writer);
    let lines = lines.with_ansi(is_terminal);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Journald => lines.without_time().with_level(false).map_event_format(Prioritised).boxed(),
        LogFormat::Json => lines.event_format(Json).boxed(),
    };
    // It fails when a log runs already, which then goes on.
    let _ = tracing_subscriber::registry().with(lines).with(whose(filter)).try_init();
}

/// What libraries warn of is for who develops with them: what it means for a volume is said by this program.
fn whose(filter: LevelFilter) -> Targets {
    let foreign = if filter >= LevelFilter::DEBUG { filter } else { filter.min(LevelFilter::ERROR) };
    Targets::new().with_default(foreign).with_target("sanwire", filter)
}

/// What is said beside the log, as a line of it; in the usual format before that was begun.
pub(crate) fn line(level: Level, text: &str) -> String {
    match FORMAT.get().copied().unwrap_or_else(usual_format) {
        LogFormat::Text => text.to_owned(),
        LogFormat::Journald => format!("{}{text}", priority(level)),
        LogFormat::Json => json_line(level, text),
    }
}

/// What a line of this level begins with where the journal has the time beside it (sd-daemon(3)).
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

/// That of the journal if stderr goes there (`$JOURNAL_STREAM` in systemd.exec(5)), and not to what this process was sent on to.
fn usual_format() -> LogFormat {
    let stream = env::var("JOURNAL_STREAM").unwrap_or_default();
    let is_journal = fstat(io::stderr()).is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino));
    if is_journal { LogFormat::Journald } else { LogFormat::Text }
}

fn json_line(level: Level, message: &str) -> String {
    let time = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
    serde_json::json!({ "time": time, "level": level.as_str().to_lowercase(), "message": message }).to_string()
}

/// A format with an object for each line.
struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut message = String::new();
        context.format_fields(Writer::new(&mut message), event)?;
        writeln!(line, "{}", json_line(*event.metadata().level(), &message))
    }
}

/// A format, with the priority of each line before it.
struct Prioritised<F>(F);

impl<S, N, F> FormatEvent<S, N> for Prioritised<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        line.write_str(priority(*event.metadata().level()))?;
        self.0.format_event(context, line, event)
    }
}

/// Waits, but not for long, until all that was logged is written.
pub(crate) fn end() {
    if let Some(writer) = WRITER.get() {
        writer.finish(END_TIMEOUT);
    }
}

enum Entry {
    Line(Vec<u8>),
    /// Tells when all before it is written.
    End(SyncSender<()>),
}

/// Takes lines for the thread that writes them.
#[derive(Clone)]
struct LogWriter {
    queue: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
    has_colours: bool,
}

impl LogWriter {
    fn start(out: impl Write + Send + 'static, has_colours: bool) -> Self {
        let (queue, entries) = mpsc::sync_channel(LINES_MAX);
        let lost = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&lost);
        // Without the thread nothing is logged; the program works on.
        let _ = thread::Builder::new().name("log".into()).spawn(move || write_all(&entries, &counted, out));
        LogWriter { queue, lost, has_colours }
    }

    /// Waits for so long at the most.
    fn finish(&self, patience: Duration) {
        let (done, written) = mpsc::sync_channel(1);
        let deadline = Instant::now() + patience;
        let mut end = Entry::End(done);
        while let Err(TrySendError::Full(back)) = self.queue.try_send(end) {
            if Instant::now() >= deadline {
                return;
            }
            end = back;
            thread::sleep(LOOK_AGAIN);
        }
        let _ = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

fn write_all(entries: &Receiver<Entry>, lost: &AtomicU64, mut out: impl Write) {
    while let Ok(entry) = entries.recv() {
        match entry {
            // There is nobody else to tell of what cannot be written.
            Entry::Line(line) => drop(out.write_all(&line)),
            Entry::End(done) => drop(done.send(())),
        }
        let count = lost.swap(0, Ordering::Relaxed);
        if count > 0 {
            let what =
                format!("sanwire: {count} lines of the log are lost here: they came faster than they could be written");
            let _ = writeln!(out, "{}", line(Level::WARN, &what));
        }
    }
}

/// Called once for each line.
impl Write for &LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end_matches('\n');
        let shown = if self.has_colours { printable_but_colours(text) } else { printable(text).into_owned() };
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Entry::Line(format!("{shown}\n").into_bytes())) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The text with its colours, which are written with control characters: those of what is logged, `tracing` has replaced by then.
fn printable_but_colours(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let mut shown = printable(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        let (colour, rest) = part.split_at(colour_bytes(part));
        shown.push_str(if colour.is_empty() { "\\u001b" } else { "\u{1b}" });
        shown.push_str(colour);
        shown.push_str(&printable(rest));
    }
    shown
}

/// The length of the colour (ECMA-48 8.3.117, SGR) with which a text begins that follows an escape character.
fn colour_bytes(text: &str) -> usize {
    let is_parameter = |character: char| character.is_ascii_digit() || character == ';';
    let numbers = text.strip_prefix('[').map(|numbers| numbers.trim_start_matches(is_parameter));
    numbers.and_then(|end| end.strip_prefix('m')).map_or(0, |rest| text.len() - rest.len())
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = &'a LogWriter;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// The thread that writes may be halted for some seconds.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Takes nothing until it is let.
    struct Stuck(Arc<Mutex<Vec<u8>>>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_logs_goes_on_while_nobody_reads_and_what_was_lost_is_counted() {
        let out = Arc::<Mutex<Vec<u8>>>::default();
        let stopped = out.lock().unwrap();
        let writer = LogWriter::start(Stuck(Arc::clone(&out)), false);
        for number in 0..LINES_MAX + 100 {
            (&writer).write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        drop(stopped);
        writer.finish(PATIENCE);
        (&writer).write_all(b"last\n").unwrap();
        writer.finish(PATIENCE);
        let text = String::from_utf8(out.lock().unwrap().clone()).unwrap();
        assert!(text.starts_with("line 0\n") && text.ends_with("last\n"), "{text}");
        let lost = text.lines().find_map(|line| line.strip_prefix("sanwire: ")?.split(' ').next()?.parse().ok());
        assert!(matches!(lost, Some(99..=100u64)), "{lost:?}");
    }

    #[test]
    fn warnings_of_libraries_are_for_who_asks_for_more() {
        let shows = |filter, target: &str, level| whose(filter).would_enable(target, &level);
        assert!(shows(LevelFilter::INFO, "sanwire_attach::growth", Level::INFO));
        assert!(!shows(LevelFilter::WARN, "sanwire", Level::INFO) && !shows(LevelFilter::OFF, "fuser", Level::ERROR));
        assert!(
            !shows(LevelFilter::INFO, "fuser::mnt", Level::WARN) && shows(LevelFilter::INFO, "fuser", Level::ERROR)
        );
        assert!(shows(LevelFilter::DEBUG, "fuser::mnt", Level::WARN));
    }

    #[test]
    fn no_line_begins_another_one() {
        let out = Arc::<Mutex<Vec<u8>>>::default();
        let writer = LogWriter::start(Stuck(Arc::clone(&out)), false);
        (&writer).write_all("client (a\nERROR \u{202e}b) connected\n".as_bytes()).unwrap();
        writer.finish(PATIENCE);
        assert_eq!(&*out.lock().unwrap(), b"client (a\\u000aERROR \\u202eb) connected\n");
    }

    #[test]
    fn so_it_is_on_a_terminal_whose_colours_stay() {
        let out = Arc::<Mutex<Vec<u8>>>::default();
        let writer = LogWriter::start(Stuck(Arc::clone(&out)), true);
        let log = tracing_subscriber::fmt().compact().with_ansi(true).without_time().with_writer(writer.clone());
        tracing::subscriber::with_default(log.finish(), || {
            let name = "a\u{202e}\u{2028}\u{1b}[8m\u{1b}[2Jb";
            tracing::warn!("volume {name} is there");
        });
        writer.finish(PATIENCE);
        let line = String::from_utf8(out.lock().unwrap().clone()).unwrap();
        assert!(line.contains("\u{1b}[33m WARN\u{1b}[0m"), "{line:?}");
        let end = line.split_once("volume").unwrap().1;
        assert!(!end.trim_end_matches('\n').contains(|c: char| c.is_control()), "{line:?}");
        assert!(end.starts_with(" a\\u202e\\u2028") && end.ends_with("b is there\n"), "{line:?}");
    }
}
