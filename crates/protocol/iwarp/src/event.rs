//! What an end of a connection is told to do, and what it tells.

use sanwire_buffer::{Frame, Head, Slices};

use crate::fault::Fault;
use crate::wire::Stag;

/// What the owner of an order calls it by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkId(pub u64);

/// What the first frame of an initiator asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// What it says to the owner of this end.
    pub private_data: Vec<u8>,
    /// RDMA Reads that it takes at a time, as far as it told.
    pub ird: Option<u16>,
    /// RDMA Reads that it wants to have under way at a time, as far as it told.
    pub ord: Option<u16>,
    /// Whether its first message will say that this end may begin.
    pub is_peer_to_peer: bool,
}

/// What both ends have agreed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The revision of MPA.
    pub revision: u8,
    /// Whether FPDUs carry CRCs.
    pub crc: bool,
    /// Whether the connection is peer-to-peer.
    pub is_peer_to_peer: bool,
    /// RDMA Reads of the peer at a time.
    pub ird: u16,
    /// RDMA Reads of this end at a time.
    pub ord: u16,
    /// What the peer said to the owner of this end.
    pub private_data: Vec<u8>,
}

/// Which Send: with a solicited event, with an STag of the peer's that ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendKind {
    /// It asks the peer to be told at once.
    pub solicited: bool,
    /// The peer's STag that is not valid any more when this message has arrived.
    pub invalidate: Option<Stag>,
}

/// An order that the peer be sent something.
#[derive(Clone, Debug)]
pub enum Order {
    /// A message, into a buffer that the peer has posted: `head`, and `data` behind it.
    Send {
        /// Which kind of it.
        kind: SendKind,
        /// The first bytes, which were written for it.
        head: Head,
        /// Those behind them, which are sent from where they lie.
        data: Option<Slices>,
    },
    /// Bytes, into memory that the peer has registered.
    Write {
        /// Its key.
        stag: Stag,
        /// Where in it.
        offset: u64,
        /// The bytes; they are sent from where they lie.
        data: Slices,
    },
}

/// A message that has arrived whole.
#[derive(Debug)]
pub struct Message {
    /// The buffer that it came into: the one that was posted first. Its length is the message's.
    pub buffer: Frame,
    /// Whether the peer wants it to be looked at.
    pub is_solicited: bool,
    /// The key of this end that has ended with it. Its memory is here until it is deregistered.
    pub invalidated: Option<Stag>,
}

/// Why a stream has ended before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The peer broke a rule, and was told so where that was possible.
    ByUs(Fault),
    /// The peer says that this end broke a rule. `None` for a reason that no RFC has.
    ByPeer(Option<Fault>),
}

/// How a stream has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// The owner of this end wanted it so, and all that was ordered is sent.
    ByUs,
    /// The peer closed it between two messages.
    ByPeer,
    /// The peer closed it within a message, or owes answers.
    Lost,
    /// This end refused the initiator's request, or the peer this end's, with this private data.
    Refused,
    /// An end broke a rule: [`Event::Terminated`] said which.
    Terminated,
}

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// An initiator wants in: answer by [`crate::Connection::accept`] or [`crate::Connection::reject`].
    Requested(Request),
    /// Both ends agree. Messages may be sent.
    Connected(Terms),
    /// The responder refused, and said this.
    Rejected(Vec<u8>),
    /// A message of the peer.
    Message(Message),
    /// All bytes of a Send or Write are packets by now. It says nothing about the peer.
    Sent(WorkId),
    /// A read is done: the frame has the bytes.
    ReadDone {
        /// Of which order.
        id: WorkId,
        /// What was given for it.
        frame: Frame,
    },
    /// A rule was broken. What is under way ends; a Terminate message may still be to be sent.
    Terminated(Ended),
    /// Nothing follows: close the stream.
    Closed(Closed),
}

/// Why something was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// There are as many as there may be.
    #[error("there are as many already as may be")]
    Full,
    /// The connection is not established, or not any more.
    #[error("the connection is not established")]
    NotConnected,
    /// What it says of its memory or its length does not fit.
    #[error("the range is not within the memory, or longer than a message may be")]
    Range,
    /// The peer takes no reads.
    #[error("the peer takes no RDMA Reads")]
    NoReads,
}

/// Something that was not taken, given back.
#[derive(Debug)]
pub struct Refused<T> {
    /// Why.
    pub refusal: Refusal,
    /// What it was.
    pub given: T,
}
