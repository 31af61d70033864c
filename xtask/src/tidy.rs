//! The rules of the repository, one file each.

mod circles;
mod dependencies;
mod documented;
mod lengths;
mod protocols;
mod ratchet;
mod seeds;
mod source;
mod tree;
mod unsafety;

use std::fmt;
use std::path::Path;

use ratchet::Ratchet;
use source::Source;

/// One place where a rule is broken. The message says what to do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Finding {
    path: String,
    /// Counted from 1; 0 means the whole file.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Finding { path: path.into(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Checks every rule; prints what is found. `Ok(false)` means that something was.
///
/// # Errors
/// When the repository cannot be read.
pub fn check(root: &Path) -> Result<bool, String> {
    let files = tree::read(root)?;
    let sources: Vec<Source> = files.iter().filter_map(Source::of).collect();
    let ratchet = Ratchet::read(root)?;
    let mut findings = dependencies::check(&dependencies::read(root)?);
    findings.extend(files.iter().filter_map(|file| seeds::check(root, &file.path)));
    for source in &sources {
        findings.extend(documented::check(source));
        findings.extend(unsafety::check(source));
        findings.extend(protocols::check(source));
    }
    findings.extend(ratchet.check(&lengths::measure(&sources)));
    findings.extend(ratchet.check_circles(&circles::measure(&sources)));
    findings.sort();
    findings.iter().for_each(|finding| println!("{finding}"));
    match findings.len() {
        0 => println!("tidy: {} files are in order", files.len()),
        count => println!("tidy: {count} findings"),
    }
    Ok(findings.is_empty())
}

/// Lowers the ratchet to today's lengths; it never raises an entry.
///
/// # Errors
/// When the repository cannot be read or the ratchet not written.
pub fn update(root: &Path) -> Result<bool, String> {
    let files = tree::read(root)?;
    let sources: Vec<Source> = files.iter().filter_map(Source::of).collect();
    let mut ratchet = Ratchet::read(root)?;
    let lowered = ratchet.lower(&lengths::measure(&sources), &circles::measure(&sources));
    ratchet.write(root)?;
    println!("tidy: {lowered} entries lowered or removed");
    Ok(true)
}
