//! Requests to a server's HTTP API over its unix socket, where root needs no account.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

const TIMEOUT: Duration = Duration::from_secs(20);
const LENGTH: &str = "content-length:";

/// A connection that is kept.
pub(crate) struct HttpClient {
    stream: BufReader<UnixStream>,
}

impl HttpClient {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens there.
    pub(crate) fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(HttpClient { stream: BufReader::new(stream) })
    }

    /// What is at a path; the answer says its length.
    ///
    /// # Errors
    /// When it is refused, or the server does not answer.
    pub(crate) fn get(&mut self, path: &str) -> Result<Vec<u8>> {
        write!(self.stream.get_mut(), "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let status = self.line()?;
        ensure!(status.starts_with("HTTP/1.1 200 "), "{path}: {status}");
        let mut length = None;
        loop {
            let header = self.line()?.to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            length = header.strip_prefix(LENGTH).map_or(length, |value| value.trim().parse::<usize>().ok());
        }
        let mut body = vec![0; length.with_context(|| format!("{path}: the answer does not say its length"))?];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.stream.read_line(&mut line)? > 0, "the server has closed the connection");
        Ok(line.trim_end().to_owned())
    }
}
