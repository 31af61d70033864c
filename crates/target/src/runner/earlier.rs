//! What closed sessions have left at the stores, and the commands of the next sessions that wait for its end.
//!
//! An initiator that has lost a session gives its commands again in the next one. What the store does for the old session
//! cannot be called back: were the next one's commands to overtake it, an old write could land on newer data. So the I_T
//! nexus is established again only when the tasks of the lost one have ended (SAM-5 6.3.4), as far as anybody can tell: no
//! request of it reaches a store that still works for the old one. What needs no store is answered meanwhile. The same holds
//! for what a lost connection of a session has left, when the session goes on with its others.

use std::collections::VecDeque;
use std::sync::Arc;

use sanwire_core::{Instant, NexusId};
use sanwire_device::{Execution, LogicalUnits, NexusPorts, Progress};
use sanwire_io::file::FileEngine;
use sanwire_store::{Request, Store};

use super::abort::Selection;
use super::{Ended, Runner, Running};
use crate::mail::Settlement;

#[derive(Default)]
pub(super) struct Earlier {
    /// Commands under way that closed sessions and connections have left.
    left: usize,
    /// In the order of coming.
    pub(super) behind: VecDeque<Behind>,
}

/// What a parked command wants of a store that works for what its ports have left.
pub(super) struct Behind {
    pub(super) tag: u32,
    pub(super) request: Request,
    pub(super) ports: Arc<NexusPorts>,
}

impl Runner {
    /// A session between these ports, or a connection of it, is over, and with it these commands of it: they end as by
    /// [`Runner::abort`].
    pub(crate) fn leave(
        &mut self,
        selection: &Selection,
        ports: &Arc<NexusPorts>,
        settlement: Option<&Arc<Settlement>>,
        ended: &mut Vec<Ended>,
    ) {
        self.abort(selection, settlement, ended);
        for running in self.running.iter_mut().flatten() {
            if running.handle.is_some_and(|handle| selection.fits_execution(handle, &running.execution))
                && let Some(aborted) = running.aborted.as_mut().filter(|aborted| aborted.left_between.is_none())
            {
                aborted.left_between = Some(Arc::clone(ports));
                self.earlier.left += 1;
            }
        }
    }

    /// The ports of a command that must not reach its store yet.
    pub(super) fn must_wait(
        &self,
        nexus: Option<NexusId>,
        units: &LogicalUnits,
        execution: &Execution,
    ) -> Option<Arc<NexusPorts>> {
        if self.earlier.left == 0 {
            return None;
        }
        let ports = units.ports(nexus?)?;
        self.is_left(&ports, execution.store()).then_some(ports)
    }

    /// Whether a store works for what was left between these ports.
    fn is_left(&self, ports: &NexusPorts, store: &Arc<dyn Store>) -> bool {
        self.running.iter().flatten().any(|running| {
            let left_between = running.aborted.as_ref().and_then(|aborted| aborted.left_between.as_deref());
            left_between == Some(ports) && std::ptr::addr_eq(Arc::as_ptr(running.execution.store()), Arc::as_ptr(store))
        })
    }

    /// A command that was left has ended: who waited for no other goes on.
    pub(super) fn left_one_less(&mut self, engine: &mut FileEngine, now: Instant, ended: &mut Vec<Ended>) {
        self.earlier.left -= 1;
        for _ in 0..self.earlier.behind.len() {
            let Some(behind) = self.earlier.behind.pop_front() else { break };
            let store = self.running.get(behind.tag as usize).and_then(Option::as_ref).map(|it| it.execution.store());
            if store.is_some_and(|store| self.is_left(&behind.ports, store)) {
                self.earlier.behind.push_back(behind);
            } else if let Some(Running { handle, units, execution, .. }) = self.unpark(behind.tag) {
                let progress = Progress::Store(execution, behind.request);
                ended.extend(self.go_on(handle, &units, progress, engine, now));
            }
        }
    }
}
