//! A store whose writes reach a medium only when the test says so, and cannot be called back meanwhile.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use sanwire_buffer::Slices;
use sanwire_store::{
    Completion, CompletionQueue, Delayed, ErrorKind, Geometry, KernelOp, Outcome, Request, Started, Store, StoreError,
};

use super::TIMEOUT;

const LENGTH_BYTES: usize = 16 << 20;

/// A socket to which a write waits until its other end is read, or gone; with that end, and how much is to be read there before.
pub fn full_socket() -> (Arc<File>, UnixStream, usize) {
    let (mut writer, reader) = UnixStream::pair().unwrap();
    writer.set_nonblocking(true).unwrap();
    let mut filling = 0;
    loop {
        match writer.write(&[0; 4096]) {
            Ok(count) => filling += count,
            Err(error) => break assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
    writer.set_nonblocking(false).unwrap();
    (Arc::new(File::from(OwnedFd::from(writer))), reader, filling)
}

/// While it holds, each write is given to the kernel as a write to a socket that is full.
#[derive(Debug)]
pub struct GatedStore {
    state: Mutex<State>,
    changed: Condvar,
    full: Arc<File>,
}

#[derive(Debug)]
struct State {
    bytes: Vec<u8>,
    holds: bool,
    /// Every request fails so.
    failure: Option<ErrorKind>,
    /// It takes so long to say so.
    failure_delay: Duration,
    /// Where and what.
    held: Vec<(usize, Slices)>,
    reader: UnixStream,
    /// Bytes in the socket before any write.
    filling: usize,
}

impl GatedStore {
    /// A store that holds nothing back.
    pub fn new() -> Self {
        let (full, reader, filling) = full_socket();
        let failure_delay = Duration::ZERO;
        let state = State {
            bytes: vec![0; LENGTH_BYTES],
            holds: false,
            failure: None,
            failure_delay,
            held: Vec::new(),
            reader,
            filling,
        };
        GatedStore { state: Mutex::new(state), changed: Condvar::new(), full }
    }

    /// Holds the write that `give` gives. What comes after it is done at once.
    pub fn hold<T>(&self, give: impl FnOnce() -> T) -> T {
        self.state.lock().unwrap().holds = true;
        let given = give();
        let state = self.state.lock().unwrap();
        let (mut state, _) = self.changed.wait_timeout_while(state, TIMEOUT, |state| state.held.is_empty()).unwrap();
        assert_eq!(state.held.len(), 1, "writes at the store");
        state.holds = false;
        given
    }

    /// Fails every request so from now on, or does it.
    pub fn fail(&self, failure: Option<ErrorKind>) {
        self.state.lock().unwrap().failure = failure;
    }

    /// As [`GatedStore::fail`], after a while each time.
    pub fn fail_after(&self, delay: Duration, failure: ErrorKind) {
        let state = &mut *self.state.lock().unwrap();
        (state.failure, state.failure_delay) = (Some(failure), delay);
    }

    /// Has the held writes land and end.
    pub fn release(&self) {
        let state = &mut *self.state.lock().unwrap();
        state.holds = false;
        let held = std::mem::take(&mut state.held);
        let mut sent = vec![0; std::mem::take(&mut state.filling) + held.len()];
        for (offset, data) in held {
            data.copy_to(&mut state.bytes[offset..offset + data.len()]);
        }
        state.reader.read_exact(&mut sent).unwrap();
    }
}

impl State {
    fn perform(&mut self, request: Request) -> Completion {
        match request {
            Request::Read { offset_bytes, mut buffer } => {
                let at = offset_bytes as usize;
                let length = buffer.len();
                buffer.copy_from_slice(&self.bytes[at..at + length]);
                return Ok(Outcome::Read(buffer));
            }
            Request::Write { offset_bytes, data } => {
                let at = offset_bytes as usize;
                data.copy_to(&mut self.bytes[at..at + data.len()]);
            }
            _ => {}
        }
        Ok(Outcome::Done)
    }
}

const GEOMETRY: Geometry = Geometry {
    length_bytes: LENGTH_BYTES as u64,
    block_bytes: 512,
    physical_block_bytes: 512,
    read_only: false,
    discards: false,
    atomic_write_bytes: 0,
};

/// A store that does nothing but fail so.
#[derive(Debug)]
struct Failing(ErrorKind);

impl Store for Failing {
    fn geometry(&self) -> Geometry {
        GEOMETRY
    }

    fn start(&self, request: Request, _: &CompletionQueue) -> Started {
        Started::Done(Err(StoreError::new(self.0, request.range_bytes().0)))
    }
}

impl Store for GatedStore {
    fn geometry(&self) -> Geometry {
        GEOMETRY
    }

    fn start(&self, request: Request, completions: &CompletionQueue) -> Started {
        let mut state = self.state.lock().unwrap();
        if let Some(kind) = state.failure {
            let delay = state.failure_delay;
            let failing = Failing(kind);
            if delay.is_zero() {
                return failing.start(request, completions);
            }
            return Started::Later(Delayed { delay, store: Arc::new(failing), request });
        }
        match request {
            Request::Write { offset_bytes, data } if state.holds => {
                state.held.push((offset_bytes as usize, data.clone()));
                self.changed.notify_all();
                // One byte waits as well, and is sent at once: the rest of more would have a place, which no socket has.
                let request = Request::Write { offset_bytes: 0, data: data.slice(0..1) };
                Started::Kernel(KernelOp { file: Arc::clone(&self.full), is_block_device: false, request })
            }
            request => Started::Done(state.perform(request)),
        }
    }
}
