//! Who has changed what of a running server: one line of JSON for each change, and for what was refused.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use sanwire_core::ClientId;
use serde::Serialize;
use serde_json::Value;

use super::request::{Answer, Request, Response};
use crate::clients::text;
use crate::persist::make_directory_of;

/// Refusals of a sort that are written down in a second; of more, only how many there were.
const REFUSALS_MAX: u32 = 10;
const REFUSALS_PERIOD: Duration = Duration::from_secs(1);

/// What stands for a secret.
const SECRET: &str = "(secret)";

/// Who asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum Asker {
    /// A process of this host, by the control socket.
    Process {
        /// Whose it is.
        uid: u32,
        /// Which.
        pid: i32,
    },
    /// A HyperSCSI client, in band.
    Client {
        /// Who; of what does not authenticate: as whom it comes.
        #[serde(with = "text")]
        client: ClientId,
        /// From where.
        address: String,
    },
    /// Somebody who is known by nothing else.
    Stranger {
        /// From where.
        address: String,
    },
    /// Whoever has sent a signal.
    Signal {
        /// Its name.
        signal: &'static str,
    },
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    by: &'a Asker,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<Value>,
    result: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<&'a str>,
    /// How often the same was refused, together.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// Refusals before this line that were not written down, because there were too many.
    #[serde(skip_serializing_if = "is_zero")]
    unwritten: u64,
}

impl<'a> Line<'a> {
    fn new(by: &'a Asker, result: &'static str, details: Vec<&'a str>) -> Self {
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        Line { time, by, request: None, result, details, count: None, unwritten: 0 }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The file to which lines are added. It may be moved away at any time; the next line begins another.
#[derive(Debug)]
pub(crate) struct AuditLog {
    path: PathBuf,
    refusals: Limit,
    /// Limited by themselves: anybody can make them come fast.
    offences: Limit,
    unwritten: u64,
}

/// How many refusals of a sort there were since a moment.
#[derive(Debug)]
struct Limit {
    count: u32,
    since: Instant,
}

impl Limit {
    fn new() -> Self {
        Limit { count: 0, since: Instant::now() }
    }

    /// Counts one more.
    fn is_too_much(&mut self) -> bool {
        if self.since.elapsed() >= REFUSALS_PERIOD {
            *self = Limit::new();
        }
        self.count += 1;
        self.count > REFUSALS_MAX
    }
}

impl AuditLog {
    pub(crate) fn new(path: PathBuf) -> Self {
        AuditLog { path, refusals: Limit::new(), offences: Limit::new(), unwritten: 0 }
    }

    /// Sees whether lines can be written there.
    pub(crate) fn check(path: &Path) -> io::Result<()> {
        open(path).map(drop)
    }

    /// Writes a line, and waits until it is stable.
    pub(super) fn note(&mut self, by: &Asker, request: Option<&Request>, response: &Response) {
        let (result, details) = match response {
            Response::Done(Answer::Changed(lines)) => ("done", lines.iter().map(String::as_str).collect()),
            Response::Done(_) => ("done", Vec::new()),
            Response::Refused(_) if self.refusals.is_too_much() => {
                self.unwritten += 1;
                return;
            }
            Response::Refused(reason) => ("refused", vec![reason.as_str()]),
        };
        self.write(Line { request: request.and_then(without_secrets), ..Line::new(by, result, details) });
    }

    /// Writes a line about what was refused so many times.
    pub(super) fn note_offence(&mut self, by: &Asker, offence: &dyn Display, count: u64) {
        if self.offences.is_too_much() {
            self.unwritten += count;
            return;
        }
        let reason = offence.to_string();
        self.write(Line { count: Some(count), ..Line::new(by, "refused", vec![&reason]) });
    }

    fn write(&mut self, mut line: Line<'_>) {
        line.unwritten = std::mem::take(&mut self.unwritten);
        if let Err(error) = self.append(&line) {
            let (path, Line { by, request, result, .. }) = (self.path.display(), line);
            tracing::error!("the audit log {path} cannot be written: {error}; {by:?} asked for {request:?}: {result}");
        }
    }

    fn append(&self, line: &Line<'_>) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let mut file = open(&self.path)?;
        file.write_all(&text)?;
        file.sync_data()
    }
}

fn open(path: &Path) -> io::Result<File> {
    let directory = make_directory_of(path)?;
    let is_new = !path.exists();
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    if is_new {
        File::open(directory)?.sync_all()?;
    }
    Ok(file)
}

fn without_secrets(request: &Request) -> Option<Value> {
    let mut value = serde_json::to_value(request).ok()?;
    if let Some(secret) = value.pointer_mut("/settings/psk").filter(|secret| !secret.is_null()) {
        *secret = SECRET.into();
    }
    Some(value)
}
