//! The socket by which a running server is managed: one JSON request on a line, one JSON answer on a line.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use rustix::net::sockopt::socket_peercred;
use sanwire_target::{Answer, Asker, Desk, REQUEST_MAX_BYTES, Request};

use crate::administration;
use crate::config::{ServerName, runtime_directory};
use crate::failure::misuse;

/// How long one who has connected may take to ask.
const ASK_PATIENCE: Duration = Duration::from_secs(5);

/// How long an answer may take: a volume of many gigabytes may have to be made.
const ANSWER_PATIENCE: Duration = Duration::from_secs(120);

/// The server's end. Dropping it takes the socket away.
pub(crate) struct ControlSocket {
    path: PathBuf,
}

impl ControlSocket {
    /// Listens at `path`, for the owner alone, and answers on a thread of its own.
    pub(crate) fn open(path: &Path, desk: Desk) -> anyhow::Result<Self> {
        let shown = path.display();
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        }
        remove_stale(path)?;
        let listener = UnixListener::bind(path).with_context(|| format!("cannot listen at {shown}"))?;
        let socket = ControlSocket { path: path.to_owned() };
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .with_context(|| format!("cannot close {shown} to others"))?;
        thread::Builder::new()
            .name("control".into())
            .spawn(move || serve(&listener, &desk))
            .context("cannot start a thread for the control socket")?;
        Ok(socket)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Nothing is lost when it stays: the next server takes it away.
        let _ = fs::remove_file(&self.path);
    }
}

/// A socket that nobody answers at was left by a server that was killed.
fn remove_stale(path: &Path) -> anyhow::Result<()> {
    match UnixStream::connect(path) {
        Ok(_) => Err(misuse(format!(
            "a server is managed by {} already: give this one another --name or --control PATH",
            path.display()
        ))),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).with_context(|| format!("cannot remove the old {}", path.display()))
        }
        Err(_) => Ok(()),
    }
}

fn serve(listener: &UnixListener, desk: &Desk) {
    for stream in listener.incoming() {
        // Whoever breaks off hurts nobody.
        if let Err(error) = stream.and_then(|stream| answer(stream, desk)) {
            tracing::debug!("a management request has failed: {error}");
        }
    }
}

fn answer(mut stream: UnixStream, desk: &Desk) -> io::Result<()> {
    stream.set_read_timeout(Some(ASK_PATIENCE))?;
    stream.set_write_timeout(Some(ASK_PATIENCE))?;
    let peer = socket_peercred(&stream)?;
    let by = Asker::Process { uid: peer.uid.as_raw(), pid: peer.pid.as_raw_nonzero().get() };
    let mut line = Vec::new();
    BufReader::new(&stream).take(REQUEST_MAX_BYTES as u64).read_until(b'\n', &mut line)?;
    let mut text = serde_json::to_vec(&desk.handle_json(&by, &line))?;
    text.push(b'\n');
    stream.write_all(&text)
}

/// Asks the server behind a socket.
///
/// # Errors
/// What the server says when it refuses, or why it cannot be asked.
pub(crate) fn ask(path: &Path, request: &Request) -> anyhow::Result<Answer> {
    let shown = path.display();
    let mut stream =
        UnixStream::connect(path).map_err(|error| anyhow::anyhow!("no server can be reached at {shown}: {error}"))?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    let mut text = serde_json::to_vec(request)?;
    text.push(b'\n');
    stream.write_all(&text).with_context(|| format!("cannot ask at {shown}"))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).with_context(|| format!("no answer at {shown}"))?;
    let response = serde_json::from_str(&line).with_context(|| format!("the answer at {shown} is none"))?;
    administration::answer_of(response)
}

/// Where the server of that name has its socket.
pub(crate) fn socket_of(name: &ServerName) -> anyhow::Result<PathBuf> {
    Ok(runtime_directory("--control PATH")?.join(format!("serve-{}.sock", name.as_str())))
}

/// The only server of this user on this host.
///
/// # Errors
/// A [`crate::failure::Misuse`] when there is none, or more than one.
pub(crate) fn only_socket() -> anyhow::Result<PathBuf> {
    let directory = runtime_directory("--control PATH")?;
    let entries = fs::read_dir(&directory).map(|entries| entries.flatten().map(|entry| entry.path()));
    let is_socket = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("serve-") && name.ends_with(".sock"))
    };
    let mut sockets: Vec<PathBuf> = entries.map(|entries| entries.filter(is_socket).collect()).unwrap_or_default();
    match (sockets.pop(), &sockets[..]) {
        (Some(socket), []) => Ok(socket),
        (None, _) => Err(misuse(format!(
            "no server runs here: there is no socket in {}; give --socket PATH",
            directory.display()
        ))),
        (Some(_), _) => Err(misuse(format!(
            "several servers run here: choose one with --socket PATH; their sockets are in {}",
            directory.display()
        ))),
    }
}
