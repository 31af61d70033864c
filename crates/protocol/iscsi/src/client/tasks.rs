//! The commands of a client that are not answered yet, by their task tags.

use std::collections::VecDeque;

use sanwire_buffer::Frame;
use sanwire_core::Lun;

use super::ranges::Ranges;
use super::types::{CommandId, Order};
use crate::serial::Serial;

/// Tags of commands are below; those of other requests have this bit.
pub(super) const CONTROL_TAG: u32 = 0x8000_0000;

/// How far a command is.
pub(super) enum Progress {
    /// It waits for a session, a connection, or room in the window of command numbers.
    Waiting,
    /// It waits for [`super::Client::release`].
    Held,
    /// It was sent on this session.
    Sent(Box<Sent>),
}

/// A command that was sent.
pub(super) struct Sent {
    /// The number of the connection to which it belongs (RFC 7143 4.2.5.1: connection allegiance).
    pub(super) connection: u16,
    pub(super) command_number: Serial,
    /// What has come of its data.
    pub(super) received: Ranges,
    /// The Data-In or R2T PDUs that have arrived.
    pub(super) numbers: Ranges,
    /// What has gone out of its data, or was asked for.
    pub(super) asked: Ranges,
    /// R2Ts that were taken, to bound them.
    pub(super) ready_count: u32,
    /// Its answer, while data is still missing (error recovery level 1).
    pub(super) answer: Option<Answer>,
    /// How often it was looked at since something came for it; of one that is late, how far its abort is.
    pub(super) looks: u8,
    /// It was the oldest on its connection when that was looked at.
    pub(super) is_oldest: bool,
    /// It was given to this connection when another was lost: R2Ts may begin with any number.
    pub(super) is_reassigned: bool,
}

/// How a command ended at the target.
pub(super) struct Answer {
    /// The SAM-5 status.
    pub(super) status: u8,
    pub(super) sense: Vec<u8>,
    /// How many Data-In and R2T PDUs there were.
    pub(super) expected_numbers: u32,
}

/// A command.
pub(super) struct Task {
    pub(super) id: CommandId,
    pub(super) order: Order,
    pub(super) progress: Progress,
    /// It was sent on some session before: it may have been executed.
    pub(super) was_sent: bool,
}

impl Task {
    /// Bytes that the target may send.
    pub(super) fn data_in_max_bytes(&self) -> u32 {
        self.order.data_in.as_ref().map_or(0, |frame| u32::try_from(frame.len()).unwrap_or(u32::MAX))
    }

    /// Bytes that go to the target.
    pub(super) fn data_out_bytes(&self) -> u32 {
        self.order.data_out.as_ref().map_or(0, |data| u32::try_from(data.len()).unwrap_or(u32::MAX))
    }

    /// What became of it on the session, if it was sent.
    pub(super) fn sent(&mut self) -> Option<&mut Sent> {
        match &mut self.progress {
            Progress::Sent(sent) => Some(sent),
            Progress::Waiting | Progress::Held => None,
        }
    }
}

#[derive(Default)]
struct Slot {
    /// Goes up each time that the slot is used: an answer to an earlier command does not meet a later one.
    generation: u16,
    task: Option<Task>,
}

/// All commands in transit.
pub(super) struct Tasks {
    slots: Vec<Slot>,
    free: Vec<u16>,
    next_number: u64,
    /// The tags of those that wait, in the order in which they are to be sent.
    queue: VecDeque<u32>,
}

impl Tasks {
    /// Whether a command was sent with this number on this connection, and is not answered.
    pub(super) fn is_sent_as(&self, connection: u16, number: Serial) -> bool {
        let sent = self.slots.iter().filter_map(|slot| match &slot.task.as_ref()?.progress {
            Progress::Sent(sent) => Some(sent),
            Progress::Waiting | Progress::Held => None,
        });
        sent.into_iter().any(|sent| sent.connection == connection && sent.command_number == number)
    }

    pub(super) fn new(commands_max: u16) -> Self {
        let count = commands_max.max(1);
        Tasks {
            slots: (0..count).map(|_| Slot::default()).collect(),
            free: (0..count).rev().collect(),
            next_number: 0,
            queue: VecDeque::new(),
        }
    }

    pub(super) fn in_transit(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes an order in, to be sent when its turn comes.
    pub(super) fn insert(&mut self, order: Order) -> Result<CommandId, Order> {
        let Some(index) = self.free.pop() else { return Err(order) };
        let id = CommandId(self.next_number);
        self.next_number += 1;
        let slot = &mut self.slots[usize::from(index)];
        slot.generation = (slot.generation + 1) & 0x7fff;
        slot.task = Some(Task { id, order, progress: Progress::Waiting, was_sent: false });
        self.queue.push_back(tag_of(slot.generation, index));
        Ok(id)
    }

    /// The command with a tag that a target has sent.
    pub(super) fn get(&mut self, tag: u32) -> Option<&mut Task> {
        let slot = self.slots.get_mut((tag & 0xffff) as usize)?;
        if u32::from(slot.generation) == tag >> 16 { slot.task.as_mut() } else { None }
    }

    /// The same, if it was sent on the connection of this number and is not answered.
    pub(super) fn get_on(&mut self, connection: u16, tag: u32) -> Option<&mut Task> {
        let task = self.get(tag)?;
        if matches!(&task.progress, Progress::Sent(sent) if sent.connection == connection) { Some(task) } else { None }
    }

    /// Puts frames back into their commands.
    pub(super) fn put_back(&mut self, frames: impl IntoIterator<Item = (u32, Frame)>) {
        for (tag, frame) in frames {
            if let Some(task) = self.get(tag) {
                task.order.data_in = Some(frame);
            }
        }
    }

    /// Takes a command out.
    pub(super) fn take(&mut self, tag: u32) -> Option<Task> {
        self.get(tag)?;
        let index = tag & 0xffff;
        let task = self.slots.get_mut(index as usize)?.task.take()?;
        self.free.push(index as u16);
        if matches!(task.progress, Progress::Waiting) {
            self.queue.retain(|&waiting| waiting != tag);
        }
        Some(task)
    }

    /// The next command to be sent, if one waits.
    pub(super) fn next_waiting(&mut self) -> Option<u32> {
        self.queue.pop_front()
    }

    /// Whether a command waits to be sent.
    pub(super) fn is_any_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The tags of these commands, in the order in which they were given.
    pub(super) fn tags(&self, wanted: impl Fn(&Task) -> bool) -> Vec<u32> {
        let mut found: Vec<(CommandId, u32)> = (0..)
            .zip(&self.slots)
            .filter_map(|(index, slot)| {
                let task = slot.task.as_ref().filter(|task| wanted(task))?;
                Some((task.id, tag_of(slot.generation, index)))
            })
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, tag)| tag).collect()
    }

    /// The commands that belong to a connection.
    pub(super) fn tags_on(&self, connection: u16) -> Vec<u32> {
        self.tags(|task| matches!(&task.progress, Progress::Sent(sent) if sent.connection == connection))
    }

    /// Whether a command was sent and is not answered.
    pub(super) fn is_any_sent(&self) -> bool {
        self.slots.iter().filter_map(|slot| slot.task.as_ref()).any(|task| matches!(task.progress, Progress::Sent(_)))
    }

    /// Takes these commands out, in the order in which they were given.
    pub(super) fn take_where(&mut self, wanted: impl Fn(&Task) -> bool) -> Vec<Task> {
        self.tags(wanted).into_iter().filter_map(|tag| self.take(tag)).collect()
    }

    /// The session is gone: every command must be sent again, after [`super::Client::release`] if they are held.
    pub(super) fn restart(&mut self, hold: bool) {
        self.queue.clear();
        for tag in self.tags(|_| true) {
            let Some(task) = self.get(tag) else { continue };
            task.was_sent |= matches!(task.progress, Progress::Sent(_));
            task.progress = if hold { Progress::Held } else { Progress::Waiting };
            if !hold {
                self.queue.push_back(tag);
            }
        }
    }

    /// Sends a command once more, before all others.
    pub(super) fn requeue(&mut self, tag: u32) {
        if let Some(task) = self.get(tag) {
            task.was_sent = true;
            task.progress = Progress::Waiting;
            self.queue.push_front(tag);
        }
    }

    /// Lets held commands wait for their turn only.
    pub(super) fn release(&mut self) {
        for tag in self.tags(|task| matches!(task.progress, Progress::Held)) {
            if let Some(task) = self.get(tag) {
                task.progress = Progress::Waiting;
                self.queue.push_back(tag);
            }
        }
    }

    /// Takes out the held commands of a logical unit.
    pub(super) fn take_held(&mut self, lun: Lun) -> Vec<Task> {
        self.take_where(|task| task.order.lun == lun && matches!(task.progress, Progress::Held))
    }

    /// Takes out a command, if it is held.
    pub(super) fn take_held_one(&mut self, id: CommandId) -> Vec<Task> {
        self.take_where(|task| task.id == id && matches!(task.progress, Progress::Held))
    }

    /// Takes out the commands that may have been executed and must not be executed twice.
    pub(super) fn take_in_doubt(&mut self) -> Vec<Task> {
        self.take_where(|task| {
            task.was_sent && !matches!(task.progress, Progress::Sent(_)) && !task.order.is_repeatable
        })
    }
}

fn tag_of(generation: u16, index: u16) -> u32 {
    u32::from(generation) << 16 | u32::from(index)
}

#[cfg(test)]
mod tests {
    use sanwire_scsi::Cdb;

    use super::*;

    fn order(code: u8) -> Order {
        Order {
            lun: Lun::default(),
            cdb: Cdb::from([code, 0, 0, 0, 0, 0]),
            is_repeatable: code == 0,
            data_out: None,
            data_in: None,
        }
    }

    #[test]
    fn a_tag_of_a_command_that_is_over_means_nothing() {
        let mut tasks = Tasks::new(1);
        tasks.insert(order(0)).unwrap();
        assert!(tasks.insert(order(0)).is_err());
        let first = tasks.next_waiting().unwrap();
        assert!(tasks.take(first).is_some());
        tasks.insert(order(0)).unwrap();
        assert!(tasks.get(first).is_none() && tasks.take(first).is_none());
        let second = tasks.next_waiting().unwrap();
        assert_eq!(first & 0xffff, second & 0xffff);
        for tag in [u32::MAX, CONTROL_TAG | second, second + 1, second ^ 0x1_0000] {
            assert!(tasks.get(tag).is_none(), "{tag:#x}");
        }
    }

    #[test]
    fn commands_are_sent_again_in_their_order() {
        let mut tasks = Tasks::new(4);
        for code in 0..4 {
            tasks.insert(order(code)).unwrap();
        }
        let tags: Vec<u32> = std::iter::from_fn(|| tasks.next_waiting()).collect();
        tasks.take(tags[1]);
        tasks.restart(true);
        assert!(tasks.next_waiting().is_none());
        tasks.insert(order(9)).unwrap();
        tasks.release();
        let again: Vec<u32> = std::iter::from_fn(|| tasks.next_waiting()).collect();
        let code = |tag| tasks.get(tag).unwrap().order.cdb.operation_code();
        let again: Vec<u8> = again.into_iter().map(code).collect();
        assert_eq!(again, [9, 0, 2, 3]);
    }
}
