//! What was sent and is not acknowledged: it is kept, so that it can be sent again (RFC 7143 11.16), while there is memory.

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_buffer::Slices;
use sanwire_core::Instant;
use sanwire_core::quota::{Account, ISCSI_KEPT_BYTES, ISCSI_KEPT_HEAP_BYTES, Usage};

use super::answer::{Cuts, data_header};
use super::command_window::Order;
use super::connection::{Connection, stamp};
use crate::serial::Serial;
use crate::wire::{DataIn, Header, Opcode, ScsiResponse, SnackRequest};

/// PDUs with a status that one connection keeps, at the most; older ones cannot be asked for again.
const RETAINED_MAX: usize = 512;

/// So long an initiator has for an acknowledgement, while memory is short.
pub(super) const ACKNOWLEDGE_MAX: Duration = Duration::from_millis(100);

/// A PDU with a status that is not acknowledged yet.
pub(super) struct Retained {
    status_number: Serial,
    header: Header,
    data: Option<Slices>,
    read: Option<Read>,
    /// Its data was released.
    is_data_gone: bool,
    /// What it took outside the memory for data when it was kept.
    heap_bytes: usize,
}

/// The data that a command was answered with.
pub(super) struct Read {
    pub(super) data: Slices,
    pub(super) cuts: Cuts,
    /// The number of its first Data-In.
    pub(super) first_number: u32,
}

impl Retained {
    fn read_bytes(&self) -> usize {
        self.read.as_ref().map_or(0, |read| read.data.len())
    }

    fn is_of_command(&self, tag: u32) -> bool {
        let is_answer = matches!(self.header.opcode(), Some(Opcode::ScsiResponse | Opcode::DataIn));
        is_answer && self.header.task_tag() == tag
    }

    /// The status stands in the last Data-In.
    fn rides(&self) -> bool {
        self.header.opcode() == Some(Opcode::DataIn)
    }

    /// Whether a command can be answered with it from this Data-In on.
    pub(super) fn answers_from(&self, data_number: u32) -> bool {
        !self.is_data_gone || ScsiResponse::read(&self.header).expected_data_number <= data_number
    }

    /// The status stays, in a PDU of its own.
    fn let_data_go(&mut self) {
        if self.read.take().is_none() {
            return;
        }
        self.is_data_gone = true;
        if self.rides() {
            let count = DataIn::read(&self.header).data_number.wrapping_add(1);
            (self.header, self.data) = (separate_status(&self.header, count).write(), None);
        }
    }
}

/// What is kept of one connection.
pub(super) struct Memory {
    /// Nothing is, below error recovery level 1.
    pub(super) is_on: bool,
    retained: VecDeque<Retained>,
    read_bytes: usize,
    heap_bytes: usize,
    /// What of both it may have.
    kept: Account,
    kept_heap: Account,
    /// What it may have now outside the memory for data.
    pub(super) heap_max_bytes: u64,
    /// Since when the initiator is asked to acknowledge what it has.
    asked_at: Option<Instant>,
}

/// What memory that is short wants from a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Relief {
    /// Nothing: no data is kept.
    Nothing,
    /// The initiator is to be asked for an acknowledgement.
    Ask,
    /// The initiator was asked: its answer is awaited until then.
    Await(Instant),
    /// Data was released.
    Given,
}

impl Default for Memory {
    fn default() -> Self {
        Memory {
            is_on: false,
            retained: VecDeque::new(),
            read_bytes: 0,
            heap_bytes: 0,
            kept: Account::new(&ISCSI_KEPT_BYTES),
            kept_heap: Account::new(&ISCSI_KEPT_HEAP_BYTES),
            heap_max_bytes: ISCSI_KEPT_HEAP_BYTES.limit,
            asked_at: None,
        }
    }
}

impl Memory {
    /// How the quotas of what is kept are used.
    pub(super) fn usages(&self) -> [Usage; 2] {
        [self.kept.usage(), self.kept_heap.usage()]
    }

    pub(super) fn keep(&mut self, status_number: Serial, header: Header, data: Option<&Slices>) {
        if self.is_on {
            let data = data.cloned();
            let heap_bytes = size_of::<Retained>() + data.as_ref().map_or(0, Slices::heap_bytes);
            self.heap_bytes += heap_bytes;
            let retained = Retained { status_number, header, data, read: None, is_data_gone: false, heap_bytes };
            self.retained.push_back(retained);
            self.trim();
        }
    }

    /// The status that was kept last came with this data.
    pub(super) fn keep_read(&mut self, read: Read) {
        if let Some(last) = self.retained.back_mut() {
            let heap_bytes = read.data.heap_bytes();
            self.read_bytes += read.data.len();
            self.heap_bytes += heap_bytes;
            last.heap_bytes += heap_bytes;
            last.read = Some(read);
            self.trim();
        }
    }

    /// The data of the command whose status was kept last is not kept.
    pub(super) fn keep_no_read(&mut self) {
        if let Some(last) = self.retained.back_mut() {
            last.is_data_gone = true;
        }
    }

    fn trim(&mut self) {
        while self.retained.len() > RETAINED_MAX || self.retained.len() > 1 && self.is_too_much() {
            self.forget_oldest();
        }
    }

    fn is_too_much(&mut self) -> bool {
        !(self.kept.admits(self.read_bytes as u64, 0)
            && self.kept_heap.admits_up_to(self.heap_max_bytes, self.heap_bytes as u64, 0))
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.retained.pop_front() {
            self.read_bytes -= oldest.read_bytes();
            self.heap_bytes -= oldest.heap_bytes;
        }
    }

    /// All statuses below this number have arrived. A number that is behind says nothing.
    pub(super) fn acknowledge(&mut self, expected: Serial, next: Serial) {
        while expected <= next && self.retained.front().is_some_and(|oldest| oldest.status_number < expected) {
            self.asked_at = None;
            self.forget_oldest();
        }
    }

    /// Memory is short. The data goes home with its acknowledgement, or after a while without one. `is_heard`: the
    /// connection is read from, so that an answer can come.
    pub(super) fn relieve(&mut self, is_heard: bool, now: Instant) -> Relief {
        match self.asked_at.map(|asked_at| asked_at + ACKNOWLEDGE_MAX) {
            _ if self.read_bytes == 0 => Relief::Nothing,
            None if is_heard => {
                self.asked_at = Some(now);
                Relief::Ask
            }
            Some(until) if is_heard && now < until => Relief::Await(until),
            _ => {
                self.let_data_go();
                Relief::Given
            }
        }
    }

    /// Lets all data go, and tells whether there was any. The statuses stay.
    pub(super) fn let_data_go(&mut self) -> bool {
        self.retained.iter_mut().for_each(Retained::let_data_go);
        self.asked_at = None;
        std::mem::take(&mut self.read_bytes) > 0
    }

    /// Takes out the answer to a command.
    pub(super) fn take_answer(&mut self, tag: u32) -> Option<Retained> {
        let at = self.retained.iter().position(|retained| retained.is_of_command(tag))?;
        let retained = self.retained.remove(at)?;
        self.read_bytes -= retained.read_bytes();
        self.heap_bytes -= retained.heap_bytes;
        Some(retained)
    }
}

/// Whether a SNACK asks for this number (RFC 7143 11.16.4, 11.16.5).
pub(super) fn is_meant(request: &SnackRequest, number: u32) -> bool {
    let distance = number.wrapping_sub(request.first);
    number >= request.first && (request.count == 0 || distance < request.count)
}

impl Connection {
    pub(super) fn resend_statuses(&mut self, request: &SnackRequest, order: &Order) -> bool {
        let first = Serial(request.first);
        let is_meant = |number: Serial| {
            let is_all = request.first == 0 && request.count == 0;
            is_all || number >= first && (request.count == 0 || (number.since(first) as u32) < request.count)
        };
        let meant: Vec<_> = self.memory.retained.iter().filter(|retained| is_meant(retained.status_number)).collect();
        for retained in &meant {
            let mut header = retained.header;
            stamp(&mut header, retained.status_number, order);
            self.mover.push(header, retained.data.clone());
        }
        !meant.is_empty()
    }

    pub(super) fn resend_data(&mut self, request: &SnackRequest, order: &Order) -> bool {
        let found = self.memory.retained.iter().find(|retained| retained.is_of_command(request.task_tag));
        let Some((retained, read)) = found.and_then(|retained| Some((retained, retained.read.as_ref()?))) else {
            return false;
        };
        let mut is_done = false;
        for (number, cut) in (read.first_number..).zip(read.cuts) {
            if !is_meant(request, number) {
                continue;
            }
            let carries_status = cut.is_last && retained.rides();
            let mut header =
                if carries_status { retained.header } else { data_header(request.task_tag, number, &cut).write() };
            stamp(&mut header, retained.status_number, order);
            self.mover.push(header, Some(read.data.slice(cut.start..cut.end)));
            is_done = true;
        }
        is_done
    }

    /// R-Data: all of it in pieces as long as they may be now, and the status again (RFC 7143 11.16.3).
    pub(super) fn resend_resegmented(&mut self, request: &SnackRequest, burst_max: u32, order: &Order) -> bool {
        let pdu_max = self.parameters.send_data_max_bytes;
        let found = self.memory.retained.iter_mut().find(|retained| retained.is_of_command(request.task_tag));
        let Some(retained) = found else { return false };
        let Some(read) = retained.read.as_mut() else { return false };
        read.cuts = Cuts::new(read.data.len(), pdu_max, burst_max);
        let mut next_number = read.first_number;
        for cut in read.cuts {
            let mut header = data_header(request.task_tag, next_number, &cut).write();
            next_number = next_number.wrapping_add(1);
            stamp(&mut header, retained.status_number, order);
            self.mover.push(header, Some(read.data.slice(cut.start..cut.end)));
        }
        let mut response = separate_status(&retained.header, next_number);
        response.snack_tag = request.transfer_tag;
        if retained.rides() {
            retained.data = None;
        }
        retained.header = response.write();
        stamp(&mut retained.header, retained.status_number, order);
        self.mover.push(retained.header, retained.data.clone());
        true
    }

    /// Answers a command that was answered on a connection that is gone, from this Data-In on.
    pub(super) fn send_anew(&mut self, retained: Retained, expected: u32, order: &Order) {
        let Retained { header, data, read, .. } = retained;
        let rides = header.opcode() == Some(Opcode::DataIn);
        if let Some(read) = &read {
            for (number, cut) in (read.first_number..).zip(read.cuts) {
                let carries_status = rides && cut.is_last;
                if number >= expected && !carries_status {
                    let header = data_header(header.task_tag(), number, &cut).write();
                    self.push(header, Some(read.data.slice(cut.start..cut.end)), order);
                }
            }
        }
        self.push_status(header, data, order);
        if let Some(read) = read.filter(|_| self.memory.is_on) {
            self.memory.keep_read(read);
        }
    }
}

/// The status of a command, in a PDU of its own.
fn separate_status(header: &Header, data_number: u32) -> ScsiResponse {
    if header.opcode() == Some(Opcode::ScsiResponse) {
        return ScsiResponse { expected_data_number: data_number, ..ScsiResponse::read(header) };
    }
    let last = DataIn::read(header);
    ScsiResponse {
        is_final: true,
        overflow: last.overflow,
        underflow: last.underflow,
        status: last.status,
        task_tag: last.task_tag,
        expected_data_number: data_number,
        residual_bytes: last.residual_bytes,
        ..ScsiResponse::default()
    }
}
