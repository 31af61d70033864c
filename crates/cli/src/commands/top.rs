//! `sanwire top`.

use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use sanwire_server::{Answer, EventFilter, Request};
use sanwire_top::ratatui;
use sanwire_top::ratatui::crossterm::event::{self, Event as Input, KeyEventKind};
use sanwire_top::{App, Attachment, Next, Numbers, Sample, Table};

use super::{manage, status};
use crate::args::TopArgs;
use crate::connect::Connection;
use crate::failure::misuse;
use crate::{control, output};

/// Asks a server.
type Ask<'a> = dyn Fn(&Request) -> anyhow::Result<Answer> + 'a;

/// Where samples come from.
struct Source<'a> {
    /// A server; or this host, for its attachments.
    ask: Option<&'a Ask<'a>>,
    begun: Instant,
    /// The last event that was told.
    cursor: Option<String>,
}

/// Shows what a server does, or the attachments of this host.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<()> {
    if let Some(url) = &args.url {
        let connection = Connection::open_to_manage(url, &args.reach)?;
        return show(args, Some(&|request| manage::ask(&connection, request)));
    }
    let names_a_server = args.server.is_some() || args.socket.is_some();
    if args.attachments || (!names_a_server && !control::is_any_here() && has_attachments()) {
        return show(args, None);
    }
    let socket = args.socket.clone().map_or_else(|| control::find_socket(args.server.as_ref()), Ok)?;
    show(args, Some(&|request| control::ask(&socket, request)))
}

fn has_attachments() -> bool {
    status::of_this_host().is_ok_and(|attachments| !attachments.is_empty())
}

fn show(args: &TopArgs, ask: Option<&Ask<'_>>) -> anyhow::Result<()> {
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if !(args.once || is_terminal) {
        return Err(misuse("this is no terminal: use `--once`, or `--once --json`"));
    }
    let mut source = Source { ask, begun: Instant::now(), cursor: None };
    let before = source.sample()?;
    thread::sleep(args.interval.min(FIRST_MAX));
    let after = source.sample()?;
    let app = if ask.is_some() { App::new(before, after) } else { App::of_host(before, after) };
    if args.json {
        return Ok(output::print(&format!("{:#}\n", app.json()))?);
    }
    if args.once {
        let tables: Vec<_> = app.tables().map(|(name, table)| format!("{name}\n{}", plain(&table))).collect();
        return Ok(output::print(&tables.join("\n"))?);
    }
    let mut terminal = ratatui::try_init()?;
    let result = watch(&mut terminal, app, &mut source, args.interval);
    ratatui::restore();
    result
}

/// The first rates are seen after this at the latest.
const FIRST_MAX: Duration = Duration::from_secs(1);

/// Shows and asks in turn, until the user has seen enough.
fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    mut app: App,
    source: &mut Source<'_>,
    interval: Duration,
) -> anyhow::Result<()> {
    let mut due = Instant::now() + interval;
    loop {
        terminal.draw(|frame| app.draw(frame))?;
        while event::poll(due.saturating_duration_since(Instant::now()))? {
            if let Input::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
                && app.key(key) == Next::End
            {
                return Ok(());
            }
            terminal.draw(|frame| app.draw(frame))?;
        }
        match source.sample() {
            Ok(sample) => app.take(sample),
            Err(error) => app.fail(error.to_string()),
        }
        due = Instant::now() + interval;
    }
}

impl Source<'_> {
    fn sample(&mut self) -> anyhow::Result<Sample> {
        let Some(ask) = self.ask else {
            let attachments = status::of_this_host()?.iter().map(Attachment::of).collect();
            return Ok(Sample { at: self.begun.elapsed(), attachments, ..Sample::default() });
        };
        let other = || anyhow::anyhow!("the server's answer cannot be read: is it another version?");
        let Answer::Metrics(metrics) = ask(&Request::Metrics)? else { return Err(other()) };
        let at = self.begun.elapsed();
        let Answer::Sessions(sessions) = ask(&Request::Sessions)? else { return Err(other()) };
        let request = Request::Events { since: self.cursor.clone(), filter: EventFilter::default(), wait: false };
        let Answer::Events(told) = ask(&request)? else { return Err(other()) };
        self.cursor = Some(told.cursor);
        let numbers = Numbers::parse(metrics.as_str());
        Ok(Sample { at, numbers, sessions, events: told.events, ..Sample::default() })
    }
}

/// A table for people who have no terminal.
fn plain(table: &Table) -> String {
    let cells: Vec<Vec<String>> = table.rows.iter().map(|row| row.0.iter().map(|cell| cell.text()).collect()).collect();
    let widths = (0..table.columns.len()).map(|at| {
        let longest = cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        longest.max(table.columns[at].head.chars().count())
    });
    let widths: Vec<usize> = widths.collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let head = line(&mut table.columns.iter().map(|column| column.head));
    let rows = cells.iter().map(|row| line(&mut row.iter().map(String::as_str)));
    std::iter::once(head).chain(rows).collect()
}
