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
    /// The attachments of this host.
    Attachments,
    /// Their links.
    Paths,
}

impl Screen {
    /// Those of a server, by the keys 1 to 5.
    pub const OF_SERVER: &[Screen] = &[Screen::Volumes, Screen::Clients, Screen::Links, Screen::Shards, Screen::Events];

    /// Those of a host with attachments, by the keys 1 and 2.
    pub const OF_HOST: &[Screen] = &[Screen::Attachments, Screen::Paths];

    const COUNT: usize = Screen::OF_SERVER.len() + Screen::OF_HOST.len();

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Screen::Volumes => "volumes",
            Screen::Clients => "clients",
            Screen::Links | Screen::Paths => "links",
            Screen::Shards => "shards",
            Screen::Events => "events",
            Screen::Attachments => "attachments",
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
    pub(crate) screens: &'static [Screen],
    pub(crate) screen: Screen,
    /// The column by which each screen is sorted.
    sorted_by: [usize; Screen::COUNT],
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
    /// Two samples of a server, the first of them earlier.
    #[must_use]
    pub fn new(before: Sample, after: Sample) -> App {
        App::with(Screen::OF_SERVER, before, after)
    }

    /// Two samples of the attachments of this host, the first of them earlier.
    #[must_use]
    pub fn of_host(before: Sample, after: Sample) -> App {
        App::with(Screen::OF_HOST, before, after)
    }

    fn with(screens: &'static [Screen], before: Sample, after: Sample) -> App {
        let happened = before.events.iter().chain(&after.events).cloned().collect();
        App {
            before,
            after,
            newer: None,
            happened,
            screens,
            screen: screens[0],
            // What is busiest stands first; shards and links by their names.
            sorted_by: [1, 1, 0, 0, 0, 1, 0],
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
            KeyCode::Char(digit @ '1'..='9') => {
                if let Some(screen) = self.screens.get(digit as usize - '1' as usize) {
                    self.screen = *screen;
                    (self.chosen, self.detail) = (0, None);
                }
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
            Screen::Attachments => between.attachments(),
            Screen::Paths => between.paths(),
        }
    }

    /// All screens, for programs: an array of objects for each.
    #[must_use]
    pub fn json(&self) -> Value {
        let tables = self.tables().map(|(name, table)| (name.to_owned(), table.json()));
        let numbers = &self.after.numbers;
        let mut all = match self.is_of_server() {
            true => json!({ "server": numbers.server, "version": numbers.version }),
            false => json!({}),
        };
        if let Some(fields) = all.as_object_mut() {
            fields.extend(tables);
        }
        all
    }

    /// All screens, by their names.
    pub fn tables(&self) -> impl Iterator<Item = (&'static str, Table)> {
        self.screens.iter().map(|screen| (screen.name(), self.whole(*screen)))
    }

    pub(crate) fn is_of_server(&self) -> bool {
        self.screens == Screen::OF_SERVER
    }
}
