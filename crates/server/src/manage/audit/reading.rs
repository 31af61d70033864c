//! Reading the audit log: some lines at a time, also of the files that were put aside.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AuditLog, FILES, numbered};

/// Lines in one answer, at the most.
const LINES_MAX: u32 = 512;

/// Of them, so many bytes.
const ANSWER_MAX_BYTES: usize = 256 << 10;

/// For one answer no more is looked at than this.
const READ_MAX_BYTES: usize = 4 << 20;

/// No line is longer.
const LINE_MAX_BYTES: u64 = 64 << 10;

/// Which lines somebody wants.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditQuery {
    /// Those after this cursor, which an earlier answer gave; without it, all that are kept, the oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Those of this moment and later ones, as in RFC 3339, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Of those who have this in what is known of them: a user's number, a client, an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// How it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<AuditResult>,
    /// So many lines at the most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Whether the newest ones are wanted, as many as there is room for, in place of the oldest.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub newest: bool,
}

/// What came of what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditResult {
    /// It was done.
    Done,
    /// It was refused.
    Refused,
}

/// Lines of the audit log, and where to go on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditLines {
    /// As they stand there, in their order.
    pub lines: Vec<Value>,
    /// Give this to be told of what follows.
    pub cursor: String,
    /// Whether more is there to be read now.
    pub more: bool,
    /// What the cursor has pointed at is not there any more: this begins with the oldest line that is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
}

/// A place in a file, which keeps its inode when it is put aside. Another file that has the inode later begins otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cursor {
    inode: u64,
    begin: u64,
    offset: u64,
}

impl Cursor {
    fn parse(text: &str) -> Option<Cursor> {
        let (file, offset) = text.split_once(':')?;
        let (inode, begin) = file.split_once('-')?;
        let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
        Some(Cursor { inode: hex(inode)?, begin: hex(begin)?, offset: offset.parse().ok()? })
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}-{:x}:{}", self.inode, self.begin, self.offset)
    }
}

/// One of the files, from its begin on.
struct LogFile {
    file: File,
    place: Cursor,
    length: u64,
}

impl LogFile {
    fn new(mut file: File) -> io::Result<LogFile> {
        /// The first line has its time, so the begins of two files differ.
        const BEGIN_BYTES: u64 = 256;
        let metadata = file.metadata()?;
        let mut begin = Vec::new();
        (&mut file).take(BEGIN_BYTES).read_to_end(&mut begin)?;
        // Only what does not change any more: the first line, or what fits of it.
        let end = begin.iter().position(|byte| *byte == b'\n').unwrap_or(begin.len());
        let begin = begin[..end]
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        let place = Cursor { inode: metadata.ino(), begin, offset: 0 };
        Ok(LogFile { file, place, length: metadata.len() })
    }

    fn has(&self, cursor: &Cursor) -> bool {
        (self.place.inode, self.place.begin) == (cursor.inode, cursor.begin) && cursor.offset <= self.length
    }
}

impl AuditQuery {
    fn admits(&self, line: &Value) -> bool {
        let result = self.result.map(|result| match result {
            AuditResult::Done => "done",
            AuditResult::Refused => "refused",
        });
        let is_of = |who: &String| match &line["by"] {
            Value::Object(known) => known.values().any(|value| match value {
                Value::String(text) => text.contains(who.as_str()),
                Value::Number(number) => who.parse().is_ok_and(|wanted: u64| number.as_u64() == Some(wanted)),
                _ => false,
            }),
            _ => false,
        };
        // Times of one form are in the order of their letters.
        let is_late = |from: &String| line["time"].as_str().is_some_and(|time| time >= from.as_str());
        result.is_none_or(|result| line["result"] == result)
            && self.who.as_ref().is_none_or(is_of)
            && self.from.as_ref().is_none_or(is_late)
    }
}

impl AuditLog {
    /// Some lines, as they stand there when this is asked.
    ///
    /// # Errors
    /// What the system says of the files.
    pub(in crate::manage) fn read(&self, query: &AuditQuery) -> io::Result<AuditLines> {
        let files = self.files()?;
        if query.newest {
            return read_newest(files, query);
        }
        let wanted = query.since.as_ref().map(|text| Cursor::parse(text));
        let at = wanted.flatten().and_then(|cursor| {
            let index = files.iter().position(|file| file.has(&cursor))?;
            Some((index, cursor.offset))
        });
        // The cursor of a log that was empty is of no file.
        let is_empty = query.since.as_deref() == Some(EMPTY);
        let (first, mut offset) = at.unwrap_or_default();
        let mut pass = Pass::new(query);
        let mut cursor = None;
        for log in files.into_iter().skip(first) {
            let (place, end) = (log.place, pass.file(log.file, offset)?);
            cursor = Some(Cursor { offset: end, ..place });
            offset = 0;
            if pass.is_full {
                break;
            }
        }
        Ok(AuditLines {
            lines: pass.lines,
            cursor: cursor.map_or_else(|| EMPTY.to_owned(), |cursor| cursor.to_string()),
            more: pass.is_full,
            gone: query.since.is_some() && at.is_none() && !is_empty,
        })
    }

    /// Those that are there, the oldest first.
    fn files(&self) -> io::Result<Vec<LogFile>> {
        let mut files: Vec<LogFile> = Vec::new();
        // From the one that is written on: one that is put aside meanwhile is met twice, and not passed over.
        for number in 0..FILES {
            match File::open(numbered(&self.0.path, number)).and_then(LogFile::new) {
                Ok(log) if files.iter().any(|other| other.place.inode == log.place.inode) => {}
                Ok(log) => files.push(log),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        files.reverse();
        Ok(files)
    }
}

/// The newest lines. Their cursor is behind the last one.
fn read_newest(files: Vec<LogFile>, query: &AuditQuery) -> io::Result<AuditLines> {
    let limit = query.limit.unwrap_or(LINES_MAX).clamp(1, LINES_MAX) as usize;
    let (mut lines, mut cursor, mut room_bytes) = (Vec::new(), None, ANSWER_MAX_BYTES as u64);
    for mut log in files.into_iter().rev() {
        let from = first_line_after(&mut log.file, log.length.saturating_sub(room_bytes))?;
        room_bytes -= log.length.saturating_sub(from).min(room_bytes);
        let mut pass = Pass::new(query);
        // There are no more in what there is room for.
        pass.limit = usize::MAX;
        let end = pass.file(log.file, from)?;
        cursor.get_or_insert(Cursor { offset: end, ..log.place });
        lines.splice(..0, pass.lines);
        // What is older is told only together with all that is newer.
        if from > 0 || lines.len() >= limit {
            break;
        }
    }
    let surplus = lines.len().saturating_sub(limit);
    lines.drain(..surplus);
    let cursor = cursor.map_or_else(|| EMPTY.to_owned(), |cursor| cursor.to_string());
    Ok(AuditLines { lines, cursor, more: false, gone: false })
}

/// Where a line begins, from this offset on.
fn first_line_after(file: &mut File, offset: u64) -> io::Result<u64> {
    let Some(before) = offset.checked_sub(1) else { return Ok(0) };
    file.seek(SeekFrom::Start(before))?;
    let skipped = BufReader::new(file).read_until(b'\n', &mut Vec::new())?;
    Ok(before + skipped as u64)
}

/// The cursor of a log without any line.
const EMPTY: &str = "0-0:0";

/// Lines that are gathered for an answer.
struct Pass<'a> {
    query: &'a AuditQuery,
    lines: Vec<Value>,
    limit: usize,
    /// What is left of the bytes of the answer, and of those that are looked at.
    answer_bytes: usize,
    read_bytes: usize,
    /// There is no room for more.
    is_full: bool,
}

impl<'a> Pass<'a> {
    fn new(query: &'a AuditQuery) -> Self {
        let limit = query.limit.unwrap_or(LINES_MAX).clamp(1, LINES_MAX) as usize;
        let (answer_bytes, read_bytes) = (ANSWER_MAX_BYTES, READ_MAX_BYTES);
        Pass { query, lines: Vec::new(), limit, answer_bytes, read_bytes, is_full: false }
    }

    /// Goes through a file from an offset on; gives where it has stopped.
    fn file(&mut self, mut file: File, mut offset: u64) -> io::Result<u64> {
        file.seek(SeekFrom::Start(offset))?;
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let length = (&mut reader).take(LINE_MAX_BYTES).read_until(b'\n', &mut line)?;
            let is_whole = line.ends_with(b"\n");
            // What is being written is read the next time.
            if length == 0 || !is_whole && (length as u64) < LINE_MAX_BYTES {
                return Ok(offset);
            }
            if self.lines.len() == self.limit || length > self.read_bytes || length > self.answer_bytes {
                self.is_full = true;
                return Ok(offset);
            }
            offset += length as u64;
            self.read_bytes -= length;
            // Somebody else may have written there.
            let Ok(value) = serde_json::from_slice::<Value>(&line) else { continue };
            if self.query.admits(&value) {
                self.answer_bytes -= length;
                self.lines.push(value);
            }
        }
    }
}
