//! One client: a thread that reads requests and a thread that finishes them and sends the answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use sanwire_initiator::{AllocatedRun, VolumeError};

use super::handshake::{Ending, Export, Handshake, Progress};
use super::reply::{BATCH_REPLIES, Data, Reply, send};
use super::request::{Bounds, Command, Refusal, errno_of};
use super::socket::Socket;
use super::window::{Permit, Window};
use crate::bytes::ByteVolume;
use crate::executor::{Executor, block_on};
use sanwire_nbd::wire::{
    CMD_BLOCK_STATUS, CMD_READ, Errno, REQUEST_BYTES, RawRequest, ReplyHead, STATE_HOLE, STATE_ZERO,
};

/// A client that says nothing for so long while negotiating is sent away.
const NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(30);
/// One that says nothing for so long in the middle of a request, whose data others may wait for, too.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// What is in flight when a client leaves gets so long to end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
const READ_AHEAD_BYTES: usize = 64 << 10;

type Reader<'a> = BufReader<&'a Socket>;

/// Serves one client until it leaves, breaks the protocol, or its socket is shut down.
pub(super) fn serve(socket: &Socket, volume: &ByteVolume, export: Export) -> io::Result<()> {
    let (size_bytes, read_only) = (export.size_bytes, export.read_only);
    let mut reader = BufReader::with_capacity(READ_AHEAD_BYTES, socket);
    socket.set_read_timeout(Some(NEGOTIATION_TIMEOUT))?;
    let Some((structured, tells_allocation)) = negotiate(socket, &mut reader, export)? else { return Ok(()) };
    let bounds = Bounds { size_bytes, read_only, tells_allocation };
    socket.set_read_timeout(Some(STALL_TIMEOUT))?;
    let connection = Arc::new(Connection {
        executor: Executor::default(),
        volume: volume.clone(),
        replies: Mutex::default(),
        window: Arc::default(),
        structured,
        bounds,
        broken: AtomicBool::new(false),
    });
    std::thread::scope(|scope| {
        let writer = std::thread::Builder::new().name("nbd-writer".into());
        let writer = writer.spawn_scoped(scope, || connection.executor.work(|| connection.send_replies(socket)))?;
        let result = connection.read_requests(&mut reader);
        if !connection.window.wait_idle(DRAIN_TIMEOUT) {
            socket.shutdown(Shutdown::Both);
        }
        connection.executor.stop();
        let _ = writer.join();
        socket.shutdown(Shutdown::Both);
        result
    })
}

/// Gives whether reads are answered in chunks and whether the client may ask what is allocated, or `None` when it left properly.
fn negotiate(mut socket: &Socket, reader: &mut Reader<'_>, export: Export) -> io::Result<Option<(bool, bool)>> {
    let mut handshake = Handshake::new(export);
    loop {
        socket.write_all(&handshake.take_output())?;
        match handshake.progress() {
            Progress::Negotiating => {}
            Progress::Transmission { structured, tells_allocation } => {
                return Ok(Some((structured, tells_allocation)));
            }
            Progress::Ended(Ending::Aborted) => return Ok(None),
            Progress::Ended(Ending::UnknownExport) => {
                return Err(invalid("the client wants an export of another name"));
            }
            Progress::Ended(Ending::Protocol(what)) => return Err(invalid(what)),
        }
        let input = reader.fill_buf()?;
        if input.is_empty() {
            return Ok(None);
        }
        let taken = handshake.handle_input(input);
        reader.consume(taken);
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

struct Connection {
    executor: Executor,
    volume: ByteVolume,
    /// Answers that wait to be sent; the window bounds them.
    replies: Mutex<Vec<Reply>>,
    window: Arc<Window>,
    structured: bool,
    bounds: Bounds,
    /// The client does not take answers any more.
    broken: AtomicBool,
}

/// One request in flight, shared by its parts.
struct Job {
    connection: Arc<Connection>,
    cookie: u64,
    permit: Arc<Permit>,
    /// Whether it is answered in chunks.
    chunked: bool,
    parts_left: AtomicUsize,
    failed: OnceLock<Errno>,
}

impl Connection {
    fn read_requests(self: &Arc<Self>, reader: &mut Reader<'_>) -> io::Result<()> {
        let mut bytes = [0; REQUEST_BYTES];
        loop {
            if wait_for_request(reader)?.is_empty() {
                return Ok(());
            }
            reader.read_exact(&mut bytes)?;
            let Some(request) = RawRequest::parse(&bytes) else { return Err(invalid("wrong request magic")) };
            match Command::check(&request, self.bounds) {
                Ok(Command::Disconnect) => return Ok(()),
                Ok(command) => self.start(&request, command, reader)?,
                Err(Refusal::Answer { error, skip_bytes }) => {
                    skip(reader, u64::from(skip_bytes))?;
                    let job = self.job(&request);
                    job.fail(error);
                    job.part_done();
                }
                Err(Refusal::Close) => return Err(invalid("a write is longer than any that was offered")),
            }
        }
    }

    fn job(self: &Arc<Self>, request: &RawRequest) -> Arc<Job> {
        Arc::new(Job {
            permit: Arc::new(self.window.enter()),
            connection: Arc::clone(self),
            cookie: request.cookie,
            chunked: self.structured && matches!(request.kind, CMD_READ | CMD_BLOCK_STATUS),
            parts_left: AtomicUsize::new(1),
            failed: OnceLock::new(),
        })
    }

    fn start(self: &Arc<Self>, request: &RawRequest, command: Command, reader: &mut Reader<'_>) -> io::Result<()> {
        let job = self.job(request);
        match command {
            Command::Read { offset_bytes, length, in_one_piece } => {
                self.start_read(job, offset_bytes, length, in_one_piece);
            }
            Command::Write { offset_bytes, length, stable } => {
                self.start_write(&job, offset_bytes, length, stable, reader)?;
                job.part_done();
            }
            Command::Zero { offset_bytes, length, stable } => self.run(job, stable, move |volume| async move {
                volume.write_zeroes(offset_bytes, u64::from(length)).await
            }),
            Command::Trim { offset_bytes, length, stable } => self
                .run(job, stable, move |volume| async move { volume.discard(offset_bytes, u64::from(length)).await }),
            Command::Status { offset_bytes, length, only_first } => {
                let volume = self.volume.clone();
                self.executor.spawn(async move {
                    let runs = volume.allocation(offset_bytes, u64::from(length)).await;
                    job.finish_status(runs, only_first);
                });
            }
            Command::Flush => self.run(job, true, |_| async { Ok(()) }),
            Command::Cache | Command::Disconnect => job.part_done(),
        }
        Ok(())
    }

    /// Does something without data, then a flush if the result must be stable.
    fn run<F>(&self, job: Arc<Job>, stable: bool, work: impl FnOnce(ByteVolume) -> F)
    where
        F: Future<Output = Result<(), VolumeError>> + Send + 'static,
    {
        let volume = self.volume.clone();
        let work = work(volume.clone());
        self.executor.spawn(async move {
            let mut result = work.await;
            if result.is_ok() && stable {
                result = volume.flush().await;
            }
            job.note(result);
            job.part_done();
        });
    }

    fn start_read(&self, job: Arc<Job>, offset_bytes: u64, length: u32, in_one_piece: bool) {
        let mut parts = self.volume.parts(offset_bytes, u64::from(length)).peekable();
        let Some(first) = parts.next() else { return job.part_done() };
        if parts.peek().is_none() {
            let (volume, (at, length)) = (self.volume.clone(), first);
            let permit = self.window.hold(length);
            self.executor.spawn(async move {
                job.finish_read(at, volume.read(at, length).await.map(Data::Part), permit);
            });
        } else if job.chunked && !in_one_piece {
            for (at, length) in std::iter::once(first).chain(parts) {
                // The parts before are sent meanwhile.
                let permit = self.window.hold(length);
                let (volume, job) = (self.volume.clone(), job.begin_part());
                self.executor.spawn(async move {
                    match volume.read(at, length).await {
                        Ok(data) => job.push(
                            ReplyHead::offset_data(job.cookie, at, length as u32, false),
                            Data::Part(data),
                            Some(permit),
                        ),
                        Err(error) => job.note(Err(error)),
                    }
                    job.part_done();
                });
            }
            job.part_done();
        } else {
            let (volume, permit) = (self.volume.clone(), self.window.hold(length as usize));
            self.executor.spawn(async move {
                let whole = read_whole(&volume, offset_bytes, length).await;
                job.finish_read(offset_bytes, whole.map(Data::Whole), permit);
            });
        }
    }

    /// Takes the data from the socket into the client's frames, part by part, and sends each part on its way.
    fn start_write(
        &self,
        job: &Arc<Job>,
        offset_bytes: u64,
        length: u32,
        stable: bool,
        reader: &mut Reader<'_>,
    ) -> io::Result<()> {
        for (at, length) in self.volume.parts(offset_bytes, u64::from(length)) {
            let permit = self.window.hold(length);
            match block_on(self.volume.write_buffer(at, length)) {
                Ok(mut buffer) => {
                    reader.read_exact(buffer.payload_mut())?;
                    let (volume, job) = (self.volume.clone(), job.begin_part());
                    self.executor.spawn(async move {
                        job.note(volume.write(buffer, stable).await);
                        drop(permit);
                        job.part_done();
                    });
                }
                Err(error) => {
                    skip(reader, length as u64)?;
                    job.note(Err(error));
                }
            }
        }
        Ok(())
    }

    /// Sends what has gathered, many answers in one call.
    fn send_replies(&self, socket: &Socket) {
        loop {
            let replies = std::mem::take(&mut *self.replies.lock().unwrap_or_else(PoisonError::into_inner));
            if replies.is_empty() {
                return;
            }
            for batch in replies.chunks(BATCH_REPLIES) {
                if !self.broken.load(Ordering::Relaxed) && send(socket, batch).is_err() {
                    // The reader learns it from the socket; answers are dropped from now on.
                    self.broken.store(true, Ordering::Relaxed);
                    socket.shutdown(Shutdown::Both);
                }
            }
        }
    }
}

impl Job {
    fn begin_part(self: &Arc<Self>) -> Arc<Self> {
        self.parts_left.fetch_add(1, Ordering::Relaxed);
        Arc::clone(self)
    }

    /// The last part answers for all.
    fn part_done(&self) {
        if self.parts_left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let head = match (self.chunked, self.failed.get()) {
            (false, failed) => ReplyHead::simple(self.cookie, failed.copied()),
            (true, None) => ReplyHead::done(self.cookie),
            (true, Some(failed)) => ReplyHead::error(self.cookie, *failed),
        };
        self.push(head, Data::None, None);
    }

    /// Answers a read that is one piece.
    fn finish_read(&self, offset_bytes: u64, data: Result<Data, VolumeError>, permit: Permit) {
        match data {
            Ok(data) if self.chunked => {
                let length = data.bytes().len() as u32;
                self.push(ReplyHead::offset_data(self.cookie, offset_bytes, length, true), data, Some(permit));
            }
            Ok(data) => self.push(ReplyHead::simple(self.cookie, None), data, Some(permit)),
            Err(error) => {
                self.note(Err(error));
                self.part_done();
            }
        }
    }

    /// Answers a question for what is allocated.
    fn finish_status(&self, runs: Result<Vec<AllocatedRun>, VolumeError>, only_first: bool) {
        let runs = match runs {
            Ok(runs) => runs,
            Err(error) => {
                self.note(Err(error));
                return self.part_done();
            }
        };
        let count = if only_first { 1 } else { runs.len() };
        let descriptor = |run: &AllocatedRun| {
            let state = if run.is_mapped { 0 } else { STATE_HOLE | STATE_ZERO };
            [(run.length_bytes as u32).to_be_bytes(), state.to_be_bytes()]
        };
        let bytes: Vec<u8> = runs.iter().take(count).flat_map(descriptor).flatten().collect();
        self.push(ReplyHead::block_status(self.cookie, bytes.len() as u32), Data::Whole(bytes), None);
    }

    fn note(&self, result: Result<(), VolumeError>) {
        if let Err(error) = result {
            tracing::debug!(%error, "a request failed");
            self.fail(errno_of(&error));
        }
    }

    fn fail(&self, error: Errno) {
        let _ = self.failed.set(error);
    }

    fn push(&self, head: ReplyHead, data: Data, of_data: Option<Permit>) {
        let reply = Reply { head, data, _permits: (Arc::clone(&self.permit), of_data) };
        self.connection.replies.lock().unwrap_or_else(PoisonError::into_inner).push(reply);
        self.connection.executor.ring();
    }
}

/// The first bytes of the next request; none: the client has left. Between requests it may be silent for as long as it likes.
fn wait_for_request<'a>(reader: &'a mut Reader<'_>) -> io::Result<&'a [u8]> {
    loop {
        match reader.fill_buf() {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
            Ok(_) => return Ok(reader.buffer()),
        }
    }
}

/// A long read for a client that takes no chunks.
async fn read_whole(volume: &ByteVolume, offset_bytes: u64, length: u32) -> Result<Vec<u8>, VolumeError> {
    let mut whole = Vec::with_capacity(length as usize);
    for (at, length) in volume.parts(offset_bytes, u64::from(length)) {
        whole.extend_from_slice(volume.read(at, length).await?.payload());
    }
    Ok(whole)
}

fn skip(reader: &mut Reader<'_>, length_bytes: u64) -> io::Result<()> {
    let skipped = io::copy(&mut reader.take(length_bytes), &mut io::sink())?;
    if skipped < length_bytes { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}
