//! Arrays that become longer, or whose copies are compared, while they are in use; it is cancelled, or its host ends in the midst of it.

use sanwire_array::{ArrayError, Begin, Candidate, MemberStatus};
use sanwire_sim::world::Outcome;
use sanwire_store::{Completion, ErrorKind, Store, StoreError};

use super::flights::What;
use super::replacing::disk_of;
use super::world::{SECTOR, World, text};

/// Disks do not become longer than this.
const DISK_MAX_BYTES: u64 = 10 << 20;
/// After so many steps of a growth its host ends at the latest, if it ends in the midst.
const STEPS_MAX: u64 = 250;
/// Something is cancelled before one of so many parts of it, if it is.
const PARTS_MAX: u64 = 40;

/// What ends before this part of it.
struct Cancelled {
    left: Option<u64>,
    is_over: bool,
}

impl Cancelled {
    /// Whether the next part is not begun.
    fn ends(&mut self) -> bool {
        self.is_over |= self.left == Some(0);
        self.left = self.left.map(|left| left.saturating_sub(1));
        self.is_over
    }
}

impl World {
    /// It becomes longer by all disks, or by others behind them, while requests come and links go.
    pub(super) fn grow(&mut self) -> Outcome<()> {
        let array = self.array();
        let disks = self.others(&array.members());
        if disks.is_empty() {
            if self.network.length_bytes(0) >= DISK_MAX_BYTES {
                return Ok(());
            }
            let bytes = self.random.range(1..=2) << 20;
            (0..self.disks()).for_each(|disk| self.network.lengthen(disk, bytes));
        }
        let others: Vec<Candidate> = disks.iter().map(|disk| self.candidate(*disk)).collect();
        let mut ids = self.random.fork();
        let id = move || u128::from(ids.u64()).to_be_bytes();
        let mut left = self.random.chance(500_000).then(|| self.random.range(0..=STEPS_MAX));
        let (mut cancelled, before) = (self.cancelled(), array.geometry().length_bytes);
        let grown = array.grow(&others, id, &mut |begin| {
            if cancelled.ends() { ended() } else { self.drive_growing(begin, &mut left) }
        });
        if left == Some(0) {
            self.is_ended = true;
            return Ok(());
        }
        self.model.lost_member();
        let is_same = array.geometry().length_bytes == before;
        match grown {
            // One before this one may have come to its end.
            Err(_) if cancelled.is_over && (is_same || self.plan.goes_wrong()) => {}
            Err(error) if cancelled.is_over => return Err(format!("it was cancelled, and is longer: {error}")),
            Err(error @ (ArrayError::Split { .. } | ArrayError::TakenOver { .. })) => return Err(text(error)),
            Err(error) if !self.plan.goes_wrong() => return Err(text(error)),
            Ok(()) => self.cleared.retain(|disk| !disks.contains(disk)),
            // A member is away, or was, or what it has is not the same any more.
            Err(_) => {}
        }
        self.see_length()
    }

    /// Its copies are compared, while requests come and links go.
    pub(super) fn scrub(&mut self) -> Outcome<()> {
        let (array, mut cancelled) = (self.array(), self.cancelled());
        let scrubbed = array.scrub(&mut |begin| {
            if cancelled.ends() { ended() } else { self.drive_growing(begin, &mut None) }
        });
        match scrubbed {
            Ok(different) if different > 0 => Err(format!("{different} pieces differ, and nobody knows")),
            Err(error) if !cancelled.is_over && !self.plan.goes_wrong() => Err(text(error)),
            _ => Ok(()),
        }
    }

    fn cancelled(&mut self) -> Cancelled {
        let share = self.plan.cancelled_per_million;
        let is_cancelled = share > 0 && self.random.chance(share);
        Cancelled { left: is_cancelled.then(|| self.random.range(0..=PARTS_MAX)), is_over: false }
    }

    /// Disks that are no members, as many as hold the same; or none.
    fn others(&mut self, members: &[MemberStatus]) -> Vec<usize> {
        let is_free =
            |disk: &usize| self.network.is_up(*disk) && !members.iter().any(|member| disk_of(member) == *disk);
        let free: Vec<usize> = (0..self.disks()).filter(is_free).take(self.plan.copies).collect();
        let is_chain = self.plan.arrangement == sanwire_array::Arrangement::Concat;
        if !is_chain || free.len() < self.plan.copies || self.random.chance(500_000) {
            return Vec::new();
        }
        // What they were before is lost: they may have been members.
        free.iter().for_each(|disk| self.network.clear(*disk));
        self.cleared.retain(|disk| !free.contains(disk));
        self.cleared.extend(&free);
        free
    }

    /// So many steps are left until the host ends.
    fn drive_growing(&mut self, begin: Begin, left: &mut Option<u64>) -> Completion {
        if *left == Some(0) {
            return ended();
        }
        let end = self.drive_while(begin, |world| {
            if let Some(left) = left.as_mut() {
                *left -= 1;
                if *left == 0 {
                    return false;
                }
            }
            world.meanwhile().unwrap_or_else(|what| panic!("{what}"));
            true
        });
        end.unwrap_or_else(ended)
    }

    fn meanwhile(&mut self) -> Outcome<()> {
        if self.plan.cut_per_million > 0 && self.random.chance(5_000) {
            return self.change_link();
        }
        match self.random.range(0..=99) {
            0..=9 if self.flights.len() < 8 => self.begin(What::Change),
            10..=14 if self.flights.len() < 8 => self.begin(What::Read),
            15..=17 if self.flights.len() < 8 => self.begin(What::Flush),
            18..=22 => self.resync(),
            _ => Ok(()),
        }
    }

    /// What it has become longer by holds nothing: that is looked at at both ends of it. Once there, it stays.
    pub(super) fn see_length(&mut self) -> Outcome<()> {
        let sectors = self.array().geometry().length_bytes / SECTOR;
        if sectors < self.sectors {
            return Err(format!("it had {} sectors, and has {sectors} now", self.sectors));
        }
        if sectors > self.sectors {
            self.model.add((self.sectors..self.sectors + 8).chain(sectors - 20..sectors));
            self.sectors = sectors;
        }
        Ok(())
    }
}

/// What is not begun any more.
fn ended() -> Completion {
    Err(StoreError::new(ErrorKind::Gone, 0))
}
