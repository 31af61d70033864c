//! Task management, and the ends of commands that it wants, in this shard and in the others.

use std::sync::Arc;

use sanwire_core::{Instant, Lun};
use sanwire_device::LogicalUnit;
use sanwire_engine::Which;
use sanwire_iscsi::{Function, ManageHandle, ManageOutcome, TargetId};

use super::Session;
use crate::command::{CommandHandle, Selection};
use crate::messages::{ShardMessage, Wanted};
use crate::shard::Shard;
use crate::writes::writer;

impl Shard {
    pub(super) fn manage(
        &mut self,
        request: ManageHandle,
        target: TargetId,
        lun: Option<Lun>,
        function: Function,
        now: Instant,
    ) {
        let by = request.nexus();
        let Some(Session { units, ports, .. }) = self.iscsi.sessions.get(&by) else { return };
        let (units, ports) = (Arc::clone(units), Arc::clone(ports));
        let disk = lun.and_then(|lun| Some((lun, units.get(lun)?)));
        let wanted = Wanted::By(request);
        let here = |which| Selection { by, which };
        match (function, disk) {
            (Function::AbortTask(command), _) => {
                self.abort(wanted, &here(Which::Command(CommandHandle::Iscsi(command))))
            }
            (Function::AbandonTask(command), _) => {
                let barrier = self.shards[self.index].barrier(wanted);
                let forsaken = here(Which::Command(CommandHandle::Iscsi(command)));
                self.engine.leave(&forsaken, Some(&barrier));
            }
            (Function::AbortTaskSet, Some((_, disk))) => self.abort(wanted, &here(Which::OwnOn(disk))),
            (Function::ClearTaskSet | Function::LogicalUnitReset, Some((lun, _)))
                if units.may_reset(by, lun, now).is_none() =>
            {
                self.iscsi.server.managed(request, ManageOutcome::Rejected, now);
            }
            (Function::ClearTaskSet, Some((_, disk))) => self.abort_everywhere(wanted, &here(Which::On(vec![disk]))),
            (Function::LogicalUnitReset, Some((lun, disk))) => {
                units.logical_unit_reset(lun);
                self.abort_everywhere(wanted, &here(Which::On(vec![disk])));
            }
            (Function::TargetReset { is_cold }, _) => self.reset_target(request, target, is_cold, now),
            (Function::NexusReset, _) => {
                units.nexus_lost(by);
                units.nexus_established(by, Arc::clone(&ports));
                units.name_writer(by, writer(&[ports.initiator.as_bytes()]));
                self.abort(wanted, &here(Which::Own));
            }
            (Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset, None) => {
                self.iscsi.server.managed(request, ManageOutcome::NoLogicalUnit, now);
            }
        }
    }

    /// Resets all units of a target. A cold reset ends its sessions when the commands have ended.
    fn reset_target(&mut self, request: ManageHandle, target: TargetId, is_cold: bool, now: Instant) {
        let by = request.nexus();
        let export = self.iscsi.exports.by_id(target);
        let reset = export.and_then(|export| Some((export.may_reset(by, is_cold, now)?, export)));
        let Some((units, export)) = reset else {
            return self.iscsi.server.managed(request, ManageOutcome::Rejected, now);
        };
        if is_cold {
            self.iscsi.cold_resets.insert(request, target);
        }
        let mut disks: Vec<Arc<LogicalUnit>> = Vec::new();
        for (lun, disk) in units {
            export.units.logical_unit_reset(lun);
            disks.push(disk);
        }
        self.abort_everywhere(Wanted::By(request), &Selection { by, which: Which::On(disks) });
    }

    /// Ends commands of this shard. Who wants it is told by mail when they have ended.
    fn abort(&mut self, wanted: Wanted, selection: &Selection) {
        let barrier = self.shards[self.index].barrier(wanted);
        self.engine.abort(selection, Some(&barrier));
    }

    /// Ends commands wherever they run.
    pub(in crate::shard) fn abort_everywhere(&mut self, wanted: Wanted, selection: &Selection) {
        let barrier = self.shards[self.index].barrier(wanted);
        for (index, shard) in self.shards.iter().enumerate() {
            if index != self.index {
                shard.send(ShardMessage::Abort(selection.clone(), Arc::clone(&barrier)));
            }
        }
        self.engine.abort(selection, Some(&barrier));
    }

    /// Ends what commands of this shard want ended.
    pub(in crate::shard) fn abort_for_commands(&mut self) {
        while let Some((number, selection)) = self.engine.poll_abort() {
            self.abort_everywhere(Wanted::ByCommand(number), &selection);
        }
    }

    /// All that a request wanted ended has ended.
    pub(super) fn managed(&mut self, request: ManageHandle, now: Instant) {
        self.iscsi.server.managed(request, ManageOutcome::Complete, now);
        if let Some(target) = self.iscsi.cold_resets.remove(&request) {
            // Its own end does so only for a session that is still there.
            self.iscsi.server.drop_target(target, now);
            let others = self.shards.iter().enumerate().filter(|(index, _)| *index != self.index);
            others.for_each(|(_, shard)| shard.send(ShardMessage::DropTarget(target)));
        }
    }
}
