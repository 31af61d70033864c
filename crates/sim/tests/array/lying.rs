//! Members that lie: one that shows an older image of itself, and one whose medium changes by itself.
//!
//! Of an image from before the last run but one, or of a member that is out from before the run but one in which it went out, it is known
//! that it is older. One of the last two runs may be all that such a member has, after a host that ended while it wrote the labels, so that
//! is not told from it (`docs/arrays.md`).

use sanwire_array::{ArrayError, Standing, assemble};
use sanwire_sim::random::Random;
use sanwire_sim::world::Outcome;

use super::disk::Image;
use super::plan::Plan;
use super::world::{SECTOR, World, text};

/// Where the data of a member begins.
const DATA_AT_SECTOR: u64 = (1 << 20) / SECTOR;

/// Runs the world of a seed, in which a member shows what it was some runs before: as long as it does, it is no member. Nothing else goes
/// wrong, so it is in by all labels.
pub(super) fn show_older(plan: Plan, seed: u64) -> Outcome<()> {
    let mut world = World::new(plan, Random::new(seed))?;
    world.live()?;
    let disk = world.random.range(0..=world.disks() as u64 - 1) as usize;
    let image = world.network.image(disk);
    for _ in 0..world.random.range(2..=4) {
        world.live()?;
    }
    let own = world.network.restore(disk, image);
    world.expect_older(disk)?;
    if plan.copies > 2 && world.random.chance(500_000) {
        // Without it, the others are more than half.
        world.network.cut(disk, false);
        world.live()?;
    }
    let image = world.network.restore(disk, own);
    world.network.mend(disk);
    if plan.copies == 1 {
        world.open_older(disk, image)?;
    } else {
        world.rejoin_older(disk, image)?;
    }
    world.live()?;
    world.check_all()
}

/// Runs the world of a seed, at whose end some copies have rotted.
pub(super) fn rot(plan: Plan, seed: u64) -> Outcome<()> {
    let mut world = World::new(plan, Random::new(seed))?;
    for _ in 0..plan.lives {
        world.live()?;
    }
    world.check_all()?;
    let behind = world.rot_some();
    world.expect_counted(&behind)?;
    world.become_same()?;
    world.expect_counted(&vec![0; behind.len()])?;
    world.read_all()
}

impl World {
    /// It is said which of the members is older than the others know.
    fn expect_older(&mut self, disk: usize) -> Outcome<()> {
        self.network.set(true, 0);
        let found: Vec<_> = (0..self.disks()).map(|disk| self.candidate(disk)).collect();
        let run = self.random.u64();
        match assemble("a", &found, false, run, &mut |begin| self.drive(begin)) {
            Err(ArrayError::Older { older, .. }) if older == found[disk].place => Ok(()),
            Err(error) => Err(format!("not the older member is told: {error}")),
            Ok(_) => Err(format!("an older image of disk {disk} is taken for it")),
        }
    }

    /// A member without which the array does not go on is lost for good while it is in use, and shows what it was when it is opened again.
    fn open_older(&mut self, disk: usize, image: Image) -> Outcome<()> {
        self.assemble()?;
        self.use_it()?;
        self.quiesce()?;
        self.network.end_session(disk, false);
        let own = self.network.restore(disk, image);
        let (array, candidate) = (self.array(), self.candidate(disk));
        if !array.let_go(disk) {
            return Err(format!("disk {disk} is not over"));
        }
        match array.reopen(disk, &candidate, &mut |begin| self.drive(begin)) {
            Err(ArrayError::Member { .. }) => {}
            Err(error) => return Err(text(error)),
            Ok(()) => return Err(format!("an older image of disk {disk} is opened in place of it")),
        }
        self.network.restore(disk, own);
        self.reopen(&array, disk)?;
        if array.members()[disk].is_over {
            return Err(format!("disk {disk} is not opened again"));
        }
        self.die();
        Ok(())
    }

    /// A member goes away while the array is in use, and shows what it was when it is back, to this host and to the next one.
    fn rejoin_older(&mut self, disk: usize, image: Image) -> Outcome<()> {
        // Requests fail whose member goes.
        self.plan.cut_per_million = 1;
        self.assemble()?;
        self.network.cut(disk, false);
        self.model.lost_member();
        self.use_it()?;
        let array = self.array();
        let is_out = {
            let member = &array.members()[disk];
            member.standing != Standing::In && !member.is_present
        };
        let own = self.network.restore(disk, image);
        self.network.mend(disk);
        if is_out {
            let candidate = self.candidate(disk);
            match array.rejoin(disk, &candidate, &mut |begin| self.drive(begin)) {
                // Others come or go just now, or it is said that it is older.
                Err(ArrayError::Member { .. } | ArrayError::Store { .. }) => {}
                Err(error) => return Err(text(error)),
                Ok(()) => return Err(format!("an older image of disk {disk} is taken in again")),
            }
        }
        self.die();
        if is_out {
            self.assemble()?;
            if self.array().members()[disk].is_present {
                return Err(format!("an older image of disk {disk} is taken in again by the next host"));
            }
            self.die();
        }
        self.network.restore(disk, own);
        Ok(())
    }

    /// Of some regions one copy rots. Gives for each member how many of its regions are not as those of the first copy then.
    fn rot_some(&mut self) -> Vec<u64> {
        let (table, copies) = (self.array().table(), self.plan.copies);
        let mut behind = vec![0; table.members.len()];
        for group in (0..table.members.len()).step_by(copies) {
            for region in 0..table.members[group].data_bytes / table.region_bytes {
                if self.random.chance(300_000) {
                    continue;
                }
                let copy = self.random.range(0..=copies as u64 - 1) as usize;
                // Nothing was written in the midst of a region. What the first copy has there is the truth, whatever it is.
                let in_region = if copy == 0 || self.random.chance(500_000) { 1200..=1900 } else { 0..=19 };
                let sector = region * (table.region_bytes / SECTOR) + self.random.range(in_region);
                self.network.rot(group + copy, DATA_AT_SECTOR + sector);
                let differs = |other: &usize| if copy == 0 { *other > 0 } else { *other == copy };
                (0..copies).filter(differs).for_each(|other| behind[group + other] += 1);
            }
        }
        behind
    }

    /// A comparison counts these, and knows which members are to get the content of the first copy.
    fn expect_counted(&mut self, behind: &[u64]) -> Outcome<()> {
        let array = self.array();
        let different = array.scrub(&mut |begin| self.drive(begin)).map_err(text)?;
        let region_bytes = array.table().region_bytes;
        let found: Vec<u64> = array.members().iter().map(|member| member.behind_bytes / region_bytes).collect();
        if found != behind || different != behind.iter().sum::<u64>() {
            return Err(format!("{different} pieces differ, of members {found:?}, and not {behind:?}"));
        }
        Ok(())
    }
}
