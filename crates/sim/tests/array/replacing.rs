//! Members that others take the place of, and arrays that are begun by force.

use sanwire_array::{Array, ArrayError, Begin, MemberStatus, Standing, assemble};
use sanwire_sim::world::Outcome;
use sanwire_store::{CompletionQueue, Outcome as Ended, Request, Started, Store};

use super::disk::SECTOR_BYTES;
use super::model::version_of;
use super::world::{World, text};

/// The disk on which a member is.
pub(super) fn disk_of(member: &MemberStatus) -> usize {
    let number = member.place.strip_prefix("disk").and_then(|number| number.parse().ok());
    number.expect("members are named after their disks")
}

/// The next step of bringing an array up to date.
fn step_of(array: &Array) -> Option<Begin> {
    let is_whole = array.members().iter().all(|member| member.behind_bytes == 0);
    let array = array.clone();
    let begin = move |completions: &CompletionQueue| match array.resync(completions) {
        Some(started) => started,
        None => Started::Done(Ok(Ended::Done)),
    };
    (!is_whole).then(|| Box::new(begin) as Begin)
}

impl World {
    /// All disks, those that are no members, too.
    pub(super) fn disks(&self) -> usize {
        self.plan.copies * self.plan.groups + self.plan.spares
    }

    /// A disk that is no member takes the place of a member that is away.
    pub(super) fn replace(&mut self) -> Outcome<()> {
        let array = self.array();
        let members = array.members();
        let away: Vec<usize> = (0..members.len()).filter(|number| !members[*number].is_present).collect();
        let is_free =
            |disk: &usize| self.network.is_up(*disk) && !members.iter().any(|member| disk_of(member) == *disk);
        let free: Vec<usize> = (0..self.disks()).filter(is_free).collect();
        let (Some(number), Some(disk)) = (self.random_of(&away), self.random_of(&free)) else { return Ok(()) };
        // What it was before is lost: it may have been a member.
        self.network.clear(disk);
        self.cleared.retain(|other| *other != disk);
        self.cleared.push(disk);
        let (candidate, id) = (self.candidate(disk), u128::from(self.random.u64()).to_be_bytes());
        match array.replace(number, &candidate, id, &mut |begin| self.drive(begin)) {
            Err(error @ (ArrayError::Split { .. } | ArrayError::TakenOver { .. })) => return Err(text(error)),
            Ok(()) => self.cleared.retain(|other| *other != disk),
            // The member is back, or others are gone.
            Err(_) => {}
        }
        self.model.lost_member();
        Ok(())
    }

    /// Members that were cleared to take the place of others, which the array has heard nothing of, take their own places.
    pub(super) fn restore_cleared(&mut self) -> Outcome<()> {
        let array = self.array();
        for (number, member) in array.members().into_iter().enumerate() {
            let disk = disk_of(&member);
            if member.is_present || !self.cleared.contains(&disk) {
                continue;
            }
            self.network.clear(disk);
            let (candidate, id) = (self.candidate(disk), u128::from(self.random.u64()).to_be_bytes());
            array.replace(number, &candidate, id, &mut |begin| self.drive(begin)).map_err(text)?;
        }
        Ok(())
    }

    /// The array is about to be left by its host.
    pub(super) fn note_last(&mut self) {
        let Some(array) = &self.array else { return };
        let members = array.members();
        // Of one that is away the labels may say already that it is out.
        let is_in = |member: &&MemberStatus| member.standing == Standing::In && member.is_present;
        let groups = members.chunks(self.plan.copies);
        self.last_in = groups.map(|group| group.iter().filter(is_in).map(disk_of).collect()).collect();
    }

    /// Those that were not there when the others were taken by force do not know it: one that does is found with them.
    pub(super) fn show_forced(&mut self, hidden: &mut Vec<usize>) {
        let knowing: Vec<usize> = self.last_in.iter().flatten().copied().collect();
        if !self.is_forced || knowing.iter().any(|disk| !hidden.contains(disk)) {
            return;
        }
        if let Some(disk) = self.random_of(&knowing) {
            self.network.mend(disk);
            hidden.retain(|other| *other != disk);
        }
    }

    fn random_of(&mut self, of: &[usize]) -> Option<usize> {
        let last = of.len().checked_sub(1)?;
        Some(of[self.random.range(0..=last as u64) as usize])
    }

    /// Takes what is there for the array, once. What it holds then is what it has held from now on, whoever comes back; `false`: it is no
    /// array.
    pub(super) fn force(&mut self, hidden: &[usize]) -> Outcome<bool> {
        // Who forces members that are known to be older has two arrays that were used apart from each other.
        let is_there = |group: &Vec<usize>| group.iter().any(|disk| !hidden.contains(disk));
        if !self.last_in.iter().all(is_there) {
            return Ok(false);
        }
        let found = (0..self.disks()).filter(|disk| !hidden.contains(disk));
        let found: Vec<_> = found.map(|disk| self.candidate(disk)).collect();
        let run = self.random.u64();
        let array = match assemble("a", &found, true, run, &mut |begin| self.drive(begin)) {
            Ok(array) => array,
            Err(ArrayError::Incomplete { .. } | ArrayError::Unknown { .. }) => return Ok(false),
            Err(error) => return Err(text(error)),
        };
        self.array = Some(array.clone());
        self.is_forced = true;
        // Of what its host had under way at its end, any member may have something else until then.
        while let Some(begin) = step_of(&array) {
            self.drive(begin).map_err(|error| format!("it cannot be brought up to date: {error}"))?;
        }
        let flushed = array.clone();
        let flush: Begin = Box::new(move |completions| flushed.start(Request::Flush, completions));
        self.drive(flush).map_err(|error| format!("it cannot be flushed: {error}"))?;
        for sector in self.model.sectors().collect::<Vec<_>>() {
            let read = array.clone();
            let buffer = vec![9; SECTOR_BYTES].into();
            let request = Request::Read { offset_bytes: sector * SECTOR_BYTES as u64, buffer };
            let begin: Begin = Box::new(move |completions| read.start(request, completions));
            let Ok(Ended::Read(frame)) = self.drive(begin) else {
                return Err(format!("sector {sector} cannot be read"));
            };
            let version = version_of(&frame, sector).ok_or_else(|| format!("sector {sector} is torn"))?;
            self.model.force(sector, version)?;
        }
        Ok(true)
    }
}
