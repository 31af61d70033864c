//! What is shown of events and of the audit log.

use clap::{Args, ValueEnum};

/// Which events are shown.
#[derive(Args, Debug)]
pub(crate) struct EventsArgs {
    /// Go on with what happens, until this is interrupted
    #[arg(long)]
    pub(crate) follow: bool,
    /// Begin after this cursor, which an earlier call has shown [default: with all that is kept]
    #[arg(long, value_name = "CURSOR")]
    pub(crate) since: Option<String>,
    /// Only these topics (repeat it, or separate them by commas)
    #[arg(long, value_delimiter = ',')]
    pub(crate) topic: Vec<TopicArg>,
    /// Only of clients whose id, name or address has this in it
    #[arg(long, value_name = "TEXT")]
    pub(crate) client: Option<String>,
    /// Only of this volume
    #[arg(long, value_name = "NAME")]
    pub(crate) volume: Option<String>,
    /// Only what has ended so
    #[arg(long)]
    pub(crate) result: Option<ResultArg>,
}

/// Which lines of the audit log are shown.
#[derive(Args, Debug)]
pub(crate) struct AuditArgs {
    /// Go on with what comes, until this is interrupted
    #[arg(long)]
    pub(crate) follow: bool,
    /// Begin at this moment (2026-11-23, 2026-11-23T18:00:00Z), so long ago (2h), or after a cursor that an earlier call has shown
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
    /// Only of those who have this in what is known of them: a user's number, a client's id, an address
    #[arg(long, value_name = "TEXT")]
    pub(crate) who: Option<String>,
    /// Only what has ended so
    #[arg(long)]
    pub(crate) result: Option<ResultArg>,
}

/// What events are about.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum TopicArg {
    /// Volumes and their stores
    Volumes,
    /// Sessions of every wire
    Sessions,
    /// What somebody was refused
    Refusals,
    /// Wires that go and come back
    Links,
    /// Changes that take long
    Jobs,
    /// Reloads, and iSCSI targets that are made, set and removed
    Configuration,
}

/// How something has ended.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum ResultArg {
    /// As it should
    Done,
    /// It was refused, or has failed
    Refused,
}
