//! `sanwire top`: what a server does now, on a terminal.
//!
//! Nothing here asks anybody: [`App::take`] is given what a server has said of itself ([`Sample`]), and [`App::draw`] shows what has
//! changed between the last two. A server has nothing to do for it while nobody looks.
#![forbid(unsafe_code)]

mod app;
mod numbers;
mod table;
mod tables;
mod view;

pub use app::{App, Next, Screen};
pub use numbers::{Numbers, Sample};
pub use ratatui;
pub use table::{Cell, Column, Row, Table};
