//! The socket by which a running server is managed, or an attached array: one JSON request on a line, one JSON answer on a line, and so on.

mod places;

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::mem;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::net::sockopt::socket_peercred;
use sanwire_io::unix::{self, ListenError, SocketPlace};
use sanwire_server::{Answer, Asker, REQUEST_MAX_BYTES, Request, Response};

use crate::administration;
use crate::failure::misuse;

pub(crate) use places::{find_socket, is_any_here, socket_of};

/// How long one who has connected may take to ask.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// How long one who was answered may take to ask again.
const NEXT_TIMEOUT: Duration = Duration::from_secs(60);

/// Those that are connected at a time, at the most.
const CALLERS_MAX: usize = 16;

/// How long an answer may take: a volume of many gigabytes may have to be made.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// The end of who answers. Dropping it takes the socket away.
pub(crate) struct ControlSocket {
    place: SocketPlace,
}

impl ControlSocket {
    /// Listens at `path`, for the owner alone, and answers on threads of its own as `desk` does.
    pub(crate) fn open(
        path: &Path,
        desk: impl Fn(&Asker, &[u8]) -> Response + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let shown = path.display();
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let (listener, place) = unix::listen(path).map_err(|error| match error {
            ListenError::Answered => misuse(format!(
                "a server is managed by {shown} already: give this one another --name or --control PATH"
            )),
            ListenError::NoSocket => {
                misuse(format!("{shown} is there and is no socket: choose another --control PATH"))
            }
            ListenError::Io(error) => anyhow::Error::new(error).context(format!("cannot listen at {shown}")),
        })?;
        thread::Builder::new()
            .name("control".into())
            .spawn(move || serve(&listener, ASK_TIMEOUT, move |by, line| Ok(serde_json::to_vec(&desk(by, line))?)))
            .context("cannot start a thread for the control socket")?;
        Ok(ControlSocket { place })
    }

    /// Where it listens.
    pub(crate) fn path(&self) -> &Path {
        self.place.path()
    }
}

/// Answers each who connects on a thread of its own, so that nobody waits for one who is silent; who is silent for so long at first has
/// to go.
fn serve(
    listener: &UnixListener,
    ask_timeout: Duration,
    answer: impl Fn(&Asker, &[u8]) -> io::Result<Vec<u8>> + Send + Sync + 'static,
) {
    let (callers, answer) = (Arc::new(Callers::default()), Arc::new(answer));
    for stream in listener.incoming() {
        let (callers, answer) = (Arc::clone(&callers), Arc::clone(&answer));
        let spawned = stream.and_then(|stream| {
            let caller = Caller::enter(&callers, stream)?;
            thread::Builder::new().name("control".into()).spawn(move || {
                // Whoever breaks off hurts nobody.
                if let Err(error) = caller.serve(ask_timeout, &*answer) {
                    tracing::debug!("a management request has failed: {error}");
                }
            })
        });
        if let Err(error) = spawned {
            tracing::warn!("a management request cannot be served: {error}");
            // Without descriptors the next one fails at once too.
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Who is connected: so many at the most.
#[derive(Default)]
struct Callers {
    list: Mutex<VecDeque<Arc<UnixStream>>>,
    /// Those whose answers are being made are not in the list, but still count.
    count: Mutex<usize>,
    left: Condvar,
}

/// From a request to its answer.
type Answering = dyn Fn(&Asker, &[u8]) -> io::Result<Vec<u8>>;

/// One who is connected.
struct Caller {
    callers: Arc<Callers>,
    stream: Arc<UnixStream>,
}

impl Caller {
    /// Takes one in. Where there are as many as there may be, the one that has been silent for longest has to go.
    fn enter(callers: &Arc<Callers>, stream: UnixStream) -> io::Result<Caller> {
        let mut count = lock(&callers.count);
        while *count >= CALLERS_MAX {
            if let Some(silent) = lock(&callers.list).pop_front() {
                // Its thread ends then.
                silent.shutdown(Shutdown::Both)?;
            }
            count = callers.left.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
        *count += 1;
        let stream = Arc::new(stream);
        lock(&callers.list).push_back(Arc::clone(&stream));
        Ok(Caller { callers: Arc::clone(callers), stream })
    }

    /// Answers requests in their order until there is none any more.
    fn serve(&self, ask_timeout: Duration, answer: &Answering) -> io::Result<()> {
        let mut stream = &*self.stream;
        stream.set_write_timeout(Some(ask_timeout))?;
        let peer = socket_peercred(stream)?;
        let by = Asker::Process { uid: peer.uid.as_raw(), pid: peer.pid.as_raw_nonzero().get() };
        let (mut unread, mut patience) = (Vec::new(), ask_timeout);
        while let Some(line) = read_request(stream, &mut unread, patience)? {
            self.has_asked();
            let mut text = answer(&by, &line)?;
            text.push(b'\n');
            // Who takes nothing of the answer is silent, too.
            self.is_silent();
            stream.write_all(&text)?;
            patience = NEXT_TIMEOUT;
        }
        Ok(())
    }

    /// It is not silent any more: its answer is being made.
    fn has_asked(&self) {
        lock(&self.callers.list).retain(|stream| !Arc::ptr_eq(stream, &self.stream));
    }

    /// Its answer is there: from now on it may have to go for another one.
    fn is_silent(&self) {
        lock(&self.callers.list).push_back(Arc::clone(&self.stream));
        // Who waits has looked at the list under this lock: it is waiting by now, or has not looked yet.
        let _count = lock(&self.callers.count);
        self.callers.left.notify_one();
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.has_asked();
        *lock(&self.callers.count) -= 1;
        self.callers.left.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics between two writes: what is poisoned is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One line, within the time that there is for it, however slowly it comes; nothing when there is none. What comes after it is `unread`.
fn read_request(mut stream: &UnixStream, unread: &mut Vec<u8>, patience: Duration) -> io::Result<Option<Vec<u8>>> {
    let end = Instant::now() + patience;
    let mut piece = [0; 4096];
    let (mut seen, mut is_over) = (0, false);
    loop {
        let end_of_line = unread[seen..].iter().position(|byte| *byte == b'\n').map(|at| seen + at);
        // A line that is too long is read as far as it may go, and refused by who reads it: what follows is no line.
        let is_too_long = end_of_line.is_none() && unread.len() >= REQUEST_MAX_BYTES;
        if let Some(length) = end_of_line {
            let rest = unread.split_off(length + 1);
            let mut line = mem::replace(unread, rest);
            line.pop();
            return Ok(Some(line));
        }
        if is_over || is_too_long {
            // Somebody who has asked nothing has only looked whether a server is here, as one that starts does.
            return Ok(Some(mem::take(unread)).filter(|line| !line.is_empty()));
        }
        seen = unread.len();
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut piece)?;
        unread.extend_from_slice(&piece[..count]);
        is_over = count == 0;
    }
}

/// Asks the server behind a socket.
///
/// # Errors
/// What the server says when it refuses, or why it cannot be asked.
pub(crate) fn ask(path: &Path, request: &Request) -> anyhow::Result<Answer> {
    let shown = path.display();
    let mut stream =
        UnixStream::connect(path).map_err(|error| anyhow::anyhow!("no server can be reached at {shown}: {error}"))?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut text = serde_json::to_vec(request)?;
    text.push(b'\n');
    stream.write_all(&text).with_context(|| format!("cannot ask at {shown}"))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).with_context(|| format!("no answer at {shown}"))?;
    let response = serde_json::from_str(&line).with_context(|| format!("the answer at {shown} is none"))?;
    administration::answer_of(response)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Who asks here may be halted for some seconds.
    const PATIENCE: Duration = Duration::from_secs(120);

    /// A socket where each is answered with what it asked.
    fn echo(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("sanwire-control-{name}-{}.sock", std::process::id()));
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || serve(&listener, PATIENCE, |_, line| Ok(line.to_vec())));
        path
    }

    fn answer(path: &Path, request: &str) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    }

    fn is_open(stream: &UnixStream) -> bool {
        stream.set_nonblocking(true).unwrap();
        (&mut &*stream).read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    #[test]
    fn nobody_waits_for_one_who_is_silent() {
        let path = echo("silent");
        let silent = UnixStream::connect(&path).unwrap();
        let mut slow = UnixStream::connect(&path).unwrap();
        slow.write_all(b"never the end of a li").unwrap();
        assert_eq!(answer(&path, "asked\n"), "asked\n");
        assert!(is_open(&silent) && is_open(&slow), "they still have time");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn who_asks_nothing_is_not_answered() {
        let path = echo("nothing");
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        assert!(said.is_empty(), "{said:?}");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn one_connection_may_ask_again_and_again() {
        let path = echo("again");
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"one\ntwo\nthr").unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
        assert_eq!((answers.next().unwrap().unwrap(), answers.next().unwrap().unwrap()), ("one".into(), "two".into()));
        stream.write_all(b"ee\n").unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), "three");
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(answers.next().is_none(), "the end is no request");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn who_was_answered_and_is_silent_gives_way_to_others() {
        let path = echo("gives-way");
        let answered: Vec<_> = (0..CALLERS_MAX)
            .map(|number| {
                let mut stream = UnixStream::connect(&path).unwrap();
                stream.write_all(format!("{number}\n").as_bytes()).unwrap();
                BufReader::new(stream.try_clone().unwrap()).read_line(&mut String::new()).unwrap();
                stream
            })
            .collect();
        assert_eq!(answer(&path, "asked\n"), "asked\n", "though as many are connected as may be");
        let open = answered.iter().filter(|stream| is_open(stream)).count();
        assert_eq!(open, CALLERS_MAX - 1);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn nobody_waits_for_those_who_take_nothing_of_their_answers() {
        let path = std::env::temp_dir().join(format!("sanwire-control-untaken-{}.sock", std::process::id()));
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        // No socket holds that much.
        thread::spawn(move || {
            serve(&listener, PATIENCE, |_, line| Ok(if line == b"much" { vec![b'x'; 8 << 20] } else { line.to_vec() }))
        });
        let begun = Instant::now();
        let untaken: Vec<_> = (0..2 * CALLERS_MAX)
            .map(|_| {
                let mut stream = UnixStream::connect(&path).unwrap();
                stream.write_all(b"much\n").unwrap();
                // Its answer is on the way.
                stream.read_exact(&mut [0]).unwrap();
                stream
            })
            .collect();
        assert_eq!(answer(&path, "asked\n"), "asked\n");
        assert!(begun.elapsed() < PATIENCE, "only when they had taken too long");
        drop(untaken);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn silent_ones_are_few_and_the_oldest_goes() {
        let path = echo("many");
        let silent: Vec<_> = (0..CALLERS_MAX + 4).map(|_| UnixStream::connect(&path).unwrap()).collect();
        assert_eq!(answer(&path, "asked\n"), "asked\n");
        let open = silent.iter().filter(|stream| is_open(stream)).count();
        assert!(!is_open(&silent[0]) && open < CALLERS_MAX, "{open} are open");
        fs::remove_file(&path).unwrap();
    }
}
