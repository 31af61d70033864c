//! What is shown, and what keys do.

use std::collections::VecDeque;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use sanwire_server::Event;
use serde_json::{Value, json};

use crate::numbers::Sample;
use crate::table::{Row, Table};
use crate::tables::{Between, events};

/// Events that are kept to be shown.
const EVENTS_MAX: usize = 512;

/// What there is to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Screen {
    /// Volumes.
    Volumes,
    /// Clients and initiators, by their sessions.
    Clients,
    /// Wires, and the connections of HyperSCSI clients.
    Links,
    /// The threads that serve.
    Shards,
    /// What has happened.
    Events,
}

impl Screen {
    /// All of them, by the keys 1 to 5.
    pub const ALL: [Screen; 5] = [Screen::Volumes, Screen::Clients, Screen::Links, Screen::Shards, Screen::Events];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Screen::Volumes => "volumes",
            Screen::Clients => "clients",
            Screen::Links => "links",
            Screen::Shards => "shards",
            Screen::Events => "events",
        }
    }
}

/// What is to be done after a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Go on.
    Show,
    /// The user has seen enough.
    End,
}

/// What is shown.
#[derive(Debug)]
pub struct App {
    pub(crate) before: Sample,
    pub(crate) after: Sample,
    /// What is shown while it is held: a newer sample waits.
    newer: Option<Sample>,
    happened: VecDeque<Event>,
    pub(crate) screen: Screen,
    /// The column by which each screen is sorted.
    sorted_by: [usize; Screen::ALL.len()],
    pub(crate) filter: String,
    pub(crate) is_typing: bool,
    pub(crate) is_held: bool,
    /// The row that is chosen.
    pub(crate) chosen: usize,
    /// The row of which all is shown, by its name.
    pub(crate) detail: Option<String>,
    /// Why the server could not be asked the last time.
    pub(crate) trouble: Option<String>,
}

impl App {
    /// Two samples, the first of them earlier.
    #[must_use]
    pub fn new(before: Sample, after: Sample) -> App {
        let happened = before.events.iter().chain(&after.events).cloned().collect();
        App {
            before,
            after,
            newer: None,
            happened,
            screen: Screen::Volumes,
            // What is busiest stands first; shards and links by their names.
            sorted_by: [1, 1, 0, 0, 0],
            filter: String::new(),
            is_typing: false,
            is_held: false,
            chosen: 0,
            detail: None,
            trouble: None,
        }
    }

    /// The server has said this since.
    pub fn take(&mut self, sample: Sample) {
        self.trouble = None;
        self.happened.extend(sample.events.iter().cloned());
        let surplus = self.happened.len().saturating_sub(EVENTS_MAX);
        self.happened.drain(..surplus);
        if self.is_held {
            self.newer = Some(sample);
        } else {
            self.before = std::mem::replace(&mut self.after, sample);
        }
    }

    /// The server could not be asked.
    pub fn fail(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// A key was pressed.
    pub fn key(&mut self, key: KeyEvent) -> Next {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Next::End;
        }
        if self.is_typing {
            self.type_filter(key.code);
            return Next::Show;
        }
        match key.code {
            KeyCode::Char('q') => return Next::End,
            KeyCode::Esc if self.detail.take().is_none() => self.filter.clear(),
            KeyCode::Char(digit @ '1'..='5') => {
                self.screen = Screen::ALL[digit as usize - '1' as usize];
                (self.chosen, self.detail) = (0, None);
            }
            KeyCode::Char('s') => {
                let columns = self.table().columns.len();
                let by = &mut self.sorted_by[self.screen as usize];
                *by = (*by + 1) % columns;
            }
            KeyCode::Char('/') => (self.is_typing, self.chosen) = (true, 0),
            KeyCode::Char('p') => self.hold(),
            KeyCode::Down | KeyCode::Char('j') => self.chosen += 1,
            KeyCode::Up | KeyCode::Char('k') => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::PageDown => self.chosen += 10,
            KeyCode::PageUp => self.chosen = self.chosen.saturating_sub(10),
            KeyCode::Enter if self.detail.is_some() => self.detail = None,
            KeyCode::Enter => self.detail = self.table().rows.get(self.chosen).map(Row::name),
            _ => {}
        }
        self.chosen = self.chosen.min(self.table().rows.len().saturating_sub(1));
        Next::Show
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Char(letter) if !letter.is_control() => self.filter.push(letter),
            _ => {}
        }
    }

    fn hold(&mut self) {
        self.is_held = !self.is_held;
        if let Some(newer) = self.newer.take().filter(|_| !self.is_held) {
            self.before = std::mem::replace(&mut self.after, newer);
        }
    }

    /// The column by which the screen is sorted.
    pub(crate) fn sorted_by(&self) -> usize {
        self.sorted_by[self.screen as usize]
    }

    /// What the screen shows, sorted and filtered.
    pub(crate) fn table(&self) -> Table {
        let mut table = self.whole(self.screen);
        table.rows.retain(|row| row.has(&self.filter));
        let by = self.sorted_by();
        if self.screen != Screen::Events || by > 0 {
            table.rows.sort_by(|one, other| one.0[by].order(&other.0[by]));
        }
        table
    }

    fn whole(&self, screen: Screen) -> Table {
        let between = Between { before: &self.before, after: &self.after };
        match screen {
            Screen::Volumes => between.volumes(),
            Screen::Clients => between.clients(),
            Screen::Links => between.links(),
            Screen::Shards => between.shards(),
            Screen::Events => events(self.happened.iter()),
        }
    }

    /// All screens, for programs: an array of objects for each.
    #[must_use]
    pub fn json(&self) -> Value {
        let tables = Screen::ALL.map(|screen| (screen.name().to_owned(), self.whole(screen).json()));
        let numbers = &self.after.numbers;
        let mut all = json!({ "server": numbers.server, "version": numbers.version });
        if let Some(fields) = all.as_object_mut() {
            fields.extend(tables);
        }
        all
    }

    /// One screen, for people without a terminal.
    #[must_use]
    pub fn rows(&self, screen: Screen) -> Table {
        self.whole(screen)
    }
}
