//! What iSER needs of an RDMA adapter: one end of a connection, as its driver has it.

use std::ops::Range;

use sanwire_buffer::Frame;
use sanwire_iwarp::{Event, Memory, Order, Refusal, Refused, Registration, Stag, WorkId};

/// One end of a reliable connection of an RDMA adapter. Nothing here blocks, and no call waits for the other end.
///
/// Its words are those of `sanwire_iwarp`, and so is its life: the end that was connected to tells of
/// [`Event::Requested`] and is told to accept or to reject; one that has connected has asked with the private data that
/// [`crate::wire::SetUp`] describes, as it follows from what its adapter can; both tell of [`Event::Connected`] when they
/// agree; [`Event::Closed`] is the last event, whatever happens. What an adapter has no word for stays empty: a revision of
/// MPA is 0, whether there are CRCs is `false`.
///
/// **Memory that was given is the adapter's.** The data of an order until [`Event::Sent`], the frame of a read until
/// [`Event::ReadDone`], what is registered until it is deregistered. Whatever is there when this value is dropped may
/// be touched by the adapter as long as the queue pair exists: an implementation destroys that first, and lets go of
/// memory then.
///
/// **Orders are done in their order**, and so are reads among themselves. Who gives a read and a Send behind it may
/// see the Send go first.
pub trait QueuePair: Send + Sync {
    /// The next thing that has happened: asks the adapter and the connection manager. Whoever drives the connection
    /// asks until there is nothing more, whenever its descriptor is readable; so the adapter must wake it up for
    /// everything that comes after a `None`.
    ///
    /// Beyond what `sanwire_iwarp` says: [`Event::Sent`] says that the adapter is done with this order, and with all
    /// that were given before it. A key that a message has ended is told with it
    /// ([`sanwire_iwarp::Message::invalidated`]) and is deregistered here all the same.
    fn poll_event(&mut self) -> Option<Event>;

    /// Takes the initiator that [`Event::Requested`] told of, and says this to its owner.
    ///
    /// # Errors
    /// When there is no request (any more).
    fn accept(&mut self, private_data: &[u8]) -> Result<(), Refusal>;

    /// Refuses it, and says this to its owner.
    ///
    /// # Errors
    /// When there is no request (any more).
    fn reject(&mut self, private_data: &[u8]) -> Result<(), Refusal>;

    /// Has the other end sent these bytes. Who gives an order a name is told when the adapter is done with it, soon,
    /// whether others follow or not.
    ///
    /// # Errors
    /// The order. [`Refusal::Full`]: its send queue is full now, and there is room after some event to come. Anything
    /// else is for good.
    #[expect(clippy::result_large_err, reason = "the order itself comes back; boxing it would allocate")]
    fn order(&mut self, order: Order, id: Option<WorkId>) -> Result<(), Refused<Order>>;

    /// Reads the other end's memory into a part of a frame.
    ///
    /// # Errors
    /// The frame. [`Refusal::Full`]: the send queue is full now, or as many reads are under way as may be; there is
    /// room after some event to come. Anything else is for good.
    fn read(
        &mut self,
        id: WorkId,
        frame: Frame,
        part: Range<usize>,
        source: Stag,
        source_offset: u64,
    ) -> Result<(), Refused<Frame>>;

    /// From now on no more reads are under way at a time, and never more than both ends have agreed on
    /// ([`sanwire_iwarp::Terms::ord`]).
    fn limit_reads(&mut self, at_a_time: u16);

    /// Lets the other end reach memory. Gives the key, and by which offset the other end calls the window's first
    /// byte: many adapters count by addresses, so `base` of the registration is a wish. No other byte than those of
    /// the window may be reached by the key, and nobody else may reach them by it.
    ///
    /// # Errors
    /// The memory. [`Refusal::Full`]: there is room when other windows are closed. Anything else is for good.
    fn register(&mut self, registration: Registration) -> Result<(Stag, u64), Refused<Registration>>;

    /// Ends a registration, whether the other end has already ended it or not, and gives the memory back, with what
    /// was written there. Nothing reaches it any more. `None` for a key that is none.
    fn deregister(&mut self, stag: Stag) -> Option<Memory>;

    /// From now on so many messages may come, each of at most so many bytes: receives are posted until there are so
    /// many. Each message that comes uses one up, and no other one takes its place before this is called again; so an
    /// end that does not look at its messages receives no further ones. Receives beyond the count stay posted. What was posted before
    /// is used first, so an end whose messages become longer later says so from the start.
    fn expect_messages(&mut self, count: usize, longest_bytes: usize);

    /// Ends the connection. [`Event::Closed`] follows.
    fn disconnect(&mut self);

    /// Whether orders and reads are taken.
    fn is_established(&self) -> bool;

    /// Whether Send with Invalidate is spoken here. An end that has connected: the other end may end keys of this end
    /// with its answers, and that is told here; an adapter whose keys are plain memory regions has no way to that. An
    /// end that was connected to: it can send such answers. It is known when a connection was requested, or is there.
    fn invalidates(&self) -> bool;

    /// Why there is no connection, or none any more, in words for a user; as far as more is known than that it has ended.
    fn trouble(&self) -> Option<String>;

    /// The adapter, for people, once that is known: its name, and what it speaks.
    fn adapter(&self) -> Option<String>;

    /// What it has done, and has.
    fn counts(&self) -> Counts;
}

/// What an adapter has done for one connection, and has of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Bytes that reads have brought, and those written into windows as far as the adapter knows of them.
    pub moved_bytes: u64,
    /// Bytes that came into memory of the adapter's own, by reads and into windows, and were copied from there.
    pub copied_bytes: u64,
    /// Windows that are registered.
    pub registered: u64,
    /// Windows that there have been.
    pub registered_ever: u64,
    /// Receives that are posted.
    pub receives: u64,
    /// The most data of a packet on its path, once that is known: the path MTU of an adapter.
    pub segment_bytes: Option<u32>,
}
