//! How a world goes.

use sanwire_array::Arrangement;

/// How a world goes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub copies: usize,
    pub groups: usize,
    pub arrangement: Arrangement,
    /// How often the host of the array ends, and after how many turns.
    pub lives: u32,
    pub turns: u32,
    /// How many of a million turns a link goes or comes.
    pub cut_per_million: u32,
    /// How many of a million requests fail at a medium.
    pub hurt_per_million: u32,
    /// How often the end of the host is a loss of all power.
    pub power_per_million: u32,
    /// How often a member is not found at first.
    pub hidden_per_million: u32,
    /// How often the end of a life is that another host takes the array over.
    pub taken_per_million: u32,
    /// How many of a million turns the connection with a member is lost for good.
    pub ended_per_million: u32,
    /// Disks that are no members at first.
    pub spares: usize,
    /// How many of a million turns another disk takes the place of a member that is away.
    pub replaced_per_million: u32,
    /// How often too few members are taken for the array, once.
    pub forced_per_million: u32,
    /// How many of a million turns it becomes longer; half of these times its host may end in the midst of it.
    pub grown_per_million: u32,
    /// How many of a million turns its copies are compared.
    pub scrubbed_per_million: u32,
    /// How often such a comparison, or a growth, is cancelled.
    pub cancelled_per_million: u32,
    /// How many of a million requests of members are the first after which another member lags behind the others.
    pub lags_per_million: u32,
    /// From so many sides requests come at the same time.
    pub shards: usize,
}

impl Plan {
    /// Whether requests may fail.
    pub(super) fn goes_wrong(&self) -> bool {
        self.cut_per_million + self.hurt_per_million + self.ended_per_million > 0
    }
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            copies: 2,
            groups: 1,
            arrangement: Arrangement::Concat,
            lives: 1,
            turns: 1,
            cut_per_million: 0,
            hurt_per_million: 0,
            power_per_million: 0,
            hidden_per_million: 0,
            taken_per_million: 0,
            ended_per_million: 0,
            spares: 0,
            replaced_per_million: 0,
            forced_per_million: 0,
            grown_per_million: 0,
            scrubbed_per_million: 0,
            cancelled_per_million: 0,
            lags_per_million: 0,
            shards: 1,
        }
    }
}
