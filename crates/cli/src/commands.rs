//! One file for each command: from its arguments to what it prints.

pub(crate) mod array;
mod assembled;
pub(crate) mod attach;
mod attachments;
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod cp;
pub(crate) mod ctl;
pub(crate) mod detach;
pub(crate) mod device;
pub(crate) mod discover;
pub(crate) mod dvd;
pub(crate) mod id;
pub(crate) mod info;
pub(crate) mod key;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod manage;
mod movement;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod top;
