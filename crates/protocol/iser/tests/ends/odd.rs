//! Datamovers of an initiator with one oddity.

use std::sync::atomic::{AtomicBool, Ordering};

use sanwire_buffer::{Frame, Packet, Slices};
use sanwire_iscsi::wire::{Header, Opcode, ScsiCommand, TaskResponse};
use sanwire_iscsi::{ConnectionParameters, Datamover, Destination, Lent, Movement, Step};

const NO_SUCH_TASK: u8 = 1;

const SYNCHRONIZE_CACHE: u8 = 0x35;

/// Whether one has failed.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// At its other end there is a target that forgets: each answer to task management says that it does not know the task.
pub fn forgetful(seed: [u8; 32]) -> Box<dyn Datamover> {
    Box::new(Odd { mover: sanwire_iser::initiator(seed), forgets: true, has_failed: false })
}

/// The first one that is to send a flush, of all that there are, fails by that.
pub fn failing(seed: [u8; 32]) -> Box<dyn Datamover> {
    Box::new(Odd { mover: sanwire_iser::initiator(seed), forgets: false, has_failed: false })
}

struct Odd {
    mover: Box<dyn Datamover>,
    forgets: bool,
    has_failed: bool,
}

impl Datamover for Odd {
    fn poll(&mut self) -> Step {
        match self.mover.poll() {
            Step::Pdu(mut pdu) if self.forgets && pdu.header.opcode() == Some(Opcode::TaskResponse) => {
                pdu.header = TaskResponse { response: NO_SUCH_TASK, ..TaskResponse::read(&pdu.header) }.write();
                Step::Pdu(pdu)
            }
            other => other,
        }
    }

    fn spaces(&mut self) -> [&mut [u8]; 2] {
        self.mover.spaces()
    }

    fn filled(&mut self, count: usize) {
        self.mover.filled(count);
    }

    fn take(&mut self, bytes: &[u8]) -> usize {
        self.mover.take(bytes)
    }

    fn place(&mut self, destination: Destination) {
        self.mover.place(destination);
    }

    fn withdraw(&mut self) -> Vec<(u32, Frame)> {
        self.mover.withdraw()
    }

    fn fills_frame_of(&self) -> Option<u64> {
        self.mover.fills_frame_of()
    }

    fn placed_bytes(&self) -> u64 {
        self.mover.placed_bytes()
    }

    fn movement(&self) -> Movement {
        self.mover.movement()
    }

    fn awaited_bytes(&self) -> u64 {
        self.mover.awaited_bytes()
    }

    fn push_extended(&mut self, header: Header, additional: Vec<u8>, data: Option<Slices>) {
        let is_flush =
            header.opcode() == Some(Opcode::ScsiCommand) && ScsiCommand::read(&header).cdb[0] == SYNCHRONIZE_CACHE;
        if is_flush && !self.forgets && !HAS_FAILED.swap(true, Ordering::Relaxed) {
            self.has_failed = true;
        } else {
            self.mover.push_extended(header, additional, data);
        }
    }

    fn pop(&mut self) -> Option<Packet> {
        self.mover.pop()
    }

    fn is_empty(&self) -> bool {
        self.mover.is_empty()
    }

    fn queued_bytes(&self) -> usize {
        self.mover.queued_bytes()
    }

    fn heap_bytes(&self) -> usize {
        self.mover.heap_bytes()
    }

    fn lent_bytes(&self) -> usize {
        self.mover.lent_bytes()
    }

    fn widen(&mut self, staging_bytes: usize) {
        self.mover.widen(staging_bytes);
    }

    fn note_segment_bytes(&mut self, segment_bytes: usize) {
        self.mover.note_segment_bytes(segment_bytes);
    }

    fn begin(&mut self, parameters: &ConnectionParameters, commands_max: usize) {
        self.mover.begin(parameters, commands_max);
    }

    fn has_failed(&self) -> bool {
        self.has_failed || self.mover.has_failed()
    }

    fn reaches_memory(&self) -> bool {
        self.mover.reaches_memory()
    }

    fn lend(&mut self, task_tag: u32, data_in: Option<Frame>, data_out: Option<Lent>) -> Option<Frame> {
        self.mover.lend(task_tag, data_in, data_out)
    }

    fn recall(&mut self, task_tag: u32) -> Option<Frame> {
        self.mover.recall(task_tag)
    }
}
