//! What may be wrong.

use std::io;
use std::net::SocketAddr;

/// Why there is no RDMA on this host.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// A library is not there, or is not what it should be.
    #[error("there is no RDMA here: {reason}: install rdma-core and ibverbs-providers")]
    Library {
        /// What the loader says.
        reason: String,
    },
    /// The kernel has no connection manager of RDMA for programs.
    #[error(
        "there is no RDMA here: the kernel has no RDMA connections for programs ({source}): load its module rdma_ucm"
    )]
    Kernel {
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel's connection manager is there, and this process does not get it.
    #[error("RDMA cannot be used: /dev/infiniband/rdma_cm cannot be opened: {source}{}", hint_of_opening(.source))]
    Unopened {
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel has no adapter.
    #[error("there is no RDMA here: no RDMA adapter is known to the kernel (`rdma link` lists them)")]
    NoAdapter,
    /// The kernel has adapters, and none of the libraries can drive one.
    #[error("the kernel has RDMA adapters ({names}), but no library here can drive one: install ibverbs-providers")]
    NoProvider {
        /// What the kernel calls them.
        names: String,
    },
}

/// Why something cannot be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no RDMA.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// Nothing can listen at an address.
    #[error("cannot listen at {address} by RDMA: {source}{}", hint_of_bind(.source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The adapter is gone at whose address somebody listens: the kernel has ended that.
    #[error("the RDMA adapter of {address} is gone: nobody connects there by RDMA before it is back")]
    Gone {
        /// The address.
        address: SocketAddr,
    },
    /// So many hosts keep who has asked them for a connection waiting that nobody else is asked.
    #[error(
        "{count} hosts have not answered yet that were asked for a connection: look at the addresses of what is attached"
    )]
    Unanswered {
        /// How many.
        count: usize,
    },
    /// An adapter, or the kernel for it, does not do what it was asked for.
    #[error("{what}: {source}{}", hint_of_memory(.source))]
    Adapter {
        /// What cannot be done.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl Error {
    /// Which kind of error it is, of an adapter.
    pub(crate) fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Error::Adapter { source, .. } => Some(source.kind()),
            Error::Unavailable(_) | Error::Listen { .. } | Error::Gone { .. } | Error::Unanswered { .. } => None,
        }
    }

    /// The number of the system's error that is behind it, if there is one.
    #[must_use]
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Error::Unavailable(Unavailable::Kernel { source } | Unavailable::Unopened { source })
            | Error::Listen { source, .. }
            | Error::Adapter { source, .. } => source.raw_os_error(),
            Error::Unavailable(_) | Error::Gone { .. } | Error::Unanswered { .. } => None,
        }
    }

    /// Whether no adapter is there that it would take: one may come.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        match self {
            Error::Unavailable(Unavailable::NoAdapter | Unavailable::NoProvider { .. }) => true,
            Error::Listen { source, .. } => matches!(source.raw_os_error(), Some(libc::ENODEV | libc::EADDRNOTAVAIL)),
            _ => false,
        }
    }

    /// The error that the last call has left.
    pub(crate) fn last(what: &'static str) -> Error {
        Error::Adapter { what, source: io::Error::last_os_error() }
    }

    /// The error of this number.
    pub(crate) fn number(what: &'static str, number: libc::c_int) -> Error {
        Error::Adapter { what, source: io::Error::from_raw_os_error(number.abs()) }
    }
}

fn hint_of_opening(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            " (as a rule all users may: look at its mode, and at DeviceAllow= of the service, which must be started again if \
             the device was not there when it began)"
        }
        Some(libc::EMFILE) => " (raise the limit of open files, `ulimit -n` or LimitNOFILE=)",
        _ => "",
    }
}

/// Memory that adapters reach is locked, and who is not root may lock only so much.
fn hint_of_memory(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOMEM) => " (adapters work in locked memory: raise its limit, `ulimit -l` or LimitMEMLOCK=)",
        _ => "",
    }
}

fn hint_of_bind(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            " (an iWARP adapter in software takes its ports from TCP: does something listen at this port there?)"
        }
        Some(libc::ENODEV | libc::EADDRNOTAVAIL) => " (no RDMA adapter has this address: `rdma link` lists them)",
        _ => "",
    }
}

/// The result of a function that answers -1 and `errno`.
pub(crate) fn check(what: &'static str, result: libc::c_int) -> Result<(), Error> {
    if result == 0 { Ok(()) } else { Err(Error::last(what)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::absence;

    #[test]
    fn who_does_not_get_the_connection_manager_is_not_told_that_the_kernel_has_none() {
        let of = |number| absence(io::Error::from_raw_os_error(number)).to_string();
        assert!(of(libc::ENOENT).contains("load its module rdma_ucm"), "{}", of(libc::ENOENT));
        for (number, hint) in
            [(libc::EACCES, "DeviceAllow="), (libc::EPERM, "DeviceAllow="), (libc::EMFILE, "LimitNOFILE=")]
        {
            let message = of(number);
            assert!(message.contains(hint) && !message.contains("rdma_ucm"), "{message}");
        }
        let used_up = Error::from(absence(io::Error::from_raw_os_error(libc::EMFILE)));
        assert_eq!(used_up.os_error(), Some(libc::EMFILE));
    }

    #[test]
    fn what_can_be_done_about_an_error_stands_behind_it() {
        let of = |number| Error::number("memory cannot be registered", number).to_string();
        assert!(of(libc::ENOMEM).ends_with("LimitMEMLOCK=)"), "{}", of(libc::ENOMEM));
        assert!(!of(libc::EINVAL).contains("LimitMEMLOCK"), "{}", of(libc::EINVAL));
        let bound = |number| {
            let source = io::Error::from_raw_os_error(number);
            Error::Listen { address: "10.0.0.1:3260".parse().unwrap(), source }.to_string()
        };
        assert!(bound(libc::ENODEV).contains("rdma link"), "{}", bound(libc::ENODEV));
        assert!(bound(libc::EADDRINUSE).contains("TCP"), "{}", bound(libc::EADDRINUSE));
    }
}
