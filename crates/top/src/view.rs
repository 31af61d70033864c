//! How it looks.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{self, Paragraph, TableState};
use sanwire_core::text::printable;

use crate::app::App;
use crate::table::Table;

/// Cells between two columns.
const GAP: u16 = 2;

/// Rows are busy in proportion to this many letters.
const BAR_WIDTH: usize = 10;

impl App {
    /// Draws it all.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(2), Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        let table = self.table();
        let detail = self.detail.as_ref().and_then(|name| table.rows.iter().position(|row| row.name() == *name));
        match detail {
            Some(at) => frame.render_widget(Paragraph::new(details(&table, at)), body),
            None => self.draw_table(frame, body, &table),
        }
        frame.render_widget(Paragraph::new(self.foot()), foot);
    }

    fn head(&self) -> Vec<Line<'_>> {
        let numbers = &self.after.numbers;
        let screens = (1..).zip(self.screens).flat_map(|(digit, screen)| {
            let style =
                if *screen == self.screen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
            [Span::styled(format!("{digit} {}", screen.name()), style), Span::raw("  ")]
        });
        let state = match (&self.trouble, self.is_held) {
            (Some(why), _) => format!("  cannot be asked: {}", printable(why)),
            (None, true) => "  held".to_owned(),
            (None, false) => String::new(),
        };
        let (name, rest) = if self.is_of_server() {
            let (sessions, volumes) = (self.after.sessions.len(), numbers.volumes.len());
            let rest = format!("  version {}  {volumes} volumes, {sessions} sessions{state}", numbers.version);
            (printable(&numbers.server).into_owned(), rest)
        } else {
            (format!("attachments of this host: {}", self.after.attachments.len()), state)
        };
        let name = Span::styled(name, Style::new().add_modifier(Modifier::BOLD));
        vec![Line::from(vec![name, Span::raw(rest)]), Line::from(screens.collect::<Vec<_>>())]
    }

    fn foot(&self) -> Line<'_> {
        if self.is_typing {
            return Line::from(format!("/{}_  Enter: filter, Esc: all", self.filter));
        }
        let filter = if self.filter.is_empty() { String::new() } else { format!("  filter: {}", self.filter) };
        Line::from(format!("q end  s sort  / filter  Enter detail  p hold{filter}"))
    }

    fn draw_table(&self, frame: &mut Frame<'_>, area: Rect, table: &Table) {
        let most = busiest(table);
        let texts: Vec<Vec<String>> = table
            .rows
            .iter()
            .map(|row| row.0.iter().map(|cell| printable(&cell.text()).into_owned()).collect())
            .collect();
        let width = |column: usize| {
            let cells = texts.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(table.columns[column].head.chars().count() + 1) as u16
        };
        let mut widths: Vec<Constraint> = (0..table.columns.len()).map(|at| Constraint::Length(width(at))).collect();
        let heads = (0..).zip(table.columns).map(|(at, column): (usize, _)| {
            let mark = if at == self.sorted_by() { "*" } else { "" };
            format!("{}{mark}", column.head)
        });
        let mut heads: Vec<String> = heads.collect();
        let mut rows = texts;
        if let Some(most) = most {
            heads.push(String::new());
            widths.push(Constraint::Length(BAR_WIDTH as u16));
            for (texts, row) in rows.iter_mut().zip(&table.rows) {
                texts.push(bar(activity(row), most));
            }
        }
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let shown = widgets::Table::new(rows.into_iter().map(widgets::Row::new), widths)
            .header(widgets::Row::new(heads).style(bold))
            .column_spacing(GAP)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let mut state = TableState::default().with_selected(Some(self.chosen.min(table.rows.len().saturating_sub(1))));
        frame.render_stateful_widget(shown, area, &mut state);
    }
}

/// What is drawn as a bar: the first number of a row.
fn activity(row: &crate::table::Row) -> f64 {
    use crate::table::Cell::{Count, Share};
    match row.0.get(1) {
        Some(Count(number) | Share(number)) => *number,
        _ => 0.0,
    }
}

/// The highest of them; `None` where there are no such numbers.
fn busiest(table: &Table) -> Option<f64> {
    let highest = table.rows.iter().map(activity).fold(0.0, f64::max);
    (highest > 0.0).then_some(highest)
}

fn bar(value: f64, most: f64) -> String {
    "#".repeat((value / most * BAR_WIDTH as f64).round() as usize)
}

/// All of one row, a line for each column.
fn details(table: &Table, at: usize) -> Vec<Line<'static>> {
    let row = &table.rows[at];
    let cells = table.columns.iter().zip(&row.0);
    cells.map(|(column, cell)| Line::from(format!("{:<14}{}", column.head, printable(&cell.text())))).collect()
}

#[cfg(test)]
mod tests;
