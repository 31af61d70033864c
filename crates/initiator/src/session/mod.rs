//! The seam between a driver and its wire: one session with a server, whatever the protocol and the socket.

/// The calls of a [`Session`] that go to its protocol's end, the field `protocol`: both ends know them by the same names.
macro_rules! pass_to_protocol {
    () => {
        fn handle_timeout(&mut self, now: Instant) {
            if self.protocol.poll_timeout().is_some_and(|at| at <= now) {
                self.protocol.handle_timeout(now);
            }
        }

        fn in_transit(&self) -> usize {
            self.protocol.in_transit()
        }

        fn hold_after_restart(&mut self) {
            self.protocol.hold_after_restart();
        }

        fn release(&mut self) {
            self.protocol.release();
        }

        fn abandon(&mut self, lun: Lun) {
            self.protocol.abandon(lun, WireFailure::InDoubt);
        }

        fn withdraw(&mut self, id: OrderId) {
            self.protocol.withdraw(id.0);
        }

        fn server(&self) -> Option<ServerInfo> {
            self.protocol.server().map(server_info)
        }

        fn disconnect(&mut self, now: Instant) {
            self.protocol.disconnect(now);
        }
    };
}

mod aoe;
mod asking;
mod configs;
mod discover;
mod hdsp;
pub(crate) mod hyperscsi;
pub(crate) mod iscsi;
mod link_watch;
mod lookup;
pub(crate) mod table;
mod targets;
mod trunk;
mod visa;

use std::time::Duration;

use sanwire_buffer::{Frame, Slice};
use sanwire_core::{Instant, Lun, Movement, Protection};
use sanwire_hyperscsi::Failure as WireFailure;
pub(crate) use sanwire_hyperscsi::wire::links::LINKS_MAX;
pub use sanwire_hyperscsi::{DesiredOptions, Identity, LinkLimits, LinkStatus, NO_PASSWORD, Psk, Recovery, TooMany};
use sanwire_io::{Clock, ReceivePath, Waker};
pub use sanwire_iscsi::{ChapSecret, Credential, DesiredParameters};
use sanwire_scsi::{Cdb, CommandSet, Features, Status};
pub use sanwire_visa::Wishes as VisaWishes;

use crate::volume::WireUnit;

pub(crate) use aoe::Aoe;
pub use aoe::{AoeTarget, aoe_targets};
pub(crate) use discover::locate;
pub use discover::{Found, FoundLink, discover};
pub(crate) use hdsp::Hdsp;
pub use hdsp::{HdspFound, hdsp_servers};
pub(crate) use hyperscsi::HyperScsi;
pub(crate) use iscsi::{Iscsi, IscsiDiscovery};
pub(crate) use lookup::Lookup;
pub use sanwire_hdsp::wire::DiskType;
pub use targets::targets;
pub(crate) use visa::Visa;
pub use visa::{VisaFound, visa_servers};

/// The number of a command in its session: counts up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct OrderId(pub(crate) u64);

/// A command for the server.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) lun: Lun,
    pub(crate) cdb: Cdb,
    /// Whether it does the same when it is done again.
    pub(crate) is_repeatable: bool,
    pub(crate) data_out: Option<Slice>,
    /// Where the answer's data is to be put; its length is what the server may send.
    pub(crate) data_in: Option<Frame>,
}

impl Order {
    /// A command for a disk, or one of SPC for any unit, without data.
    pub(crate) fn of_disk(lun: Lun, cdb: Cdb) -> Order {
        const DISK: CommandSet = CommandSet::disk(Features::ALL);
        Order { lun, cdb, is_repeatable: DISK.is_repeatable(&cdb), data_out: None, data_in: None }
    }
}

/// How a command was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) sense: Vec<u8>,
}

/// Who serves.
#[derive(Clone, Debug)]
pub(crate) struct ServerInfo {
    pub(crate) name: String,
    /// Commands in transit.
    pub(crate) commands_max: u16,
    /// To what the data transfer of a command is to be cut, in bytes.
    pub(crate) transfer_max_bytes: u32,
    /// The largest data transfer that is taken, in bytes.
    pub(crate) transfer_limit_bytes: u32,
    /// What the path is known to carry at once.
    pub(crate) unit: WireUnit,
    /// Its static public key, where it has one.
    pub(crate) public_key: Option<[u8; 32]>,
    /// Bytes that go in a second at the most, each way.
    pub(crate) rate_cap_bytes_per_second: Option<u64>,
}

/// What a connection is to be from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wish {
    pub(crate) wishes: DesiredOptions,
    /// Packets of commands and answers are never guarded less.
    pub(crate) protection_min: Protection,
}

/// Why a command has no answer, or a client no session.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// Nobody answered.
    #[error("{0}")]
    NoAnswer(String),
    /// The server refused us, or did not show who it is.
    #[error("{0}")]
    Refused(String),
    /// A server answers that has another key than the one that is pinned.
    #[error("{}", WireFailure::OtherServer { pinned: *pinned, received: *received })]
    OtherServer {
        /// The key that it must have.
        pinned: [u8; 32],
        /// The key that it has.
        received: [u8; 32],
    },
    /// The server that had it says that it is not there any more.
    #[error(
        "the volume was removed or replaced at the server, or this client may not use it any more: check it, and open it again"
    )]
    VolumeGone,
    /// There is no room for another connection or command.
    #[error("{}", WireFailure::Full)]
    Full,
    /// The session was lost and nobody knows whether the command was executed.
    #[error("the session was lost while the command was under way; it may or may not have been executed")]
    InDoubt,
    /// The server has not answered the command in time.
    #[error("the server has not answered a command for {} s; it may or may not have been executed", after.as_secs())]
    TimedOut {
        /// How long it had.
        after: Duration,
    },
    /// The command has more data than the server takes.
    #[error("the command has more data than the server takes in one transfer: split it")]
    TooLarge,
    /// The other end broke the rules.
    #[error("{0}")]
    Protocol(String),
    /// The client was closed.
    #[error("the connection was closed")]
    Closed,
}

/// What a session tells.
#[derive(Debug)]
pub(crate) enum Event {
    /// It is there (again).
    Connected {
        server: ServerInfo,
        /// The server remembers what was under way.
        resumed: bool,
    },
    /// What was agreed on with the server has changed.
    Changed {
        server: ServerInfo,
        /// In words for people.
        terms: String,
    },
    /// The server does not agree to what was wished for; in words for people.
    WishRefused(String),
    /// It is gone and being sought again.
    Lost {
        /// The server said that it stops.
        announced: bool,
    },
    Completed {
        id: OrderId,
        answer: Answer,
        data_in: Option<Frame>,
        /// How much of the frame was filled.
        data_in_bytes: usize,
    },
    Failed {
        id: OrderId,
        failure: Failure,
        data_in: Option<Frame>,
    },
    /// Patience has run out: every command without an answer has failed, and the server is sought on.
    OutOfPatience(Failure),
    /// There will be no session any more.
    GivenUp(Failure),
}

/// A session that finds its server again by itself. After each call of `receive`, `handle_timeout`, `order` or
/// `disconnect`: drain `poll_event`, then `transmit`, then read `poll_timeout`.
pub(crate) trait Session: Send {
    /// Takes what has arrived, a bounded part of it; gives how many packets or runs of bytes that were.
    fn receive(&mut self, now: Instant) -> usize;

    fn handle_timeout(&mut self, now: Instant);

    fn poll_timeout(&self) -> Option<Instant>;

    fn poll_event(&mut self) -> Option<Event>;

    /// Sends what there is to send, a bounded part of it; gives how much that was.
    fn transmit(&mut self, now: Instant) -> usize;

    /// Gives a command; hands it back while there is no room for it.
    fn order(&mut self, order: Order, now: Instant) -> Result<OrderId, Order>;

    /// Asks to manage the server; hands request and room back while there is no room for it. `None`: the wire has no such
    /// thing.
    fn administer(&mut self, request: Slice, room: Frame, now: Instant) -> Option<Result<OrderId, (Slice, Frame)>> {
        let _ = (request, room, now);
        None
    }

    /// Commands given and not answered.
    fn in_transit(&self) -> usize;

    /// From now on the commands of a session that the server has forgotten wait for `release`: somebody first makes sure
    /// that the units are what they were, whatever becomes of the connection meanwhile. Commands given meanwhile go out at
    /// once, and are held themselves when the server has forgotten that session too.
    fn hold_after_restart(&mut self);

    /// Lets held commands go.
    fn release(&mut self);

    /// Fails the held commands of a logical unit with [`Failure::InDoubt`].
    fn abandon(&mut self, lun: Lun);

    /// Fails this command with [`Failure::InDoubt`], if it is held.
    fn withdraw(&mut self, id: OrderId);

    /// Who serves, as far as it is known by now.
    fn server(&self) -> Option<ServerInfo>;

    /// How the packets of a logical unit are guarded; `None` when its packets are not, or it has not said so yet.
    fn protection(&self, lun: Lun) -> Option<Protection>;

    /// Whether the data of a logical unit is compressed where it shrinks; `None` when its unit has not said so yet, or cannot.
    fn is_compressed(&self, _lun: Lun) -> Option<bool> {
        None
    }

    /// From now on the connection is to be so, as far as the server agrees.
    fn wish(&mut self, _wish: Wish, _now: Instant) {}

    /// Lets the server send no answers, or lets it go on; `false` where the protocol cannot.
    fn pause(&mut self, _is_paused: bool, _now: Instant) -> bool {
        false
    }

    /// Whether the server has heard of the last [`Session::pause`].
    fn is_pause_heard(&self) -> bool {
        true
    }

    /// The links of the connection, and whether more may come soon.
    fn links(&self) -> (Vec<LinkStatus>, bool) {
        (Vec::new(), false)
    }

    /// How the data of answers came to its place; `None` where that is not counted, or there is no session.
    fn movement(&self) -> Option<Movement> {
        None
    }

    /// The RDMA adapter that carries it, for people; `None` where none does, and before that is known.
    fn adapter(&self) -> Option<String> {
        None
    }

    /// How the packets of raw Ethernet come; `None` of other wires.
    fn receive_path(&self) -> Option<ReceivePath> {
        None
    }

    fn disconnect(&mut self, now: Instant);

    /// After `disconnect`, when all is sent: waits a moment for a server that has an answer, and is to go first.
    fn part(&mut self, waker: &Waker) {
        let _ = waker;
    }

    /// This moment, by the clock of all its times.
    fn now(&self) -> Instant {
        Clock::new().now()
    }

    /// Sleeps until something arrives, `waker` is called or `deadline` has passed.
    fn wait(&mut self, waker: &Waker, deadline: Option<Instant>) -> std::io::Result<()>;
}
