//! One descriptor for all that a connection waits for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::error::Error;

/// What is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The connection manager.
    Manager,
    /// What the adapter has done.
    Completions,
    /// A call that a thread of its own has made.
    Errand,
}

/// Which of them has something to tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ready {
    pub(crate) manager: bool,
    pub(crate) completions: bool,
    pub(crate) errand: bool,
}

/// An epoll descriptor over them.
#[derive(Debug)]
pub(crate) struct Readiness(OwnedFd);

impl Readiness {
    pub(crate) fn new() -> Result<Self, Error> {
        let created = epoll::create(CreateFlags::CLOEXEC);
        created.map(Readiness).map_err(|error| Error::Adapter { what: "no epoll descriptor", source: error.into() })
    }

    /// Watches one more. It must not block any more when it is read.
    pub(crate) fn add(&self, descriptor: BorrowedFd<'_>, source: Source) -> Result<(), Error> {
        let data = EventData::new_u64(source as u64);
        let added = set_nonblocking(descriptor)
            .and_then(|()| epoll::add(&self.0, descriptor, data, EventFlags::IN).map_err(io::Error::from));
        added.map_err(|source| Error::Adapter { what: "a descriptor of an RDMA adapter cannot be watched", source })
    }

    /// Which of them can be read now. What cannot be asked counts as readable: who reads there finds out.
    pub(crate) fn ask(&self) -> Ready {
        let mut events = [const { epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) } }; 3];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok(count) = epoll::wait(&self.0, &mut events, Some(&now)) else {
            return Ready { manager: true, completions: true, errand: true };
        };
        let is_ready = |source: Source| events[..count].iter().any(|event| { event.data }.u64() == source as u64);
        let [manager, completions, errand] = [Source::Manager, Source::Completions, Source::Errand].map(is_ready);
        Ready { manager, completions, errand }
    }
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(crate) fn set_nonblocking(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let flags = fcntl_getfl(descriptor)?;
    Ok(fcntl_setfl(descriptor, flags | OFlags::NONBLOCK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_something_to_tell_is_told_until_it_is_read() {
        let readiness = Readiness::new().unwrap();
        let [(manager, manager_end), (completions, completions_end)] = [(); 2].map(|()| rustix_pipe());
        readiness.add(manager.as_fd(), Source::Manager).unwrap();
        readiness.add(completions.as_fd(), Source::Completions).unwrap();
        assert_eq!(readiness.ask(), Ready::default());
        write(&completions_end);
        let only_completions = Ready { completions: true, ..Ready::default() };
        assert_eq!((readiness.ask(), readiness.ask()), (only_completions, only_completions));
        write(&manager_end);
        assert_eq!(readiness.ask(), Ready { manager: true, ..only_completions });
        assert_eq!((read(&completions), read(&manager)), (Some(1), Some(1)));
        assert_eq!((readiness.ask(), read(&manager)), (Ready::default(), None), "and reading does not block");
    }

    fn rustix_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
        std::io::pipe().unwrap()
    }

    fn write(mut end: &std::io::PipeWriter) {
        std::io::Write::write_all(&mut end, &[7]).unwrap();
    }

    fn read(mut end: &std::io::PipeReader) -> Option<usize> {
        std::io::Read::read(&mut end, &mut [0; 8]).ok()
    }
}
