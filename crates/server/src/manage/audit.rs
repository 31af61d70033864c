//! Who has changed what of a running server: one line of JSON for each change, and for what was refused.

mod asker;
mod reading;

use std::collections::VecDeque;
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Instant, SystemTime};

use sanwire_core::quota::{AUDIT_BYTES, AUDITED_OFFENCES, AUDITED_REFUSALS, Account, Limiter, Usage};
use sanwire_core::text::{printable, shortened};
use serde::Serialize;
use serde_json::Value;

pub use self::asker::Asker;
pub use self::reading::{AuditLines, AuditQuery, AuditResult};
use super::request::Request;
use super::response::{Answer, Response};
use super::told;
use crate::persist::make_directory_of;
use crate::wall_time::written_millis;

/// Files of the audit log: the one that is written, and older ones.
const FILES: u64 = 8;

/// What somebody asks for, and what is said to that, is cut after so many bytes.
const TEXT_MAX_BYTES: usize = 1024;

/// The same of what anybody can cause: how long a line is decides how long the log reaches back.
const REFUSED_TEXT_MAX_BYTES: usize = 384;

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    by: &'a Asker,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<Value>,
    result: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<String>,
    /// How often the same was refused, together.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// Refusals before this line that were not written down, because there were too many.
    #[serde(skip_serializing_if = "is_zero")]
    unwritten: u64,
}

impl<'a> Line<'a> {
    fn new(by: &'a Asker, result: &'static str, details: Vec<String>) -> Self {
        let time = written_millis(SystemTime::now());
        Line { time, by, request: None, result, details, count: None, unwritten: 0 }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The file to which lines are added. It may be moved away at any time; the next line begins another. One that has become long is
/// put aside under a number. A thread writes the lines in their order, so that a slow disk keeps only those waiting whose lines
/// these are.
#[derive(Clone, Debug)]
pub(crate) struct AuditLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// Since when the limits count.
    begun: Instant,
    queue: Mutex<Queue>,
    /// More lines are stable.
    advanced: Condvar,
}

/// The lines that are to be written: few, for each who asks waits for its own, and what strangers cause is limited.
#[derive(Debug)]
struct Queue {
    lines: VecDeque<String>,
    /// How many lines were taken, and how many of these were written.
    taken: u64,
    written: u64,
    /// There is a thread that writes.
    is_writing: bool,
    /// What clients are refused that have shown who they are.
    refusals: Limiter,
    /// What anybody is refused who reaches the server.
    offences: Limiter,
    bytes: Account,
    unwritten: u64,
    /// Lines that could not be written.
    failed: u64,
}

/// A line that was taken, to be waited for; `None` for one that is not to be written.
#[must_use]
pub(super) struct Noted(Option<(AuditLog, u64)>);

impl Noted {
    /// Waits until the line is stable, or cannot be written.
    pub(super) fn wait(self) {
        let Some((log, number)) = self.0 else { return };
        let mut queue = log.0.lock();
        while queue.written < number {
            queue = log.0.advanced.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl AuditLog {
    pub(crate) fn new(path: PathBuf) -> Self {
        let queue = Queue {
            lines: VecDeque::new(),
            taken: 0,
            written: 0,
            is_writing: false,
            refusals: Limiter::new(&AUDITED_REFUSALS),
            offences: Limiter::new(&AUDITED_OFFENCES),
            bytes: Account::new(&AUDIT_BYTES),
            unwritten: 0,
            failed: 0,
        };
        let (queue, advanced) = (Mutex::new(queue), Condvar::new());
        AuditLog(Arc::new(Shared { path, begun: Instant::now(), queue, advanced }))
    }

    fn now(&self) -> sanwire_core::Instant {
        sanwire_core::Instant::ZERO + self.0.begun.elapsed()
    }

    /// How its quotas are used.
    pub(super) fn usages(&self) -> [Usage; 3] {
        let queue = self.0.lock();
        [queue.offences.usage(), queue.refusals.usage(), queue.bytes.usage()]
    }

    /// How many lines could not be written.
    pub(super) fn write_errors(&self) -> u64 {
        self.0.lock().failed
    }

    /// Sees whether lines can be written there.
    pub(crate) fn check(path: &Path) -> io::Result<()> {
        open(path).map(drop)
    }

    /// All that was taken until now.
    pub(super) fn all(&self) -> Noted {
        let taken = self.0.lock().taken;
        Noted(Some((self.clone(), taken)))
    }

    /// Takes a line about what was asked.
    pub(super) fn note(&self, by: &Asker, request: Option<&Request>, response: &Response) -> Noted {
        let now = self.now();
        let cut = |line: &'_ String| shortened(line, TEXT_MAX_BYTES).into_owned();
        let mut queue = self.0.lock();
        let (result, details): (_, Vec<String>) = match response {
            Response::Done(Answer::Changed(lines)) => ("done", lines.iter().map(cut).collect()),
            Response::Done(_) => ("done", Vec::new()),
            // Who is on this host is trusted with the log.
            Response::Refused(_) if by.comes_from_elsewhere() && !queue.refusals.take(now) => {
                queue.unwritten += 1;
                return Noted(None);
            }
            Response::Refused(refusal) => ("refused", vec![cut(&refusal.reason)]),
        };
        let is_done = matches!(response, Response::Done(_));
        let mut parts = request.filter(|_| is_done).map(told::audited_parts).unwrap_or_default();
        let last = parts.pop().or_else(|| request.and_then(told::audited));
        for part in parts {
            // Who waits for the last line waits for those before it.
            drop(self.take(queue, Line { request: Some(part), ..Line::new(by, result, details.clone()) }));
            queue = self.0.lock();
        }
        self.take(queue, Line { request: last, ..Line::new(by, result, details) })
    }

    /// Takes a line about what was refused so many times; whether it `is_proven` whose it was.
    pub(super) fn note_offence(&self, by: &Asker, offence: &dyn Display, is_proven: bool, count: u64) -> Noted {
        let now = self.now();
        let mut queue = self.0.lock();
        let limiter = if is_proven { &mut queue.refusals } else { &mut queue.offences };
        if !limiter.take(now) {
            queue.unwritten += count;
            return Noted(None);
        }
        let reason = shortened(&offence.to_string(), REFUSED_TEXT_MAX_BYTES).into_owned();
        self.take(queue, Line { count: Some(count), ..Line::new(by, "refused", vec![reason]) })
    }

    fn take(&self, mut queue: MutexGuard<'_, Queue>, mut line: Line<'_>) -> Noted {
        line.unwritten = std::mem::take(&mut queue.unwritten);
        // What is made of strings and numbers is text.
        let text = serde_json::to_string(&line).unwrap_or_default();
        queue.lines.push_back(format!("{}\n", printable(&text)));
        queue.taken += 1;
        let (number, must_begin) = (queue.taken, !std::mem::replace(&mut queue.is_writing, true));
        drop(queue);
        if must_begin {
            let log = self.clone();
            if thread::Builder::new().name("audit".into()).spawn(move || log.0.work()).is_err() {
                self.0.work();
            }
        }
        Noted(Some((self.clone(), number)))
    }
}

impl Shared {
    /// Writes lines until there are none.
    fn work(&self) {
        loop {
            let (lines, last) = {
                let mut queue = self.lock();
                if queue.lines.is_empty() {
                    queue.is_writing = false;
                    return;
                }
                (std::mem::take(&mut queue.lines), queue.taken)
            };
            for line in lines {
                if let Err(error) = self.append(&line) {
                    self.lock().failed += 1;
                    let path = self.path.display();
                    tracing::error!(
                        "the audit log {path} cannot be written: {error}; this is missing there: {}",
                        line.trim()
                    );
                }
            }
            self.lock().written = last;
            self.advanced.notify_all();
        }
    }

    fn append(&self, line: &str) -> io::Result<()> {
        let mut file = open(&self.path)?;
        let file_bytes = file.metadata()?.len();
        let has_room = self.lock().bytes.admits(file_bytes * FILES, line.len() as u64 * FILES);
        if !has_room && file_bytes > 0 {
            rotate(&self.path)?;
            file = open(&self.path)?;
        }
        let begun = file.metadata()?.len();
        let ending = if is_torn(&self.path, begun) { "\n" } else { "" };
        if let Err(error) = file.write_all(format!("{ending}{line}").as_bytes()) {
            // Nothing of it is to be there; where that fails too, the next one ends it.
            let _ = file.set_len(begun);
            return Err(error);
        }
        file.sync_data()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // It is whole between any two changes.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Whether a crash, or a full disk, has left a line without its end: the next one would be taken for the rest of it.
fn is_torn(path: &Path, file_bytes: u64) -> bool {
    let mut last = *b"\n";
    let mut read = |end| File::open(path)?.read_exact_at(&mut last, end);
    let is_known = file_bytes.checked_sub(1).is_some_and(|end| read(end).is_ok());
    is_known && last != *b"\n"
}

/// The file with this number: the one that is written has 0, the oldest the highest.
fn numbered(path: &Path, number: u64) -> PathBuf {
    match number {
        0 => path.to_owned(),
        _ => PathBuf::from(format!("{}.{number}", path.display())),
    }
}

/// Gives each file the next number; the oldest goes.
fn rotate(path: &Path) -> io::Result<()> {
    for number in (0..FILES - 1).rev() {
        match fs::rename(numbered(path, number), numbered(path, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
