//! Task management, and the ends of commands that it wants, in this shard and in the others.

use std::sync::Arc;

use sanwire_core::{Instant, Lun};
use sanwire_engine::Which;

use super::Shard;
use super::nexuses::Nexus;
use super::system::System;
use crate::command::{CommandRef, Selection};
use crate::front::{Function, ManageOutcome};
use crate::messages::{ShardMessage, Wanted};

impl<S: System> Shard<S> {
    pub(super) fn manage(&mut self, request: CommandRef, function: Function, now: Instant) {
        if let Err(outcome) = self.try_manage(request, function, now)
            && let Some(front) = self.fronts.get(request.front)
        {
            front.managed(request, outcome, now);
        }
    }

    /// # Errors
    /// How it has ended, when nothing need be waited for.
    fn try_manage(&mut self, request: CommandRef, function: Function, now: Instant) -> Result<(), ManageOutcome> {
        let by = request.nexus;
        let Nexus { units, ports, writer, .. } = self.nexuses.get(by).ok_or(ManageOutcome::NoLogicalUnit)?;
        let (units, wanted) = (Arc::clone(units), Wanted::ByRequest(request));
        let here = |which| Selection { by, which };
        let find = |lun: Option<Lun>| {
            let found = lun.and_then(|lun| Some((lun, units.get(lun)?)));
            found.ok_or(ManageOutcome::NoLogicalUnit)
        };
        let find_to_reset = |lun| {
            let (lun, disk) = find(lun)?;
            units.may_reset(by, lun, now).map(|_| (lun, disk)).ok_or(ManageOutcome::Rejected)
        };
        match function {
            Function::AbortTask(command) => self.abort(wanted, &here(Which::Command(command))),
            Function::AbandonTask(command) => {
                let barrier = self.shards[self.index].barrier(wanted);
                self.engine.leave(&here(Which::Command(command)), Some(&barrier));
            }
            Function::AbortTaskSet(lun) => self.abort(wanted, &here(Which::OwnOn(find(lun)?.1.id()))),
            Function::ClearTaskSet(lun) => {
                let (_, disk) = find_to_reset(lun)?;
                self.abort_everywhere(wanted, &here(Which::On(vec![disk.id()])));
            }
            Function::LogicalUnitReset(lun) => {
                let (lun, disk) = find_to_reset(lun)?;
                units.logical_unit_reset(lun);
                self.abort_everywhere(wanted, &here(Which::On(vec![disk.id()])));
            }
            Function::TargetReset(found) => {
                for (lun, _) in &found {
                    units.logical_unit_reset(*lun);
                }
                let disks = found.into_iter().map(|(_, disk)| disk.id()).collect();
                self.abort_everywhere(wanted, &here(Which::On(disks)));
            }
            Function::NexusReset => {
                units.nexus_lost(by);
                units.nexus_established(by, Arc::clone(ports));
                units.name_writer(by, *writer);
                self.abort(wanted, &here(Which::Own));
            }
        }
        Ok(())
    }

    /// Ends commands of this shard. Who wants it is told by mail when they have ended.
    fn abort(&mut self, wanted: Wanted, selection: &Selection) {
        let barrier = self.shards[self.index].barrier(wanted);
        self.engine.abort(selection, Some(&barrier));
    }

    /// Ends commands wherever they run.
    fn abort_everywhere(&mut self, wanted: Wanted, selection: &Selection) {
        let barrier = self.shards[self.index].barrier(wanted);
        for (index, shard) in self.shards.iter().enumerate() {
            if index != self.index {
                shard.send(ShardMessage::Abort(selection.clone(), Arc::clone(&barrier)));
            }
        }
        self.engine.abort(selection, Some(&barrier));
    }

    /// Ends what commands of this shard want ended.
    pub(super) fn abort_for_commands(&mut self) {
        while let Some((number, selection)) = self.engine.poll_abort() {
            self.abort_everywhere(Wanted::ByCommand(number), &selection);
        }
    }
}
