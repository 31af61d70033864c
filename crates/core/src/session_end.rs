//! Why a session is over, for the log.

use std::fmt;

/// Why a server's end of a session is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEnd {
    /// The client has said that it leaves.
    Closed,
    /// Its connection was lost, and the client has not come back in time.
    Lost,
    /// The client has begun another one in its place.
    Replaced,
    /// The client has not used it for long, and has nothing there that it would miss.
    Idle,
    /// The server has ended it: an administrator wanted that, its target is gone, or the server stops.
    Dropped,
}

impl fmt::Display for SessionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SessionEnd::Closed => "closed by the client",
            SessionEnd::Lost => "connection lost",
            SessionEnd::Replaced => "replaced by a new session of the client",
            SessionEnd::Idle => "not used any more",
            SessionEnd::Dropped => "dropped by the server",
        })
    }
}
