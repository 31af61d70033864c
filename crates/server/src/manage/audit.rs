//! Who has changed what of a running server: one line of JSON for each change, and for what was refused.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Instant, SystemTime};

use sanwire_core::ClientId;
use sanwire_core::quota::{AUDIT_BYTES, AUDITED_OFFENCES, AUDITED_REFUSALS, Account, Limiter, Usage};
use sanwire_core::text::{printable, shortened};
use serde::Serialize;
use serde_json::Value;

use super::request::Request;
use super::response::{Answer, Response};
use crate::front::hyperscsi::clients::text;
use crate::persist::make_directory_of;

/// Files of the audit log: the one that is written, and older ones.
const FILES: u64 = 8;

/// What somebody asks for, and what is said to that, is cut after so many bytes.
const TEXT_MAX_BYTES: usize = 1024;

/// The same of what anybody can cause: how long a line is decides how long the log reaches back.
const REFUSED_TEXT_MAX_BYTES: usize = 384;

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

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Asker::Process { uid, pid } => write!(f, "ctl (uid {uid}, pid {pid})"),
            Asker::Client { client, address } => write!(f, "client {client} at {address}"),
            Asker::Stranger { address } => f.write_str(address),
            Asker::Signal { signal } => f.write_str(signal),
        }
    }
}

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
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
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
        let (result, details) = match response {
            Response::Done(Answer::Changed(lines)) => ("done", lines.iter().map(cut).collect()),
            Response::Done(_) => ("done", Vec::new()),
            // Who is on this host is trusted with the log.
            Response::Refused(_) if matches!(by, Asker::Client { .. }) && !queue.refusals.take(now) => {
                queue.unwritten += 1;
                return Noted(None);
            }
            Response::Refused(refusal) => ("refused", vec![cut(&refusal.reason)]),
        };
        self.take(queue, Line { request: request.and_then(shown), ..Line::new(by, result, details) })
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
        file.write_all(line.as_bytes())?;
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

/// Gives each file the next number; the oldest goes.
fn rotate(path: &Path) -> io::Result<()> {
    let numbered = |number: u64| match number {
        0 => path.to_owned(),
        _ => PathBuf::from(format!("{}.{number}", path.display())),
    };
    for number in (0..FILES - 1).rev() {
        match fs::rename(numbered(number), numbered(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// What was asked for: as it is, or if that is long, the beginning of its text.
pub(super) fn shown(request: &Request) -> Option<Value> {
    let value = without_secrets(request)?;
    match shortened(&value.to_string(), TEXT_MAX_BYTES) {
        Cow::Borrowed(_) => Some(value),
        Cow::Owned(text) => Some(Value::String(text)),
    }
}

fn without_secrets(request: &Request) -> Option<Value> {
    let mut value = serde_json::to_value(request).ok()?;
    let mut innermost = &mut value;
    loop {
        if let Some(secret) = innermost.pointer_mut("/settings/psk").filter(|secret| !secret.is_null()) {
            *secret = SECRET.into();
        }
        match innermost {
            Value::Object(fields) if fields.contains_key("request") => innermost = &mut fields["request"],
            _ => return Some(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::hyperscsi::clients::{ClientSettings, Secret};
    use crate::manage::Refusal;

    fn log(name: &str) -> AuditLog {
        let path = std::env::temp_dir().join(format!("sanwire-audit-{}-{name}/log.jsonl", std::process::id()));
        AuditLog::new(path)
    }

    fn remove(log: &AuditLog) {
        fs::remove_dir_all(log.0.path.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_secret_is_not_written_down_however_a_request_is_wrapped() {
        let settings = ClientSettings { psk: Some(Secret([0xab; 32])), ..Default::default() };
        let request = Request::AddClient { id: "a1".repeat(16), settings, force: false };
        let on_condition = Request::IfRevision { revision: 7, request: Box::new(request.clone()) };
        let started = Request::Start { request: Box::new(on_condition.clone()) };
        let page = Request::Page { request: Box::new(started.clone()), from: 0 };
        let deep = Request::IfRevision { revision: 7, request: Box::new(page) };
        for request in [request, on_condition, started, deep] {
            let shown = shown(&request).unwrap().to_string();
            assert!(shown.contains("(secret)") && !shown.contains("abab"), "{shown}");
        }
    }

    #[test]
    fn a_log_that_has_become_long_is_put_aside_and_the_oldest_goes() {
        let log = log("long");
        let by = Asker::Process { uid: 1, pid: 1 };
        log.note(&by, None, &Response::Done(Answer::Changed(vec!["first".into()]))).wait();
        for number in 0..FILES + 2 {
            let file = OpenOptions::new().write(true).open(&log.0.path).unwrap();
            file.set_len(AUDIT_BYTES.limit / FILES - number).unwrap();
            log.note(&by, None, &Response::Done(Answer::Changed(vec![format!("change {number}")]))).wait();
        }
        let directory = log.0.path.parent().unwrap();
        let sizes = fs::read_dir(directory).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
        let sizes: Vec<u64> = sizes.collect();
        assert_eq!(sizes.len() as u64, FILES);
        assert!(sizes.iter().sum::<u64>() <= AUDIT_BYTES.limit);
        let newest = fs::read_to_string(&log.0.path).unwrap();
        assert!(newest.contains(&format!("change {}", FILES + 1)) && newest.lines().count() == 1);
        remove(&log);
    }

    #[test]
    fn what_a_request_says_cannot_turn_or_hide_what_is_read() {
        let log = log("turned");
        let by = Asker::Stranger { address: "10.0.0.1:1".into() };
        log.note_offence(&by, &"a\u{202e}b\u{9b}c\u{7f}\n", false, 1).wait();
        let text = fs::read_to_string(&log.0.path).unwrap();
        assert!(text.contains(r"a\u202eb\u009bc\u007f\n") && text.lines().count() == 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["details"][0], "a\u{202e}b\u{9b}c\u{7f}\n");
        remove(&log);
    }

    fn lines(log: &AuditLog) -> Vec<Value> {
        let text = fs::read_to_string(&log.0.path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_year_of_refusals_leaves_room_for_what_was_changed() {
        const LINE_MAX_BYTES: u64 = 1024;
        let log = log("year");
        let by = Asker::Client {
            client: ClientId([0xff; 16]),
            address: "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535".into(),
        };
        for nasty in ["\u{202e}", "\"", "\\", "日"] {
            log.note_offence(&by, &nasty.repeat(10_000), false, u64::MAX).wait();
            let written = fs::metadata(&log.0.path).unwrap().len();
            assert!(written <= LINE_MAX_BYTES, "{nasty:?}: {written}");
            assert!(lines(&log)[0]["details"][0].as_str().unwrap().ends_with("0000 bytes)"));
            fs::remove_file(&log.0.path).unwrap();
        }
        let lines = (AUDITED_OFFENCES.limit + AUDITED_REFUSALS.limit) * 365;
        assert!(lines * LINE_MAX_BYTES < AUDIT_BYTES.limit * 3 / 4, "{lines} lines");
        remove(&log);
    }

    #[test]
    fn strangers_keep_no_client_out_of_the_log_and_neither_keeps_a_manager_out() {
        let log = log("shares");
        let stranger = Asker::Stranger { address: "10.0.0.1:1".into() };
        let client = Asker::Client { client: ClientId([1; 16]), address: "10.0.0.2:1".into() };
        let process = Asker::Process { uid: 0, pid: 1 };
        (0..1000).for_each(|_| log.note_offence(&stranger, &"a flood", false, 1).wait());
        (0..1000).for_each(|_| log.note_offence(&client, &"against the rules", true, 1).wait());
        (0..100).for_each(|_| {
            log.note(&process, None, &Response::Refused(Refusal::new("volume-unknown", "there is no such volume")))
                .wait()
        });
        let count = |reason: &str| lines(&log).iter().filter(|line| line["details"][0] == reason).count();
        let counts = [count("a flood"), count("against the rules"), count("there is no such volume")];
        assert_eq!(counts, [20, 60, 100]);
        let unwritten: u64 = lines(&log).iter().filter_map(|line| line["unwritten"].as_u64()).sum();
        assert_eq!(unwritten, 2 * 1000 - 20 - 60, "all are counted");
        remove(&log);
    }

    #[test]
    fn a_long_request_is_written_in_short_and_says_how_long_it_was() {
        let log = log("long-request");
        let by = Asker::Process { uid: 0, pid: 1 };
        let request = Request::RemoveVolume { name: "v".repeat(60_000), force: false };
        log.note(&by, Some(&request), &Response::Refused(Refusal::new("x", "x".repeat(60_000)))).wait();
        assert!(fs::metadata(&log.0.path).unwrap().len() < 3000);
        let line = &lines(&log)[0];
        let said = [&line["request"], &line["details"][0]].map(|text| text.as_str().unwrap());
        assert!(said[0].contains("vvv... (600") && said[1].ends_with("xxx... (60000 bytes)"), "{said:?}");
        remove(&log);
    }
}
