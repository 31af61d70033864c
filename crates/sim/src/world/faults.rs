//! What goes wrong with a server and its host.

use sanwire_core::Instant;

use super::{Event, Host, Outcome, Wire, World};
use crate::plan::Fault;

impl<W: Wire> World<W> {
    /// Lets something go wrong now.
    ///
    /// # Errors
    /// When a promise is broken.
    pub fn inflict(&mut self, fault: Fault<W::Fault>) -> Outcome<()> {
        match fault {
            Fault::Wire(fault) => W::fault(self, fault)?,
            Fault::Kill => self.kill(),
            Fault::LosePower => {
                self.kill();
                self.close_accounts();
                self.disk.lose_power(&mut self.random);
                self.records.lose_power(&mut self.random);
                self.model.lose();
            }
            Fault::Evict => self.evict(),
            Fault::ShutDown => {
                let now = self.now;
                if let Some(host) = &mut self.host {
                    host.shut_down(now);
                    W::drain_server(self)?;
                    let after = self.random.micros(0..=W::STOPPING_MAX_US);
                    self.schedule_event(now + after, Event::Fault(Fault::End));
                }
            }
            Fault::End => {
                self.kill();
                if self.plan.is_verified {
                    let is_stable = self.disk.sync();
                    self.note_loss();
                    self.records.close(is_stable);
                }
            }
            Fault::Start if self.host.is_none() => self.start_server()?,
            Fault::Start => {}
        }
        Ok(())
    }

    /// Something goes wrong later.
    pub fn inflict_later(&mut self, at: Instant, fault: Fault<W::Fault>) {
        self.schedule_event(at, Event::Fault(fault));
    }

    fn kill(&mut self) {
        if let Some(host) = self.host.take() {
            self.retired.extend(host.memory());
            self.records.kill();
            self.disk.set_heard(false);
            host.kill(&mut self.random);
            self.disk.set_heard(true);
            // Without a state directory a server forgets that a flush has failed.
            if !self.plan.is_verified {
                self.close_accounts();
            }
            W::killed(self);
        }
    }

    /// Clients that keep nothing know, by the loss of their sessions, that what they have not flushed may be lost.
    fn close_accounts(&mut self) {
        let now = self.model.tick();
        self.workers.iter_mut().for_each(|worker| worker.close_account(now));
    }

    /// Clients that keep their writes are told of what a flush has lost, and write again also what others see still.
    pub(super) fn note_loss(&mut self) {
        if self.disk.was_told() && self.plan.is_driven {
            self.model.lose();
        }
    }

    /// What failed flushes of the disk have lost is not even shown any more.
    pub fn evict(&mut self) {
        if self.disk.evict() {
            self.model.lose();
        }
    }
}
