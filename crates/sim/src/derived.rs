//! A unit that is derived from a world's disk: all of it, perhaps for some of the clients alone, and judged by a program.

use std::sync::Arc;

use sanwire_core::{Principal, WallClock};
use sanwire_device::{
    Admission, AllowedOperations, CommandProgram, Derivation, DerivedExtent, JudgedCommand, Judgement, Verdict,
};
use sanwire_scsi::{AdditionalSense, OperationClasses, Sense, SenseKey};
use sanwire_store::Geometry;

use crate::random::Random;
use crate::task::Kind;

/// How such a unit is derived.
#[derive(Clone, Copy, Debug)]
pub struct DerivedPlan {
    /// In so many extents, the last one first.
    pub extents: u64,
    /// So many clients, the last ones, may not use it.
    pub outsiders: usize,
    /// So many before these may only read: its program sees to that.
    pub readers: usize,
    /// Its program has commands wait now and then.
    pub hesitates: bool,
}

/// What a client may do.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Standing {
    /// Everything.
    #[default]
    Member,
    /// What changes no blocks.
    Reader,
    /// Nothing.
    Outsider,
}

impl Standing {
    /// Whether it must have no good answer to this, which must have changed nothing.
    #[must_use]
    pub fn bars(self, kind: Kind) -> bool {
        match (self, kind) {
            // These are not of the unit: a client ends its own commands, and manages a server.
            (Standing::Member, _) | (_, Kind::Abort | Kind::Manage | Kind::Count) => false,
            (Standing::Reader, kind) => matches!(kind, Kind::Write { .. } | Kind::Unmap | Kind::Flush),
            (Standing::Outsider, _) => true,
        }
    }
}

impl DerivedPlan {
    /// For all, without a program.
    #[must_use]
    pub fn of(extents: u64) -> Self {
        DerivedPlan { extents, outsiders: 0, readers: 0, hesitates: false }
    }

    /// For some of so many clients, two or more: at least one may do everything, and one not.
    pub fn for_some(clients: usize, random: &mut Random) -> Self {
        let barred = random.range(1..=clients as u64 - 1);
        let outsiders = random.range(0..=barred);
        DerivedPlan {
            extents: random.range(1..=6),
            outsiders: outsiders as usize,
            readers: (barred - outsiders) as usize,
            hesitates: random.chance(500_000),
        }
    }

    /// What one of so many clients may do.
    #[must_use]
    pub fn standing(self, client: usize, clients: usize) -> Standing {
        let inside = clients - self.outsiders;
        match client {
            client if client >= inside => Standing::Outsider,
            client if client >= inside - self.readers => Standing::Reader,
            _ => Standing::Member,
        }
    }

    /// As a disk of this size is derived for these clients, in their order.
    #[must_use]
    pub fn derivation(self, geometry: Geometry, clients: &[Principal]) -> Derivation {
        let Geometry { length_bytes, block_bytes, .. } = geometry;
        let blocks = length_bytes / u64::from(block_bytes);
        let at = |number: u64| blocks * number / self.extents * u64::from(block_bytes);
        let extent = |number| DerivedExtent { offset_bytes: at(number), length_bytes: at(number + 1) - at(number) };
        let all_who = |standing| {
            let are = clients.iter().enumerate().filter(|(at, _)| self.standing(*at, clients.len()) == standing);
            are.map(|(_, client)| client.clone()).collect::<Vec<_>>()
        };
        let (members, readers) = (all_who(Standing::Member), all_who(Standing::Reader));
        let program = (self.hesitates || self.readers > 0).then(|| {
            Arc::new(Rules { readers: readers.clone(), hesitates: self.hesitates }) as Arc<dyn CommandProgram>
        });
        let inside = Inside([members, readers].concat());
        Derivation {
            extents: (0..self.extents).rev().map(extent).collect(),
            operations: AllowedOperations::all(),
            admission: (self.outsiders > 0).then(|| Arc::new(inside) as Arc<dyn Admission>),
            until_unix_ms: None,
            program,
            clock: WallClock::default(),
        }
    }
}

/// Those who may use it.
#[derive(Debug)]
struct Inside(Vec<Principal>);

impl Admission for Inside {
    fn admits(&self, principal: &Principal) -> bool {
        self.0.iter().any(|inside| inside.is_same_as(principal))
    }
}

/// Lets some only read. Has commands wait now and then, each once: which ones follows from what they are about.
#[derive(Debug)]
struct Rules {
    readers: Vec<Principal>,
    hesitates: bool,
}

impl CommandProgram for Rules {
    fn judge(&self, command: &JudgedCommand<'_>) -> Judgement {
        let changes = command.classes.intersects(OperationClasses::WRITE.with(OperationClasses::DISCARD));
        let lba = command.ranges.first().map_or(0, |range| range.lba);
        let drawn = lba.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        let verdict = match drawn {
            0..=31 if self.hesitates && command.waited_ms == 0 => Verdict::Defer { milliseconds: drawn as u32 },
            _ if changes && self.readers.iter().any(|reader| reader.is_same_as(command.principal)) => {
                Verdict::Refuse(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED))
            }
            _ => Verdict::Allow,
        };
        verdict.into()
    }
}
