//! What carries the PDUs of one connection: the datamover of RFC 5047.

use std::fmt;

use sanwire_buffer::{Frame, Packet, Slices};
use sanwire_core::Movement;

use crate::parameters::ConnectionParameters;
use crate::receiver::{Destination, Step};
use crate::wire::Header;

/// PDUs that one with RDMA takes at a time on a connection beyond those that the window of commands counts, and their answers: what
/// MaxOutstandingUnexpectedPDUs says (RFC 7145 6.7). It has receives for them.
pub const UNEXPECTED_MAX: u32 = 48;

/// Answers to PDUs of this end of that kind that it has receives for; so no more of them are under way.
pub const UNEXPECTED_ANSWERS_MAX: usize = 16;

/// Makes the datamover of a connection that opens. What must not be guessed there comes from the seed: another one each time.
pub type MakeDatamover = fn(seed: [u8; 32]) -> Box<dyn Datamover>;

/// Carries the PDUs of one connection, in both directions. Over plain TCP that is [`crate::ByteStream`].
///
/// Receive into [`Datamover::spaces`], say how much with [`Datamover::filled`], then [`Datamover::poll`] until it starves.
///
/// One with a connection of its own ([`Datamover::carried`]) has no stream of bytes: nothing is received for it, and [`Datamover::pop`]
/// gives nothing. Call [`Datamover::filled`] with 0 when its descriptor is readable and after pushing. Dropping it ends the connection.
///
/// One that reaches into the memory of the other end moves data without PDUs for it: then [`Step::Pdu`] tells of data that has come by
/// a Data-In or Data-Out that nobody has sent, and those that are pushed, and R2Ts, never go out as such.
pub trait Datamover: Send + Sync {
    /// Where the next bytes belong: first all of the first space, then the second.
    fn spaces(&mut self) -> [&mut [u8]; 2];

    /// So many bytes were received into the spaces.
    fn filled(&mut self, count: usize);

    /// Takes bytes that were received elsewhere, as many as there is room for, and says how many.
    fn take(&mut self, bytes: &[u8]) -> usize;

    /// The next thing that has arrived.
    fn poll(&mut self) -> Step;

    /// Says where the data segment of the header belongs that [`Datamover::poll`] gave. A frame that has no room for it is dropped, and
    /// the data with it.
    fn place(&mut self, destination: Destination);

    /// Gives back the frames into which data may still come, each with the tag of its task; what comes for them goes nowhere.
    fn withdraw(&mut self) -> Vec<(u32, Frame)>;

    /// The number of the PDU whose data is being received into a frame.
    fn fills_frame_of(&self) -> Option<u64>;

    /// Bytes that have arrived into frames.
    fn placed_bytes(&self) -> u64;

    /// How they came there.
    fn movement(&self) -> Movement;

    /// Bytes that are to come into one before its PDU is whole.
    fn awaited_bytes(&self) -> u64;

    /// Queues a PDU with additional header segments: a multiple of four bytes, at most 1020. The header is told the length of the data,
    /// which is below 2^24 bytes.
    fn push_extended(&mut self, header: Header, additional: Vec<u8>, data: Option<Slices>);

    /// Queues a PDU.
    fn push(&mut self, header: Header, data: Option<Slices>) {
        self.push_extended(header, Vec::new(), data);
    }

    /// The next bytes to send. Packets must be sent in this order, whole.
    fn pop(&mut self) -> Option<Packet>;

    /// Whether nothing waits to be sent.
    fn is_empty(&self) -> bool;

    /// Bytes that wait to be sent, as far as they were pushed.
    fn queued_bytes(&self) -> usize;

    /// Bytes that what waits takes outside any region and any store.
    fn heap_bytes(&self) -> usize;

    /// What it keeps of the memory of stores.
    fn lent_bytes(&self) -> usize;

    /// From now on at least so many bytes are received at once, beyond what goes straight into a frame.
    fn widen(&mut self, staging_bytes: usize);

    /// The segments of the connection's TCP have so many bytes. It means something to one whose messages are not to be cut there.
    fn note_segment_bytes(&mut self, segment_bytes: usize) {
        let _ = segment_bytes;
    }

    /// The login is over: what comes and what is pushed from now on is of the full feature phase, in which so many commands may be under
    /// way.
    fn begin(&mut self, parameters: &ConnectionParameters, commands_max: usize);

    /// Whether it is over although nobody has ended it: nothing comes any more, and nothing is sent. [`Datamover::poll`] says that, too, by
    /// [`Step::Torn`]; this is for what has gone wrong with something that was to be sent, when nothing more comes after which to look.
    fn has_failed(&self) -> bool {
        false
    }

    /// Why nothing can come by it, in words that go on from "the target took the connection, but ..."; `None` while something can, and
    /// where its stream says no more than that it has ended. Of a target's after its login it is told in its log.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// An initiator's, whose other end has answered that it speaks only an older revision of what carries the connection: makes the
    /// datamover of another connection, which asks for that.
    fn fallback(&self) -> Option<MakeDatamover> {
        None
    }

    /// An initiator's: what was sent last has not been answered for a while. One that can say something without any meaning says it: who
    /// has slept through what came before may wake up of it. Nothing, as long as something waits to be sent.
    fn nudge(&mut self) {}

    /// What has passed, where it has a connection of its own, which an RDMA adapter carries; `None` over a stream of bytes, of which its
    /// driver knows that.
    fn carried(&self) -> Option<Carried> {
        None
    }

    /// The adapter that carries its connection, for people, once that is known.
    fn adapter(&self) -> Option<String> {
        None
    }

    /// Whether it reaches into the memory of the other end (RFC 7145: iSER). The five calls below mean something then only.
    fn reaches_memory(&self) -> bool {
        false
    }

    /// An initiator's: lends memory for the command of this tag, which is pushed next. The other end may write into the frame until
    /// the command is answered, and read what of the data does not go out with the command or after it unasked. The frame comes back
    /// with a Data-In, from [`Datamover::recall`] or from [`Datamover::withdraw`]; or at once where it is not needed.
    fn lend(&mut self, task_tag: u32, data_in: Option<Frame>, data_out: Option<Lent>) -> Option<Frame> {
        let _ = (task_tag, data_out);
        data_in
    }

    /// An initiator's: the command of this tag is over. Gives the frame back that was lent for it, if it is still there.
    fn recall(&mut self, task_tag: u32) -> Option<Frame> {
        let _ = task_tag;
        None
    }

    /// A target's: gets the data that an R2T of this header asks for into the frame, which begins with byte `start` of the command's
    /// data. It comes with a Data-Out.
    ///
    /// # Errors
    /// The frame: it cannot. Then an R2T may ask for it; by one that reaches into memory nothing can come.
    fn get_data(&mut self, ready: &Header, frame: Frame, start: u32) -> Result<(), Frame> {
        let _ = (ready, start);
        Err(frame)
    }

    /// A target's: the command of this tag is over and gets no answer.
    fn forget(&mut self, task_tag: u32) {
        let _ = task_tag;
    }

    /// A target's: whether something is still being read from the memory that was opened for a command that is over, or written to it by
    /// an adapter. What is pushed here is sent when that is done; what goes out on another connection has to wait.
    fn reaches_for_ended(&self) -> bool {
        false
    }
}

/// What has passed over a connection that an RDMA adapter carries: of messages and of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Bytes that have come. While nothing comes, it stays as it is.
    pub received_bytes: u64,
    /// Bytes that have gone out.
    pub sent_bytes: u64,
}

/// The data of a command at an initiator, and how much of it the target has without asking.
#[derive(Clone, Debug)]
pub struct Lent {
    /// All of it.
    pub data: sanwire_buffer::Slice,
    /// So many bytes go out with the command and after it, unasked.
    pub unsolicited_bytes: u32,
}

impl fmt::Debug for dyn Datamover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Datamover")
    }
}
