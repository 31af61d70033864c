//! An initiator's datamover, at whose other end there is a target that forgets: each answer to task management says that it does not know
//! the task.

use sanwire_buffer::{Frame, Packet, Slices};
use sanwire_iscsi::wire::{Header, Opcode, TaskResponse};
use sanwire_iscsi::{ConnectionParameters, Datamover, Destination, Lent, Movement, Step};

const NO_SUCH_TASK: u8 = 1;

pub fn forgetful(seed: [u8; 32]) -> Box<dyn Datamover> {
    Box::new(Forgetful(sanwire_iser::initiator(seed)))
}

struct Forgetful(Box<dyn Datamover>);

impl Datamover for Forgetful {
    fn poll(&mut self) -> Step {
        match self.0.poll() {
            Step::Pdu(mut pdu) if pdu.header.opcode() == Some(Opcode::TaskResponse) => {
                pdu.header = TaskResponse { response: NO_SUCH_TASK, ..TaskResponse::read(&pdu.header) }.write();
                Step::Pdu(pdu)
            }
            other => other,
        }
    }

    fn spaces(&mut self) -> [&mut [u8]; 2] {
        self.0.spaces()
    }

    fn filled(&mut self, count: usize) {
        self.0.filled(count);
    }

    fn take(&mut self, bytes: &[u8]) -> usize {
        self.0.take(bytes)
    }

    fn place(&mut self, destination: Destination) {
        self.0.place(destination);
    }

    fn withdraw(&mut self) -> Vec<(u32, Frame)> {
        self.0.withdraw()
    }

    fn fills_frame_of(&self) -> Option<u64> {
        self.0.fills_frame_of()
    }

    fn placed_bytes(&self) -> u64 {
        self.0.placed_bytes()
    }

    fn movement(&self) -> Movement {
        self.0.movement()
    }

    fn awaited_bytes(&self) -> u64 {
        self.0.awaited_bytes()
    }

    fn push_extended(&mut self, header: Header, additional: Vec<u8>, data: Option<Slices>) {
        self.0.push_extended(header, additional, data);
    }

    fn pop(&mut self) -> Option<Packet> {
        self.0.pop()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn queued_bytes(&self) -> usize {
        self.0.queued_bytes()
    }

    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    fn lent_bytes(&self) -> usize {
        self.0.lent_bytes()
    }

    fn widen(&mut self, staging_bytes: usize) {
        self.0.widen(staging_bytes);
    }

    fn note_segment_bytes(&mut self, segment_bytes: usize) {
        self.0.note_segment_bytes(segment_bytes);
    }

    fn begin(&mut self, parameters: &ConnectionParameters) {
        self.0.begin(parameters);
    }

    fn reaches_memory(&self) -> bool {
        self.0.reaches_memory()
    }

    fn lend(&mut self, task_tag: u32, data_in: Option<Frame>, data_out: Option<Lent>) -> Option<Frame> {
        self.0.lend(task_tag, data_in, data_out)
    }

    fn recall(&mut self, task_tag: u32) -> Option<Frame> {
        self.0.recall(task_tag)
    }
}
