//! What an attachment tells of itself: who connects to its socket gets a line of JSON. Nothing is done for it while nobody asks.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

/// Who does not take its answer for so long gets none.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// No answer is longer.
const ANSWER_MAX_BYTES: u64 = 1 << 20;

/// A socket that tells, until this is dropped.
#[derive(Debug)]
pub struct Telling {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Telling {
    /// Where it tells.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells at this path, in a directory of the user's own.
    pub(crate) fn start(path: PathBuf, tell: impl Fn() -> Value + Send + 'static) -> io::Result<Telling> {
        let _ = fs::remove_file(&path);
        let (listener, is_over) = (UnixListener::bind(&path)?, Arc::new(AtomicBool::new(false)));
        let over = Arc::clone(&is_over);
        let serve = move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Acquire) {
                    return;
                }
                // Who has gone away meanwhile hurts nobody.
                let _ = stream.and_then(|stream| answer(&stream, &tell()));
            }
        };
        let thread = Some(thread::Builder::new().name("status".into()).spawn(serve)?);
        Ok(Telling { path, is_over, thread })
    }
}

fn answer(mut stream: &UnixStream, told: &Value) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    stream.write_all(format!("{told}\n").as_bytes())
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // It is woken by that.
        let woken = UnixStream::connect(&self.path);
        let _ = fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take().filter(|_| woken.is_ok()) {
            // It has panicked, or not.
            let _ = thread.join();
        }
    }
}

/// What the attachment with this socket tells.
///
/// # Errors
/// `WouldBlock` when it is there and does not answer for so long, else what the system says.
pub(crate) fn ask(path: &Path, patience: Duration) -> io::Result<Value> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(patience))?;
    let mut text = String::new();
    stream.take(ANSWER_MAX_BYTES).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn who_asks_is_told_until_it_is_over() {
        let path = std::env::temp_dir().join(format!("sanwire-telling-{}.status", std::process::id()));
        fs::write(&path, "left by somebody else").unwrap();
        let telling = Telling::start(path.clone(), || serde_json::json!({ "state": "live" })).unwrap();
        let silent = UnixStream::connect(&path).unwrap();
        for _ in 0..2 {
            assert_eq!(ask(&path, PATIENCE).unwrap(), serde_json::json!({ "state": "live" }));
        }
        drop((silent, telling));
        assert!(!path.exists() && ask(&path, PATIENCE).is_err());
    }
}
