//! Commands on their way out, with their data (RFC 7143 11.3, 11.7, 11.8).

use sanwire_buffer::Slice;
use sanwire_core::Instant;

use super::link::{Burst, Link};
use super::ranges::Ranges;
use super::session::Session;
use super::tasks::{Progress, Sent, Task};
use super::{Client, Stage, State, Trouble};
use crate::datamover::Lent;
use crate::parameters::SessionParameters;
use crate::serial::Serial;
use crate::wire::{ReadyToTransfer, ScsiCommand, TAG_NONE};

/// Task attribute SIMPLE.
const SIMPLE: u8 = 1;

/// Types of additional header segments (RFC 7143 11.2.2.1).
const EXTENDED_CDB: u8 = 1;
const READ_LENGTH: u8 = 2;

/// R2Ts of one command, at the most, where data may be asked for more than once.
const READY_MAX: u32 = 65_536;

impl Client {
    /// Sends what waits, as far as the target takes it.
    pub(super) fn send_waiting(&mut self) {
        self.send_text();
        self.abort_waiting();
        let State::Live(session) = &mut self.state else { return };
        while session.leave_at.is_none() && session.has_room() && self.tasks.is_any_waiting() {
            let links = self.connections.iter_mut().filter_map(|known| match &mut known.stage {
                Stage::Full(link) => Some((known.number, link)),
                _ => None,
            });
            let Some((number, link)) = links.min_by_key(|(_, link)| link.load) else { return };
            let Some(tag) = self.tasks.next_waiting() else { return };
            if let Some(task) = self.tasks.get(tag) {
                let command_number = session.take_command_number();
                send(session, link, number, tag, task, command_number);
            }
        }
    }
}

/// Sends a command under this number; also once more, when its connection was lost before the target had it.
pub(super) fn send(
    session: &Session,
    link: &mut Link,
    connection: u16,
    tag: u32,
    task: &mut Task,
    command_number: Serial,
) {
    let (read_bytes, write_bytes) = (task.data_in_max_bytes(), task.data_out_bytes());
    let unsolicited = Unsolicited::of(&session.parameters, link, write_bytes);
    let mut cdb = [0; 16];
    let (first, rest) = task.order.cdb.split_at(task.order.cdb.len().min(cdb.len()));
    cdb[..first.len()].copy_from_slice(first);
    let is_bidirectional = read_bytes > 0 && write_bytes > 0;
    let header = ScsiCommand {
        is_immediate: false,
        is_final: unsolicited.end_bytes == unsolicited.immediate_bytes,
        is_read: read_bytes > 0,
        is_write: write_bytes > 0,
        attribute: SIMPLE,
        lun: task.order.lun.to_wire(),
        task_tag: tag,
        expected_bytes: if write_bytes > 0 { write_bytes } else { read_bytes },
        command_number: command_number.0,
        expected_status_number: link.expected_status().0,
        cdb,
    };
    let data = task.order.data_out.as_ref().map(|data| data.slice(0..unsolicited.immediate_bytes as usize));
    let lent = task.order.data_out.clone().map(|data| Lent { data, unsolicited_bytes: unsolicited.end_bytes });
    task.order.data_in = link.mover.lend(tag, task.order.data_in.take(), lent);
    link.push(header.write(), additional(rest, is_bidirectional.then_some(read_bytes)), data);
    if let Some(data) = &task.order.data_out
        && !header.is_final
    {
        link.send_data(unsolicited.burst(tag, header.lun, data));
    }
    let mut asked = Ranges::default();
    asked.insert(0..unsolicited.end_bytes);
    link.load += 1;
    task.progress = Progress::Sent(Box::new(Sent {
        connection,
        command_number,
        received: Ranges::default(),
        numbers: Ranges::default(),
        asked,
        ready_count: 0,
        answer: None,
        looks: 0,
        is_oldest: false,
        is_reassigned: false,
    }));
}

/// The additional header segments of a command with a long CDB or two directions.
fn additional(rest_of_cdb: &[u8], read_bytes: Option<u32>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if !rest_of_cdb.is_empty() {
        bytes.extend((rest_of_cdb.len() as u16 + 1).to_be_bytes());
        bytes.extend([EXTENDED_CDB, 0]);
        bytes.extend(rest_of_cdb);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    if let Some(read_bytes) = read_bytes {
        bytes.extend([0, 5, READ_LENGTH, 0]);
        bytes.extend(read_bytes.to_be_bytes());
    }
    bytes
}

/// How much of a command's data goes out without being asked for: with the command, and up to where (RFC 7143 13.10,
/// 13.11, 13.14).
struct Unsolicited {
    immediate_bytes: u32,
    end_bytes: u32,
}

impl Unsolicited {
    fn of(parameters: &SessionParameters, link: &Link, write_bytes: u32) -> Self {
        let most = parameters.first_burst_bytes.min(write_bytes);
        let immediate_bytes = if parameters.immediate_data { most.min(link.parameters.send_data_max_bytes) } else { 0 };
        if link.mover.reaches_memory() && immediate_bytes < write_bytes {
            // The target reads it from where it lies. Some of it in a message would save nothing, and be copied.
            return Unsolicited { immediate_bytes: 0, end_bytes: 0 };
        }
        let end_bytes = if parameters.initial_r2t { immediate_bytes } else { most };
        Unsolicited { immediate_bytes, end_bytes }
    }

    fn burst(&self, task_tag: u32, lun: [u8; 8], data: &Slice) -> Burst {
        Burst {
            task_tag,
            transfer_tag: TAG_NONE,
            lun,
            data: data.clone(),
            offset_bytes: self.immediate_bytes,
            end_bytes: self.end_bytes,
            data_number: 0,
        }
    }
}

/// The target is ready for data: queues it.
pub(super) fn handle_ready(
    session: &Session,
    link: &mut Link,
    task: &mut Task,
    ready: &ReadyToTransfer,
    now: Instant,
) -> Result<(), Trouble> {
    let recovers = session.recovers_data();
    let Some(data) = task.order.data_out.clone() else {
        return Err(Trouble::violation("it is ready for the data of a command that has none"));
    };
    let end = ready.offset_bytes.checked_add(ready.desired_bytes);
    let end = end.filter(|&end| end <= data.len() as u32 && ready.desired_bytes > 0);
    let Some(end_bytes) = end else {
        return Err(Trouble::violation("it is ready for data that the command does not have"));
    };
    let Some(sent) = task.sent() else { return Ok(()) };
    if recovers && sent.numbers.contains(ready.number) {
        return Ok(());
    }
    if recovers {
        // A target that has waited for too long gives up the R2T of before (RFC 7143 7.1.4.1).
        link.supersede(ready.task_tag, ready.offset_bytes..end_bytes);
    }
    let outstanding = link.unanswered_ready(ready.task_tag);
    let is_next = ready.number == sent.numbers.end();
    if outstanding >= usize::from(session.parameters.max_outstanding_r2t.max(1)) || sent.ready_count >= READY_MAX {
        return Err(Trouble::violation("it is ready for more data at a time than was agreed on"));
    }
    // Lost data is asked for again (RFC 7143 7.2.1); without error recovery none can be lost.
    let is_new = sent.asked.insert(ready.offset_bytes..end_bytes);
    if !(recovers || is_new && is_next) {
        return Err(Trouble::violation("it is ready for the same data twice, or skips some"));
    }
    sent.ready_count += 1;
    if std::mem::take(&mut sent.is_reassigned) {
        sent.numbers.insert(0..ready.number);
    }
    let burst = Burst {
        task_tag: ready.task_tag,
        transfer_tag: ready.transfer_tag,
        lun: ready.lun,
        data,
        offset_bytes: ready.offset_bytes,
        end_bytes,
        data_number: 0,
    };
    if ready.transfer_tag == TAG_NONE {
        return Err(Trouble::violation("it is ready for data, but gives no tag for it"));
    }
    super::recovery::note_number(link, ready.task_tag, task, ready.number, now)?;
    link.send_data(burst);
    Ok(())
}
