//! Memory that is open for commands, and commands that wait for it.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use sanwire_buffer::{Frame, Head, Slices};
use sanwire_iscsi::Lent;
use sanwire_iscsi::wire::{Header, Opcode};
use sanwire_iwarp::{Memory, Refusal, Registration, Rights};

use super::Initiator;
use crate::wire::{IserHeader, Window};

/// Why a connection is given up.
const NO_MEMORY: &str = "the adapter here opens no memory for the data of a command: perhaps more of it must be \
                         allowed to be locked (`ulimit -l`, or LimitMEMLOCK= of a service)";

/// The memory that is open for a command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lending {
    /// A frame of so many bytes, to be written to.
    pub(super) read: Option<(Window, usize)>,
    /// Data, to be read from.
    pub(super) write: Option<Window>,
    /// Both: what the residual of its answer says of what was read stands at another place.
    pub(super) is_bidirectional: bool,
}

/// The memory that is to be open for one.
#[derive(Debug, Default)]
pub(super) struct Wish {
    pub(super) data_in: Option<Frame>,
    pub(super) data_out: Option<Lent>,
}

/// A PDU that is to go out.
pub(super) struct Request {
    pub(super) header: Header,
    pub(super) additional: Vec<u8>,
    pub(super) data: Option<Slices>,
}

/// Commands for which no memory can be opened at present, since an adapter has limits: until others have been answered.
#[derive(Default)]
pub(super) struct Waiting {
    /// By the tags of the commands.
    wishes: FxHashMap<u32, Wish>,
    requests: VecDeque<Request>,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.wishes.is_empty()
    }

    /// A command that is pushed next waits with this.
    pub(super) fn wish(&mut self, task_tag: u32, wish: Wish) -> Option<Frame> {
        self.wishes.insert(task_tag, wish);
        None
    }

    /// Whether a PDU of this header waits.
    pub(super) fn takes(&self, header: &Header) -> bool {
        header.opcode() == Some(Opcode::ScsiCommand) && self.wishes.contains_key(&header.task_tag())
    }

    pub(super) fn push(&mut self, request: Request) {
        self.requests.push_back(request);
    }

    /// A command is over before it went out. Gives its frame, if it has waited.
    pub(super) fn forget(&mut self, task_tag: u32) -> Option<Option<Frame>> {
        let wish = self.wishes.remove(&task_tag)?;
        self.requests.retain(|request| request.header.task_tag() != task_tag);
        Some(wish.data_in)
    }

    /// All are over.
    pub(super) fn withdraw(&mut self) -> impl Iterator<Item = (u32, Frame)> {
        self.requests.clear();
        self.wishes.drain().filter_map(|(tag, wish)| Some((tag, wish.data_in?)))
    }
}

impl Initiator {
    /// Opens memory for a command, or has the command wait for that. Gives back a frame that is not needed.
    pub(super) fn open(&mut self, task_tag: u32, wish: Wish) -> Option<Frame> {
        let Wish { data_in, data_out } = wish;
        let mut lending = Lending { is_bidirectional: data_in.is_some() && data_out.is_some(), ..Lending::default() };
        if let Some(data_out) = &data_out {
            match self.open_data(data_out) {
                Ok(window) => lending.write = window,
                Err(Refusal::Full) => return self.wait(task_tag, Wish { data_in, data_out: Some(data_out.clone()) }),
                Err(_) => {}
            }
        }
        let mut left = None;
        if let Some(frame) = data_in {
            let length = frame.len();
            match self.open_frame(frame) {
                Ok(window) => lending.read = Some((window, length)),
                Err((Refusal::Full, frame)) => {
                    self.close(lending);
                    return self.wait(task_tag, Wish { data_in: frame, data_out });
                }
                Err((_, frame)) => left = frame,
            }
        }
        if lending.read.is_some() || lending.write.is_some() {
            self.lendings.insert(task_tag, lending);
        }
        left
    }

    /// What would never come is not waited for.
    fn wait(&mut self, task_tag: u32, wish: Wish) -> Option<Frame> {
        if self.lendings.is_empty() {
            self.carrier.fail(NO_MEMORY);
        }
        self.waiting.wish(task_tag, wish)
    }

    fn open_frame(&mut self, mut frame: Frame) -> Result<Window, (Refusal, Option<Frame>)> {
        if self.carrier.has_adapter() {
            // What a target says of how much it has written is all that is known of it. What was there before may be somebody else's.
            frame.fill(0);
        }
        let mut registration = Registration::of_frame(frame);
        registration.rights.remote_invalidate = self.carrier.invalidates();
        self.carrier.register(registration).map_err(|refused| match refused.given.memory {
            Memory::Frame(frame) => (refused.refusal, Some(frame)),
            Memory::Slices(_) => (refused.refusal, None),
        })
    }

    fn open_data(&mut self, data_out: &Lent) -> Result<Option<Window>, Refusal> {
        let Lent { data, unsolicited_bytes } = data_out;
        let range = *unsolicited_bytes as usize..data.len();
        if range.is_empty() {
            return Ok(None);
        }
        let rights = Rights { remote_read: true, remote_invalidate: self.carrier.invalidates(), ..Rights::default() };
        let memory = Memory::Slices(data.clone().into());
        let opened = self.carrier.register(Registration { memory, range, base: 0, rights });
        opened.map(Some).map_err(|refused| refused.refusal)
    }

    pub(super) fn close(&mut self, lending: Lending) -> Option<Frame> {
        lending.write.map(|window| self.carrier.deregister(window.stag));
        lending.read.and_then(|(window, _)| self.carrier.deregister(window.stag))
    }

    /// Memory was closed: sends commands that have waited for some, in their order.
    pub(super) fn send_waiting(&mut self) {
        while let Some(request) = self.waiting.requests.pop_front() {
            let task_tag = request.header.task_tag();
            let wish = self.waiting.wishes.remove(&task_tag).unwrap_or_default();
            if let Some(frame) = self.open(task_tag, wish) {
                // It is to go back with all others when the connection is given up.
                self.carrier.fail(NO_MEMORY);
                self.waiting.wish(task_tag, Wish { data_in: Some(frame), data_out: None });
            }
            if self.waiting.takes(&request.header) {
                return self.waiting.requests.push_front(request);
            }
            self.send(request);
        }
    }

    /// Sends a PDU; a command with the memory that is open for it.
    pub(super) fn send(&mut self, request: Request) {
        let Request { header, additional, data } = request;
        let is_command = header.opcode() == Some(Opcode::ScsiCommand);
        let lending = self.lendings.get(&header.task_tag()).filter(|_| is_command).copied().unwrap_or_default();
        let control = IserHeader::Control { write: lending.write, read: lending.read.map(|(window, _)| window) };
        let mut head = Head::new();
        head.extend(&control.write());
        head.extend(header.as_bytes());
        head.extend(&additional);
        self.carrier.send(head, data, None, None);
    }
}
