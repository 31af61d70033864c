//! The datamover of a target: it writes data into the memory of an initiator, and reads it from there.

use rustc_hash::FxHashMap;
use sanwire_buffer::{Frame, Head, Packet, Slices};
use sanwire_iscsi::wire::{DataIn, DataOut, Header, Opcode, ReadyToTransfer, ScsiCommand, ScsiResponse, TAG_NONE};
use sanwire_iscsi::{Carried, ConnectionParameters, Datamover, Destination, Movement, Step};
use sanwire_iwarp::WorkId;

use crate::carrier::{Arrival, Carrier};
use crate::incoming::Incoming;
use crate::message::{Arrived, Pdu, form_of_first};
use crate::queue_pair::QueuePair;
use crate::wire::{HeaderForm, IserHeader, VERSION, Window};

/// Commands whose memory is known: more than may be under way.
const WINDOWS_MAX: usize = 1024;

/// The datamover of a target, for a connection that has come in. What must not be guessed comes from the seed: another one each time.
#[must_use]
pub fn target(seed: [u8; 32]) -> Box<dyn Datamover> {
    Target::over(Carrier::target(seed))
}

/// The same by an RDMA adapter, whose end of a connection this is: one that an initiator wants.
#[must_use]
pub fn target_by(queue_pair: Box<dyn QueuePair>) -> Box<dyn Datamover> {
    Target::over(Carrier::over(queue_pair))
}

/// The memory that an initiator has opened for a command.
#[derive(Clone, Copy, Debug, Default)]
struct Opened {
    /// To be written to.
    read: Option<Window>,
    /// To be read from, and the first byte of the command's data that is there. That is known when it is first wanted: what comes before
    /// has come unasked.
    write: Option<(Window, Option<u32>)>,
    /// The last read from there.
    reading: Option<WorkId>,
    /// The last order that writes there.
    writing: Option<u64>,
}

struct Target {
    carrier: Carrier,
    incoming: Incoming,
    /// By the tags of the commands.
    windows: FxHashMap<u32, Opened>,
    /// What is being read: the Data-Outs that tell of it.
    reads: FxHashMap<WorkId, Header>,
    /// The last read for a command that is over. What is said from then on waits for it: once the initiator knows that the command is
    /// over, it closes the memory, and a read that is still under way there would cost the connection.
    fence: Option<WorkId>,
    /// The last write for a command that is over. What goes out here comes behind it.
    write_fence: Option<u64>,
    /// The headers of the initiator, as its first message has shown.
    form: Option<HeaderForm>,
    is_in_full_feature: bool,
    /// Keys of memory that it was told, ever.
    stags_ever: u64,
}

impl Opened {
    /// Keys of this memory.
    fn keys(&self) -> u64 {
        u64::from(self.read.is_some()) + u64::from(self.write.is_some())
    }
}

impl Target {
    fn over(carrier: Carrier) -> Box<dyn Datamover> {
        Box::new(Target {
            carrier,
            incoming: Incoming::default(),
            windows: FxHashMap::default(),
            reads: FxHashMap::default(),
            fence: None,
            write_fence: None,
            form: None,
            is_in_full_feature: false,
            stags_ever: 0,
        })
    }

    fn take_message(&mut self, arrived: Result<Arrived, &'static str>) {
        match arrived {
            Err(what) => self.carrier.fail(what),
            Ok(Arrived::Greeting(IserHeader::Hello { versions, ird })) if self.is_in_full_feature => {
                self.greet(versions, ird);
            }
            Ok(Arrived::Greeting(_)) => self.carrier.fail("it greets out of turn"),
            Ok(Arrived::Pdu(pdu)) => self.take_pdu(pdu),
        }
    }

    /// Hello says how many reads the initiator takes at a time (RFC 7145 9.3): from now on no more are under way.
    fn greet(&mut self, versions: (u8, u8), ird: u16) {
        let ord = match self.carrier.limit_reads(ird) {
            Ok(ord) => ord,
            Err(reason) => return self.carrier.fail(reason),
        };
        // What RFC 5046 describes has an older number than VERSION.
        let is_older = self.form() == HeaderForm::Rfc5046;
        let version = if is_older { VERSION.min(versions.0) } else { VERSION };
        let is_rejected = !(versions.1..=versions.0).contains(&version);
        let reply = IserHeader::HelloReply { is_rejected, versions: (version, version), ord };
        self.carrier.send(self.front(&reply), None, None, self.fence);
    }

    fn form(&self) -> HeaderForm {
        self.form.unwrap_or_default()
    }

    /// A message, or the beginning of one, of this header.
    fn front(&self, header: &IserHeader) -> Head {
        let mut head = Head::new();
        match self.form() {
            HeaderForm::Rfc7145 => head.extend(&header.write()),
            HeaderForm::Rfc5046 => head.extend(&header.write_short()),
        }
        head
    }

    /// What stands in front of the data of a message.
    fn head(&self, header: &Header, additional: &[u8]) -> Head {
        let mut head = self.front(&IserHeader::PLAIN);
        head.extend(header.as_bytes());
        head.extend(additional);
        head
    }

    fn take_pdu(&mut self, pdu: Pdu) {
        match pdu.header.opcode() {
            Some(Opcode::ScsiCommand) => {
                let command = ScsiCommand::read(&pdu.header);
                let wants_data = command.is_read && !command.is_write && command.expected_bytes > 0;
                if wants_data && pdu.read.is_none() {
                    return self.carrier.fail("it asks for data and opens no memory for it");
                }
                if self.windows.len() >= WINDOWS_MAX {
                    return self.carrier.fail("it has opened memory for more commands than it may give");
                }
                self.forget(command.task_tag);
                if pdu.read.is_some() || pdu.write.is_some() {
                    let write = pdu.write.map(|window| (window, None));
                    let opened = Opened { read: pdu.read, write, ..Opened::default() };
                    self.stags_ever += opened.keys();
                    self.windows.insert(command.task_tag, opened);
                }
            }
            // RFC 7145 7.3.4: what was asked for is read.
            Some(Opcode::DataOut) if DataOut::read(&pdu.header).transfer_tag != TAG_NONE => {
                return self.carrier.fail("it sent data that was to be read from its memory");
            }
            _ => {}
        }
        self.incoming.push(pdu);
    }

    fn put_data(&mut self, header: &Header, data: Option<Slices>) {
        let part = DataIn::read(header);
        if let Some(data) = data.filter(|data| !data.is_empty()) {
            let opened = self.windows.get_mut(&part.task_tag);
            let place = opened.and_then(|opened| {
                let Window { stag, offset } = opened.read?;
                Some((stag, offset.checked_add(part.offset_bytes.into())?, &mut opened.writing))
            });
            match place {
                Some((stag, offset, writing)) => *writing = Some(self.carrier.write(stag, offset, data)),
                None => return self.carrier.fail("it has opened no memory for the data that it asked for"),
            }
        }
        if part.has_status {
            // RFC 7145 7.3.5: there is no status with data.
            let response = ScsiResponse {
                is_final: true,
                overflow: part.overflow,
                underflow: part.underflow,
                status: part.status,
                task_tag: part.task_tag,
                status_number: part.status_number,
                expected_command_number: part.expected_command_number,
                max_command_number: part.max_command_number,
                expected_data_number: part.data_number.wrapping_add(1),
                residual_bytes: part.residual_bytes,
                ..ScsiResponse::default()
            };
            self.respond(response.write(), None);
        }
    }

    /// A command is answered: its memory is closed with that, where both ends have agreed so.
    fn respond(&mut self, header: Header, data: Option<Slices>) {
        let opened = self.windows.remove(&header.task_tag()).unwrap_or_default();
        self.fence = self.fence.max(opened.reading);
        self.write_fence = self.write_fence.max(opened.writing);
        let windows = opened.read.or(opened.write.map(|(window, _)| window));
        let invalidate = windows.filter(|_| self.carrier.invalidates()).map(|window| window.stag);
        self.carrier.send(self.head(&header, &[]), data, invalidate, self.fence);
    }
}

impl Datamover for Target {
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
                Some(Arrival::Message(message)) => {
                    let form = *self.form.get_or_insert_with(|| form_of_first(&message.buffer));
                    self.take_message(Arrived::read(message, form));
                }
                Some(Arrival::Read(id, frame)) => {
                    if let Some(header) = self.reads.remove(&id) {
                        self.incoming.push_data(header, frame);
                    }
                }
                None if self.carrier.is_over() => return Step::Torn,
                None => return Step::Starving,
            }
        }
    }

    fn place(&mut self, destination: Destination) {
        self.incoming.place(destination);
    }

    fn withdraw(&mut self) -> Vec<(u32, Frame)> {
        self.carrier.leave();
        self.incoming.withdraw()
    }

    fn fills_frame_of(&self) -> Option<u64> {
        None
    }

    fn placed_bytes(&self) -> u64 {
        self.carrier.moved_bytes() + self.incoming.placed_bytes()
    }

    fn movement(&self) -> Movement {
        let stags = self.windows.values().map(Opened::keys).sum();
        self.carrier.movement(self.incoming.placed_bytes(), [stags, self.stags_ever])
    }

    /// What is still being read for commands that are over: the engine does not know of it.
    fn awaited_bytes(&self) -> u64 {
        let left = self.reads.values().filter(|header| !self.windows.contains_key(&header.task_tag()));
        left.map(|header| header.data_bytes() as u64).sum()
    }

    fn push_extended(&mut self, mut header: Header, additional: Vec<u8>, data: Option<Slices>) {
        let data = data.filter(|data| !data.is_empty());
        header.set_data_bytes(data.as_ref().map_or(0, |data| data.len()));
        header.set_additional_bytes(additional.len());
        match header.opcode() {
            Some(Opcode::DataIn) => self.put_data(&header, data),
            Some(Opcode::ScsiResponse) => self.respond(header, data),
            // It would ask for what cannot be read: no initiator has an answer to it.
            Some(Opcode::ReadyToTransfer) => {}
            _ => self.carrier.send(self.head(&header, &additional), data, None, self.fence),
        }
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
        self.is_in_full_feature = true;
        self.carrier.begin(parameters.receive_data_max_bytes as usize, commands_max);
    }

    fn has_failed(&self) -> bool {
        self.carrier.has_failed()
    }

    fn trouble(&self) -> Option<String> {
        if self.carrier.has_adapter() || self.is_in_full_feature {
            return self.carrier.trouble();
        }
        let fault = self.carrier.fault()?;
        Some(if self.carrier.speaks_rdma() {
            fault.to_owned()
        } else {
            format!(
                "it does not begin as iSER does, over iWARP: {fault}; plain iSCSI is served where there is an iscsi: wire"
            )
        })
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

    fn get_data(&mut self, ready: &Header, frame: Frame, start: u32) -> Result<(), Frame> {
        let wanted = ReadyToTransfer::read(ready);
        // What an initiator opens begins behind what it has sent unasked (RFC 7145 9.2); before that RFC with the first byte of its data.
        let begins_at = if self.form() == HeaderForm::Rfc5046 { 0 } else { wanted.offset_bytes };
        let Some(opened) = self.windows.get_mut(&wanted.task_tag) else { return Err(frame) };
        let Some((window, first)) = &mut opened.write else { return Err(frame) };
        let first = *first.get_or_insert(begins_at);
        let place = wanted.offset_bytes.checked_sub(first).and_then(|behind| window.offset.checked_add(behind.into()));
        let from = wanted.offset_bytes.checked_sub(start).map(|from| from as usize);
        let (Some(place), Some(from)) = (place, from) else { return Err(frame) };
        let stag = window.stag;
        let id = self.carrier.read(frame, from..from + wanted.desired_bytes as usize, stag, place)?;
        opened.reading = Some(id);
        let data = DataOut {
            is_final: true,
            lun: wanted.lun,
            task_tag: wanted.task_tag,
            transfer_tag: wanted.transfer_tag,
            offset_bytes: wanted.offset_bytes,
            ..DataOut::default()
        };
        let mut header = data.write();
        header.set_data_bytes(wanted.desired_bytes as usize);
        self.reads.insert(id, header);
        Ok(())
    }

    fn forget(&mut self, task_tag: u32) {
        if let Some(opened) = self.windows.remove(&task_tag) {
            self.fence = self.fence.max(opened.reading);
            self.write_fence = self.write_fence.max(opened.writing);
        }
    }

    fn reaches_for_ended(&self) -> bool {
        let is_reading = self.fence.is_some_and(|fence| !self.carrier.is_read(fence));
        let is_writing = self.write_fence.is_some_and(|fence| !self.carrier.is_done(fence));
        !self.carrier.is_over() && (is_reading || is_writing)
    }
}
