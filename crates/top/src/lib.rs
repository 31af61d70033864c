//! `sanwire top`: what a server, or the attachments of a host, do now, on a terminal.
//!
//! Nothing here asks anybody: [`App::take`] is given what they have said of themselves ([`Sample`]), and [`App::draw`] shows what has
//! changed between the last two. They have nothing to do for it while nobody looks.
#![forbid(unsafe_code)]

mod app;
mod attachments;
mod numbers;
mod table;
mod tables;
mod view;

pub use app::{App, Next, Screen};
pub use attachments::Attachment;
pub use numbers::{Numbers, Sample};
pub use ratatui;
pub use table::{Cell, Column, Row, Table};
