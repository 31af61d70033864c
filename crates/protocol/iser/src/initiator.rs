//! The datamover of an initiator: it opens memory for each command, and closes it when the command is answered.

mod lending;

use rustc_hash::FxHashMap;
use sanwire_buffer::{Frame, Packet, Slices};
use sanwire_iscsi::wire::{DataIn, Header, Opcode, ScsiResponse, TAG_NONE};
use sanwire_iscsi::{Carried, ConnectionParameters, Datamover, Destination, Lent, MakeDatamover, Movement, Step};

use self::lending::{Lending, Request, Waiting, Wish};
use crate::carrier::{Arrival, Carrier, STAGING_MAX_BYTES};
use crate::incoming::Incoming;
use crate::message::{Arrived, Pdu};
use crate::queue_pair::QueuePair;
use crate::wire::HeaderForm;

/// The revision of MPA that is asked for.
const REVISION: u8 = 2;

/// Data that one Data-In can tell of.
const PART_MAX_BYTES: usize = 0xff_f000;

/// The datamover of an initiator, for a connection that has opened. What must not be guessed comes from the seed: another one each time.
#[must_use]
pub fn initiator(seed: [u8; 32]) -> Box<dyn Datamover> {
    Initiator::over(Carrier::initiator(seed, REVISION))
}

/// The same for a target that speaks no more than revision 1 of MPA.
fn initiator_of_revision_1(seed: [u8; 32]) -> Box<dyn Datamover> {
    Initiator::over(Carrier::initiator(seed, 1))
}

/// The same by an RDMA adapter, whose end of a connection this is. It need not be there yet.
#[must_use]
pub fn initiator_by(queue_pair: Box<dyn QueuePair>) -> Box<dyn Datamover> {
    Initiator::over(Carrier::over(queue_pair))
}

struct Initiator {
    carrier: Carrier,
    incoming: Incoming,
    /// By the tags of the commands.
    lendings: FxHashMap<u32, Lending>,
    waiting: Waiting,
}

impl Initiator {
    fn over(carrier: Carrier) -> Box<dyn Datamover> {
        Box::new(Initiator {
            carrier,
            incoming: Incoming::default(),
            lendings: FxHashMap::default(),
            waiting: Waiting::default(),
        })
    }

    fn take_message(&mut self, arrived: Result<Arrived, &'static str>) {
        match arrived {
            Err(what) => self.carrier.fail(what),
            Ok(Arrived::Greeting(_)) => self.carrier.fail("it greets, and was not asked to"),
            Ok(Arrived::Pdu(pdu)) => match pdu.header.opcode() {
                Some(Opcode::ScsiResponse) => self.take_response(pdu),
                // RFC 7145 7.3: data is written and read.
                Some(Opcode::DataIn | Opcode::ReadyToTransfer) => {
                    self.carrier.fail("it sent what iSER has no message for")
                }
                _ if pdu.invalidated.is_some() => {
                    self.carrier.fail("it closed memory with something else than an answer")
                }
                _ => self.incoming.push(pdu),
            },
        }
    }

    /// A command is answered: its memory is closed, by the target or here.
    fn take_response(&mut self, pdu: Pdu) {
        let response = ScsiResponse::read(&pdu.header);
        let lending = self.lendings.remove(&response.task_tag).unwrap_or_default();
        let own = [lending.read.map(|(window, _)| window), lending.write];
        if pdu.invalidated.is_some_and(|stag| !own.iter().flatten().any(|window| window.stag == stag)) {
            self.lendings.insert(response.task_tag, lending);
            return self.carrier.fail("it closed memory that is not of the command that it answered");
        }
        lending.write.map(|window| self.carrier.deregister(window.stag));
        if let Some((window, length)) = lending.read {
            let told = told_bytes(&response, lending.is_bidirectional, length);
            let written = self.carrier.written_bytes(window.stag, told);
            let frame = self.carrier.deregister(window.stag);
            frame.into_iter().for_each(|frame| self.tell_of_data(&response, frame, written));
        }
        self.incoming.push(pdu);
        self.send_waiting();
    }

    /// Tells of so many bytes in the frame of a command that is answered.
    fn tell_of_data(&mut self, response: &ScsiResponse, frame: Frame, written: usize) {
        let part = |number: usize| {
            let start = number * PART_MAX_BYTES;
            let length = PART_MAX_BYTES.min(written - start);
            let data = DataIn {
                is_final: start + length == written,
                task_tag: response.task_tag,
                transfer_tag: TAG_NONE,
                data_number: number as u32,
                offset_bytes: start as u32,
                expected_command_number: response.expected_command_number,
                max_command_number: response.max_command_number,
                ..DataIn::default()
            };
            let mut header = data.write();
            header.set_data_bytes(length);
            header
        };
        self.incoming.push_data(part(0), frame);
        (1..written.div_ceil(PART_MAX_BYTES)).for_each(|number| self.incoming.push_more_data(part(number)));
    }
}

/// How much of a frame of that length was written, as the answer says: all, but for the residual.
fn told_bytes(response: &ScsiResponse, is_bidirectional: bool, length: usize) -> usize {
    let (underflow, residual) = if is_bidirectional {
        (response.read_underflow, response.read_residual_bytes)
    } else {
        (response.underflow, response.residual_bytes)
    };
    if underflow { length.saturating_sub(residual as usize) } else { length }
}

impl Datamover for Initiator {
    fn spaces(&mut self) -> [&mut [u8]; 2] {
        self.carrier.spaces()
    }

    fn filled(&mut self, count: usize) {
        self.carrier.filled(count);
    }

    fn take(&mut self, bytes: &[u8]) -> usize {
        self.carrier.take(bytes)
    }

    fn poll(&mut self) -> Step {
        loop {
            if let Some(step) = self.incoming.poll() {
                return step;
            }
            match self.carrier.arrival() {
                Some(Arrival::Message(message)) => self.take_message(Arrived::read(message, HeaderForm::Rfc7145)),
                // An initiator reads nothing.
                Some(Arrival::Read(..)) => {}
                None if self.carrier.is_over() => return Step::Torn,
                None => return Step::Starving,
            }
        }
    }

    fn place(&mut self, destination: Destination) {
        self.incoming.place(destination);
    }

    fn withdraw(&mut self) -> Vec<(u32, Frame)> {
        let lendings: Vec<(u32, Lending)> = self.lendings.drain().collect();
        let lent = lendings.into_iter().filter_map(|(tag, lending)| Some((tag, self.close(lending)?)));
        let mut frames: Vec<(u32, Frame)> = lent.collect();
        frames.extend(self.waiting.withdraw());
        frames.extend(self.incoming.withdraw());
        frames
    }

    fn fills_frame_of(&self) -> Option<u64> {
        None
    }

    fn placed_bytes(&self) -> u64 {
        self.carrier.moved_bytes() + self.incoming.placed_bytes()
    }

    fn movement(&self) -> Movement {
        self.carrier.movement(self.incoming.placed_bytes(), self.carrier.registered())
    }

    fn awaited_bytes(&self) -> u64 {
        0
    }

    fn push_extended(&mut self, mut header: Header, additional: Vec<u8>, data: Option<Slices>) {
        let data = data.filter(|data| !data.is_empty());
        header.set_data_bytes(data.as_ref().map_or(0, |data| data.len()));
        header.set_additional_bytes(additional.len());
        if self.waiting.takes(&header) {
            return self.waiting.push(Request { header, additional, data });
        }
        self.send(Request { header, additional, data });
    }

    fn pop(&mut self) -> Option<Packet> {
        self.carrier.pop()
    }

    fn is_empty(&self) -> bool {
        self.carrier.is_idle()
    }

    fn queued_bytes(&self) -> usize {
        self.carrier.queued_bytes()
    }

    fn heap_bytes(&self) -> usize {
        self.carrier.heap_bytes()
    }

    fn lent_bytes(&self) -> usize {
        self.carrier.lent_bytes()
    }

    fn widen(&mut self, staging_bytes: usize) {
        self.carrier.widen(staging_bytes);
    }

    fn note_segment_bytes(&mut self, segment_bytes: usize) {
        self.carrier.note_segment_bytes(segment_bytes);
    }

    fn begin(&mut self, parameters: &ConnectionParameters, commands_max: usize) {
        self.carrier.widen(STAGING_MAX_BYTES);
        self.carrier.begin(parameters.receive_data_max_bytes as usize, commands_max);
    }

    fn has_failed(&self) -> bool {
        self.carrier.has_failed()
    }

    fn trouble(&self) -> Option<String> {
        if self.carrier.has_adapter() {
            let is_unmet = !self.carrier.speaks_rdma();
            return self.carrier.trouble().or_else(|| is_unmet.then(|| "nobody answers there".to_owned()));
        }
        if self.carrier.speaks_rdma() {
            return None;
        }
        let fault = self.carrier.fault().map(|fault| format!(" ({fault})")).unwrap_or_default();
        Some(format!(
            "does not answer as one of iSER over iWARP does{fault}: perhaps it serves plain iSCSI there, so try iscsi:// instead of \
             iser://, or the port of its iSER"
        ))
    }

    fn fallback(&self) -> Option<MakeDatamover> {
        self.carrier.is_answered_older().then_some(initiator_of_revision_1)
    }

    fn nudge(&mut self) {
        self.carrier.nudge();
    }

    fn carried(&self) -> Option<Carried> {
        self.carrier.carried()
    }

    fn adapter(&self) -> Option<String> {
        self.carrier.adapter()
    }

    fn reaches_memory(&self) -> bool {
        true
    }

    fn lend(&mut self, task_tag: u32, data_in: Option<Frame>, data_out: Option<Lent>) -> Option<Frame> {
        let wish = Wish { data_in, data_out };
        if self.waiting.is_empty() { self.open(task_tag, wish) } else { self.waiting.wish(task_tag, wish) }
    }

    fn recall(&mut self, task_tag: u32) -> Option<Frame> {
        if let Some(frame) = self.waiting.forget(task_tag) {
            return frame;
        }
        let lending = self.lendings.remove(&task_tag)?;
        let frame = self.close(lending);
        self.send_waiting();
        frame
    }
}
