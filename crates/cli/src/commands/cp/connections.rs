//! The connections of a copy between two things.

use sanwire_initiator::{Pauser, Server};

use super::connect;
use crate::args::{CpArgs, CpEnd};
use crate::connect::Connection;

/// The connections of a copy: one for both ends where one server has them.
pub(super) struct Connections<'a> {
    args: &'a CpArgs,
    first: Option<Connection>,
    second: Option<Connection>,
}

impl<'a> Connections<'a> {
    pub(super) fn open(args: &'a CpArgs) -> anyhow::Result<Self> {
        let connect = |end: &CpEnd| if let CpEnd::Volume(url) = end { connect(url, args).map(Some) } else { Ok(None) };
        let is_shared = match (&args.from, &args.to) {
            // By HDSP each volume has a connection of its own.
            (CpEnd::Volume(from), CpEnd::Volume(to)) => {
                from.server == to.server && !matches!(to.server, Server::Hdsp(_))
            }
            _ => false,
        };
        let first = connect(&args.from)?;
        let second = if is_shared { None } else { connect(&args.to)? };
        Ok(Connections { args, first, second })
    }

    pub(super) fn of_source(&self) -> Option<&Connection> {
        self.first.as_ref()
    }

    pub(super) fn of_destination(&self) -> Option<&Connection> {
        let is_volume = matches!(self.args.to, CpEnd::Volume(_));
        self.second.as_ref().or(self.first.as_ref()).filter(|_| is_volume)
    }

    /// Those of source and destination, where both are volumes of servers that have a connection each.
    pub(super) fn of_two_servers(&self) -> Option<(&Connection, &Connection)> {
        self.first.as_ref().zip(self.second.as_ref())
    }

    pub(super) fn pausers(&self) -> Vec<Pauser> {
        [&self.first, &self.second].into_iter().flatten().map(Connection::pauser).collect()
    }

    /// One works on this thread, if there is one, and the other one on a thread of its own.
    pub(super) fn run(self) -> anyhow::Result<Option<Connection>> {
        match (self.first, self.second) {
            (Some(first), second) => {
                second.map(Connection::run_in_background).transpose()?;
                Ok(Some(first))
            }
            (None, second) => Ok(second),
        }
    }
}
