//! What goes wrong, and how it is mended.

use super::cast::identity;
use super::{Outcome, World};
use crate::disk::DiskPlan;
use crate::link::Link;
use crate::plan::Fault;

impl World {
    /// Lets something go wrong now.
    ///
    /// # Errors
    /// When a promise is broken.
    pub fn inflict(&mut self, fault: Fault) -> Outcome<()> {
        match fault {
            Fault::Cut { client, there, back } => {
                self.there[client].is_cut |= there;
                self.back[client].is_cut |= back;
            }
            Fault::Mend(client) => {
                self.there[client].is_cut = false;
                self.back[client].is_cut = false;
            }
            Fault::Kill => self.kill(),
            Fault::LosePower => {
                self.kill();
                self.disk.lose_power(&mut self.random);
                self.model.lose_power();
            }
            Fault::Start if self.host.is_none() => self.start_server()?,
            Fault::Start => {}
            Fault::ShutDown => {
                if let Some(host) = &mut self.host {
                    host.server.shut_down();
                    self.drain_server()?;
                }
                self.kill();
            }
            Fault::Pause(client) => return self.pause(client, true),
            Fault::Resume(client) => return self.pause(client, false),
            Fault::Narrow(bytes) => self.links(|link| link.plan.packet_max_bytes = bytes),
            Fault::Lengthen(us) => self.links(|link| link.plan.delay_us = us),
            Fault::Replace(client) => {
                let now = self.now;
                self.workers[client].close(now);
                self.drain_client(client)?;
                let worker = self.make_worker(client)?;
                let old = std::mem::replace(&mut self.workers[client], worker);
                self.retired.push(old.memory);
                self.drain_client(client)?;
            }
        }
        Ok(())
    }

    fn pause(&mut self, client: usize, is_paused: bool) -> Outcome<()> {
        let id = identity(client)?.client_id();
        let Some(host) = &mut self.host else { return Ok(()) };
        host.server.pause(id, is_paused, self.now);
        self.drain_server()
    }

    pub(super) fn links(&mut self, change: impl Fn(&mut Link)) {
        self.there.iter_mut().chain(&mut self.back).for_each(change);
    }

    pub(super) fn kill(&mut self) {
        if let Some(host) = self.host.take() {
            self.retired.push(host.memory.clone());
            host.kill(&mut self.random);
            self.stats.kills += 1;
        }
    }

    pub(super) fn heal(&mut self) -> Outcome<()> {
        self.links(|link| {
            link.is_cut = false;
            link.plan = link.plan.healed();
        });
        let delay_us = self.plan.disk.delay_us;
        self.disk.set_plan(DiskPlan { delay_us, slow_per_million: 0, error_per_million: 0 });
        (0..self.plan.clients).try_for_each(|client| self.pause(client, false))?;
        if self.host.is_none() { self.start_server() } else { Ok(()) }
    }
}
