//! Orders: taken, planned, held, and over.

use sanwire_ata::{Plan, Told, Work};
use sanwire_scsi::Status;

use super::machine::{Client, Running, State};
use super::types::{ClientEvent, Failure, Order};
use crate::wire::SECTOR_BYTES;

/// Orders that wait for their answers at the most.
pub const ORDERS_MAX: usize = 128;

impl Client {
    /// Gives a command; gives it back while there is no room for it.
    ///
    /// # Errors
    /// The order, when too many are under way or there will be no target any more.
    pub fn order(&mut self, order: Order) -> Result<u64, Order> {
        if self.orders.len() >= ORDERS_MAX || self.state == State::Over {
            return Err(order);
        }
        let Order { cdb, data_out, data_in } = order;
        let number = self.next_order;
        self.next_order += 1;
        let running =
            Running { cdb, data_out, data_in, work: None, given: 0, done: 0, pieces: 0, failed: None, is_held: false };
        self.orders.insert(number, running);
        self.queue.push_back(number);
        self.plan_new(number);
        Ok(number)
    }

    /// What is only a question is answered at once, by what is known of the disk.
    fn plan_new(&mut self, number: u64) {
        if matches!(self.state, State::Up(_)) && self.plan(number).is_none() {
            self.queue.retain(|queued| *queued != number);
        }
    }

    /// The work of an order; `None` when it was answered without any.
    pub(super) fn plan(&mut self, number: u64) -> Option<Work> {
        let running = self.orders.get_mut(&number)?;
        if let Some(work) = &running.work {
            return Some(work.clone());
        }
        let plan = self.host.as_ref()?.plan(&running.cdb, running.data_out.as_deref().unwrap_or_default());
        match plan {
            Plan::Do(work) if has_room(&work, running) => {
                running.work = Some(work.clone());
                Some(work)
            }
            Plan::Do(_) => {
                let sense = sanwire_scsi::Sense::invalid_field_in_cdb(0, None).to_fixed();
                self.answer(number, Told { status: Status::CheckCondition, sense, data: Vec::new() });
                None
            }
            Plan::Tell(told) => {
                self.answer(number, told);
                None
            }
        }
    }

    /// An order is over.
    pub(super) fn answer(&mut self, number: u64, told: Told) {
        let Some(mut running) = self.orders.remove(&number) else { return };
        let Told { status, sense, data } = told;
        let is_read = matches!(running.work, Some(Work::Read(_))) && status == Status::Good;
        let mut data_in_bytes = if is_read { running.done as usize * SECTOR_BYTES } else { 0 };
        if let Some(frame) = running.data_in.as_mut().filter(|_| !data.is_empty()) {
            data_in_bytes = data.len().min(frame.len());
            frame[..data_in_bytes].copy_from_slice(&data[..data_in_bytes]);
        }
        let data_in = running.data_in;
        self.events.push_back(ClientEvent::Completed { number, status, sense, data_in, data_in_bytes });
    }

    /// Orders that have no answer.
    #[must_use]
    pub fn in_transit(&self) -> usize {
        self.orders.len()
    }

    /// From now on orders that were under way when the target was lost wait for [`Client::release`] when it is back: somebody sees first
    /// whether it is what it was.
    pub fn hold_after_restart(&mut self) {
        self.holds_after_restart = true;
    }

    /// Lets held orders go.
    pub fn release(&mut self) {
        let held = self.orders.iter_mut().filter(|(_, order)| order.is_held);
        for (number, order) in held {
            order.is_held = false;
            self.queue.push_back(*number);
        }
    }

    /// Fails all held orders.
    pub fn abandon(&mut self) {
        let held = self.orders.iter().filter(|(_, order)| order.is_held).map(|(number, _)| *number);
        held.collect::<Vec<_>>().into_iter().for_each(|number| self.fail(number, Failure::InDoubt));
    }

    /// Fails this order, if it is held.
    pub fn withdraw(&mut self, number: u64) {
        if self.orders.get(&number).is_some_and(|order| order.is_held) {
            self.fail(number, Failure::InDoubt);
        }
    }

    fn fail(&mut self, number: u64, failure: Failure) {
        if let Some(running) = self.orders.remove(&number) {
            self.queue.retain(|queued| *queued != number);
            self.events.push_back(ClientEvent::Failed { number, failure, data_in: running.data_in });
        }
    }

    /// Fails all orders.
    pub(super) fn fail_all(&mut self, failure: &Failure) {
        self.recall();
        let all: Vec<u64> = self.orders.keys().copied().collect();
        all.into_iter().for_each(|number| self.fail(number, failure.clone()));
    }
}

/// Whether the frame for the answer takes all that is to be read.
fn has_room(work: &Work, running: &Running) -> bool {
    match work {
        Work::Read(extent) => {
            let bytes = extent.blocks as usize * SECTOR_BYTES;
            running.data_in.as_ref().is_some_and(|frame| frame.len() >= bytes)
        }
        _ => true,
    }
}
