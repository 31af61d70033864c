//! EXTENDED COPY between units that share blocks: each of them has its say.

use sanwire_scsi::copy::BlockCopy;
use sanwire_scsi::{AdditionalSense, OperationClasses, Sense, SenseKey, Task, build};

use super::super::{BLOCK, on};
use super::oracle::{Asking, Blocks, Undone};
use super::plan::Deed;
use super::{Twins, outcome};
use crate::testing::lun;

impl Twins {
    /// Has blocks of one unit copied to as many of another, as a command of that one.
    pub(super) fn copy(&mut self, nexus: u64, (source, from): (usize, Blocks), (at, to): (usize, Blocks)) {
        let judge = |asking| self.judge_copy((source, from), (at, to), asking);
        let (foreseen, known_ms) = self.when_known(nexus, judge);
        let places = foreseen.map(|(from, to)| {
            let place = |unit: usize, blocks| self.units[unit].places(blocks).unwrap().to_vec();
            (place(source, from), place(at, to))
        });
        // What comes of a copy over what it is made of depends on the pieces in which it is made.
        if places.as_ref().is_ok_and(|(from, to)| from.iter().any(|block| to.contains(block))) {
            return;
        }
        let what = format!("{to:?} of unit {at} become {from:?} of unit {source}, by {nexus} at {known_ms} ms");
        let reply = self.give(nexus, self.copy_task((source, from), (at, to)));
        assert_eq!(self.now_ms, known_ms, "{what}: for how long it is deferred");
        assert_eq!(outcome(&reply), places.as_ref().err().copied(), "{what}");
        if let Ok((from, to)) = places {
            let bytes: Vec<u8> = from.iter().map(|block| self.content[*block as usize]).collect();
            self.change(&to, &bytes);
        }
    }

    fn copy_task(&self, (source, from): (usize, Blocks), (at, to): (usize, Blocks)) -> Task {
        let naa = |unit: usize| self.world.units.get(lun(self.units[unit].number)).unwrap().identity().naa();
        let copy = BlockCopy {
            source_naa: naa(source),
            source_lba: from.0,
            destination_naa: naa(at),
            destination_lba: to.0,
            blocks: to.1 as u16,
            block_bytes: BLOCK as u32,
        };
        let list = copy.to_parameters();
        on(self.units[at].number, build::extended_copy(list.len() as u32), &list)
    }

    /// The blocks that are copied, and those to which they are.
    fn judge_copy(
        &self,
        (source, from): (usize, Blocks),
        (at, to): (usize, Blocks),
        asking: Asking,
    ) -> Result<(Blocks, Blocks), Undone> {
        let deed = Deed::Copy(source, from.0);
        self.judge_command(at, deed, asking)?;
        let (of_source, of_target) = (&self.units[source], &self.units[at]);
        let failure = match () {
            () if !of_source.is_there(asking) => Some(AdditionalSense::COPY_TARGET_DEVICE_NOT_REACHABLE),
            () if !OperationClasses::COPY_SOURCE.is_subset_of(of_source.classes) => Some(DENIED),
            () if of_source.is_reserved_from(asking) => Some(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE),
            () if !OperationClasses::COPY_TARGET.is_subset_of(of_target.classes) => Some(DENIED),
            () if of_source.places(from).is_none() || of_target.places(to).is_none() => Some(AdditionalSense::NONE),
            () => None,
        };
        if let Some(failure) = failure {
            return Err(aborted(failure));
        }
        let moved = |unit, blocks| match self.moved(unit, deed, blocks, asking) {
            // The copy fails, for the reason of the program.
            Err(Undone::Refused(sense)) => Err(aborted(sense.additional)),
            moved => moved,
        };
        Ok((moved(source, from)?, moved(at, to)?))
    }
}

const DENIED: AdditionalSense = AdditionalSense::ACCESS_DENIED_NO_ACCESS_RIGHTS;

fn aborted(additional: AdditionalSense) -> Undone {
    Sense::new(SenseKey::CopyAborted, additional).into()
}
