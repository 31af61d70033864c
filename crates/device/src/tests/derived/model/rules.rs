//! Programs of the model, and what it knows of them.

use sanwire_scsi::{AdditionalSense, Cdb, Extent, Sense, SenseKey};

use crate::{BlockRange, CommandProgram, JudgedCommand, Judgement, Verdict};

pub(super) const REFUSED: Sense =
    Sense::new(SenseKey::NotReady, AdditionalSense::NOT_READY_MANUAL_INTERVENTION_REQUIRED);

/// What a program does, by the numbers of its unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// There is none.
    None,
    /// Refuses what reaches beyond this block.
    RefuseFrom(u64),
    /// Refuses all of one nexus.
    RefuseNexus(u64),
    /// Moves what is about one range so many blocks behind.
    Move(u64),
    /// Does the first block only.
    First,
    /// Puts a command in its place that there is not.
    Nonsense,
    /// Defers all for so long, in milliseconds.
    Defer(u32),
}

/// What a program says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    Allow,
    Refuse,
    Move(u64),
    First,
    Nonsense,
    Defer(u32),
}

impl Rule {
    pub(super) fn says(self, ranges: &[BlockRange], nexus: u64, waited_ms: u32) -> Said {
        match (self, ranges) {
            (Rule::RefuseFrom(lba), _) if ranges.iter().any(|range| range.lba + range.blocks > lba) => Said::Refuse,
            (Rule::RefuseNexus(who), _) if who == nexus => Said::Refuse,
            (Rule::Move(by), [range]) => Said::Move(range.lba + by),
            (Rule::First, [range]) if range.blocks > 1 => Said::First,
            (Rule::Nonsense, _) => Said::Nonsense,
            (Rule::Defer(all_ms), _) if waited_ms < all_ms => Said::Defer(all_ms - waited_ms),
            _ => Said::Allow,
        }
    }
}

impl CommandProgram for Rule {
    fn judge(&self, command: &JudgedCommand<'_>) -> Judgement {
        let nexus = command.principal.chap_user.as_deref().and_then(|name| name.parse().ok()).unwrap();
        let verdict = match self.says(command.ranges, nexus, command.waited_ms) {
            Said::Allow => Verdict::Allow,
            Said::Refuse => Verdict::Refuse(REFUSED),
            Said::Move(lba) => Verdict::Redirect { lba },
            Said::First => {
                let first = command.cdb.with_extent(Extent { lba: command.ranges[0].lba, blocks: 1 });
                first.map_or(Verdict::Allow, Verdict::Rewrite)
            }
            Said::Nonsense => Verdict::Rewrite(Cdb::from([0xff, 0, 0, 0, 0, 0])),
            Said::Defer(milliseconds) => Verdict::Defer { milliseconds },
        };
        verdict.into()
    }
}
